use kernelhub_cpu::silu_gated_linear;

use crate::support::{Arg, DTYPES, Dt, Tensor, at_every_level, call, exclusive};

/// Holds the results to f64. The error of a sum is a part of its terms' size; the gate's slope is at most 1.1.
fn check(out: &Tensor, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, what: &str) {
    let args = [Arg::T(out), Arg::T(x), Arg::T(weight), bias.map_or(Arg::None, Arg::T)];
    call(silu_gated_linear, &args).expect(what);
    let (weights, biases) = (weight.rows(), bias.map(Tensor::values));
    let inputs = x.rows();
    let results = out.rows();
    let columns = weights.len() / 2;
    let (relative, _) = out.dtype.tolerance();
    for (row, (input, result)) in inputs.iter().zip(&results).enumerate() {
        let sum = |at: usize| {
            let terms = input.iter().zip(&weights[at]).map(|(x, w)| x * w);
            let bias = biases.as_ref().map_or(0.0, |biases| biases[at]);
            terms.fold((bias, bias.abs()), |(sum, size), term| (sum + term, size + term.abs()))
        };
        for (column, &actual) in result.iter().enumerate() {
            let ((gate, gate_size), (up, up_size)) = (sum(column), sum(columns + column));
            let silu = gate / (1.0 + (-gate).exp());
            let expected = silu * up;
            let bound =
                (relative + 2e-6) * expected.abs() + 1e-6 * (1.1 * gate_size * up.abs() + silu.abs() * up_size) + 1e-6;
            let dtype = out.dtype;
            assert!(
                (actual - expected).abs() <= bound,
                "{what}, {dtype:?}: at [{row}, {column}] expected {expected}, got {actual}, bound {bound}"
            );
        }
    }
}

#[test]
fn agrees_with_f64_for_few_and_many_rows() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for (rows, depth, columns) in [
                (1, 1, 1),
                (1, 7, 3),
                (1, 576, 300),
                (2, 33, 9),
                (7, 63, 65),
                (8, 40, 33),
                (9, 40, 32),
                (14, 7, 33),
                (40, 257, 1),
                (31, 600, 47),
                (300, 35, 20),
                (1, 8300, 5),
                (6, 1500, 140),
            ] {
                let x = Tensor::random(dtype, &[rows, depth], 1);
                let weight = Tensor::random(dtype, &[2 * columns, depth], 2);
                // Gates of about 1, where the curve bends.
                weight.fill(|index| weight.get(index) / (depth as f64).sqrt());
                let bias = Tensor::random(dtype, &[2 * columns], 3);
                for bias in [None, Some(&bias)] {
                    let what = format!("{level:?} {rows} x {depth} x {columns}, bias {}", bias.is_some());
                    check(&Tensor::new(dtype, &[rows, columns]), &x, &weight, bias, &what);
                }
            }
        }
    });
}

#[test]
fn rows_of_all_tensors_may_be_strided() {
    at_every_level(|level| {
        for dtype in DTYPES {
            let base = Tensor::random(dtype, &[6000], 4);
            let weight = base.view(&[42, 33], &[-50, 1], 2100);
            let bias = base.view(&[42], &[1], 5);
            for (batch, strides) in [(2, [330, 66, 1]), (4, [33, 400, 1]), (4, [0, 50, 1]), (1, [7, 41, 1])] {
                let x = base.view(&[batch, 5, 33], &strides, 3);
                let out = Tensor::new(dtype, &[9000]);
                let view = out.view(&[batch, 5, 21], &[30, 170, 1], 1);
                let before = out.values();
                check(&view, &x, &weight, Some(&bias), &format!("{level:?} {batch} {strides:?}"));
                let written: std::collections::HashSet<usize> =
                    view.indices().iter().map(|i| (i[0] * 30 + i[1] * 170 + i[2] + 1) as usize).collect();
                for (place, (before, after)) in before.iter().zip(out.values()).enumerate() {
                    assert!(written.contains(&place) || *before == after || after.is_nan(), "wrote at {place}");
                }
            }
        }
    });
}

#[test]
fn non_finite_inputs_stay_in_their_rows_and_columns() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for rows in [1, 2, 20] {
                let x = Tensor::random(dtype, &[rows, 37], 5);
                let weight = Tensor::random(dtype, &[38, 37], 6);
                x.set(&[rows - 1, 36], f64::INFINITY);
                weight.set(&[18, 3], f64::NAN);
                weight.set(&[19, 3], f64::NAN);
                let out = Tensor::new(dtype, &[rows, 19]);
                call(silu_gated_linear, &[Arg::T(&out), Arg::T(&x), Arg::T(&weight), Arg::None]).expect("linear");
                for index in out.indices() {
                    let finite = index[0] != rows - 1 && index[1] != 18 && index[1] != 0;
                    let actual = out.get(&index);
                    // A gate of minus infinity closes to -0 times the other: NaN where that is infinite, as it is here.
                    assert_eq!(actual.is_finite(), finite, "{level:?} {dtype:?} {rows} at {index:?}: {actual}");
                }
            }
        }
    });
}

#[test]
fn nothing_to_sum_gives_the_gated_bias() {
    let _guard = exclusive();
    let t = |shape: &[i64]| Tensor::random(Dt::Bf16, shape, 7);
    for rows in [3, 30] {
        let (out, bias) = (t(&[rows, 5]), t(&[10]));
        let [o, b] = [&out, &bias].map(Arg::T);
        call(silu_gated_linear, &[o, Arg::T(&t(&[rows, 0])), Arg::T(&t(&[10, 0])), b]).expect("no depth");
        let silu = |x: f64| x / (1.0 + (-x).exp());
        out.expect(|index| silu(bias.get(&[index[1]])) * bias.get(&[5 + index[1]]), "the gated bias");
        call(silu_gated_linear, &[o, Arg::T(&t(&[rows, 0])), Arg::T(&t(&[10, 0])), Arg::None]).expect("no depth");
        out.expect(|_| 0.0, "zero");
    }
    let [none, some] = [t(&[0, 5]), t(&[3, 0])];
    call(silu_gated_linear, &[Arg::T(&none), Arg::T(&t(&[0, 4])), Arg::T(&t(&[10, 4])), Arg::None]).expect("no rows");
    call(silu_gated_linear, &[Arg::T(&some), Arg::T(&t(&[3, 4])), Arg::T(&t(&[0, 4])), Arg::None]).expect("no columns");
}

#[test]
fn wrong_calls_are_told() {
    let t = |shape: &[i64]| Tensor::random(Dt::F32, shape, 8);
    let run = |out: &Tensor, x: &Tensor, weight: &Tensor, bias: Arg<'_>| {
        call(silu_gated_linear, &[Arg::T(out), Arg::T(x), Arg::T(weight), bias])
    };
    let (out, x, w) = (t(&[2, 5]), t(&[2, 8]), t(&[10, 8]));
    for (actual, text) in [
        (
            run(&out, &x, &t(&[10, 7]), Arg::None),
            "`weight`: expected shape [10, 8] ([2 * out, in], in as in `x`), got [10, 7]",
        ),
        (run(&out, &x, &t(&[9, 8]), Arg::None), "`weight`: expected an even number of rows [2 * out, in], got [9, 8]"),
        (
            run(&t(&[2, 10]), &x, &w, Arg::None),
            "`out`: expected shape [2, 5] ([.., out], the leading axes as `x`, 2 * out as in `weight`), got [2, 10]",
        ),
        (run(&out, &x, &w, Arg::T(&t(&[5]))), "`bias`: expected shape [10] ([2 * out], as in `weight`), got [5]"),
        (
            run(&out, &x, &t(&[8, 10]).view(&[10, 8], &[1, 10], 0), Arg::None),
            "`weight`: expected stride 1 in the last axis, got strides [1, 10]",
        ),
    ] {
        assert_eq!(actual.expect_err("wrong call"), format!("silu_gated_linear: argument {text}"));
    }
}
