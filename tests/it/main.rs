//! Integration tests, one module per room.

#[cfg(feature = "wgpu")]
mod gpu;
mod resolve;
