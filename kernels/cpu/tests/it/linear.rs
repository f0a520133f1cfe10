#![expect(unsafe_code, reason = "frees the memory of a test")]

use kernelhub_cpu::linear;

use crate::support::{Arg, DTYPES, Dt, Tensor, at_every_level, call, exclusive};

fn check(out: &Tensor, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, what: &str) {
    let args = [Arg::T(out), Arg::T(x), Arg::T(weight), bias.map_or(Arg::None, Arg::T)];
    call(linear, &args).expect(what);
    let (weights, biases) = (weight.rows(), bias.map(Tensor::values));
    let inputs = x.rows();
    let columns = weights.len();
    let results = out.rows();
    let (relative, _) = out.dtype.tolerance();
    for (row, (input, result)) in inputs.iter().zip(&results).enumerate() {
        for (column, &actual) in result.iter().enumerate().take(columns) {
            let terms = input.iter().zip(&weights[column]).map(|(x, w)| x * w);
            let (mut sum, mut size) = terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()));
            if let Some(biases) = &biases {
                (sum, size) = (sum + biases[column], size + biases[column].abs());
            }
            let bound = relative * f64::abs(sum) + 1e-6 * size + 1e-7;
            let dtype = out.dtype;
            assert!(
                f64::abs(actual - sum) <= bound,
                "{what}, {dtype:?}: at [{row}, {column}] expected {sum}, got {actual}, bound {bound}"
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
                (3, 1408, 9),
                (1, 3420, 70),
                (5, 63, 130),
                (8, 40, 33),
                (9, 40, 33),
                (13, 7, 65),
                (25, 257, 1),
                (11, 1408, 66),
                (150, 300, 70),
                (293, 16, 7),
                (12, 3420, 5),
                (1, 9001, 19),
                (2, 5000, 11),
                (3, 3001, 5),
                (6, 1500, 17),
                (7, 1185, 9),
                (8, 1100, 300),
                (530, 33, 40),
            ] {
                let x = Tensor::random(dtype, &[rows, depth], 1);
                let weight = Tensor::random(dtype, &[columns, depth], 2);
                let bias = Tensor::random(dtype, &[columns], 3);
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
            let weight = base.view(&[21, 33], &[-50, 1], 1700);
            let bias = base.view(&[21], &[1], 5);
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

/// Rows of the weight that lie further apart than 32 bits count, in memory of which hardly a page is there.
#[cfg(target_pointer_width = "64")]
#[test]
fn offsets_take_more_than_32_bits() {
    at_every_level(|level| {
        for dtype in DTYPES {
            // In elements, and in bytes.
            let apart = if dtype == Dt::F32 { 1_200_000_000_i64 } else { 2_200_000_000 };
            let memory = vec![0_u8; (apart as usize + 64) * dtype.size()];
            let data = Box::leak(memory.into_boxed_slice());
            let room = Tensor { data: data.as_mut_ptr(), ..Tensor::new(dtype, &[1]) };
            let weight = room.view(&[2, 40], &[apart, 1], 0);
            weight.randomize(9);
            for rows in [1, 8, 20] {
                let x = Tensor::random(dtype, &[rows, 40], 10);
                check(&Tensor::new(dtype, &[rows, 2]), &x, &weight, None, &format!("{level:?} {rows}"));
            }
            // SAFETY: made by `leak` just above, and used no more.
            drop(unsafe { Box::from_raw(std::ptr::from_mut(data)) });
        }
    });
}

/// Subnormal numbers may count as zero, and nothing else may change: not the sign of what stays, not a neighbour.
#[test]
fn subnormal_numbers_cost_no_more_than_themselves() {
    at_every_level(|level| {
        for dtype in DTYPES {
            let least = if dtype == Dt::F16 { 2.0_f64.powi(-24) } else { 2.0_f64.powi(-133) };
            for rows in [1, 2, 9] {
                let x = Tensor::random(dtype, &[rows, 70], 11);
                let weight = Tensor::random(dtype, &[5, 70], 12);
                x.set(&[0, 3], least);
                weight.set(&[2, 8], -least);
                check(&Tensor::new(dtype, &[rows, 5]), &x, &weight, None, &format!("{level:?} {rows}"));
                // Of the numbers themselves nothing may be left but what f32 holds of them.
                x.fill(|_| least);
                let out = Tensor::new(dtype, &[rows, 5]);
                call(linear, &[Arg::T(&out), Arg::T(&x), Arg::T(&weight), Arg::None]).expect("linear");
                assert!(out.values().iter().all(|value| value.abs() <= 140.0 * least), "{level:?} {dtype:?} {rows}");
            }
        }
    });
}

#[test]
fn non_finite_inputs_stay_in_their_rows_and_columns() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for rows in [2, 7, 20] {
                let x = Tensor::random(dtype, &[rows, 37], 5);
                let weight = Tensor::random(dtype, &[19, 37], 6);
                x.set(&[1, 36], f64::INFINITY);
                weight.set(&[18, 3], f64::NAN);
                let out = Tensor::new(dtype, &[rows, 19]);
                call(linear, &[Arg::T(&out), Arg::T(&x), Arg::T(&weight), Arg::None]).expect("linear");
                for index in out.indices() {
                    let finite = index[0] != 1 && index[1] != 18;
                    assert_eq!(out.get(&index).is_finite(), finite, "{level:?} {dtype:?} {rows} at {index:?}");
                }
            }
        }
    });
}

#[test]
fn nothing_to_sum_gives_the_bias() {
    let _guard = exclusive();
    let t = |shape: &[i64]| Tensor::random(Dt::Bf16, shape, 7);
    for rows in [3, 30] {
        let (out, bias) = (t(&[rows, 5]), t(&[5]));
        let [o, b] = [&out, &bias].map(Arg::T);
        call(linear, &[o, Arg::T(&t(&[rows, 0])), Arg::T(&t(&[5, 0])), b]).expect("no depth");
        out.expect(|index| bias.get(&[index[1]]), "the bias");
        call(linear, &[o, Arg::T(&t(&[rows, 0])), Arg::T(&t(&[5, 0])), Arg::None]).expect("no depth");
        out.expect(|_| 0.0, "zero");
    }
    call(linear, &[Arg::T(&t(&[0, 5])), Arg::T(&t(&[0, 4])), Arg::T(&t(&[5, 4])), Arg::None]).expect("no rows");
    call(linear, &[Arg::T(&t(&[3, 0])), Arg::T(&t(&[3, 4])), Arg::T(&t(&[0, 4])), Arg::None]).expect("no columns");
}

#[test]
fn wrong_calls_are_told() {
    let t = |shape: &[i64]| Tensor::random(Dt::F32, shape, 8);
    let run = |out: &Tensor, x: &Tensor, weight: &Tensor, bias: Arg<'_>| {
        call(linear, &[Arg::T(out), Arg::T(x), Arg::T(weight), bias])
    };
    let (out, x, w) = (t(&[2, 5]), t(&[2, 8]), t(&[5, 8]));
    for (actual, text) in [
        (
            run(&out, &x, &t(&[5, 7]), Arg::None),
            "`weight`: expected shape [5, 8] ([out, in], in as in `x`), got [5, 7]",
        ),
        (run(&out, &x, &t(&[8]), Arg::None), "`weight`: expected rank 2 [out, in], got rank 1 [8]"),
        (
            run(&t(&[2, 8]), &x, &w, Arg::None),
            "`out`: expected shape [2, 5] ([.., out], the leading axes as `x`, out as in `weight`), got [2, 8]",
        ),
        (run(&out, &x, &w, Arg::T(&t(&[8]))), "`bias`: expected shape [5] ([out], out as in `weight`), got [8]"),
        (run(&out, &x, &w, Arg::T(&Tensor::new(Dt::F16, &[5]))), "`bias`: expected dtype f32 (as `x`), got f16"),
        (run(&out, &x, &Tensor::new(Dt::F16, &[5, 8]), Arg::None), "`weight`: expected dtype f32 (as `x`), got f16"),
        (
            run(&out, &x, &t(&[8, 5]).view(&[5, 8], &[1, 5], 0), Arg::None),
            "`weight`: expected stride 1 in the last axis, got strides [1, 5]",
        ),
        (
            run(&x.view(&[2, 5], &[5, 1], 0), &x, &w, Arg::None),
            "`out`: expected memory apart from `x`, got a partial overlap with it",
        ),
    ] {
        assert_eq!(actual.expect_err("wrong call"), format!("linear: argument {text}"));
    }
}
