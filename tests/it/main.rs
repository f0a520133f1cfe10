//! Integration tests, one module per room.

#[cfg(feature = "cli")]
mod host_reference;
#[cfg(feature = "cli")]
#[path = "../../examples/llama/mod.rs"]
mod llama;
