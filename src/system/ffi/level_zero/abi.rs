//! The structures and functions of `ze_api.h` that are used, in the order of their fields there.

use std::ffi::{c_char, c_void};
use std::ptr;

pub(super) const NAME_BYTES: usize = 256;

pub(super) type Handle = *mut c_void;
pub(super) type Init = unsafe extern "C" fn(u32) -> u32;
pub(super) type InitDrivers = unsafe extern "C" fn(*mut u32, *mut Handle, *const InitDriverType) -> u32;
pub(super) type DriverGet = unsafe extern "C" fn(*mut u32, *mut Handle) -> u32;
pub(super) type ListOf<T> = unsafe extern "C" fn(Handle, *mut u32, *mut T) -> u32;
pub(super) type PropertiesOf<T> = unsafe extern "C" fn(Handle, *mut T) -> u32;

/// `ze_init_driver_type_desc_t`.
#[repr(C)]
pub(super) struct InitDriverType {
    pub(super) stype: u32,
    pub(super) next: *const c_void,
    pub(super) flags: u32,
}

/// `ze_driver_properties_t`.
#[repr(C)]
pub(super) struct DriverProperties {
    pub(super) stype: u32,
    pub(super) next: *mut c_void,
    pub(super) uuid: [u8; 16],
    pub(super) driver_version: u32,
}

/// `ze_driver_extension_properties_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ExtensionProperties {
    pub(super) name: [c_char; NAME_BYTES],
    pub(super) version: u32,
}

/// `ze_device_properties_t`.
#[repr(C)]
pub(super) struct DeviceProperties {
    pub(super) stype: u32,
    pub(super) next: *mut c_void,
    pub(super) kind: u32,
    pub(super) vendor_id: u32,
    pub(super) device_id: u32,
    pub(super) flags: u32,
    pub(super) subdevice_id: u32,
    pub(super) core_clock_rate: u32,
    pub(super) max_mem_alloc_size: u64,
    pub(super) max_hardware_contexts: u32,
    pub(super) max_command_queue_priority: u32,
    pub(super) threads_per_eu: u32,
    pub(super) eu_simd_width: u32,
    pub(super) eus_per_subslice: u32,
    pub(super) subslices_per_slice: u32,
    pub(super) slices: u32,
    pub(super) timer_resolution: u64,
    pub(super) timestamp_valid_bits: u32,
    pub(super) kernel_timestamp_valid_bits: u32,
    pub(super) uuid: [u8; 16],
    pub(super) name: [c_char; NAME_BYTES],
}

/// `ze_device_module_properties_t`.
#[repr(C)]
pub(super) struct ModuleProperties {
    pub(super) stype: u32,
    pub(super) next: *mut c_void,
    pub(super) spirv_version: u32,
    pub(super) flags: u32,
    pub(super) fp16_flags: u32,
    pub(super) fp32_flags: u32,
    pub(super) fp64_flags: u32,
    pub(super) max_arguments_size: u32,
    pub(super) printf_buffer_size: u32,
    pub(super) native_kernel: [u8; 16],
}

/// `ze_device_memory_properties_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct MemoryProperties {
    pub(super) stype: u32,
    pub(super) next: *mut c_void,
    pub(super) flags: u32,
    pub(super) max_clock_rate: u32,
    pub(super) max_bus_width: u32,
    pub(super) total_size: u64,
    pub(super) name: [c_char; NAME_BYTES],
}

/// `ze_pci_ext_properties_t`.
#[repr(C)]
pub(super) struct PciProperties {
    pub(super) stype: u32,
    pub(super) next: *mut c_void,
    pub(super) domain: u32,
    pub(super) bus: u32,
    pub(super) device: u32,
    pub(super) function: u32,
    pub(super) generation: i32,
    pub(super) width: i32,
    pub(super) max_bandwidth: i64,
}

impl DriverProperties {
    pub(super) const fn empty() -> Self {
        Self { stype: 0x1, next: ptr::null_mut(), uuid: [0; 16], driver_version: 0 }
    }
}

impl ExtensionProperties {
    pub(super) const fn empty() -> Self {
        Self { name: [0; NAME_BYTES], version: 0 }
    }
}

impl DeviceProperties {
    /// Of type `ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2`, which differs from the older one in the unit of
    /// `timer_resolution` alone.
    pub(super) const fn empty() -> Self {
        Self {
            stype: 0x0002_0006,
            next: ptr::null_mut(),
            kind: 0,
            vendor_id: 0,
            device_id: 0,
            flags: 0,
            subdevice_id: 0,
            core_clock_rate: 0,
            max_mem_alloc_size: 0,
            max_hardware_contexts: 0,
            max_command_queue_priority: 0,
            threads_per_eu: 0,
            eu_simd_width: 0,
            eus_per_subslice: 0,
            subslices_per_slice: 0,
            slices: 0,
            timer_resolution: 0,
            timestamp_valid_bits: 0,
            kernel_timestamp_valid_bits: 0,
            uuid: [0; 16],
            name: [0; NAME_BYTES],
        }
    }
}

impl ModuleProperties {
    pub(super) const fn empty() -> Self {
        Self {
            stype: 0x5,
            next: ptr::null_mut(),
            spirv_version: 0,
            flags: 0,
            fp16_flags: 0,
            fp32_flags: 0,
            fp64_flags: 0,
            max_arguments_size: 0,
            printf_buffer_size: 0,
            native_kernel: [0; 16],
        }
    }
}

impl MemoryProperties {
    pub(super) const fn empty() -> Self {
        Self {
            stype: 0x7,
            next: ptr::null_mut(),
            flags: 0,
            max_clock_rate: 0,
            max_bus_width: 0,
            total_size: 0,
            name: [0; NAME_BYTES],
        }
    }
}

impl PciProperties {
    pub(super) const fn empty() -> Self {
        Self {
            stype: 0x10008,
            next: ptr::null_mut(),
            domain: 0,
            bus: 0,
            device: 0,
            function: 0,
            generation: 0,
            width: 0,
            max_bandwidth: 0,
        }
    }
}

// What a C compiler makes of the header on a 64-bit system.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<DriverProperties>() == 40);
    assert!(size_of::<ExtensionProperties>() == 260);
    assert!(size_of::<DeviceProperties>() == 368);
    assert!(std::mem::offset_of!(DeviceProperties, name) == 112);
    assert!(size_of::<ModuleProperties>() == 64);
    assert!(size_of::<MemoryProperties>() == 296);
    assert!(std::mem::offset_of!(MemoryProperties, total_size) == 32);
    assert!(size_of::<PciProperties>() == 48);
};
