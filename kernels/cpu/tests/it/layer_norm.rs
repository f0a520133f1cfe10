use kernelhub_cpu::layer_norm;

use crate::support::{Arg, DTYPES, Dt, Tensor, at_every_level, call, flat};

fn check(out: &Tensor, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, eps: f64, what: &str) {
    let (rows, shape) = (x.rows(), x.shape.clone());
    let args = [Arg::T(out), Arg::T(x), Arg::T(weight), bias.map_or(Arg::None, Arg::T), Arg::F(eps)];
    call(layer_norm, &args).expect(what);
    let weights = weight.values();
    let biases = bias.map_or_else(|| vec![0.0; weights.len()], Tensor::values);
    let expected: Vec<f64> = rows
        .iter()
        .flat_map(|row| {
            let mean = row.iter().sum::<f64>() / row.len() as f64;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / row.len() as f64;
            let scaled = row.iter().map(|x| (x - mean) / (variance + eps).sqrt());
            scaled.zip(&weights).zip(&biases).map(|((x, w), b)| x * w + b).collect::<Vec<_>>()
        })
        .collect();
    out.expect(|index| expected[flat(&shape, index)], what);
}

#[test]
fn agrees_with_f64_with_and_without_a_bias() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for (rows, hidden) in [(1, 1), (3, 7), (2, 16), (5, 63), (2, 129), (2, 1408), (1, 3420)] {
                for weight_dtype in [dtype, Dt::F32] {
                    let x = Tensor::random(dtype, &[rows, hidden], 1);
                    let [weight, bias] = [2, 3].map(|seed| Tensor::random(weight_dtype, &[hidden], seed));
                    for bias in [None, Some(&bias)] {
                        let what = format!("{level:?} [{rows}, {hidden}] {weight_dtype:?} {}", bias.is_some());
                        check(&Tensor::new(dtype, &x.shape), &x, &weight, bias, 1e-5, &what);
                    }
                }
            }
        }
    });
}

#[test]
fn rows_may_be_strided_and_outputs_be_inputs() {
    at_every_level(|level| {
        for dtype in DTYPES {
            let base = Tensor::random(dtype, &[4000], 4);
            let [weight, bias] = [5, 6].map(|seed| Tensor::random(dtype, &[33], seed));
            for (strides, offset) in
                [([330, 66, 1], 1), ([33, 400, 1], 3), ([0, 0, 1], 7), ([0, 50, 1], 0), ([-100, 33, 1], 900)]
            {
                let x = base.view(&[4, 5, 33], &strides, offset);
                let out = Tensor::new(dtype, &[9000]).view(&[4, 5, 33], &[33, 170, 1], 1);
                check(&out, &x, &weight, Some(&bias), 1e-6, &format!("{level:?} strides {strides:?}"));
            }
            let x = Tensor::random(dtype, &[4, 33], 7);
            check(&x, &x, &weight, Some(&bias), 1e-6, &format!("{level:?} in place"));
        }
    });
}

/// Little variation around a large number: what a mean rounded to f32, or the difference of two squares, would lose.
#[test]
fn a_large_mean_costs_no_digits() {
    at_every_level(|level| {
        for (mean, hidden) in [(1000.0, 1408), (-30_000.0, 576), (1e6, 37)] {
            let x = Tensor::random(Dt::F32, &[2, hidden], 8);
            x.clone().fill(|index| x.get(index) + mean);
            let weight = Tensor::random(Dt::F32, &[hidden], 9);
            check(&Tensor::new(Dt::F32, &x.shape), &x, &weight, None, 1e-5, &format!("{level:?} {mean}"));
        }
    });
}

/// Of 16-bit rows too, whose small results show what the arithmetic before is wrong by.
#[test]
fn a_mean_beside_the_deviation_costs_no_digits_that_a_bias_could_show() {
    at_every_level(|level| {
        for dtype in [Dt::Bf16, Dt::F16] {
            for (mean, hidden) in [(0.0, 8475), (1.0, 8475), (2.2, 8475), (3.0, 1002), (-5.0, 4964), (7.5, 8475)] {
                let x = Tensor::random(dtype, &[1, hidden], 18);
                x.clone().fill(|index| x.get(index) + mean);
                let values = x.values();
                let mean = values.iter().sum::<f64>() / hidden as f64;
                let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / hidden as f64;
                let weight = Tensor::random(Dt::F32, &[hidden], 19);
                let bias = Tensor::new(Dt::F32, &[hidden]);
                let scaled = |i: i64| (values[i as usize] - mean) / (variance + 1e-5).sqrt() * weight.get(&[i]);
                bias.fill(|index| 1e-4 - scaled(index[0]));
                let out = Tensor::new(dtype, &x.shape);
                let args = [&out, &x, &weight, &bias].map(Arg::T);
                call(layer_norm, &[&args[..], &[Arg::F(1e-5)]].concat()).expect("layer_norm");
                // The tolerance table, and a part of what the bias takes away.
                let (relative, absolute) = dtype.tolerance();
                for i in 0..hidden {
                    let (value, bias, actual) = (scaled(i), bias.get(&[i]), out.get(&[0, i]));
                    let (expected, terms) = (value + bias, value.abs() + bias.abs());
                    let bound = relative * expected.abs() + absolute + 1e-6 * terms;
                    let error = (actual - expected).abs();
                    assert!(error <= bound, "{level:?} {dtype:?}, mean {mean}: {expected:e}, got {actual:e} at {i}");
                }
            }
        }
    });
}

#[test]
fn non_finite_and_extreme_rows_follow_the_reference() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for special in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
                let x = Tensor::random(dtype, &[2, 37], 10);
                x.set(&[0, 36], special);
                let weight = Tensor::random(dtype, &[37], 11);
                check(&Tensor::new(dtype, &x.shape), &x, &weight, None, 1e-5, &format!("{level:?} {special}"));
            }
        }
        // 1e38: sums leave f32. A constant row has no variance.
        for (scale, shift, eps) in
            [(1e30, 0.0, 0.0), (1e38, 0.0, 0.0), (1e-30, 0.0, 0.0), (0.0, 1.5, 1e-5), (0.0, 0.0, 1e-5), (0.0, 0.0, 0.0)]
        {
            let x = Tensor::random(Dt::F32, &[2, 37], 12);
            x.clone().fill(|index| x.get(index) * scale + shift);
            let [weight, bias] = [13, 14].map(|seed| Tensor::random(Dt::F32, &[37], seed));
            check(&Tensor::new(Dt::F32, &x.shape), &x, &weight, Some(&bias), eps, &format!("{level:?} {scale}"));
        }
    });
}

#[test]
fn empty_tensors_and_wrong_calls() {
    let t = |shape: &[i64]| Tensor::random(Dt::F32, shape, 15);
    let run = |out: &Tensor, x: &Tensor, weight: &Tensor, bias: Arg<'_>| {
        call(layer_norm, &[Arg::T(out), Arg::T(x), Arg::T(weight), bias, Arg::F(1e-5)])
    };
    run(&t(&[0, 8]), &t(&[0, 8]), &t(&[8]), Arg::None).expect("no rows");
    run(&t(&[3, 0]), &t(&[3, 0]), &t(&[0]), Arg::None).expect("no columns");
    let (out, x, w) = (t(&[2, 8]), t(&[2, 8]), t(&[8]));
    for (actual, text) in [
        (run(&out, &x, &w, Arg::T(&t(&[7]))), "`bias`: expected shape [8] (as `weight`), got [7]"),
        (run(&out, &x, &w, Arg::T(&Tensor::new(Dt::F16, &[8]))), "`bias`: expected dtype f32 (as `weight`), got f16"),
        (run(&out, &x, &w, Arg::F(0.0)), "`bias`: expected Tensor (DLTensor*), got Float"),
        (run(&out, &x, &t(&[9]), Arg::None), "`weight`: expected shape [8] ([hidden], hidden as in `x`), got [9]"),
        (
            run(&out, &x, &Tensor::new(Dt::F16, &[8]), Arg::None),
            "`weight`: expected dtype f32 (as `x`, or f32), got f16",
        ),
        (run(&w, &x, &w, Arg::None), "`out`: expected shape [2, 8] (as `x`), got [8]"),
    ] {
        assert_eq!(actual.expect_err("wrong call"), format!("layer_norm: argument {text}"));
    }
}
