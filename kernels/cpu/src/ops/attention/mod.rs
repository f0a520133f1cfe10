//! Scaled dot-product attention with grouped heads, without a matrix of scores in memory.
//!
//! Queries of all heads that share a key/value head are the rows of one block, so that keys and values are read once
//! per block. A block walks over tiles of the keys that its rows see, with an online softmax (running maximum and sum
//! per row). Blocks of many rows transpose the keys of a tile and multiply with register tiles; blocks of few rows
//! (decoding) take dot products with the keys as they lie, since transposing would cost more than it saves; where the
//! head allows it, in their own element type (`few`).
//!
//! Sequences of a batch, of a packed call and of a paged cache differ only in where their queries and keys lie, which
//! `sequences` knows.

mod arguments;
mod block;
mod dense;
mod few;
mod keys;
mod options;
mod paged;
mod run;
mod sequences;
mod softmax;
mod split;
mod tiles;
mod varlen;

pub(crate) use self::dense::{call, call_with_options};
pub(crate) use self::paged::call as call_paged;
pub(crate) use self::varlen::call as call_varlen;
use super::multiply;
use crate::call::Tensor;

/// Largest head size, in elements: what the tiles on the stack are sized for.
const MAX_HEAD: usize = 256;

/// A tensor `[batch, sequence, heads, head_dim]` as base and the strides of its first three axes.
#[derive(Debug, Clone, Copy)]
struct View<E> {
    data: *mut E,
    strides: [isize; 3],
}

impl<E> View<E> {
    /// Axes that a tensor of rank 3 lacks come first and have one element.
    fn new(tensor: &Tensor) -> Self {
        let mut strides = [0; 3];
        let leading = &tensor.strides()[..tensor.strides().len() - 1];
        strides[3 - leading.len()..].copy_from_slice(leading);
        Self { data: tensor.data(), strides }
    }
}
