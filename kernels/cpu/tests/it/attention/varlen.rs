//! `flash_attn_varlen`: sequences of different lengths, packed.

use kernelhub_cpu::flash_attn_varlen;

use super::reference::{CAUSAL, Extent, FULL, Opts, attention};
use crate::support::{Arg, DTYPES, Dt, Tensor, at_every_level, call};

/// A packed call: `lengths` are those of the queries and of the keys, by sequence.
struct Packed {
    tensors: [Tensor; 4],
    lengths: Vec<(i32, i32)>,
    cu: [Tensor; 2],
    longest: [i64; 2],
}

fn cumulative(lengths: impl Iterator<Item = i32>) -> Vec<i32> {
    let mut sums = vec![0];
    lengths.for_each(|length| sums.push(sums[sums.len() - 1] + length));
    sums
}

impl Packed {
    fn new(dtype: Dt, lengths: &[(i32, i32)], [heads, kv_heads, head_dim]: [i64; 3], seed: u64) -> Self {
        let cu = [cumulative(lengths.iter().map(|l| l.0)), cumulative(lengths.iter().map(|l| l.1))];
        let totals = cu.each_ref().map(|cu| i64::from(cu[cu.len() - 1]));
        let (q_shape, k_shape) = ([totals[0], heads, head_dim], [totals[1], kv_heads, head_dim]);
        let tensors = [
            Tensor::new(dtype, &q_shape),
            Tensor::random(dtype, &q_shape, seed),
            Tensor::random(dtype, &k_shape, seed + 1),
            Tensor::random(dtype, &k_shape, seed + 2),
        ];
        let longest = [lengths.iter().map(|l| l.0).max(), lengths.iter().map(|l| l.1).max()];
        Self {
            tensors,
            lengths: lengths.to_vec(),
            cu: cu.map(|cu| Tensor::ints(&cu)),
            longest: longest.map(|longest| longest.unwrap_or(0).into()),
        }
    }

    fn run(&self, opts: Opts) -> Result<(), String> {
        let [out, q, k, v] = self.tensors.each_ref().map(Arg::T);
        let [cu_q, cu_k] = self.cu.each_ref().map(Arg::T);
        let [max_q, max_k] = self.longest.map(Arg::I);
        let Opts { scale, causal, left, right, softcap } = opts;
        let scalars = [Arg::F(scale), Arg::B(causal), Arg::I(left), Arg::I(right), Arg::F(softcap)];
        call(flash_attn_varlen, &[&[out, q, k, v, cu_q, cu_k, max_q, max_k][..], &scalars].concat())
    }

    fn check(&self, opts: Opts, what: &str) {
        self.run(opts).expect(what);
        let [out, q, k, v] = &self.tensors;
        let (heads, kv_heads, head_dim) = (q.shape[1], k.shape[1], q.shape[2]);
        let (mut expected, mut at_q, mut at_k) = (Vec::new(), 0, 0);
        for &(q_len, kv_len) in &self.lengths {
            let extent = Extent { q_len: q_len.into(), kv_len: kv_len.into(), heads, kv_heads, head_dim };
            expected.extend(attention(
                extent,
                opts,
                |i, h, d| q.get(&[at_q + i, h, d]),
                |j, g, d| k.get(&[at_k + j, g, d]),
                |j, g, d| v.get(&[at_k + j, g, d]),
            ));
            (at_q, at_k) = (at_q + i64::from(q_len), at_k + i64::from(kv_len));
        }
        out.expect(|i| expected[((i[0] * heads + i[1]) * head_dim + i[2]) as usize], what);
    }
}

#[test]
fn agrees_with_f64_over_lengths_and_options() {
    let packs: [&[(i32, i32)]; 7] = [
        &[(3, 3), (5, 5)],
        &[(1, 70), (1, 3), (1, 200)],
        &[(0, 4), (7, 0), (130, 130), (2, 9)],
        &[(9, 4), (1, 1), (60, 100)],
        &[(4, 4)],
        // Split by keys.
        &[(1, 2100), (0, 0), (1, 5), (2, 1500)],
        &[],
    ];
    at_every_level(|level| {
        for dtype in DTYPES {
            for lengths in packs {
                for heads in [[4, 2, 20], [3, 1, 64]] {
                    for (causal, left, right, softcap) in
                        [(false, -1, -1, 0.0), (true, -1, -1, 0.0), (true, 5, -1, 2.0), (false, 4, 3, 0.0)]
                    {
                        let scale = 1.0 / (heads[2] as f64).sqrt();
                        let opts = Opts { scale, causal, left, right, softcap };
                        Packed::new(dtype, lengths, heads, 20)
                            .check(opts, &format!("{level:?} {lengths:?} {heads:?} {opts:?}"));
                    }
                }
            }
        }
    });
}

/// F49: a kernel elsewhere dropped the flag for packed sequences, and its tests had it false throughout.
#[test]
fn causal_holds_within_each_of_the_sequences_3_and_5() {
    at_every_level(|level| {
        for dtype in DTYPES {
            let packed = Packed::new(dtype, &[(3, 3), (5, 5)], [2, 2, 16], 30);
            let [out, _, _, v] = &packed.tensors;
            packed.run(CAUSAL).expect("runs");
            // The first query of each sequence sees one key.
            for row in [0, 3] {
                for (h, d) in (0..2).flat_map(|h| (0..16).map(move |d| (h, d))) {
                    assert_eq!(out.get(&[row, h, d]), v.get(&[row, h, d]), "{level:?} {dtype:?} row {row}");
                }
            }
            let rows = |range: core::ops::Range<usize>| out.values()[range.start * 32..range.end * 32].to_vec();
            let (before, later) = (rows(0..2), rows(3..7));
            for last in [2, 7] {
                for h in 0..2 {
                    (0..16).for_each(|d| v.set(&[last, h, d], 9.0 + last as f64));
                }
            }
            packed.run(CAUSAL).expect("runs");
            assert_eq!(rows(0..2), before, "{level:?} {dtype:?}: v[last] reaches earlier queries");
            assert_eq!(rows(3..7), later, "{level:?} {dtype:?}: v[last] reaches earlier queries");
            packed.run(FULL).expect("runs");
            assert_ne!(rows(0..2), before, "{level:?} {dtype:?}: the flag does nothing");
            assert_ne!(rows(3..7), later, "{level:?} {dtype:?}: the flag does nothing");
        }
    });
}

#[test]
fn sequences_do_not_see_each_other() {
    at_every_level(|level| {
        let packed = Packed::new(Dt::F32, &[(2, 30), (1, 70), (40, 40)], [2, 1, 16], 31);
        let [out, _, k, v] = &packed.tensors;
        packed.run(FULL).expect("runs");
        let before = out.values();
        // The middle sequence's keys are those from 30 to 99.
        for tensor in [k, v] {
            (30..100).for_each(|j| tensor.set(&[j, 0, 1], f64::NAN));
        }
        packed.run(FULL).expect("runs");
        for (index, (before, after)) in out.indices().iter().zip(before.iter().zip(out.values())) {
            // Its only query is row 2.
            assert!(index[0] == 2 || *before == after, "{level:?} {index:?}");
        }
        assert!(out.get(&[2, 0, 0]).is_nan(), "{level:?}");
    });
}

#[test]
fn keys_outside_every_sequence_are_not_read() {
    at_every_level(|_| {
        let mut packed = Packed::new(Dt::F32, &[(2, 5), (3, 4)], [2, 1, 16], 32);
        packed.run(FULL).expect("runs");
        let expected = packed.tensors[0].values();
        // The same keys behind two rows and before one that hold NaN, and integers that are not neighbours.
        for tensor in [2, 3] {
            let old = packed.tensors[tensor].clone();
            let room = Tensor::new(Dt::F32, &[12, 1, 16]);
            room.fill(|i| if (2..11).contains(&i[0]) { old.get(&[i[0] - 2, i[1], i[2]]) } else { f64::NAN });
            packed.tensors[tensor] = room;
        }
        packed.cu[1] = Tensor::ints(&[2, 77, 7, 77, 11]).view(&[3], &[2], 0);
        packed.run(FULL).expect("runs");
        assert_eq!(packed.tensors[0].values(), expected);
    });
}

#[test]
fn wrong_lengths_are_refused() {
    let refuse = |change: &dyn Fn(&mut Packed), text: &str| {
        let mut packed = Packed::new(Dt::F32, &[(3, 3), (5, 5)], [2, 1, 8], 33);
        packed.tensors[0].fill(|_| 77.0);
        change(&mut packed);
        let error = packed.run(CAUSAL).expect_err("wrong");
        assert_eq!(error, format!("flash_attn_varlen: {text}"));
        assert!(packed.tensors[0].values().iter().all(|&value| value == 77.0), "it wrote: {text}");
    };
    let cu = |at: usize, values: &'static [i32]| move |packed: &mut Packed| packed.cu[at] = Tensor::ints(values);
    refuse(&cu(0, &[0, 9, 8]), "argument `cu_seqlens_q`: expected numbers up to 8 rows, got 9 at 1");
    refuse(&cu(0, &[0, 5, 3]), "argument `cu_seqlens_q`: expected numbers that do not fall, got 3 after 5 at 2");
    refuse(&cu(0, &[0, 3, 7]), "argument `cu_seqlens_q`: expected numbers from 0 to the 8 rows of `q`, got 0 to 7");
    refuse(&cu(0, &[1, 3, 8]), "argument `cu_seqlens_q`: expected numbers from 0 to the 8 rows of `q`, got 1 to 8");
    refuse(&cu(0, &[]), "argument `cu_seqlens_q`: expected [batch + 1] numbers, of which the first is 0, got none");
    refuse(&cu(1, &[0, 3, 9]), "argument `cu_seqlens_k`: expected numbers up to 8 rows, got 9 at 2");
    refuse(&cu(1, &[-1, 3, 8]), "argument `cu_seqlens_k`: expected numbers of at least 0, got -1 at 0");
    refuse(&cu(1, &[0, 4, i32::MIN]), "argument `cu_seqlens_k`: expected numbers of at least 0, got -2147483648 at 2");
    refuse(&cu(1, &[0, 3, 5, 8]), "argument `cu_seqlens_k`: expected shape [3] (as `cu_seqlens_q`), got [4]");
    refuse(
        &|packed| packed.longest[0] = 4,
        "argument `max_seqlen_q`: expected the length of the longest sequence, at least 5, got 4",
    );
    refuse(
        &|packed| packed.longest[1] = -5,
        "argument `max_seqlen_k`: expected the length of the longest sequence, at least 5, got -5",
    );
    refuse(
        &|packed| packed.cu[0] = Tensor::new(Dt::F32, &[3]),
        "argument `cu_seqlens_q`: expected dtype i32, got code 2, 32 bits, 1 lanes",
    );
    refuse(
        &|packed| packed.tensors[1] = Tensor::ints(&[0; 128]).view(&[8, 2, 8], &[16, 8, 1], 0),
        "argument `q`: expected dtype f32, bf16 or f16, got code 0, 32 bits, 1 lanes",
    );
    refuse(
        &|packed| {
            let out = &packed.tensors[0];
            packed.cu[0] = Tensor { data: out.data, offset: out.offset, ..Tensor::ints(&[0, 3, 8]) };
        },
        "argument `out`: expected memory apart from `cu_seqlens_q`, got a partial overlap with it",
    );
}
