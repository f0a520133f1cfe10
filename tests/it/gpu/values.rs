//! What our shaders compute.

use kernelhub::dtype::DType;
use kernelhub::gpu::{ParamValue, ShaderKernel};

use super::{
    RMS_NORM_TOLERANCE, SILU_TOLERANCE, assert_near, assert_usable, device, kernel, noise, rms_norm,
    rms_norm_reference, shader, silu_and_mul, silu_and_mul_reference, u32_of, upload, values,
};

#[test]
fn rms_norm_is_the_reference_at_every_width() {
    let Some(device) = device() else { return };
    for (rows, width) in
        [(1, 1), (7, 1), (1, 2), (3, 7), (5, 64), (2, 255), (2, 256), (2, 257), (9, 576), (3, 3421), (700, 33)]
    {
        let (x, weight) = (noise(rows * width, 1), noise(width, 2));
        let actual = rms_norm(&device, &x, &weight, rows, 1e-5);
        let expected = rms_norm_reference(&x, &weight, 1e-5);
        assert_near(&actual, &expected, RMS_NORM_TOLERANCE, &format!("[{rows}, {width}]"));
    }
}

#[test]
fn rms_norm_divides_by_the_epsilon_where_a_row_is_zero_or_tiny() {
    let Some(device) = device() else { return };
    let x = [0.0, 0.0, 1e-15, -2e-15];
    let weight = [1.0, 2.0];
    let actual = rms_norm(&device, &x, &weight, 2, 1e-6);
    assert_near(&actual, &rms_norm_reference(&x, &weight, 1e-6), RMS_NORM_TOLERANCE, "tiny");
}

#[test]
fn silu_and_mul_is_the_reference_at_every_width() {
    let Some(device) = device() else { return };
    for (rows, width) in [(1, 1), (6, 1), (1, 7), (3, 255), (2, 256), (5, 257), (2, 1408), (3, 3420), (333, 31)] {
        let x = noise(rows * width * 2, 3);
        let actual = silu_and_mul(&device, &x, rows, width);
        let expected = silu_and_mul_reference(&x, width);
        assert_near(&actual, &expected, SILU_TOLERANCE, &format!("[{rows}, {width}]"));
    }
}

#[test]
fn silu_and_mul_neither_overflows_nor_loses_a_large_gate() {
    let Some(device) = device() else { return };
    let gates = [0.0, -0.0, 20.0, -20.0, 88.0, 1e4, -1e4, 3e38, -3e38];
    let x: Vec<f32> = gates.iter().copied().chain(std::iter::repeat_n(1.0, gates.len())).collect();
    let actual = silu_and_mul(&device, &x, 1, gates.len());
    let expected: Vec<f64> = silu_and_mul_reference(&x, gates.len());
    assert_near(&actual, &expected, 5e-6, "large gates");
}

#[test]
fn what_is_not_finite_stays_in_its_row_or_element() {
    let Some(device) = device() else { return };
    let x = [1.0, f32::NAN, 2.0, 1.0, 2.0, 3.0, 1.0, f32::INFINITY, 3.0];
    let actual = rms_norm(&device, &x, &[1.0; 3], 3, 1e-5);
    assert!(actual[..3].iter().all(|value| value.is_nan()), "{actual:?}");
    assert_near(&actual[3..6], &rms_norm_reference(&x[3..6], &[1.0; 3], 1e-5), RMS_NORM_TOLERANCE, "finite row");
    assert!(actual[6] == 0.0 && actual[7].is_nan() && actual[8] == 0.0, "{actual:?}");

    let x = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.0, 1.0, 1.0, 1.0, 1.0];
    let actual = silu_and_mul(&device, &x, 1, 4);
    assert!(actual[0].is_nan() && actual[1] == f32::INFINITY && actual[2].is_nan(), "{actual:?}");
    assert_near(&actual[3..], &[1.0 / (1.0 + (-1.0_f64).exp())], SILU_TOLERANCE, "finite element");
}

#[test]
fn tensors_without_elements_launch_nothing() {
    let Some(device) = device() else { return };
    assert!(rms_norm(&device, &[], &[1.0, 1.0, 1.0], 0, 1e-5).is_empty());
    assert!(rms_norm(&device, &[], &[], 4, 1e-5).is_empty());
    assert!(silu_and_mul(&device, &[], 0, 5).is_empty());
    assert!(silu_and_mul(&device, &[], 5, 0).is_empty());
}

#[test]
fn the_declared_grids_cover_every_row_once_beyond_65535() {
    let max = 65_535_u64;
    for rows in [0, 1, 2, 65_535, 65_536, 70_000, 131_070, 131_071, 1_000_003, 536_870_911] {
        let (binding, _) = shader("rmsnorm");
        let [x, y, z] = binding.signature().unwrap().grid.map(|axis| axis.evaluate(&|_| Some(rows)).unwrap());
        // The shader reads its row as y * x_count + x, so x * y consecutive rows are taken, each once.
        assert!(x <= max && y <= max && x * y >= rows, "{rows} rows: [{x}, {y}, {z}]");
        assert!(z == 1 && x * y < rows + x.max(1) + y, "{rows} rows waste workgroups: [{x}, {y}, {z}]");
    }
    for (rows, width) in
        [(0, 7), (7, 0), (1, 1), (1, 257), (65_536, 256), (65_536, 257), (70_000, 2048), (1, 536_870_911)]
    {
        let (binding, _) = shader("activation");
        let value_of = |name: &str| Some(if name == "rows" { rows } else { width });
        let [x, y, z] = binding.signature().unwrap().grid.map(|axis| axis.evaluate(&value_of).unwrap());
        let groups = (rows * width).div_ceil(256);
        assert!(x <= max && y <= max && z == 1, "[{rows}, {width}]: [{x}, {y}, {z}]");
        assert!(x * y >= groups && x * y <= groups + y, "[{rows}, {width}]: [{x}, {y}, {z}]");
    }
}

#[test]
fn a_grid_over_two_axes_computes_every_row() {
    let Some(device) = device() else { return };
    // The pack's own shader under a declaration that folds at 100 rows instead of 65,535.
    let (mut binding, source) = shader("rmsnorm");
    binding.grid = ["ceil(rows / max(ceil(rows / 100), 1))".to_owned(), "ceil(rows / 100)".to_owned(), "1".to_owned()];
    let folded = ShaderKernel::compile(&device, &binding, &source).unwrap();
    let (rows, width) = (257, 5);
    let (x, weight) = (noise(rows * width, 5), noise(width, 6));
    let (tx, tw) = (upload(&device, &[rows, width], &x), upload(&device, &[width], &weight));
    let out = device.empty(DType::F32, &[rows, width]).unwrap();
    let params = [("rows", u32_of(rows)), ("width", u32_of(width)), ("eps", ParamValue::F32(1e-5))];
    folded.launch(&[("x", &tx), ("weight", &tw), ("out", &out)], &params).unwrap();
    assert_near(&values(&out), &rms_norm_reference(&x, &weight, 1e-5), RMS_NORM_TOLERANCE, "folded");
}

#[test]
fn launches_in_one_submission_see_each_other() {
    let Some(device) = device() else { return };
    let norm = kernel(&device, "rmsnorm");
    let (rows, width) = (3, 9);
    let (x, weight) = (noise(rows * width, 7), noise(width, 8));
    let (tx, tw) = (upload(&device, &[rows, width], &x), upload(&device, &[width], &weight));
    let once = device.empty(DType::F32, &[rows, width]).unwrap();
    let twice = device.empty(DType::F32, &[rows, width]).unwrap();
    let params = [("rows", u32_of(rows)), ("width", u32_of(width)), ("eps", ParamValue::F32(1e-5))];
    let mut recorder = device.recorder().unwrap();
    norm.record(&mut recorder, &[("x", &tx), ("weight", &tw), ("out", &once)], &params).unwrap();
    norm.record(&mut recorder, &[("x", &once), ("weight", &tw), ("out", &twice)], &params).unwrap();
    assert!(norm.record(&mut recorder, &[("x", &once)], &params).is_err());
    assert_eq!(recorder.launches(), 2);
    recorder.submit().unwrap();
    assert_near(&values(&once), &rms_norm_reference(&x, &weight, 1e-5), RMS_NORM_TOLERANCE, "once");
    assert_near(&values(&twice), &rms_norm_reference(&values(&once), &weight, 1e-5), RMS_NORM_TOLERANCE, "twice");
}

#[test]
fn parameters_that_lie_about_the_shape_stay_inside_their_tensors() {
    let Some(device) = device() else { return };
    let (x, weight) = (upload(&device, &[1, 2], &[3.0, 4.0]), upload(&device, &[2], &[1.0, 1.0]));
    let out = device.empty(DType::F32, &[1, 2]).unwrap();
    let params = [("rows", u32_of(50)), ("width", u32_of(1000)), ("eps", ParamValue::F32(0.0))];
    kernel(&device, "rmsnorm").launch(&[("x", &x), ("weight", &weight), ("out", &out)], &params).unwrap();
    device.wait().unwrap();
    assert_eq!(values(&x), [3.0, 4.0]);
    assert_usable(&device);
}
