//! The C structures that cross the boundary between a host and a native kernel pack.
//!
//! Owns: the layouts of the tvm-ffi calling convention (apache/tvm-ffi headers 0.1, checked against 0.1.0 to 0.1.15)
//! and the few symbols that kernelhub's own packs add. Refuses: to load, call or interpret anything. It holds
//! declarations only, so that a pack (a `cdylib`) and the host share one definition and nothing else.
//!
//! C-owned enumerations are integer constants here, never Rust enums: a foreign library may pass any value.

#![no_std]

use core::ffi::{c_char, c_int, c_void};

/// Version of the handshake below. A pack answers it from [`symbols::ABI_VERSION`]; a host refuses any other value.
pub const PACK_ABI_VERSION: u32 = 1;

/// Names of exported symbols, without the NUL.
pub mod symbols {
    /// Prefix of every function with the tvm-ffi calling convention: `__tvm_ffi_<name>`.
    pub const FUNCTION_PREFIX: &str = "__tvm_ffi_";
    /// `uint32_t kernelhub_abi_version(void)`, checked before any other symbol of a pack.
    pub const ABI_VERSION: &str = "kernelhub_abi_version";
    /// `size_t kernelhub_last_error(char* buf, size_t len)`, see [`LastErrorFn`](super::LastErrorFn).
    pub const LAST_ERROR: &str = "kernelhub_last_error";
    /// `void kernelhub_set_parallel_for(fn, ctx)`, see [`SetParallelForFn`](super::SetParallelForFn).
    pub const SET_PARALLEL_FOR: &str = "kernelhub_set_parallel_for";
}

/// `TVMFFIAny::type_index` values that a pack's functions take or return.
pub mod type_index {
    /// No value.
    pub const NONE: i32 = 0;
    /// `i64` in the payload.
    pub const INT: i32 = 1;
    /// `i64` 0 or 1 in the payload.
    pub const BOOL: i32 = 2;
    /// `f64` in the payload.
    pub const FLOAT: i32 = 3;
    /// `*mut DLTensor` in the payload.
    pub const DL_TENSOR_PTR: i32 = 7;
    /// `*const c_char`, NUL-terminated, in the payload.
    pub const RAW_STR: i32 = 8;
    /// The first index of a reference-counted object: such a result must be released.
    pub const FIRST_OBJECT: i32 = 64;
}

/// `DLDevice::device_type` values.
pub mod device_type {
    /// Host memory.
    pub const CPU: i32 = 1;
    /// CUDA device memory.
    pub const CUDA: i32 = 2;
    /// Vulkan buffers.
    pub const VULKAN: i32 = 7;
    /// Metal buffers.
    pub const METAL: i32 = 8;
    /// ROCm device memory.
    pub const ROCM: i32 = 10;
    /// Intel GPU memory (oneAPI).
    pub const ONE_API: i32 = 14;
}

/// `DLDataType::code` values.
pub mod dtype_code {
    /// Signed integer.
    pub const INT: u8 = 0;
    /// Unsigned integer.
    pub const UINT: u8 = 1;
    /// IEEE floating point.
    pub const FLOAT: u8 = 2;
    /// bfloat16.
    pub const BFLOAT: u8 = 4;
    /// Boolean, 8 bits.
    pub const BOOL: u8 = 6;
}

/// Where a tensor lives. 8 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DLDevice {
    /// One of [`device_type`].
    pub device_type: i32,
    /// Index among the devices of that type.
    pub device_id: i32,
}

/// Element type. 4 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DLDataType {
    /// One of [`dtype_code`].
    pub code: u8,
    /// Bits of one lane.
    pub bits: u8,
    /// Lanes of a vector element; 1 for plain elements.
    pub lanes: u16,
}

/// A borrowed view of a tensor. 48 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DLTensor {
    /// Base address. Hosts fold the offset in, so that the first element is `data + byte_offset` with offset 0.
    pub data: *mut c_void,
    /// Where `data` lives.
    pub device: DLDevice,
    /// Number of axes.
    pub ndim: i32,
    /// Element type.
    pub dtype: DLDataType,
    /// `ndim` extents, in elements.
    pub shape: *mut i64,
    /// `ndim` strides, in elements (not bytes). Never null when a kernelhub host calls.
    pub strides: *mut i64,
    /// Offset of the first element from `data`, in bytes.
    pub byte_offset: u64,
}

/// The payload of [`TVMFFIAny`]. 8 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub union TVMFFIPayload {
    /// For `INT` and `BOOL`.
    pub v_int64: i64,
    /// For `FLOAT`.
    pub v_float64: f64,
    /// For pointers.
    pub v_ptr: *mut c_void,
    /// For `RAW_STR`.
    pub v_c_str: *const c_char,
}

impl core::fmt::Debug for TVMFFIPayload {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // Which member is set is known from the tag beside it alone.
        f.write_str("TVMFFIPayload")
    }
}

/// One argument or result: a tag and eight bytes. 16 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TVMFFIAny {
    /// One of [`type_index`], or any other value from a foreign library.
    pub type_index: i32,
    /// Zero for all values that packs use.
    pub zero_padding: u32,
    /// Read only the member that `type_index` names.
    pub payload: TVMFFIPayload,
}

impl core::fmt::Debug for TVMFFIAny {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("TVMFFIAny").field("type_index", &self.type_index).finish_non_exhaustive()
    }
}

impl TVMFFIAny {
    /// The value None; what a result is set to before a call.
    #[must_use]
    pub const fn none() -> Self {
        Self { type_index: type_index::NONE, zero_padding: 0, payload: TVMFFIPayload { v_int64: 0 } }
    }

    /// An integer.
    #[must_use]
    pub const fn int(value: i64) -> Self {
        Self { type_index: type_index::INT, zero_padding: 0, payload: TVMFFIPayload { v_int64: value } }
    }

    /// A boolean.
    #[must_use]
    pub const fn bool(value: bool) -> Self {
        Self { type_index: type_index::BOOL, zero_padding: 0, payload: TVMFFIPayload { v_int64: value as i64 } }
    }

    /// A floating-point number.
    #[must_use]
    pub const fn float(value: f64) -> Self {
        Self { type_index: type_index::FLOAT, zero_padding: 0, payload: TVMFFIPayload { v_float64: value } }
    }

    /// A borrowed tensor. The pointee must outlive the call that the value is passed to.
    #[must_use]
    pub const fn tensor(tensor: *mut DLTensor) -> Self {
        Self {
            type_index: type_index::DL_TENSOR_PTR,
            zero_padding: 0,
            payload: TVMFFIPayload { v_ptr: tensor.cast::<c_void>() },
        }
    }
}

/// Every exported kernel function: `int fn(void* handle, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result)`.
/// Returns 0 when it succeeded. `handle` is null for exported symbols.
pub type PackedFn =
    unsafe extern "C" fn(handle: *mut c_void, args: *const TVMFFIAny, num_args: i32, result: *mut TVMFFIAny) -> c_int;

/// `uint32_t kernelhub_abi_version(void)`.
pub type AbiVersionFn = unsafe extern "C" fn() -> u32;

/// `size_t kernelhub_last_error(char* buf, size_t len)`: copies the calling thread's last error text, UTF-8, cut to
/// `len` bytes and without a NUL, and returns the text's whole length in bytes. A null `buf` with `len` 0 asks for
/// the length alone. The text stays until the thread's next failing call.
pub type LastErrorFn = unsafe extern "C" fn(buf: *mut c_char, len: usize) -> usize;

/// The body of a parallel loop: runs index `index` of `0..n`.
pub type ParallelBodyFn = unsafe extern "C" fn(index: usize, body_ctx: *mut c_void);

/// The host's parallel loop: runs `body(i, body_ctx)` once for each `i` in `0..n`, on any of the host's threads, and
/// returns when all have returned.
pub type ParallelForFn = unsafe extern "C" fn(ctx: *mut c_void, n: usize, body: ParallelBodyFn, body_ctx: *mut c_void);

/// `void kernelhub_set_parallel_for(ParallelForFn run, void* ctx)`: hands the pack the host's pool. A pack splits its
/// work by size, never by a number of threads, which it isn't told. Without a pool a pack runs serially.
pub type SetParallelForFn = unsafe extern "C" fn(run: Option<ParallelForFn>, ctx: *mut c_void);

#[cfg(test)]
mod tests {
    use super::{DLDataType, DLDevice, DLTensor, TVMFFIAny};
    use core::mem::{offset_of, size_of};

    #[test]
    fn layouts_are_those_of_the_c_headers() {
        assert_eq!(size_of::<DLDevice>(), 8);
        assert_eq!(size_of::<DLDataType>(), 4);
        assert_eq!(size_of::<DLTensor>(), 48);
        assert_eq!(offset_of!(DLTensor, ndim), 16);
        assert_eq!(offset_of!(DLTensor, dtype), 20);
        assert_eq!(offset_of!(DLTensor, shape), 24);
        assert_eq!(offset_of!(DLTensor, byte_offset), 40);
        assert_eq!(size_of::<TVMFFIAny>(), 16);
        assert_eq!(offset_of!(TVMFFIAny, payload), 8);
    }
}
