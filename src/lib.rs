//! kernelhub: the Kernel Hub for Rust.
pub mod bind;
pub mod digest;
pub mod dtype;
pub mod fetch;
#[cfg(feature = "wgpu")]
pub mod gpu;
pub mod hint;
pub mod host;
pub mod hub;
pub mod load;
pub mod manifest;
pub mod names;
pub mod resolve;
pub mod swap;
pub mod system;
pub mod variant;
pub mod verify;
