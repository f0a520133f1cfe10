//! Bytes over HTTP: the client, redirects, retries, and downloads that resume.
//!
//! Owns: every socket of the library. Refuses: any opinion on what the bytes are for; digests come in with the request.
//!
//! Invariants: a token goes to the origin that it was given for and to no other, whatever a server answers; an answer
//! that is not the file's own bytes (an error status, an encoded body) is never part of a file; every wait has an end.
//!
//! The design choice: futures inside, run to their end on a thread of their own by [`Http::block_on`], so that callers
//! need no runtime and may have one. The cost is one short-lived thread for each piece of work that needs the network.
//! Neither the runtime nor a client exists before the first request.

mod client;
mod json;
mod range;
mod redirect;
mod retry;
mod sink;
mod token;
mod transfer;

pub(super) use client::{Http, HttpOptions};
pub(super) use json::Page;
pub use retry::RetryPolicy;
pub use token::Token;
pub(super) use transfer::{NoTag, TagStore, Wanted, download};
