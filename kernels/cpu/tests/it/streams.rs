//! Outputs that bypass the cache, from every kernel that has such: the same bits as in a small call.

use kernelhub_abi::PackedFn;
use kernelhub_cpu::{
    Level, add_rms_norm, apply_rotary, gelu, layer_norm, rms_norm, rms_norm_with_offset, silu_and_mul, softmax,
};

use crate::support::{Arg, DTYPES, Dt, Tensor, at_every_level, call};

/// Bytes moved by a large call: above the last cache of most machines. On one with a larger cache these calls are large
/// ones that don't stream.
const BYTES: i64 = 40 << 20;
/// Rows that are looked at: the first ones, where vectors of the output begin, and the last ones.
const LOOK: i64 = 3;

/// `rows` of `width` elements, all of them views of one random row.
fn input(dtype: Dt, rows: i64, width: i64, seed: u64) -> Tensor {
    Tensor::random(dtype, &[1, width], seed).view(&[rows, width], &[0, 1], 0)
}

/// Room for an output of [`BYTES`] and a little more, for any dtype: memory of tests is never freed.
fn room() -> Tensor {
    Tensor::new(Dt::F32, &[BYTES / 4 + 64])
}

fn rows_of(t: &Tensor, first: i64) -> Tensor {
    t.view(&[LOOK, t.shape[1]], &t.strides, first * t.strides[0])
}

/// Calls a function of rows with `outs` outputs on many rows and on few, and compares.
fn compare(
    what: &str,
    function: PackedFn,
    outs: &[&Tensor],
    inputs: &[&Tensor],
    weights: &[&Tensor],
    tail: &[Arg<'_>],
) {
    let run = |outs: &[Tensor], inputs: &[Tensor]| {
        let weights: Vec<Tensor> = weights.iter().map(|t| (*t).clone()).collect();
        let tensors = outs.iter().chain(inputs).chain(&weights).map(Arg::T);
        let args: Vec<Arg<'_>> = tensors.chain(tail.iter().copied()).collect();
        call(function, &args).expect(what);
    };
    let owned = |all: &[&Tensor]| all.iter().map(|t| (*t).clone()).collect::<Vec<_>>();
    run(&owned(outs), &owned(inputs));
    let rows = outs[0].shape[0];
    for first in [0, rows - LOOK] {
        let small: Vec<Tensor> = outs.iter().map(|t| Tensor::new(t.dtype, &[LOOK, t.shape[1]])).collect();
        run(&small, &inputs.iter().map(|t| rows_of(t, first)).collect::<Vec<_>>());
        for (large, small) in outs.iter().zip(&small) {
            let bits = |t: &Tensor| t.values().into_iter().map(f64::to_bits).collect::<Vec<_>>();
            assert!(bits(&rows_of(large, first)) == bits(small), "{what}: rows {first}..");
        }
    }
}

#[test]
fn large_outputs_have_the_bits_of_small_ones() {
    let rooms = [room(), room()];
    at_every_level(|level| {
        if level == Level::Portable {
            // It has no such stores.
            return;
        }
        for dtype in DTYPES {
            // Elements before the first whole vector: the same in all rows, and, in rows of odd length, other ones in each row.
            for (width, shift) in [(4096, 4), (4091, 3)] {
                let rows = BYTES / (2 * width * dtype.size() as i64);
                let place =
                    |room: &Tensor, shift| Tensor { dtype, ..room.clone() }.view(&[rows, width], &[width, 1], shift);
                let what = |name: &str| format!("{name} {level:?} {dtype:?} [{rows}, {width}] + {shift}");
                let (x, y) = (input(dtype, rows, width, 1), input(dtype, rows, width, 2));
                let wide = input(dtype, rows, 2 * width, 3);
                let (w, b) = (Tensor::random(dtype, &[width], 4), Tensor::random(dtype, &[width], 5));
                let full = Tensor::random(Dt::F32, &[width], 6);
                let (out, other) = (place(&rooms[0], shift), place(&rooms[1], shift));
                let eps = [Arg::F(1e-5)];
                let both = [Arg::F(1e-5), Arg::F(1.0)];
                compare(&what("rms_norm"), rms_norm, &[&out], &[&x], &[&w], &eps);
                compare(&what("rms_norm, f32"), rms_norm_with_offset, &[&out], &[&x], &[&full], &both);
                compare(&what("add_rms_norm"), add_rms_norm, &[&out, &other], &[&x, &y], &[&w], &both);
                compare(&what("layer_norm"), layer_norm, &[&out], &[&x], &[&w, &b], &eps);
                compare(&what("silu_and_mul"), silu_and_mul, &[&out], &[&wide], &[], &[]);
                compare(&what("gelu"), gelu, &[&out], &[&x], &[], &[]);
                compare(&what("softmax"), softmax, &[&out], &[&x], &[], &[]);
                // The two outputs begin at other elements of a vector.
                compare(
                    &what("add_rms_norm, apart"),
                    add_rms_norm,
                    &[&out, &place(&rooms[1], shift + 1)],
                    &[&x, &y],
                    &[&w],
                    &both,
                );
            }
        }
    });
}

#[test]
fn large_rotations_have_the_bits_of_small_ones() {
    let room = room();
    at_every_level(|level| {
        if level == Level::Portable {
            return;
        }
        for dtype in DTYPES {
            let (heads, half) = (4, 80);
            let seq = BYTES / (4 * heads * half * dtype.size() as i64) + 3;
            let input = |seed, shape: &[i64]| {
                Tensor::random(dtype, &[half], seed).view(shape, &[vec![0; shape.len() - 1], vec![1]].concat(), 0)
            };
            let run = |seq: i64, outs: [&Tensor; 2]| {
                let shape = [seq, heads, half];
                let (x1, x2) = (input(1, &shape), input(2, &shape));
                let (cos, sin) = (input(3, &[seq, half]), input(4, &[seq, half]));
                let args = [Arg::T(&x1), Arg::T(&x2), Arg::T(&cos), Arg::T(&sin), Arg::T(outs[0]), Arg::T(outs[1])];
                call(apply_rotary, &[&args[..], &[Arg::B(false)]].concat()).expect("apply_rotary");
            };
            for shift in [0, 1] {
                // Heads one behind the other, and positions one behind the other.
                for strides in [[heads * 2 * half, 2 * half, 1], [2 * half, seq * 2 * half, 1]] {
                    let out = Tensor { dtype, ..room.clone() };
                    let view = |at: i64| out.view(&[seq, heads, half], &strides, at + shift);
                    let (out1, out2) = (view(0), view(half));
                    run(seq, [&out1, &out2]);
                    let small = [Tensor::new(dtype, &[1, heads, half]), Tensor::new(dtype, &[1, heads, half])];
                    run(1, [&small[0], &small[1]]);
                    for position in [0, 1, seq / 2, seq - 1] {
                        for (large, small) in [&out1, &out2].into_iter().zip(&small) {
                            let row = large.view(&[1, heads, half], &large.strides, position * large.strides[0]);
                            assert_eq!(row.values(), small.values(), "{level:?} {dtype:?} {strides:?} {position}");
                        }
                    }
                }
            }
        }
    });
}
