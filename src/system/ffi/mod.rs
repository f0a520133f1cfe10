//! Calls into libraries that have no safe wrapper among our dependencies: the C library, and drivers that are opened at
//! run time.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod memory;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(super) use glibc::glibc_version;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(super) use memory::{collapse, set_mmap_threshold, set_trim_threshold};
