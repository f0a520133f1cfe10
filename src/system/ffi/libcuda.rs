//! The CUDA driver interface (`cuda.h`), as far as listing devices needs it. No context is made.
#![expect(unsafe_code, reason = "the CUDA driver is a C interface")]

use std::ffi::{CStr, c_char, c_int, c_uint};

use super::driver::{Driver, OpenError, buffer_text};
use crate::system::environment::Environment;

const NAMES: &[&str] = if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1"] };

/// Room for a device's name.
const TEXT: u16 = 256;

/// Attributes of a device, by their numbers in `CUdevice_attribute`.
pub(in crate::system) const CAPABILITY_MAJOR: c_int = 75;
/// The other half of the compute capability.
pub(in crate::system) const CAPABILITY_MINOR: c_int = 76;

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::system) enum CudaError {
    /// The library has no such function.
    #[error("libcuda has no function {0}")]
    Missing(&'static str),
    /// The function returned an error.
    #[error("{function} failed: {}", reason(*code))]
    Code {
        /// The function.
        function: &'static str,
        /// `CUresult`.
        code: c_int,
    },
}

impl CudaError {
    /// Whether it says that there is no device, or none that the environment leaves.
    pub(in crate::system) fn is_no_device(&self) -> bool {
        matches!(self, Self::Code { code: 100, .. })
    }

    /// Whether it comes from the library that programs are linked against where there is no driver.
    pub(in crate::system) fn is_stub(&self) -> bool {
        matches!(self, Self::Code { code: 34, .. })
    }
}

fn reason(code: c_int) -> String {
    let words = match code {
        3 => "the driver is not initialised",
        34 => "the library is a stub that stands for the driver where programs are linked",
        35 => "the driver is older than the library",
        100 => "no device",
        101 => "CUDA_VISIBLE_DEVICES or CUDA_DEVICE_ORDER cannot be read",
        802 => "the system is not ready: its fabric manager may not be running",
        803 => "the library and the kernel module are of different driver versions",
        999 => "an internal error of the driver",
        _ => return format!("error {code}"),
    };
    format!("{words} (error {code})")
}

/// Why the CUDA driver cannot be used.
#[derive(Debug)]
pub(in crate::system) enum CudaFailure {
    /// The library cannot be opened.
    Open(OpenError),
    /// It was opened, and does not start.
    Start(CudaError),
}

/// The CUDA driver, initialised: which cannot be undone.
#[derive(Debug)]
pub(in crate::system) struct LibCuda {
    driver: Driver,
}

fn check(function: &'static str, code: c_int) -> Result<(), CudaError> {
    if code == 0 { Ok(()) } else { Err(CudaError::Code { function, code }) }
}

/// Takes a function, or says that there is none.
macro_rules! function {
    ($driver:expr, $name:literal, $type:ty) => {{
        const NAME: &CStr = match CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a literal without NUL"),
        };
        // SAFETY: the type is the one by which cuda.h declares the function of this name.
        unsafe { $driver.function::<$type>(NAME) }.ok_or(CudaError::Missing($name))
    }};
}

impl LibCuda {
    /// Opens and initialises the driver. It reads `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER` of the process here,
    /// once and for all. Takes 0.2 s and more.
    ///
    /// # Errors
    /// [`CudaFailure`], each kind when it says.
    pub(in crate::system) fn open(environment: &Environment) -> Result<Self, CudaFailure> {
        let driver = Driver::open(environment, NAMES).map_err(CudaFailure::Open)?;
        let start = || {
            let init = function!(driver, "cuInit", unsafe extern "system" fn(c_uint) -> c_int)?;
            // SAFETY: 0 is the one value that it takes; it may be called at any time and more than once.
            check("cuInit", unsafe { init(0) })
        };
        start().map_err(CudaFailure::Start)?;
        Ok(Self { driver })
    }

    /// The highest CUDA version that the driver serves, as 1000 * major + 10 * minor.
    ///
    /// # Errors
    /// [`CudaError`].
    pub(in crate::system) fn version(&self) -> Result<c_int, CudaError> {
        self.number("cuDriverGetVersion", function!(self.driver, "cuDriverGetVersion", Number)?)
    }

    /// The number of devices that the process sees.
    ///
    /// # Errors
    /// [`CudaError`].
    pub(in crate::system) fn count(&self) -> Result<c_int, CudaError> {
        self.number("cuDeviceGetCount", function!(self.driver, "cuDeviceGetCount", Number)?)
    }

    #[expect(clippy::unused_self, reason = "the function is one of the driver's")]
    fn number(&self, name: &'static str, call: Number) -> Result<c_int, CudaError> {
        let mut number = 0;
        // SAFETY: it writes one int.
        check(name, unsafe { call(&raw mut number) })?;
        Ok(number)
    }

    /// A device's handle, a small number.
    ///
    /// # Errors
    /// [`CudaError`].
    pub(in crate::system) fn device(&self, index: c_int) -> Result<c_int, CudaError> {
        type Call = unsafe extern "system" fn(*mut c_int, c_int) -> c_int;
        let call = function!(self.driver, "cuDeviceGet", Call)?;
        let mut device = 0;
        // SAFETY: it writes one int; an index that is none is an error.
        check("cuDeviceGet", unsafe { call(&raw mut device, index) })?;
        Ok(device)
    }

    /// A device's name.
    ///
    /// # Errors
    /// [`CudaError`].
    pub(in crate::system) fn name(&self, device: c_int) -> Result<String, CudaError> {
        self.text("cuDeviceGetName", function!(self.driver, "cuDeviceGetName", Text)?, device)
    }

    /// A device's place on the PCI bus, such as `0000:4d:00.0`.
    ///
    /// # Errors
    /// [`CudaError`].
    pub(in crate::system) fn pci_address(&self, device: c_int) -> Result<String, CudaError> {
        let call = function!(self.driver, "cuDeviceGetPCIBusId", Text)?;
        self.text("cuDeviceGetPCIBusId", call, device).map(|text| text.to_ascii_lowercase())
    }

    #[expect(clippy::unused_self, reason = "the function is one of the driver's")]
    fn text(&self, name: &'static str, call: Text, device: c_int) -> Result<String, CudaError> {
        let mut buffer = [0_u8; TEXT as usize];
        // SAFETY: it writes at most the given length to the buffer, which is as long; a handle that is none is an error.
        check(name, unsafe { call(buffer.as_mut_ptr().cast(), c_int::from(TEXT), device) })?;
        Ok(buffer_text(&buffer))
    }

    /// A device's memory, in bytes.
    ///
    /// # Errors
    /// [`CudaError`].
    pub(in crate::system) fn memory_bytes(&self, device: c_int) -> Result<u64, CudaError> {
        type Call = unsafe extern "system" fn(*mut usize, c_int) -> c_int;
        let call = function!(self.driver, "cuDeviceTotalMem_v2", Call)?;
        let mut bytes = 0;
        // SAFETY: it writes one size_t.
        check("cuDeviceTotalMem_v2", unsafe { call(&raw mut bytes, device) })?;
        Ok(bytes as u64)
    }

    /// An attribute of a device.
    ///
    /// # Errors
    /// [`CudaError`].
    pub(in crate::system) fn attribute(&self, attribute: c_int, device: c_int) -> Result<c_int, CudaError> {
        type Call = unsafe extern "system" fn(*mut c_int, c_int, c_int) -> c_int;
        let call = function!(self.driver, "cuDeviceGetAttribute", Call)?;
        let mut value = 0;
        // SAFETY: it writes one int; an attribute that is none is an error.
        check("cuDeviceGetAttribute", unsafe { call(&raw mut value, attribute, device) })?;
        Ok(value)
    }

    /// A device's UUID, 16 bytes; of a MIG device, its own.
    ///
    /// # Errors
    /// [`CudaError`].
    pub(in crate::system) fn uuid(&self, device: c_int) -> Result<[u8; 16], CudaError> {
        type Call = unsafe extern "system" fn(*mut [u8; 16], c_int) -> c_int;
        let call = function!(self.driver, "cuDeviceGetUuid_v2", Call)
            .or_else(|_| function!(self.driver, "cuDeviceGetUuid", Call))?;
        let mut bytes = [0; 16];
        // SAFETY: it writes one CUuuid, which is 16 bytes.
        check("cuDeviceGetUuid", unsafe { call(&raw mut bytes, device) })?;
        Ok(bytes)
    }
}

type Number = unsafe extern "system" fn(*mut c_int) -> c_int;
type Text = unsafe extern "system" fn(*mut c_char, c_int, c_int) -> c_int;
