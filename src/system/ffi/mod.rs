//! Calls into libraries that have no safe wrapper among our dependencies: the C library, and drivers that are opened at
//! run time.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc;
pub(super) mod level_zero;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(super) use glibc::glibc_version;
