//! What NVML's calls return.

use std::ffi::c_int;

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::system) enum NvmlError {
    /// The library has no such function: it is older, or no NVML.
    #[error("NVML has no function {0}")]
    Missing(&'static str),
    /// The function returned an error.
    #[error("{function} failed: {}", reason(*code))]
    Code {
        /// The function.
        function: &'static str,
        /// `nvmlReturn_t`.
        code: c_int,
    },
}

impl NvmlError {
    /// Whether it says that the kernel's part of the driver is not loaded.
    pub(in crate::system) fn is_not_loaded(&self) -> bool {
        matches!(self, Self::Code { code: 9, .. })
    }
}

/// `nvmlReturn_t` in words. The library's own `nvmlErrorString` is not asked: it may be what is broken.
fn reason(code: c_int) -> String {
    let words = match code {
        1 => "the library is not initialised",
        2 => "an argument is invalid",
        3 => "it is not supported by this device",
        4 => "no permission",
        6 => "there is none",
        8 => "the GPU's power cables are not attached",
        9 => "the driver's kernel module is not loaded",
        12 => "a library of the driver is missing",
        15 => "the GPU has fallen off the bus",
        18 => "the library and the kernel module are of different driver versions",
        999 => "an internal error of the driver",
        _ => return format!("error {code}"),
    };
    format!("{words} (error {code})")
}

pub(super) fn check(function: &'static str, code: c_int) -> Result<(), NvmlError> {
    if code == 0 { Ok(()) } else { Err(NvmlError::Code { function, code }) }
}
