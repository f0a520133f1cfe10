use kernelhub_cpu::{add_rms_norm, rms_norm, rms_norm_with_offset};

use crate::support::{Arg, DTYPES, Dt, Tensor, at_every_level, call, flat};

/// The norm of rows, with the offset added to the weight in f32 as documented.
fn normed(rows: &[Vec<f64>], weight: &Tensor, eps: f64, offset: f64) -> Vec<f64> {
    let weight: Vec<f64> = weight.values().iter().map(|&w| f64::from(w as f32 + offset as f32)).collect();
    rows.iter()
        .flat_map(|row| {
            let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
            row.iter().zip(&weight).map(|(x, w)| x / (mean + eps).sqrt() * w).collect::<Vec<_>>()
        })
        .collect()
}

fn check(out: &Tensor, sum: &Tensor, x: &Tensor, residual: &Tensor, weight: &Tensor, offset: f64, what: &str) {
    let (a, b) = (x.values(), residual.values());
    let args = [out, sum, x, residual, weight].map(Arg::T);
    let args = [args[0], args[1], args[2], args[3], args[4], Arg::F(1e-5), Arg::F(offset)];
    call(add_rms_norm, &args).expect(what);
    // The sum is exactly the rounded sum; the norm is that of the rounded sum.
    let rounded = Tensor::new(x.dtype, &x.shape);
    rounded.fill(|index| {
        let place = flat(&x.shape, index);
        f64::from(a[place] as f32 + b[place] as f32)
    });
    assert!(rounded.values() == sum.values(), "{what}: the sum");
    let alone = Tensor::new(x.dtype, &x.shape);
    let args = [&alone, &rounded, weight].map(Arg::T);
    call(rms_norm_with_offset, &[args[0], args[1], args[2], Arg::F(1e-5), Arg::F(offset)]).expect(what);
    assert!(alone.values() == out.values(), "{what}: not what addition and norm give one after another");
    let expected = normed(&rounded.rows(), weight, 1e-5, offset);
    out.expect(|index| expected[flat(&x.shape, index)], what);
}

#[test]
fn the_sum_is_rounded_and_then_normed() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for (rows, hidden) in [(1, 1), (3, 7), (2, 1408), (1, 3420), (2, 63)] {
                for (weight_dtype, offset) in [(dtype, 0.0), (Dt::F32, 1.0), (dtype, 1.0)] {
                    let [x, residual] = [1, 2].map(|seed| Tensor::random(dtype, &[rows, hidden], seed));
                    let weight = Tensor::random(weight_dtype, &[hidden], 3);
                    let [out, sum] = [&x, &x].map(|x| Tensor::new(dtype, &x.shape));
                    check(&out, &sum, &x, &residual, &weight, offset, &format!("{level:?} [{rows}, {hidden}]"));
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
            let weight = Tensor::random(dtype, &[33], 5);
            let x = base.view(&[4, 5, 33], &[330, 66, 1], 1);
            let residual = base.view(&[4, 5, 33], &[33, 400, 1], 3);
            let out = Tensor::new(dtype, &[4000]).view(&[4, 5, 33], &[33, 170, 1], 1);
            let sum = Tensor::new(dtype, &[4000]).view(&[4, 5, 33], &[200, 40, 1], 3);
            check(&out, &sum, &x, &residual, &weight, 0.0, &format!("{level:?} strided"));
            for swapped in [false, true] {
                let [x, residual] = [6, 7].map(|seed| Tensor::random(dtype, &[3, 33], seed));
                let (out, sum) = if swapped { (&residual, &x) } else { (&x, &residual) };
                check(out, sum, &x, &residual, &weight, 0.0, &format!("{level:?} in place"));
            }
        }
        // A sum whose squares leave f32.
        let x = Tensor::random(Dt::F32, &[2, 37], 8);
        x.clone().fill(|index| x.get(index) * 1e30);
        let [out, sum] = [&x, &x].map(|x| Tensor::new(Dt::F32, &x.shape));
        check(&out, &sum, &x, &x.clone(), &Tensor::random(Dt::F32, &[37], 9), 0.0, "huge");
    });
}

#[test]
fn the_offset_is_added_to_the_weight() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for hidden in [1, 7, 576, 1408] {
                for weight_dtype in [dtype, Dt::F32] {
                    let x = Tensor::random(dtype, &[3, hidden], 10);
                    let weight = Tensor::random(weight_dtype, &[hidden], 11);
                    let out = Tensor::new(dtype, &x.shape);
                    let [o, i, w] = [&out, &x, &weight].map(Arg::T);
                    for offset in [1.0, -0.3] {
                        call(rms_norm_with_offset, &[o, i, w, Arg::F(1e-6), Arg::F(offset)]).expect("offset");
                        let expected = normed(&x.rows(), &weight, 1e-6, offset);
                        out.expect(|index| expected[flat(&x.shape, index)], &format!("{level:?} {hidden} {offset}"));
                    }
                    call(rms_norm_with_offset, &[o, i, w, Arg::F(1e-6), Arg::F(0.0)]).expect("offset 0");
                    let with = out.values();
                    call(rms_norm, &[o, i, w, Arg::F(1e-6)]).expect("no offset");
                    assert!(with == out.values(), "offset 0 is no offset, to the bit");
                }
            }
        }
    });
}

#[test]
fn empty_tensors_and_wrong_calls() {
    let t = |shape: &[i64]| Tensor::random(Dt::F32, shape, 12);
    let run = |tensors: [&Tensor; 5], offset| {
        let [a, b, c, d, e] = tensors.map(Arg::T);
        call(add_rms_norm, &[a, b, c, d, e, Arg::F(1e-5), offset])
    };
    let zero = Arg::F(0.0);
    run([&t(&[0, 8]), &t(&[0, 8]), &t(&[0, 8]), &t(&[0, 8]), &t(&[8])], zero).expect("no rows");
    run([&t(&[3, 0]), &t(&[3, 0]), &t(&[3, 0]), &t(&[3, 0]), &t(&[0])], zero).expect("no columns");
    let (a, b, w) = (t(&[2, 8]), t(&[2, 8]), t(&[8]));
    for (actual, text) in [
        (
            run([&a, &a, &b, &b, &w], zero),
            "`out`: expected memory apart from `residual_out`, got a partial overlap with it",
        ),
        (run([&a, &b, &t(&[2, 8]), &t(&[2, 7]), &w], zero), "`residual`: expected shape [2, 8] (as `x`), got [2, 7]"),
        (
            run([&a, &Tensor::new(Dt::F16, &[2, 8]), &t(&[2, 8]), &b, &w], zero),
            "`residual_out`: expected dtype f32 (as `x`), got f16",
        ),
        (run([&a, &b, &t(&[2, 8]), &t(&[2, 8]), &w], Arg::None), "`offset`: expected Float or Int, got None"),
        (
            run([&a, &b, &t(&[2, 8]), &t(&[2, 8]), &w], Arg::F(f64::NAN)),
            "`offset`: expected a finite number in the range of f32, got NaN",
        ),
    ] {
        assert_eq!(actual.expect_err("wrong call"), format!("add_rms_norm: argument {text}"));
    }
    let [o, i, w] = [&a, &b, &w].map(Arg::T);
    let text = call(rms_norm_with_offset, &[o, i, w, Arg::F(0.0), Arg::F(f64::INFINITY)]).expect_err("wrong call");
    assert_eq!(text, "rms_norm_with_offset: argument `offset`: expected a finite number in the range of f32, got inf");
}
