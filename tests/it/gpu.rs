//! The wgpu runtime and our own shaders. Without an adapter each test prints why it did nothing.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests, which fail by panicking and print skips"
)]

mod graphs;

use std::fs;
use std::path::Path;

use kernelhub::dtype::DType;
use kernelhub::gpu::{self, Device, GpuError, GpuTensor, MAX_SOURCE_BYTES, ParamValue, ShaderKernel};
use kernelhub::hint::Hint;
use kernelhub::manifest::{LayersFile, ShaderBinding};
use wgpu::Backends;

/// The first adapter's device, or `None` with a printed reason.
fn device() -> Option<Device> {
    match gpu::adapters() {
        Ok(adapters) => Some(Device::open(&adapters[0]).unwrap()),
        Err(error @ GpuError::NoAdapter { .. }) => {
            println!("skipped: {error}; {}", error.hint().unwrap());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn pack_file(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/wgsl").join(name)).unwrap()
}

/// The declaration and the text of the only layer of one of our packs.
fn shader(pack: &str) -> (ShaderBinding, String) {
    let origin = format!("layers/{pack}.toml");
    let mut file = LayersFile::parse(&pack_file(&origin), &origin).unwrap();
    let binding = file.layers.remove(0).shader.unwrap();
    let source = pack_file(binding.file.as_str());
    (binding, source)
}

fn kernel(device: &Device, pack: &str) -> ShaderKernel {
    let (binding, source) = shader(pack);
    ShaderKernel::compile(device, &binding, &source).unwrap()
}

fn upload(device: &Device, shape: &[usize], values: &[f32]) -> GpuTensor {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    device.upload(DType::F32, shape, &bytes).unwrap()
}

fn values(tensor: &GpuTensor) -> Vec<f32> {
    let bytes = tensor.download().unwrap();
    bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect()
}

fn u32_of(value: usize) -> ParamValue {
    ParamValue::U32(u32::try_from(value).unwrap())
}

/// Numbers from -4 to 4 that depend on the seed alone.
fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut random = Random(seed);
    (0..count).map(|_| (random.next() >> 40) as f32 / (1 << 21) as f32 - 4.0).collect()
}

/// A fixed sequence, so that a failure can be met again (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }
}

fn rms_norm(device: &Device, x: &[f32], weight: &[f32], rows: usize, eps: f32) -> Vec<f32> {
    let width = weight.len();
    let (x, weight) = (upload(device, &[rows, width], x), upload(device, &[width], weight));
    let out = device.empty(DType::F32, &[rows, width]).unwrap();
    let params = [("rows", u32_of(rows)), ("width", u32_of(width)), ("eps", ParamValue::F32(eps))];
    kernel(device, "rmsnorm").launch(&[("out", &out), ("x", &x), ("weight", &weight)], &params).unwrap();
    values(&out)
}

fn rms_norm_reference(x: &[f32], weight: &[f32], eps: f32) -> Vec<f64> {
    let row = |row: &[f32]| {
        let squares: f64 = row.iter().map(|v| f64::from(*v).powi(2)).sum();
        let scale = (squares / row.len() as f64 + f64::from(eps)).sqrt().recip();
        row.iter().zip(weight).map(|(v, w)| f64::from(*v) * scale * f64::from(*w)).collect::<Vec<_>>()
    };
    x.chunks(weight.len()).flat_map(row).collect()
}

fn silu_and_mul(device: &Device, x: &[f32], rows: usize, width: usize) -> Vec<f32> {
    let x = upload(device, &[rows, 2 * width], x);
    let out = device.empty(DType::F32, &[rows, width]).unwrap();
    let params = [("width", u32_of(width)), ("rows", u32_of(rows))];
    kernel(device, "activation").launch(&[("x", &x), ("out", &out)], &params).unwrap();
    values(&out)
}

fn silu_and_mul_reference(x: &[f32], width: usize) -> Vec<f64> {
    let row = |row: &[f32]| {
        let pairs = row[..width].iter().zip(&row[width..]);
        pairs
            .map(|(gate, up)| f64::from(*gate) / (1.0 + (-f64::from(*gate)).exp()) * f64::from(*up))
            .collect::<Vec<_>>()
    };
    x.chunks(2 * width).flat_map(row).collect()
}

/// Compares with a relative tolerance and the smallest normal `f32` as the absolute one: GPUs may flush subnormals.
fn assert_near(actual: &[f32], expected: &[f64], tolerance: f64, case: &str) {
    assert_eq!(actual.len(), expected.len(), "{case}");
    for (index, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let error = (f64::from(*actual) - expected).abs();
        let allowed = tolerance * expected.abs() + f64::from(f32::MIN_POSITIVE);
        assert!(error <= allowed, "{case}, element {index}: {actual} instead of {expected}");
    }
}

/// f32 sums of a few thousand squares, two roundings each for scale and weight.
const RMS_NORM_TOLERANCE: f64 = 2e-6;
/// WGSL grants exp an error of 3 + 2|x| units in the last place.
const SILU_TOLERANCE: f64 = 4e-6;

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
fn bytes_come_back_as_they_went_at_every_length() {
    let Some(device) = device() else { return };
    for length in [0_usize, 1, 2, 3, 4, 5, 7, 255, 4097] {
        let bytes: Vec<u8> = (0..length).map(|index| u8::try_from(index % 251).unwrap()).collect();
        let tensor = device.upload(DType::U8, &[length], &bytes).unwrap();
        assert_eq!(tensor.download().unwrap(), bytes, "{length} bytes");
    }
    let error = device.upload(DType::F32, &[3], &[0; 11]).unwrap_err();
    assert!(matches!(error, GpuError::SizeMismatch { expected: 12, actual: 11, .. }), "{error}");
}

#[test]
fn tensors_beyond_the_device_are_refused_before_they_are_made() {
    let Some(device) = device() else { return };
    let limit = device.info().limits.max_storage_binding_bytes;
    let error = device.empty(DType::F32, &[usize::try_from(limit / 4 + 1).unwrap()]).unwrap_err();
    assert!(matches!(error, GpuError::LimitExceeded { maximum, .. } if maximum == limit), "{error}");
    // More elements than 32 bits count.
    let error = device.empty(DType::F32, &[255 * 2048, 2 * 6144]).unwrap_err();
    assert!(matches!(error, GpuError::LimitExceeded { requested: 25_669_140_480, .. }), "{error}");
    let error = device.empty(DType::F64, &[usize::MAX, 2]).unwrap_err();
    assert!(matches!(error, GpuError::TooLarge { .. }), "{error}");
    assert!(device.empty(DType::F64, &[usize::MAX, 2, 0]).unwrap().download().unwrap().is_empty());
}

#[test]
fn no_backend_means_no_adapter_and_a_hint() {
    let error = gpu::adapters_of(Backends::empty()).unwrap_err();
    assert!(matches!(error, GpuError::NoAdapter { .. }), "{error}");
    assert!(error.hint().unwrap().contains("mesa-vulkan-drivers"));
}

#[test]
fn adapters_are_listed_with_what_they_are() {
    let Some(device) = device() else { return };
    for (index, adapter) in gpu::adapters().unwrap().iter().enumerate() {
        let info = adapter.info();
        assert_eq!(info.index, index);
        assert!(!info.name.is_empty() && info.limits.max_workgroups_per_axis >= 65_535, "{info:?}");
        assert_eq!(info.device_key.as_str(), if info.vendor_id == 0x8086 { "xpu" } else { "wgpu" });
        assert!(!info.name.contains("llvmpipe") || info.is_software(), "{info:?}");
    }
    assert!(device.is_same(&device.clone()));
}

type Change = fn(&mut ShaderBinding, &mut String);

/// What compiling a changed `rms_norm.wgsl` gives.
fn compiled(device: &Device, change: impl FnOnce(&mut ShaderBinding, &mut String)) -> Result<ShaderKernel, GpuError> {
    let (mut binding, mut source) = shader("rmsnorm");
    change(&mut binding, &mut source);
    ShaderKernel::compile(device, &binding, &source)
}

fn assert_usable(device: &Device) {
    let actual = rms_norm(device, &[3.0, 4.0], &[1.0, 1.0], 1, 0.0);
    assert_near(&actual, &rms_norm_reference(&[3.0, 4.0], &[1.0, 1.0], 0.0), RMS_NORM_TOLERANCE, "after an error");
}

#[test]
fn a_text_that_is_no_shader_is_an_error_with_the_place_and_the_device_lives_on() {
    let Some(device) = device() else { return };
    for (from, to) in [
        ("sum += value * value;", "sum += value *"),
        ("var sum = 0.0;", "var sum = 0u;"),
        ("let first = row * params.width;", "let first = rwo * params.width;"),
        ("workgroupBarrier();", "workgroupBarrierr();"),
    ] {
        let error = compiled(&device, |_, source| *source = source.replacen(from, to, 1)).unwrap_err();
        let GpuError::Wgsl { file, message } = &error else { panic!("{to}: {error:?}") };
        assert!(file == "rms_norm.wgsl" && message.contains("rms_norm.wgsl:"), "{to}: {message}");
        assert_usable(&device);
    }
    let error = compiled(&device, |_, source| source.insert(0, '\u{1b}')).unwrap_err();
    assert!(!error.to_string().contains('\u{1b}'), "an escape sequence reached the message");
    let error = compiled(&device, |_, source| source.push_str(&" ".repeat(MAX_SOURCE_BYTES))).unwrap_err();
    assert!(matches!(error, GpuError::SourceTooLong { maximum: MAX_SOURCE_BYTES, .. }), "{error}");
}

#[test]
fn a_shader_is_held_to_its_declaration() {
    let Some(device) = device() else { return };
    let entry = compiled(&device, |binding, _| "rms_nrom".clone_into(&mut binding.entry)).unwrap_err();
    assert!(matches!(&entry, GpuError::MissingEntry { found, .. } if found == &["rms_norm"]), "{entry}");
    assert_eq!(entry.hint().as_deref(), Some("did you mean \"rms_norm\"?"));

    let workgroup = compiled(&device, |binding, _| binding.workgroup = [128, 1, 1]).unwrap_err();
    assert!(matches!(&workgroup, GpuError::Mismatch { what, .. } if what == "the workgroup size"), "{workgroup}");
    assert_eq!(
        workgroup.to_string(),
        "rms_norm.wgsl: the workgroup size is declared as [128, 1, 1], and the shader has [256, 1, 1]"
    );
    let params = compiled(&device, |binding, _| binding.params.swap(0, 1)).unwrap_err();
    assert_eq!(
        params.to_string(),
        "rms_norm.wgsl: group 0, binding 3 is declared as var<uniform> struct { width: u32, rows: u32, eps: f32 }, and \
         the shader has var<uniform> struct { rows: u32, width: u32, eps: f32 }"
    );
    let moved = compiled(&device, |_, source| *source = source.replacen("@group(0)", "@group(1)", 1)).unwrap_err();
    assert!(matches!(&moved, GpuError::Mismatch { what, .. } if what == "group 1, binding 0"), "{moved}");

    let changes: [(&str, Change); 9] = [
        ("group 0, binding 0", |binding, _| binding.bindings.swap(0, 1)),
        ("group 0, binding 1", |binding, _| binding.bindings[1] = "weight:write".to_owned()),
        ("group 0, binding 2", |binding, _| binding.bindings[2] = "result:write".to_owned()),
        ("group 0, binding 3", |binding, _| binding.params.swap(0, 1)),
        ("group 0, binding 3", |binding, _| binding.params[2] = "eps:u32".to_owned()),
        ("group 0, binding 3", |_, source| {
            *source = source.replace("    eps: f32", "    @size(8) gap: u32,\n    eps: f32");
        }),
        ("group 0, binding 3", |binding, _| binding.bindings.push("bias:read".to_owned())),
        ("group 0, binding 1", |_, source| {
            *source = source.replace("weight: array<f32>", "weight: f32").replace("weight[column]", "weight");
        }),
        ("what the host sets", |_, source| source.push_str("override speed: f32 = 1.0;\n")),
    ];
    for (named, change) in changes {
        let error = compiled(&device, change).unwrap_err();
        assert!(matches!(&error, GpuError::Mismatch { what, .. } if what == named), "{named}: {error}");
    }
    let (binding, source) = copy_shader("vec3<f32>", "", &[]);
    let gaps = ShaderKernel::compile(&device, &binding, &source).unwrap_err();
    assert!(matches!(&gaps, GpuError::Mismatch { what, .. } if what == "group 0, binding 0"), "{gaps}");
    let unused = compiled(&device, |_, source| *source = source.replace(" * weight[column]", "")).unwrap_err();
    assert!(matches!(&unused, GpuError::Mismatch { actual, .. } if actual == "no use of it"), "{unused}");
    let declaration = compiled(&device, |binding, _| binding.grid[0] = "columns".to_owned()).unwrap_err();
    assert!(matches!(declaration, GpuError::Declaration { .. }), "{declaration}");
    assert_usable(&device);
}

#[test]
fn features_and_limits_are_checked_before_the_driver_is_asked() {
    let Some(device) = device() else { return };
    let unknown = compiled(&device, |binding, _| binding.features = vec!["SUBGROUPS".to_owned()]).unwrap_err();
    assert!(matches!(&unknown, GpuError::UnknownFeature { name, .. } if name == "SUBGROUPS"), "{unknown}");
    assert_eq!(unknown.hint().as_deref(), Some("did you mean \"SUBGROUP\"?"));
    for name in ["SHADER_F16", "SHADER_F64", "SUBGROUP"] {
        let outcome = compiled(&device, |binding, _| binding.features = vec![name.to_owned()]);
        if device.info().features.contains(&name) {
            outcome.unwrap();
        } else {
            assert!(matches!(outcome.unwrap_err(), GpuError::FeatureUnsupported { name: named, .. } if named == name));
        }
    }

    let most = device.info().limits.max_workgroup_invocations;
    let large = compiled(&device, |binding, source| {
        binding.workgroup = [most + 1, 1, 1];
        *source = source.replace("LANES: u32 = 256u", &format!("LANES: u32 = {}u", most + 1));
    })
    .unwrap_err();
    assert!(matches!(large, GpuError::LimitExceeded { unit: "invocations", .. }), "{large}");

    let memory = device.info().limits.max_workgroup_storage_bytes;
    let words = memory / 4 + 1;
    let greedy = compiled(&device, |_, source| {
        *source = source.replace("sums: array<f32, LANES>", &format!("sums: array<f32, {words}>"));
    })
    .unwrap_err();
    assert!(
        matches!(greedy, GpuError::LimitExceeded { limit: "max_compute_workgroup_storage_size", maximum, .. } if maximum == u64::from(memory)),
        "{greedy}"
    );
    assert_usable(&device);
}

#[test]
fn arguments_are_matched_by_name_type_and_device() {
    let Some(device) = device() else { return };
    let norm = kernel(&device, "rmsnorm");
    let x = upload(&device, &[1, 2], &[1.0, 2.0]);
    let weight = upload(&device, &[2], &[1.0, 1.0]);
    let out = device.empty(DType::F32, &[1, 2]).unwrap();
    let half = device.empty(DType::Bf16, &[1, 2]).unwrap();
    let params = [("rows", u32_of(1)), ("width", u32_of(2)), ("eps", ParamValue::F32(0.0))];
    let tensors = [("x", &x), ("weight", &weight), ("out", &out)];

    let error = norm.launch(&tensors[..2], &params).unwrap_err();
    assert!(matches!(&error, GpuError::MissingArgument { kind: "tensor", name, .. } if name == "out"), "{error}");
    let error = norm.launch(&tensors, &params[1..]).unwrap_err();
    assert!(matches!(&error, GpuError::MissingArgument { kind: "parameter", name, .. } if name == "rows"), "{error}");
    let error = norm.launch(&[("x", &x), ("weigth", &weight), ("out", &out)], &params).unwrap_err();
    assert!(matches!(&error, GpuError::UnknownArgument { name, .. } if name == "weigth"), "{error}");
    assert_eq!(error.hint().as_deref(), Some("did you mean \"weight\"?"));
    let error = norm.launch(&[tensors[0], tensors[0], tensors[1], tensors[2]], &params).unwrap_err();
    assert!(matches!(error, GpuError::RepeatedArgument { .. }), "{error}");
    let error = norm.launch(&[("x", &half), tensors[1], tensors[2]], &params).unwrap_err();
    assert!(matches!(&error, GpuError::WrongType { expected, actual, .. } if expected == "f32" && actual == "bf16"));
    let error = norm.launch(&tensors, &[params[0], params[1], ("eps", u32_of(1))]).unwrap_err();
    assert!(matches!(&error, GpuError::WrongType { name, .. } if name == "eps"), "{error}");
    let error = norm.launch(&[("x", &out), tensors[1], tensors[2]], &params).unwrap_err();
    assert!(matches!(&error, GpuError::Aliased { written, other, .. } if written == "out" && other == "x"), "{error}");

    let second = Device::open(&gpu::adapters().unwrap()[0]).unwrap();
    let foreign = upload(&second, &[1, 2], &[1.0, 2.0]);
    let error = norm.launch(&[("x", &foreign), tensors[1], tensors[2]], &params).unwrap_err();
    assert!(matches!(&error, GpuError::ForeignDevice { name, .. } if name == "x"), "{error}");
    let error = norm.record(&mut second.recorder().unwrap(), &tensors, &params).unwrap_err();
    assert!(matches!(error, GpuError::ForeignDevice { .. }), "{error}");

    let (mut binding, source) = shader("rmsnorm");
    binding.grid = ["rows".to_owned(), "1".to_owned(), "1".to_owned()];
    let flat = ShaderKernel::compile(&device, &binding, &source).unwrap();
    let most = usize::try_from(device.info().limits.max_workgroups_per_axis).unwrap();
    let error = flat.launch(&tensors, &[("rows", u32_of(most + 1)), params[1], params[2]]).unwrap_err();
    assert!(matches!(error, GpuError::LimitExceeded { unit: "workgroups", .. }), "{error}");
    assert_usable(&device);
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

#[test]
fn a_lost_device_says_so_from_every_call() {
    let Some(device) = device() else { return };
    let tensor = upload(&device, &[2], &[1.0, 2.0]);
    let (binding, source) = shader("rmsnorm");
    device.destroy();
    let errors = [
        tensor.download().map(drop).unwrap_err(),
        device.empty(DType::F32, &[2]).map(drop).unwrap_err(),
        ShaderKernel::compile(&device, &binding, &source).map(drop).unwrap_err(),
        device.recorder().map(drop).unwrap_err(),
    ];
    for error in &errors {
        assert!(matches!(error, GpuError::Lost { .. }), "{error:?}");
        assert!(error.hint().is_some());
    }
}

#[test]
fn no_mutation_of_a_shader_panics_or_ends_the_device() {
    let Some(device) = device() else { return };
    let words = [
        "f32",
        "u32",
        "vec4<f32>",
        "0",
        "-1",
        "x[",
        "]",
        "(",
        ")",
        "{",
        "}",
        "@",
        ";",
        "params",
        "loop",
        "&",
        "*",
        ",",
    ];
    for pack in ["rmsnorm", "activation"] {
        let (binding, source) = shader(pack);
        // Comments are of no interest to a compiler.
        let code: String = source
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .map(|line| line.to_owned() + "\n")
            .collect();
        let mut refused = 0;
        for seed in 0..150 {
            let mut random = Random(seed);
            let mut text = code.clone().into_bytes();
            for _ in 0..=random.below(3) {
                let at = random.below(text.len());
                match random.below(4) {
                    0 => drop(text.remove(at)),
                    1 => text[at] = u8::try_from(32 + random.below(95)).unwrap(),
                    2 => drop(text.splice(at..at, words[random.below(words.len())].bytes())),
                    _ => text.truncate(at.max(40)),
                }
            }
            let text = String::from_utf8(text).unwrap();
            match ShaderKernel::compile(&device, &binding, &text) {
                Ok(_) => {}
                Err(
                    GpuError::Wgsl { .. }
                    | GpuError::Mismatch { .. }
                    | GpuError::MissingEntry { .. }
                    | GpuError::LimitExceeded { .. },
                ) => refused += 1,
                Err(error) => panic!("{pack}, seed {seed}: {error:?}"),
            }
        }
        assert!(refused > 75, "{pack}: only {refused} of 150 mutations were refused");
    }
    assert_usable(&device);
}

#[test]
fn a_text_nested_or_chained_as_deep_as_it_may_be_long_is_survived() {
    let Some(device) = device() else { return };
    let replaced =
        |expression: &str| compiled(&device, |_, source| *source = source.replace("value * value", expression));
    let nested = replaced(&format!("{}value{}", "(".repeat(25_000), ")".repeat(25_000))).unwrap_err();
    assert!(matches!(nested, GpuError::Wgsl { .. }), "{nested}");
    let deep = [
        format!("f32({}lane)", "~".repeat(60_000)),
        format!("f32({}(lane == 1u))", "!".repeat(60_000)),
        format!("{}value", "- ".repeat(30_000)),
        format!("value{}", "+value".repeat(2_000)),
        format!("value{}{}", "/*".repeat(15_000), "*/".repeat(15_000)),
        format!("0.0; if lane == 1u {{}} {}", "else if lane == 2u {} ".repeat(500)),
    ];
    for expression in deep {
        let outcome = replaced(&expression);
        assert!(matches!(outcome, Ok(_) | Err(GpuError::Wgsl { .. })), "{}: {outcome:?}", &expression[..40]);
    }
    let chained = |item: fn(u32, u32) -> String| (0..1500).map(|i| item(i, i + 1)).collect::<Vec<_>>().join("\n");
    let calls = chained(|i, next| format!("fn f{i}(v:f32)->f32{{return f{next}(v);}}"));
    let types = chained(|i, next| format!("struct S{next} {{ a: S{i} }}"));
    let constants = chained(|i, next| format!("const c{i} = c{next} + 1.0;"));
    for (items, expression) in [
        (calls + "fn f1500(v:f32)->f32{return v;}", "f0(value)"),
        (types + "struct S0 { a: f32 } var<private> deep: S1500;", "value * value"),
        (constants + "const c1500 = 1.0;", "value * c0"),
    ] {
        let outcome = compiled(&device, |_, source| {
            *source = source.replace("value * value", expression);
            source.push_str(&items);
        });
        assert!(matches!(outcome, Ok(_) | Err(GpuError::Wgsl { .. })), "{}: {outcome:?}", &items[..40]);
    }
    assert_usable(&device);
}

/// A shader that copies `x` to `out`, word by word.
fn copy_shader(word: &str, prelude: &str, features: &[&str]) -> (ShaderBinding, String) {
    let (mut binding, _) = shader("activation");
    "copy".clone_into(&mut binding.entry);
    binding.workgroup = [64, 1, 1];
    binding.params.clear();
    binding.grid = ["1".to_owned(), "1".to_owned(), "1".to_owned()];
    binding.features = features.iter().map(|&name| name.to_owned()).collect();
    let source = format!(
        "{prelude}
        @group(0) @binding(0) var<storage, read> x: array<{word}>;
        @group(0) @binding(1) var<storage, read_write> out: array<{word}>;
        @compute @workgroup_size(64) fn copy(@builtin(local_invocation_index) lane: u32) {{
            if (lane < arrayLength(&out)) {{ out[lane] = x[lane]; }}
        }}"
    );
    (binding, source)
}

#[test]
fn tensors_bind_to_the_words_that_hold_them() {
    let Some(device) = device() else { return };
    let native_half = device.info().features.contains(&"SHADER_F16");
    for (word, prelude, features, accepted) in [
        ("f32", "", &[] as &[_], &[DType::F32] as &[_]),
        ("vec4<f32>", "", &[], &[DType::F32]),
        ("i32", "", &[], &[DType::I32]),
        ("u32", "", &[], &[DType::U32, DType::Bf16, DType::F16, DType::I8, DType::U8]),
        ("f16", "enable f16;", &["SHADER_F16"], &[DType::F16]),
    ] {
        if word == "f16" && !native_half {
            println!("skipped {word}: the adapter lacks SHADER_F16");
            continue;
        }
        let (binding, source) = copy_shader(word, prelude, features);
        let copy = ShaderKernel::compile(&device, &binding, &source).unwrap();
        for dtype in DType::ALL {
            let count = 16;
            let bytes: Vec<u8> = (1..).take(count * dtype.size_in_bytes()).collect();
            let x = device.upload(dtype, &[count], &bytes).unwrap();
            let out = device.empty(dtype, &[count]).unwrap();
            let outcome = copy.launch(&[("x", &x), ("out", &out)], &[]);
            if accepted.contains(&dtype) {
                outcome.unwrap();
                assert_eq!(out.download().unwrap(), bytes, "{dtype} as {word}");
            } else {
                assert!(matches!(outcome, Err(GpuError::WrongType { .. })), "{dtype} as {word}: {outcome:?}");
            }
        }
    }
}

#[test]
fn a_text_that_needs_an_undeclared_device_feature_is_refused() {
    let Some(device) = device() else { return };
    for prelude in ["enable wgpu_cooperative_matrix;", "enable wgpu_ray_query;", "enable no_such_thing;"] {
        let (binding, source) = copy_shader("f32", prelude, &[]);
        let outcome = ShaderKernel::compile(&device, &binding, &source);
        assert!(matches!(outcome, Err(GpuError::Wgsl { .. })), "{prelude}: {outcome:?}");
    }
    assert_usable(&device);
}

#[test]
fn a_device_serves_several_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    let Some(device) = device() else { return };
    let norm = kernel(&device, "rmsnorm");
    shared(&device);
    shared(&norm);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (device, norm) = (&device, &norm);
            scope.spawn(move || {
                let (rows, width) = (5, 33);
                let (x, weight) = (noise(rows * width, seed), noise(width, seed + 100));
                let (tx, tw) = (upload(device, &[rows, width], &x), upload(device, &[width], &weight));
                let out = device.empty(DType::F32, &[rows, width]).unwrap();
                let params = [("rows", u32_of(rows)), ("width", u32_of(width)), ("eps", ParamValue::F32(1e-5))];
                for _ in 0..20 {
                    // Errors belong to the thread that made them.
                    let refused = device.upload(DType::F32, &[2], &[0]).unwrap_err();
                    assert!(matches!(refused, GpuError::SizeMismatch { .. }), "{refused}");
                    norm.launch(&[("x", &tx), ("weight", &tw), ("out", &out)], &params).unwrap();
                }
                assert_near(&values(&out), &rms_norm_reference(&x, &weight, 1e-5), RMS_NORM_TOLERANCE, "threads");
            });
        }
    });
}
