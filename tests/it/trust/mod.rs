//! The gate: who is trusted decides before anything is fetched, whatever way a kernel is asked for.

mod chain;
#[cfg(feature = "cli")]
mod commands;
mod gate;
mod own_keys;
mod sigstore;
