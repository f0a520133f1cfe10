//! Unsafe island 1: brings verified code into the process.
//!
//! Owns: `dlopen`, the tvm-ffi calling convention, the version handshake and the table of libraries that this process
//! has loaded. Refuses: policy, and anything that was not verified: [`KernelLibrary::open`] takes a
//! [`VerifiedSnapshot`], and only [`crate::verify`] makes one.
//!
//! The bytes that are mapped are the bytes that were hashed (a sealed copy, see [`crate::verify::VerifiedLibrary`]).
//! A library is loaded with `RTLD_NOW | RTLD_LOCAL` by an absolute path: a missing symbol is found here and not at the
//! first call, and two versions of one kernel keep their symbols apart. It is **never unloaded**: thread-locals,
//! deleters and other code of it may be reached at any later time. The price is its memory for the process's life; the
//! gain is that functions are `'static` and plain to pass around. Libraries are interned by digest, so asking again
//! costs one look-up.
//!
//! Before any code of a library runs, its file is asked what it needs, and all that this machine lacks is reported at
//! once ([`LoadError::Unfit`]); so is what it would share with a kernel that is loaded.

mod crew;
mod error;
mod library;
mod threads;

pub use error::LoadError;
pub(crate) use library::CallFailure;
pub use library::{Handshake, KernelLibrary, NativeFunction};
pub use threads::on_threads;

#[cfg(doc)]
use crate::verify::VerifiedSnapshot;
