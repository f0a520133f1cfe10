//! Integration tests, one module per room.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic, in its helpers too")]

#[cfg(feature = "cli")]
mod commands;
#[cfg(feature = "wgpu")]
mod gpu;
#[cfg(feature = "cli")]
mod host_reference;
mod hub_source;
#[cfg(feature = "cli")]
#[path = "../../examples/llama/mod.rs"]
mod llama;
mod lock;
mod registry;
mod resolve;
mod support;
