use kernelhub_cpu::rms_norm;

use crate::support::{Arg, DTYPES, Dt, Tensor, at_every_level, call, row_major};

/// Takes its inputs at once, so that a kernel may then overwrite them.
fn reference(x: &Tensor, weight: &Tensor, eps: f64) -> impl Fn(&[i64]) -> f64 {
    let (values, weights, strides) = (x.values(), weight.values(), row_major(&x.shape));
    let rows = values.chunks(weights.len().max(1));
    let factors: Vec<f64> = rows
        .map(|row| 1.0 / (row.iter().map(|value| value.powi(2)).sum::<f64>() / row.len() as f64 + eps).sqrt())
        .collect();
    move |index: &[i64]| {
        let flat = index.iter().zip(&strides).map(|(i, s)| i * s).sum::<i64>() as usize;
        values[flat] * factors[flat / weights.len()] * weights[flat % weights.len()]
    }
}

fn check(out: &Tensor, x: &Tensor, weight: &Tensor, eps: f64, what: &str) {
    let expected = reference(x, weight, eps);
    call(rms_norm, &[Arg::T(out), Arg::T(x), Arg::T(weight), Arg::F(eps)]).expect(what);
    out.expect(expected, what);
}

#[test]
fn agrees_with_f64_at_odd_sizes_and_both_weight_dtypes() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for (rows, hidden) in [(1, 1), (1, 576), (3, 7), (2, 16), (5, 63), (2, 129), (1, 4097)] {
                for weight_dtype in [dtype, Dt::F32] {
                    let x = Tensor::random(dtype, &[rows, hidden], 1);
                    let weight = Tensor::random(weight_dtype, &[hidden], 2);
                    let out = Tensor::new(dtype, &[rows, hidden]);
                    check(&out, &x, &weight, 1e-5, &format!("{level:?} [{rows}, {hidden}]"));
                }
            }
        }
    });
}

#[test]
fn takes_strided_transposed_broadcast_unaligned_and_offset_rows() {
    at_every_level(|level| {
        for dtype in DTYPES {
            let base = Tensor::random(dtype, &[4000], 3);
            let weight = Tensor::random(dtype, &[100], 4).view(&[33], &[1], 5);
            for (strides, offset) in
                [([330, 66, 1], 1), ([33, 400, 1], 3), ([0, 0, 1], 7), ([0, 50, 1], 0), ([-100, 33, 1], 900)]
            {
                let x = base.view(&[4, 5, 33], &strides, offset);
                let out = Tensor::new(dtype, &[9000]).view(&[4, 5, 33], &[33, 170, 1], 1);
                check(&out, &x, &weight, 1e-6, &format!("{level:?} strides {strides:?}"));
            }
            let x = Tensor::random(dtype, &[2, 1, 2, 1, 3, 1, 2, 20], 5);
            let out = Tensor::new(dtype, &x.shape);
            check(&out, &x, &weight.view(&[20], &[1], 0), 0.0, "rank 8");
        }
    });
}

#[test]
fn works_in_place_and_writes_only_its_rows() {
    at_every_level(|level| {
        let base = Tensor::random(Dt::F32, &[4, 40], 6);
        let before = base.values();
        let x = base.view(&[4, 33], &[40, 1], 2);
        let weight = Tensor::random(Dt::F32, &[33], 7);
        check(&x, &x, &weight, 1e-5, &format!("{level:?} in place"));
        for index in base.indices() {
            if !(2..35).contains(&index[1]) {
                assert_eq!(base.get(&index), before[(index[0] * 40 + index[1]) as usize]);
            }
        }
    });
}

#[test]
fn large_outputs_bypass_the_cache_with_the_same_result() {
    let _guard = crate::support::exclusive();
    // Above the threshold for streamed stores; rows of the second shape are not aligned to vectors.
    for (rows, hidden) in [(1600, 4096), (1601, 4095)] {
        let x = Tensor::new(Dt::F32, &[rows, hidden]);
        x.view(&[1, hidden], &[hidden, 1], 0).randomize(8);
        x.view(&[1, hidden], &[hidden, 1], (rows - 1) * hidden).randomize(9);
        let weight = Tensor::random(Dt::F32, &[hidden], 10);
        let out = Tensor::new(Dt::F32, &[rows, hidden]);
        call(rms_norm, &[Arg::T(&out), Arg::T(&x), Arg::T(&weight), Arg::F(1e-5)]).expect("large");
        for row in [0, rows - 1] {
            let part = |t: &Tensor| t.view(&[1, hidden], &[hidden, 1], row * hidden);
            part(&out).expect(reference(&part(&x), &weight, 1e-5), "large");
        }
    }
}

#[test]
fn non_finite_and_extreme_rows_follow_the_reference() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for special in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.0] {
                for hidden in [37, 300] {
                    let x = Tensor::random(dtype, &[3, hidden], 11);
                    x.set(&[1, hidden - 1], special);
                    x.set(&[1, 1], special);
                    let weight = Tensor::random(dtype, &[hidden], 12);
                    let out = Tensor::new(dtype, &[3, hidden]);
                    check(&out, &x, &weight, 1e-5, &format!("{level:?} {special} {hidden}"));
                }
            }
        }
        // Squares that leave f32 in both directions, and an all-zero row with and without eps.
        for (scale, eps) in [(1e30, 0.0), (1e-30, 0.0), (1e-22, 1e-5), (0.0, 1e-5), (0.0, 0.0)] {
            let x = Tensor::random(Dt::F32, &[2, 37], 13);
            x.clone().fill(|index| x.get(index) * scale);
            let weight = Tensor::random(Dt::F32, &[37], 14);
            let out = Tensor::new(Dt::F32, &[2, 37]);
            check(&out, &x, &weight, eps, &format!("{level:?} scale {scale}"));
        }
    });
}

#[test]
fn empty_tensors_return_at_once() {
    for shape in [[0, 8], [3, 0]] {
        let mut x = Tensor::new(Dt::F32, &shape);
        x.data = std::ptr::null_mut();
        let weight = Tensor::new(Dt::F32, &[shape[1]]);
        call(rms_norm, &[Arg::T(&x), Arg::T(&x), Arg::T(&weight), Arg::F(1e-5)]).expect("empty");
    }
}

#[test]
fn takes_null_strides_an_integer_eps_and_tensor_objects() {
    let mut x = Tensor::random(Dt::F32, &[3, 5], 15);
    x.null_strides = true;
    let weight = Tensor::random(Dt::F32, &[5], 16);
    let out = Tensor::new(Dt::F32, &[3, 5]);
    call(rms_norm, &[Arg::T(&out), Arg::T(&x), Arg::T(&weight), Arg::I(1)]).expect("Int for Float");
    out.expect(reference(&x, &weight, 1.0), "eps 1");
    let objects = [Arg::Object(&out), Arg::Object(&x), Arg::Object(&weight), Arg::F(3.0)];
    call(rms_norm, &objects).expect("tensor objects, as Python passes them");
    out.expect(reference(&x, &weight, 3.0), "eps 3");
}
