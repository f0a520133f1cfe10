use kernelhub_abi::PackedFn;
use kernelhub_cpu::{
    fatrelu_and_mul, gelu, gelu_and_mul, gelu_fast, gelu_new, gelu_quick, gelu_tanh, gelu_tanh_and_mul, mul_and_silu,
    silu, silu_and_mul,
};

use crate::support::{Arg, DTYPES, Dt, Tensor, at_every_level, call, erfc};

fn silu_of(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

fn gelu_of(x: f64) -> f64 {
    0.5 * x * erfc(-x / std::f64::consts::SQRT_2)
}

/// `1 + tanh(u)` as `2 / (1 + e^-2u)`, which keeps its digits where it is small.
fn gelu_tanh_of(x: f64) -> f64 {
    let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
    x / (1.0 + (-2.0 * u).exp())
}

fn gelu_fast_of(x: f64) -> f64 {
    0.5 * x * (1.0 + (x * 0.797_884_560_8 * (1.0 + 0.044_715 * x * x)).tanh())
}

fn gelu_quick_of(x: f64) -> f64 {
    x / (1.0 + (-1.702 * x).exp())
}

type Reference = fn(f64) -> f64;

const PLAIN: [(&str, PackedFn, Reference); 6] = [
    ("silu", silu, silu_of),
    ("gelu", gelu, gelu_of),
    ("gelu_tanh", gelu_tanh, gelu_tanh_of),
    ("gelu_new", gelu_new, gelu_tanh_of),
    ("gelu_fast", gelu_fast, gelu_fast_of),
    ("gelu_quick", gelu_quick, gelu_quick_of),
];

type Gate = fn(f64, f64) -> f64;

const GATED: [(&str, PackedFn, Gate); 4] = [
    ("silu_and_mul", silu_and_mul, |a, b| silu_of(a) * b),
    ("mul_and_silu", mul_and_silu, |a, b| a * silu_of(b)),
    ("gelu_and_mul", gelu_and_mul, |a, b| gelu_of(a) * b),
    ("gelu_tanh_and_mul", gelu_tanh_and_mul, |a, b| gelu_tanh_of(a) * b),
];

fn gated(x: &Tensor, gate: impl Fn(f64, f64) -> f64) -> impl Fn(&[i64]) -> f64 {
    let x = x.clone();
    let width = x.shape[x.shape.len() - 1] / 2;
    move |index: &[i64]| {
        let mut other = index.to_vec();
        *other.last_mut().expect("rank 1 or more") += width;
        gate(x.get(index), x.get(&other))
    }
}

fn halved(shape: &[i64]) -> Vec<i64> {
    let mut half = shape.to_vec();
    *half.last_mut().expect("rank 1 or more") /= 2;
    half
}

#[test]
fn plain_functions_agree_with_f64_at_odd_widths() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for shape in [vec![1], vec![3, 7], vec![2, 3, 1408], vec![1, 3420], vec![2, 10_001]] {
                let x = Tensor::random(dtype, &shape, 1);
                for (name, function, reference) in PLAIN {
                    let out = Tensor::new(dtype, &shape);
                    let what = format!("{name} {level:?} {shape:?}");
                    call(function, &[Arg::T(&out), Arg::T(&x)]).expect(&what);
                    out.expect(|index| reference(x.get(index)), &what);
                }
            }
        }
    });
}

#[test]
fn gated_functions_agree_with_f64_at_odd_widths() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for width in [1, 7, 1408, 3420] {
                let x = Tensor::random(dtype, &[2, 2, 2 * width], 2);
                for (name, function, gate) in GATED {
                    let out = Tensor::new(dtype, &halved(&x.shape));
                    let what = format!("{name} {level:?} {width}");
                    call(function, &[Arg::T(&out), Arg::T(&x)]).expect(&what);
                    out.expect(gated(&x, gate), &what);
                }
                for threshold in [0.0, 0.5, -1.0] {
                    let out = Tensor::new(dtype, &halved(&x.shape));
                    call(fatrelu_and_mul, &[Arg::T(&out), Arg::T(&x), Arg::F(threshold)]).expect("fatrelu");
                    let gate = |a: f64, b: f64| if a > threshold { a * b } else { 0.0 };
                    out.expect(gated(&x, gate), &format!("fatrelu {threshold} {level:?} {width}"));
                }
            }
        }
    });
}

#[test]
fn rows_may_be_strided_and_plain_functions_in_place() {
    at_every_level(|level| {
        for dtype in DTYPES {
            let base = Tensor::random(dtype, &[3000], 3);
            for (strides, offset) in [([400, 80, 1], 1), ([70, 300, 1], 5), ([0, 0, 1], 3), ([-400, 70, 1], 1300)] {
                let out = Tensor::new(dtype, &[4000]);
                let narrow = out.view(&[4, 5, 33], &[50, 220, 1], 1);
                let wide = base.view(&[4, 5, 66], &strides, offset);
                for (name, function, gate) in GATED {
                    call(function, &[Arg::T(&narrow), Arg::T(&wide)]).expect(name);
                    narrow.expect(gated(&wide, gate), &format!("{name} {level:?} {strides:?}"));
                }
                let x = base.view(&[4, 5, 33], &strides, offset);
                for (name, function, reference) in PLAIN {
                    call(function, &[Arg::T(&narrow), Arg::T(&x)]).expect(name);
                    narrow.expect(|index| reference(x.get(index)), &format!("{name} {level:?} {strides:?}"));
                }
            }
            for (name, function, reference) in PLAIN {
                let x = Tensor::random(dtype, &[3, 40], 4).view(&[3, 35], &[40, 1], 2);
                let before = x.values();
                call(function, &[Arg::T(&x), Arg::T(&x)]).expect(name);
                let place = |index: &[i64]| (index[0] * 35 + index[1]) as usize;
                x.expect(|index| reference(before[place(index)]), &format!("{name} in place {level:?}"));
            }
        }
    });
}

const SPECIAL: [f64; 20] = [
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    0.0,
    -0.0,
    1e-40,
    -1e-40,
    14.9,
    -14.2,
    -14.9,
    -15.5,
    88.5,
    -88.5,
    -103.0,
    200.0,
    -200.0,
    1e30,
    -1e30,
    6e4,
    -6e4,
];

#[test]
fn non_finite_and_large_numbers_follow_the_formulas() {
    at_every_level(|level| {
        for dtype in DTYPES {
            // More than go through a formula side by side, and others at each of their places.
            let count = 37 * SPECIAL.len() as i64;
            let x = Tensor::new(dtype, &[2 * count]);
            x.fill(|index| if index[0] < count { SPECIAL[index[0] as usize % SPECIAL.len()] } else { 1.0 });
            let half = x.view(&[count], &[1], 0);
            let out = Tensor::new(dtype, &[count]);
            for (name, function, reference) in PLAIN {
                call(function, &[Arg::T(&out), Arg::T(&half)]).expect(name);
                out.expect(|index| reference(x.get(index)), &format!("{name} {level:?}"));
            }
            call(fatrelu_and_mul, &[Arg::T(&out), Arg::T(&x), Arg::F(14.9)]).expect("fatrelu");
            // The threshold as f32, which the inputs are too.
            let threshold = f64::from(14.9_f32);
            let gate = |a: f64, b: f64| if a > threshold { a * b } else { 0.0 };
            out.expect(gated(&x, gate), &format!("fatrelu {level:?}"));
        }
    });
}

/// Also in the lower tail, where the form with `1 + erf` has no right digit.
#[test]
fn gelu_is_within_four_ulp() {
    at_every_level(|level| {
        let count = 300_007;
        let x = Tensor::new(Dt::F32, &[count]);
        x.fill(|index| index[0] as f64 / count as f64 * 28.0 - 14.2);
        let out = Tensor::new(Dt::F32, &[count]);
        call(gelu, &[Arg::T(&out), Arg::T(&x)]).expect("gelu");
        for index in x.indices() {
            let (expected, actual) = (gelu_of(x.get(&index)), out.get(&index));
            // The least step of f32 is 1.4e-45.
            let bound = 4.0 * f64::from(f32::EPSILON) * expected.abs() + 2e-45;
            let x = x.get(&index);
            assert!((actual - expected).abs() <= bound, "{level:?}: gelu({x}) is {expected:e}, got {actual:e}");
        }
    });
}

/// The tanh forms near zero and in the lower tail, up to what rounding of the argument does to an exponential.
#[test]
fn gelu_tanh_keeps_its_digits() {
    at_every_level(|level| {
        let count = 100_003;
        let x = Tensor::new(Dt::F32, &[count]);
        x.fill(|index| index[0] as f64 / count as f64 * 14.0 - 7.0);
        let out = Tensor::new(Dt::F32, &[count]);
        call(gelu_tanh, &[Arg::T(&out), Arg::T(&x)]).expect("gelu_tanh");
        for index in x.indices() {
            let (expected, actual) = (gelu_tanh_of(x.get(&index)), out.get(&index));
            let x = x.get(&index);
            // The argument is `2u`, at most 36, with three roundings.
            let bound = f64::from(f32::EPSILON) * (4.0 + 3.0 * x.abs().powi(3) * 0.08) * expected.abs();
            assert!((actual - expected).abs() <= bound, "{level:?}: gelu_tanh({x}) is {expected:e}, got {actual:e}");
        }
    });
}

#[test]
fn empty_tensors_return_at_once() {
    for (name, function, _) in PLAIN {
        for shape in [[0, 8], [3, 0]] {
            let x = Tensor { data: std::ptr::null_mut(), ..Tensor::new(Dt::F16, &shape) };
            call(function, &[Arg::T(&x), Arg::T(&x)]).expect(name);
        }
    }
    for (shape, half) in [([0, 8], [0, 4]), ([3, 0], [3, 0])] {
        let (x, out) = (Tensor::new(Dt::F16, &shape), Tensor::new(Dt::F16, &half));
        for (name, function, _) in GATED {
            call(function, &[Arg::T(&out), Arg::T(&x)]).expect(name);
        }
        call(fatrelu_and_mul, &[Arg::T(&out), Arg::T(&x), Arg::F(0.0)]).expect("fatrelu");
    }
}

#[test]
fn wrong_calls_are_told() {
    let t = |shape: &[i64]| Tensor::random(Dt::F32, shape, 5);
    let base = t(&[100]);
    let (low, high) = (base.view(&[2, 8], &[8, 1], 0), base.view(&[2, 8], &[8, 1], 4));
    for (actual, text) in [
        (
            call(gelu, &[Arg::T(&t(&[2, 3])), Arg::T(&t(&[2, 4]))]),
            "gelu: argument `out`: expected shape [2, 4] (as `x`), got [2, 3]",
        ),
        (
            call(gelu_new, &[Arg::T(&high), Arg::T(&low)]),
            "gelu_new: argument `out`: expected memory apart from `x`, got a partial overlap with it",
        ),
        (
            call(silu, &[Arg::T(&Tensor::new(Dt::F16, &[4])), Arg::T(&t(&[4]))]),
            "silu: argument `out`: expected dtype f32 (as `x`), got f16",
        ),
        (
            call(gelu_quick, &[Arg::T(&t(&[])), Arg::T(&t(&[]))]),
            "gelu_quick: argument `x`: expected rank 1 to 8 [.., d], got rank 0 []",
        ),
        (
            call(mul_and_silu, &[Arg::T(&t(&[3])), Arg::T(&t(&[7]))]),
            "mul_and_silu: argument `x`: expected an even extent in the last axis, 2 * d, got 7",
        ),
        (
            call(fatrelu_and_mul, &[Arg::T(&t(&[4])), Arg::T(&t(&[8])), Arg::F(1e39)]),
            "fatrelu_and_mul: argument `threshold`: expected a finite number in the range of f32, got 1000000000000000000000000000000000000000",
        ),
        (
            call(fatrelu_and_mul, &[Arg::T(&t(&[4])), Arg::T(&t(&[8])), Arg::None]),
            "fatrelu_and_mul: argument `threshold`: expected Float or Int, got None",
        ),
    ] {
        assert_eq!(actual.expect_err("wrong call").get(..text.len()), Some(text));
    }
}
