//! Where each sequence's queries and keys lie.

#![expect(unsafe_code, reason = "reads lengths and block tables by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]
#![expect(clippy::cast_possible_wrap, reason = "extents and offsets fit isize: checked with the tensor")]

use core::ops::Range;

use super::options::Window;
use crate::call::{Failed, IndexType, Tensor};

/// One sequence: its place in the tensors of queries, and of keys and values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sequence {
    /// Its number.
    pub(super) index: usize,
    /// The first query, and their number.
    pub(super) q_start: usize,
    pub(super) q_len: usize,
    /// The first key, and their number.
    pub(super) kv_start: usize,
    pub(super) kv_len: usize,
}

impl Sequence {
    /// The keys that query `query` sees: those that stand within the window around its position, which is such that the
    /// last query and the last key stand at the same one.
    #[inline(always)]
    pub(super) fn visible(&self, query: usize, window: Window) -> Range<usize> {
        // Position + 1, and what is taken from it; the position itself may be negative.
        let next = self.kv_len + query + 1;
        let start = (next - 1).saturating_sub(self.q_len.saturating_add(window.left));
        let end = next.saturating_add(window.right).saturating_sub(self.q_len).min(self.kv_len);
        start..end
    }
}

/// Integers of one axis, of which each was found to be at least 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lengths {
    data: *const i32,
    stride: isize,
}

impl Lengths {
    /// # Safety
    /// `index` is inside the axis.
    #[inline(always)]
    unsafe fn get(self, index: usize) -> usize {
        // SAFETY: inside the tensor by this function's contract.
        let value = unsafe { self.data.offset(index as isize * self.stride).read() };
        // At least 0 by the type's invariant.
        value.unsigned_abs() as usize
    }

    /// Calls `check` with each integer in order, as a number of at least 0.
    pub(super) fn read(
        tensor: &Tensor<IndexType>,
        mut check: impl FnMut(usize, usize) -> Result<(), Failed>,
    ) -> Result<Self, Failed> {
        let lengths = Self { data: tensor.data(), stride: tensor.strides()[0] };
        for index in 0..tensor.shape()[0] {
            // SAFETY: inside the only axis of a checked tensor.
            let value = unsafe { lengths.data.offset(index as isize * lengths.stride).read() };
            let length = usize::try_from(value)
                .map_err(|_| tensor.invalid(format_args!("expected numbers of at least 0, got {value} at {index}")))?;
            check(index, length)?;
        }
        Ok(lengths)
    }
}

/// Which block of a paged cache holds which positions of a sequence. The ids of blocks in use were checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockTable {
    data: *const i32,
    strides: [isize; 2],
    /// Positions per block.
    block_size: usize,
}

impl BlockTable {
    /// Checks the ids of the blocks that hold the first `lengths` positions of each sequence; `lengths` were found to
    /// fit the table.
    pub(super) fn read(
        table: &Tensor<IndexType>,
        lengths: Lengths,
        blocks: usize,
        block_size: usize,
    ) -> Result<Self, Failed> {
        let read = Self { data: table.data(), strides: [table.strides()[0], table.strides()[1]], block_size };
        for sequence in 0..table.shape()[0] {
            // SAFETY: as many lengths as rows of the table.
            let length = unsafe { lengths.get(sequence) };
            for index in 0..if length == 0 { 0 } else { length.div_ceil(block_size) } {
                // SAFETY: inside the table, since the length fits it.
                let id = unsafe { read.id(sequence, index) };
                if usize::try_from(id).is_ok_and(|id| id < blocks) {
                    continue;
                }
                let text = format_args!("expected ids of the {blocks} blocks, got {id} at [{sequence}, {index}]");
                return Err(table.invalid(text));
            }
        }
        Ok(read)
    }

    /// # Safety
    /// The indices are inside the table.
    #[inline(always)]
    unsafe fn id(&self, sequence: usize, index: usize) -> i32 {
        let offset = sequence as isize * self.strides[0] + index as isize * self.strides[1];
        // SAFETY: inside the tensor by this function's contract.
        unsafe { self.data.offset(offset).read() }
    }

    /// The block of a position, and the place in it.
    ///
    /// # Safety
    /// The position is one of the sequence's.
    #[inline(always)]
    unsafe fn place(&self, sequence: usize, position: usize) -> [usize; 2] {
        // SAFETY: positions of the sequence are inside the table.
        let id = unsafe { self.id(sequence, position / self.block_size) };
        [id.unsigned_abs() as usize, position % self.block_size]
    }
}

/// The sequences of a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sequences {
    /// A batch of equal lengths.
    Dense { q_len: usize, kv_len: usize },
    /// One behind the other: sequence `i` lies at `starts[i]..starts[i + 1]`.
    Packed { q_starts: Lengths, kv_starts: Lengths },
    /// A batch of as many queries each, over keys and values in blocks.
    Paged { q_len: usize, kv_lens: Lengths, table: BlockTable },
}

impl Sequences {
    /// # Safety
    /// `index` is below the number of sequences.
    #[inline(always)]
    pub(super) unsafe fn get(&self, index: usize) -> Sequence {
        match *self {
            Self::Dense { q_len, kv_len } => Sequence { index, q_start: 0, q_len, kv_start: 0, kv_len },
            Self::Packed { q_starts, kv_starts } => {
                // SAFETY: one start more than sequences.
                let [q, next_q] = unsafe { [q_starts.get(index), q_starts.get(index + 1)] };
                // SAFETY: likewise.
                let [kv, next_kv] = unsafe { [kv_starts.get(index), kv_starts.get(index + 1)] };
                Sequence { index, q_start: q, q_len: next_q - q, kv_start: kv, kv_len: next_kv - kv }
            }
            Self::Paged { q_len, kv_lens, .. } => {
                // SAFETY: a length per sequence.
                let kv_len = unsafe { kv_lens.get(index) };
                Sequence { index, q_start: 0, q_len, kv_start: 0, kv_len }
            }
        }
    }

    /// Indices of the first two axes of a key or value.
    ///
    /// # Safety
    /// `key` is below the sequence's number of keys.
    #[inline(always)]
    pub(super) unsafe fn key(&self, sequence: &Sequence, key: usize) -> [usize; 2] {
        match self {
            Self::Dense { .. } | Self::Packed { .. } => [sequence.index, sequence.kv_start + key],
            // SAFETY: this function's contract.
            Self::Paged { table, .. } => unsafe { table.place(sequence.index, key) },
        }
    }

    /// Whether `count` keys from `first` on lie at one stride.
    #[inline(always)]
    pub(super) fn even(&self, first: usize, count: usize) -> bool {
        match self {
            Self::Dense { .. } | Self::Packed { .. } => true,
            Self::Paged { table, .. } => first % table.block_size + count <= table.block_size,
        }
    }
}
