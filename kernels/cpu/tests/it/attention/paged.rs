//! `flash_attn_paged`: keys and values in blocks.

use kernelhub_cpu::flash_attn_paged;

use super::reference::{CAUSAL, Extent, FULL, Opts, attention};
use crate::support::{Arg, DTYPES, Dt, Tensor, at_every_level, call};

struct Paged {
    /// out, q, `k_cache`, `v_cache`.
    tensors: [Tensor; 4],
    table: Tensor,
    ids: Vec<Vec<i32>>,
    lengths: Vec<i32>,
    seqlens: Tensor,
}

impl Paged {
    /// Blocks in an order of their own, unused places of the table with ids that no block has, and NaN wherever no
    /// sequence's key stands.
    fn new(dtype: Dt, q_len: i64, lengths: &[i32], block_size: i64, heads: [i64; 3], seed: u64) -> Self {
        let [heads, kv_heads, head_dim] = heads;
        let batch = lengths.len() as i64;
        let used: Vec<usize> = lengths.iter().map(|&length| (length as usize).div_ceil(block_size as usize)).collect();
        let width = used.iter().max().map_or(0, |max| max + 1);
        let blocks = used.iter().sum::<usize>() as i32 + 2;
        // Every third block, then those between: neighbours in a sequence are none in memory.
        let mut free = (0..3).flat_map(|start| (start..blocks).step_by(3)).filter(|id| *id != 1);
        let ids: Vec<Vec<i32>> = used
            .iter()
            .map(|&used| (0..width).map(|at| if at < used { free.next().expect("enough") } else { -7 }).collect())
            .collect();
        let table = Tensor::new(Dt::I32, &[batch, width as i64]);
        table.fill(|i| f64::from(ids[i[0] as usize][i[1] as usize]));
        let shape = [i64::from(blocks), block_size, kv_heads, head_dim];
        let (k, v) = (Tensor::random(dtype, &shape, seed), Tensor::random(dtype, &shape, seed + 1));
        let q_shape = [batch, q_len, heads, head_dim];
        let tensors = [Tensor::new(dtype, &q_shape), Tensor::random(dtype, &q_shape, seed + 2), k, v];
        let paged = Self { tensors, table, ids, lengths: lengths.to_vec(), seqlens: Tensor::ints(lengths) };
        let [_, _, k, v] = &paged.tensors;
        for index in k.indices() {
            let sequence = paged.ids.iter().position(|ids| ids.contains(&(index[0] as i32)));
            let is_key = sequence.is_some_and(|b| {
                let at = paged.ids[b].iter().position(|id| i64::from(*id) == index[0]).expect("it is there") as i64;
                at * block_size + index[1] < i64::from(lengths[b])
            });
            if !is_key {
                k.set(&index, f64::NAN);
                v.set(&index, f64::NAN);
            }
        }
        paged
    }

    fn run(&self, opts: Opts) -> Result<(), String> {
        let [out, q, k, v] = self.tensors.each_ref().map(Arg::T);
        let Opts { scale, causal, left, right, softcap } = opts;
        let scalars = [Arg::F(scale), Arg::B(causal), Arg::I(left), Arg::I(right), Arg::F(softcap)];
        call(flash_attn_paged, &[&[out, q, k, v, Arg::T(&self.table), Arg::T(&self.seqlens)][..], &scalars].concat())
    }

    fn check(&self, opts: Opts, what: &str) {
        self.run(opts).expect(what);
        let [out, q, k, v] = &self.tensors;
        let (q_len, heads, head_dim) = (q.shape[1], q.shape[2], q.shape[3]);
        let (block_size, kv_heads) = (k.shape[1], k.shape[2]);
        let expected: Vec<_> = (0..q.shape[0])
            .map(|b| {
                let place = |j: i64| (i64::from(self.ids[b as usize][(j / block_size) as usize]), j % block_size);
                let at = |tensor: &Tensor, j: i64, g: i64, d: i64| {
                    let (block, inner) = place(j);
                    tensor.get(&[block, inner, g, d])
                };
                let kv_len = i64::from(self.lengths[b as usize]);
                let extent = Extent { q_len, kv_len, heads, kv_heads, head_dim };
                attention(
                    extent,
                    opts,
                    |i, h, d| q.get(&[b, i, h, d]),
                    |j, g, d| at(k, j, g, d),
                    |j, g, d| at(v, j, g, d),
                )
            })
            .collect();
        out.expect(|i| expected[i[0] as usize][((i[1] * heads + i[2]) * head_dim + i[3]) as usize], what);
    }
}

#[test]
fn agrees_with_f64_over_block_sizes_lengths_and_options() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for (q_len, lengths) in
                [(1, &[5, 0, 70, 33][..]), (1, &[2100]), (3, &[130, 3, 1]), (40, &[40, 100]), (2, &[])]
            {
                for block_size in [1, 16, 64, 100] {
                    for (heads, (causal, left, right, softcap)) in [
                        ([4, 2, 20], (false, -1, -1, 0.0)),
                        ([3, 1, 64], (true, -1, -1, 0.0)),
                        ([3, 3, 64], (true, 9, -1, 2.0)),
                        ([2, 1, 16], (false, 70, 3, 0.0)),
                    ] {
                        let scale = 1.0 / (heads[2] as f64).sqrt();
                        let opts = Opts { scale, causal, left, right, softcap };
                        let what = format!("{level:?} {q_len} {lengths:?} blocks of {block_size} {heads:?} {opts:?}");
                        Paged::new(dtype, q_len, lengths, block_size, heads, 40).check(opts, &what);
                    }
                }
            }
        }
    });
}

#[test]
fn the_table_and_the_lengths_decide_what_is_read() {
    at_every_level(|level| {
        let mut paged = Paged::new(Dt::F32, 1, &[40, 40], 16, [2, 1, 16], 41);
        paged.run(CAUSAL).expect("runs");
        let before = paged.tensors[0].values();
        // Two sequences change places.
        paged.ids.swap(0, 1);
        paged.table.fill(|i| f64::from(paged.ids[i[0] as usize][i[1] as usize]));
        paged.check(CAUSAL, "swapped");
        let swapped = paged.tensors[0].values();
        assert_ne!(before, swapped, "{level:?}");
        // One key less.
        paged.lengths[1] = 39;
        paged.seqlens = Tensor::ints(&paged.lengths);
        paged.check(CAUSAL, "shorter");
        let shorter = paged.tensors[0].values();
        assert_eq!(shorter[..32], swapped[..32], "{level:?}");
        assert_ne!(shorter[32..], swapped[32..], "{level:?}");
    });
}

#[test]
fn wrong_tables_and_lengths_are_refused() {
    let refuse = |change: &dyn Fn(&mut Paged), text: &str| {
        let mut paged = Paged::new(Dt::F32, 1, &[20, 33], 16, [2, 1, 8], 42);
        paged.tensors[0].fill(|_| 77.0);
        change(&mut paged);
        let error = paged.run(FULL).expect_err("wrong");
        assert_eq!(error, format!("flash_attn_paged: {text}"));
        assert!(paged.tensors[0].values().iter().all(|&value| value == 77.0), "it wrote: {text}");
    };
    refuse(
        &|paged| paged.table.set(&[1, 2], 7.0),
        "argument `block_table`: expected ids of the 7 blocks, got 7 at [1, 2]",
    );
    refuse(
        &|paged| paged.table.set(&[0, 0], -1.0),
        "argument `block_table`: expected ids of the 7 blocks, got -1 at [0, 0]",
    );
    refuse(
        &|paged| paged.seqlens = Tensor::ints(&[20, 65]),
        "argument `seqlens_k`: expected at most the 4 x 16 positions of a row of `block_table`, got 65 at 1",
    );
    refuse(
        &|paged| paged.seqlens = Tensor::ints(&[-1, 33]),
        "argument `seqlens_k`: expected numbers of at least 0, got -1 at 0",
    );
    refuse(
        &|paged| paged.seqlens = Tensor::ints(&[20]),
        "argument `seqlens_k`: expected shape [2] ([batch], batch as in `q`), got [1]",
    );
    refuse(
        &|paged| paged.table = paged.table.view(&[1, 4], &[4, 1], 0),
        "argument `block_table`: expected shape [2, 4] ([batch, max_blocks], batch as in `q`), got [1, 4]",
    );
    refuse(
        &|paged| paged.table = paged.table.view(&[8], &[1], 0),
        "argument `block_table`: expected rank 2 [batch, max_blocks], got rank 1 [8]",
    );
    refuse(
        &|paged| paged.tensors[3] = Tensor::new(Dt::F32, &[7, 16, 2, 8]),
        "argument `v_cache`: expected shape [7, 16, 1, 8] (as `k_cache`), got [7, 16, 2, 8]",
    );
    refuse(
        &|paged| {
            let out = &paged.tensors[0];
            paged.table = Tensor { data: out.data, offset: out.offset, ..paged.table.clone() };
        },
        "argument `out`: expected memory apart from `block_table`, got a partial overlap with it",
    );
}
