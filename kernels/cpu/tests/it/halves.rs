//! The plain activations of every number that a 16-bit type has.

use kernelhub_abi::PackedFn;
use kernelhub_cpu::{gelu, gelu_and_mul, gelu_quick, gelu_tanh, gelu_tanh_and_mul, mul_and_silu, silu, silu_and_mul};

use crate::support::{Arg, Dt, Tensor, at_every_level, call, erfc};

type Reference = fn(f64) -> f64;

/// How far from the exact value a result may be, in units: of bf16, and of f16.
type Bounds = [f64; 2];

/// Half a unit is the rounding; f32 arithmetic adds next to nothing to it.
const BY_F32: Bounds = [0.5003, 0.503];

const FUNCTIONS: [(&str, PackedFn, Reference, Bounds); 4] = [
    ("silu", silu, |x| x / (1.0 + (-x).exp()), BY_F32),
    // By tables for results of 16 bits: in the tails, where values are small, as exact as those are in themselves.
    ("gelu", gelu, |x| 0.5 * x * erfc(-x / std::f64::consts::SQRT_2), [0.515, 0.51]),
    (
        "gelu_tanh",
        gelu_tanh,
        |x| x / (1.0 + (-2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).exp()),
        [0.5015, 0.51],
    ),
    ("gelu_quick", gelu_quick, |x| x / (1.0 + (-1.702 * x).exp()), BY_F32),
];

/// The distance of a type's numbers near `x`: of its significant bits, and its least exponent.
fn unit(x: f64, bits: i32, least: i32) -> f64 {
    let exponent = if x == 0.0 { least } else { (x.abs().log2().floor() as i32).max(least) };
    f64::powi(2.0, exponent - bits + 1)
}

/// Half a unit is the rounding to the type; the rest is what the arithmetic before may be wrong by.
#[test]
fn every_number_is_rounded_from_less_than_a_small_part_of_a_unit_away() {
    for (index, (dtype, bits, least)) in [(Dt::Bf16, 8, -126), (Dt::F16, 11, -14)].into_iter().enumerate() {
        // In their order, and so that numbers of all sizes stand side by side.
        let orders = [1_u32, 40_503].map(|step| {
            let x = Tensor::new(dtype, &[65_536]);
            for i in 0..65_536 {
                x.set_bits(&[i64::from(i)], (i * step % 65_536) as u16);
            }
            x
        });
        for (name, function, reference, bounds) in FUNCTIONS {
            let bound = bounds[index];
            let expected = orders.each_ref().map(|x| x.values().into_iter().map(reference).collect::<Vec<_>>());
            at_every_level(|level| {
                for (x, expected) in orders.iter().zip(&expected) {
                    let out = Tensor::new(dtype, &x.shape);
                    call(function, &[Arg::T(&out), Arg::T(x)]).expect(name);
                    for (i, (&expected, actual)) in expected.iter().zip(out.values()).enumerate() {
                        let what = format!("{name} {dtype:?} {level:?} of {}", x.get(&[i as i64]));
                        if expected.is_finite() {
                            let error = (actual - expected).abs() / unit(expected, bits, least);
                            assert!(error <= bound, "{what}: {expected:e}, got {actual:e}, {error} units away");
                            let zero = actual == 0.0 && expected != 0.0;
                            assert!(!zero || actual.is_sign_negative() == expected.is_sign_negative(), "{what}");
                        } else {
                            assert!(actual == expected || actual.is_nan() && expected.is_nan(), "{what}: {actual}");
                        }
                    }
                }
            });
        }
    }
}

/// What is multiplied is larger than it would be alone, and so is what it is wrong by.
#[test]
fn products_are_rounded_from_less_than_a_small_part_of_a_unit_away() {
    let [silu, gelu, gelu_tanh] = [FUNCTIONS[0].2, FUNCTIONS[1].2, FUNCTIONS[2].2];
    // Whether the second half is the gate.
    let gated: [(&str, PackedFn, Reference, bool); 4] = [
        ("silu_and_mul", silu_and_mul, silu, false),
        ("mul_and_silu", mul_and_silu, silu, true),
        ("gelu_and_mul", gelu_and_mul, gelu, false),
        ("gelu_tanh_and_mul", gelu_tanh_and_mul, gelu_tanh, false),
    ];
    for (dtype, bits, least, bound) in [(Dt::Bf16, 8, -126, 0.515), (Dt::F16, 11, -14, 0.51)] {
        for (name, function, reference, second) in gated {
            for factor in [65_504.0, 300.0, -7.0] {
                // The gates from which a product is a number of either type.
                let x = Tensor::new(dtype, &[2, 16_384]);
                x.fill(|index| if (index[0] == 1) == second { index[1] as f64 / 2048.0 - 7.5 } else { factor });
                let row = x.view(&[1, 32_768], &[32_768, 1], 0);
                at_every_level(|level| {
                    let out = Tensor::new(dtype, &[1, 16_384]);
                    call(function, &[Arg::T(&out), Arg::T(&row)]).expect(name);
                    for i in 0..16_384 {
                        let gate = x.get(&[i64::from(second), i]);
                        let (expected, actual) = (reference(gate) * x.get(&[i64::from(!second), i]), out.get(&[0, i]));
                        if dtype == Dt::F16 && expected.abs() >= 65_504.0 {
                            continue;
                        }
                        let error = (actual - expected).abs() / unit(expected, bits, least);
                        assert!(
                            error <= bound,
                            "{name} {dtype:?} {level:?} of {gate} and {factor}: {expected:e}, got {actual:e}, {error} units"
                        );
                    }
                });
            }
        }
    }
}
