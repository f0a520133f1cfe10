//! The plain activations of every number that a 16-bit type has.

use kernelhub_abi::PackedFn;
use kernelhub_cpu::{gelu, gelu_quick, gelu_tanh, silu};

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
