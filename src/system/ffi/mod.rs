//! Calls into libraries that have no safe wrapper among our dependencies: the C library, and drivers that are opened at
//! run time.

mod driver;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc;
pub(super) mod level_zero;
mod libcuda;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod memory;
mod nvml;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(super) use glibc::glibc_version;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(super) use memory::{collapse, set_mmap_threshold, set_trim_threshold};

pub(super) use driver::OpenError;
pub(super) use libcuda::{CAPABILITY_MAJOR, CAPABILITY_MINOR, CudaFailure, LibCuda};
pub(super) use nvml::{Nvml, NvmlDevice, NvmlFailure, Pci};
