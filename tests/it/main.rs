//! Integration tests, one module per room.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic, in its helpers too")]

#[cfg(feature = "cli")]
mod benchmark;
mod bind;
#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "cli")]
mod commands;
#[cfg(target_os = "linux")]
mod devices;
#[cfg(feature = "cli")]
mod devices_command;
#[cfg(feature = "cli")]
mod doc_pages;
mod doctor;
mod drivers;
#[cfg(feature = "wgpu")]
mod gpu;
#[cfg(feature = "cli")]
mod host_dropin;
#[cfg(feature = "cli")]
mod host_llama;
#[cfg(feature = "cli")]
mod host_reference;
#[cfg(feature = "cli")]
mod host_train;
mod hub;
mod hub_source;
#[cfg(feature = "cli")]
#[path = "../../examples/llama/mod.rs"]
mod llama;
mod load;
mod lock;
mod machines;
#[cfg(feature = "oci")]
mod oci;
mod pack_layers;
mod parity;
mod plan_command;
#[cfg(feature = "cli")]
mod probe;
mod registry;
mod resolve;
#[cfg(feature = "cli")]
mod resolve_command;
mod scan;
mod slice;
#[cfg(all(feature = "cli", target_os = "linux"))]
mod special_files;
mod support;
#[cfg(feature = "cli")]
mod swap;
mod trust;
