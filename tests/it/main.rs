//! Integration tests, one module per room.

#[cfg(feature = "wgpu")]
mod gpu;
mod resolve;
#![expect(clippy::unwrap_used, reason = "a test fails by a panic, in its helpers too")]

mod registry;
mod support;
