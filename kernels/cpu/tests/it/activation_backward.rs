use kernelhub_cpu::silu_and_mul_backward;

use crate::support::{Arg, DTYPES, Dt, Tensor, at_every_level, call, flat, slope};

/// `d (silu(a) b) / da` and `/ db`.
fn analytic(a: f64, b: f64) -> [f64; 2] {
    let sigmoid = 1.0 / (1.0 + (-a).exp());
    // `1 - sigmoid` in a form that keeps its digits.
    let other = 1.0 / (1.0 + a.exp());
    [b * sigmoid * (1.0 + a * other), a * sigmoid]
}

fn check(dx: &Tensor, dy: &Tensor, x: &Tensor, what: &str) {
    // Taken at once: `dx` may be `x`.
    let (gradients, rows, shape) = (dy.rows(), x.rows(), x.shape.clone());
    call(silu_and_mul_backward, &[Arg::T(dx), Arg::T(dy), Arg::T(x)]).expect(what);
    let double = *shape.last().expect("rank 1 or more") as usize;
    let expected = |index: &[i64]| {
        let place = flat(&shape, index);
        let (row, column) = (place / double, place % double);
        let at = column % (double / 2);
        let [first, second] = analytic(rows[row][at], rows[row][at + double / 2]);
        gradients[row][at] * if column == at { first } else { second }
    };
    dx.expect(expected, what);
}

#[test]
fn the_formula_is_that_of_central_differences() {
    for (a, b) in [(0.3, -1.2), (-4.0, 0.7), (6.0, 2.0), (-1.278, 1.0)] {
        let f = |v: &[f64]| v[0] / (1.0 + (-v[0]).exp()) * v[1];
        let values = [a, b];
        for (at, expected) in analytic(a, b).into_iter().enumerate() {
            assert!((slope(&values, at, f) - expected).abs() < 1e-9);
        }
    }
}

#[test]
fn agrees_with_f64_at_odd_widths() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for width in [1, 7, 1408, 3420, 8200] {
                let x = Tensor::random(dtype, &[3, 2 * width], 1);
                let dy = Tensor::random(dtype, &[3, width], 2);
                check(&Tensor::new(dtype, &x.shape), &dy, &x, &format!("{level:?} {width}"));
            }
        }
    });
}

#[test]
fn rows_may_be_strided_and_the_gradient_written_over_the_input() {
    at_every_level(|level| {
        for dtype in DTYPES {
            let base = Tensor::random(dtype, &[3000], 3);
            for strides in [[400, 80, 1], [70, 300, 1], [0, 0, 1]] {
                let x = base.view(&[4, 5, 66], &strides, 3);
                let dy = Tensor::random(dtype, &[5, 4, 40], 4).view(&[4, 5, 33], &[40, 160, 1], 2);
                let dx = Tensor::new(dtype, &[4000]).view(&[4, 5, 66], &[70, 300, 1], 1);
                check(&dx, &dy, &x, &format!("{level:?} {strides:?}"));
            }
            let x = Tensor::random(dtype, &[4, 74], 5);
            check(&x, &Tensor::random(dtype, &[4, 37], 6), &x, &format!("{level:?} in place"));
        }
    });
}

#[test]
fn large_gates_have_finite_slopes() {
    at_every_level(|level| {
        let gates = [-200.0, -88.5, -20.0, -1e-3, 0.0, 1e-3, 20.0, 88.5, 200.0, 1e30];
        let count = gates.len() as i64;
        let x = Tensor::new(Dt::F32, &[2 * count]);
        x.fill(|index| gates.get(index[0] as usize).copied().unwrap_or(1.5));
        let dy = Tensor::random(Dt::F32, &[count], 7);
        check(&Tensor::new(Dt::F32, &x.shape), &dy, &x, &format!("{level:?}"));
    });
}

#[test]
fn empty_tensors_and_wrong_calls() {
    let t = |shape: &[i64]| Tensor::random(Dt::F32, shape, 8);
    let run = |dx: &Tensor, dy: &Tensor, x: &Tensor| call(silu_and_mul_backward, &[Arg::T(dx), Arg::T(dy), Arg::T(x)]);
    run(&t(&[0, 8]), &t(&[0, 4]), &t(&[0, 8])).expect("no rows");
    run(&t(&[3, 0]), &t(&[3, 0]), &t(&[3, 0])).expect("no columns");
    let base = t(&[64]);
    for (actual, text) in [
        (
            run(&t(&[2, 8]), &t(&[2, 8]), &t(&[2, 8])),
            "`dy`: expected shape [2, 4] (as `x` with half its last axis), got [2, 8]",
        ),
        (run(&t(&[2, 6]), &t(&[2, 4]), &t(&[2, 8])), "`dx`: expected shape [2, 8] (as `x`), got [2, 6]"),
        (run(&t(&[7]), &t(&[3]), &t(&[7])), "`x`: expected an even extent in the last axis, 2 * d, got 7"),
        (
            run(&base.view(&[8], &[1], 0), &base.view(&[4], &[1], 4), &t(&[8])),
            "`dx`: expected memory apart from `dy`, got a partial overlap with it",
        ),
        (run(&t(&[8]), &Tensor::new(Dt::F16, &[4]), &t(&[8])), "`dy`: expected dtype f32 (as `x`), got f16"),
    ] {
        assert_eq!(actual.expect_err("wrong call"), format!("silu_and_mul_backward: argument {text}"));
    }
}

/// The product of a gradient and a number may leave f32 where that with the slope does not.
#[test]
fn large_numbers_times_slopes_of_zero_are_zero() {
    at_every_level(|level| {
        for dtype in [Dt::F32, Dt::Bf16] {
            for width in [3, 70] {
                let x = Tensor::new(dtype, &[2, 2 * width]);
                x.fill(|index| if index[1] < width { [-60.0, -150.0, -1e30][index[1] as usize % 3] } else { 3e38 });
                let dy = Tensor::new(dtype, &[2, width]);
                dy.fill(|index| if index[0] == 0 { 3.0 } else { -3e38 / 1e30 });
                check(&Tensor::new(dtype, &x.shape), &dy, &x, &format!("{level:?} {width}"));
            }
        }
    });
}
