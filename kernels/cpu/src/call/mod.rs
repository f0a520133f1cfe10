//! The boundary to the host: arguments in, errors out, the host's threads.
//!
//! Owns: reading and checking of arguments, the error text, the panic barrier, the parallel loop. Refuses: to know
//! what a kernel computes.
//!
//! Invariant: a [`Tensor`] that this room hands out describes memory whose every element can be addressed without
//! overflow. Whether that memory is there is the host's promise, the one thing that a callee cannot check. Main
//! choice: errors are written to the thread's buffer where they are found, and travel as an empty [`Failed`], so that
//! no path of a call allocates; the cost is that an error's text is cut at the buffer's length.

mod args;
mod error;
#[cfg(any(feature = "embedding", feature = "cross-entropy"))]
mod ids;
mod pool;
mod rows;
mod tensor;

pub(crate) use args::Args;
pub use error::kernelhub_last_error;
pub(crate) use error::{Failed, guard};
#[cfg(any(feature = "embedding", feature = "cross-entropy"))]
pub(crate) use ids::{IdType, Ids};
pub use pool::kernelhub_set_parallel_for;
pub(crate) use pool::{Job, launch};
pub(crate) use rows::RowMap;
pub(crate) use tensor::{DType, IndexType, MAX_RANK, Tensor};
