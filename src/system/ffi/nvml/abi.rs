//! Types of `nvml.h`.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

/// `nvmlDevice_t`, a pointer to what NVML keeps to itself.
pub(super) type Handle = NonNull<c_void>;

/// `nvmlMemory_t`, in bytes.
#[repr(C)]
#[derive(Default)]
pub(super) struct Memory {
    pub(super) total: u64,
    pub(super) free: u64,
    pub(super) used: u64,
}

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Default)]
pub(super) struct PciInfo {
    pub(super) legacy: [u8; 16],
    pub(super) domain: c_uint,
    pub(super) bus: c_uint,
    pub(super) device: c_uint,
    /// The device id in the upper half, the vendor's in the lower.
    pub(super) id: c_uint,
    pub(super) subsystem: c_uint,
    pub(super) bus_id: [u8; 32],
}

pub(super) type DeviceText = unsafe extern "C" fn(Handle, *mut c_char, c_uint) -> c_int;
pub(super) type DeviceNumber = unsafe extern "C" fn(Handle, *mut c_uint) -> c_int;
