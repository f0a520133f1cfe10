//! NVIDIA's management library, NVML (`nvml.h`): what the driver knows of its GPUs, without a context on any of them.
#![expect(unsafe_code, reason = "NVML is a C interface")]

mod abi;
mod error;

use std::ffi::{CStr, c_char, c_int, c_uint};

use super::driver::{Driver, OpenError, buffer_text};
use crate::system::environment::Environment;
use abi::{DeviceNumber, DeviceText, Handle, Memory, PciInfo};
pub(in crate::system) use error::NvmlError;
use error::check;

const NAMES: &[&str] = if cfg!(windows) { &["nvml.dll"] } else { &["libnvidia-ml.so.1"] };

/// Room for a name, a version or a UUID: `NVML_DEVICE_UUID_V2_BUFFER_SIZE`, the longest of them.
const TEXT: u16 = 96;

/// A place on the PCI bus, and what stands there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::system) struct Pci {
    pub(in crate::system) domain: u32,
    pub(in crate::system) bus: u32,
    pub(in crate::system) device: u32,
    pub(in crate::system) device_id: u16,
    pub(in crate::system) vendor_id: u16,
}

/// NVML, initialised until it is dropped.
#[derive(Debug)]
pub(in crate::system) struct Nvml {
    driver: Driver,
}

/// Why NVML cannot be used.
#[derive(Debug)]
pub(in crate::system) enum NvmlFailure {
    /// The library cannot be opened.
    Open(OpenError),
    /// It was opened, and does not start.
    Start(NvmlError),
}

/// Takes a function, or says that there is none.
macro_rules! function {
    ($driver:expr, $name:literal, $type:ty) => {{
        const NAME: &CStr = match CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a literal without NUL"),
        };
        // SAFETY: the type is the one by which nvml.h declares the function of this name.
        unsafe { $driver.function::<$type>(NAME) }.ok_or(NvmlError::Missing($name))
    }};
}

impl Nvml {
    /// Opens and initialises the library.
    ///
    /// # Errors
    /// [`NvmlFailure`], each kind when it says.
    pub(in crate::system) fn open(environment: &Environment) -> Result<Self, NvmlFailure> {
        let driver = Driver::open(environment, NAMES).map_err(NvmlFailure::Open)?;
        let start = || {
            let init = function!(driver, "nvmlInit_v2", unsafe extern "C" fn() -> c_int)?;
            // SAFETY: it takes nothing and may be called at any time, from any thread; calls are counted.
            check("nvmlInit_v2", unsafe { init() })
        };
        start().map_err(NvmlFailure::Start)?;
        Ok(Self { driver })
    }

    /// The driver's version, such as `580.159.04`.
    ///
    /// # Errors
    /// [`NvmlError`].
    pub(in crate::system) fn driver_version(&self) -> Result<String, NvmlError> {
        type Call = unsafe extern "C" fn(*mut c_char, c_uint) -> c_int;
        let call = function!(self.driver, "nvmlSystemGetDriverVersion", Call)?;
        let mut buffer = [0_u8; TEXT as usize];
        // SAFETY: it writes at most the given length to the buffer, which is as long.
        check("nvmlSystemGetDriverVersion", unsafe { call(buffer.as_mut_ptr().cast(), c_uint::from(TEXT)) })?;
        Ok(buffer_text(&buffer))
    }

    /// The highest CUDA version that the driver serves, as 1000 * major + 10 * minor.
    ///
    /// # Errors
    /// [`NvmlError`].
    pub(in crate::system) fn cuda_version(&self) -> Result<c_int, NvmlError> {
        type Call = unsafe extern "C" fn(*mut c_int) -> c_int;
        let call = function!(self.driver, "nvmlSystemGetCudaDriverVersion_v2", Call)?;
        let mut version = 0;
        // SAFETY: it writes one int.
        check("nvmlSystemGetCudaDriverVersion_v2", unsafe { call(&raw mut version) })?;
        Ok(version)
    }

    /// The number of GPUs, those included that cannot be opened.
    ///
    /// # Errors
    /// [`NvmlError`].
    pub(in crate::system) fn count(&self) -> Result<u32, NvmlError> {
        type Call = unsafe extern "C" fn(*mut c_uint) -> c_int;
        let call = function!(self.driver, "nvmlDeviceGetCount_v2", Call)?;
        let mut count = 0;
        // SAFETY: it writes one unsigned int.
        check("nvmlDeviceGetCount_v2", unsafe { call(&raw mut count) })?;
        Ok(count)
    }

    /// One GPU.
    ///
    /// # Errors
    /// [`NvmlError`].
    pub(in crate::system) fn gpu(&self, index: u32) -> Result<NvmlDevice<'_>, NvmlError> {
        type Call = unsafe extern "C" fn(c_uint, *mut Option<Handle>) -> c_int;
        const NAME: &str = "nvmlDeviceGetHandleByIndex_v2";
        let call = function!(self.driver, "nvmlDeviceGetHandleByIndex_v2", Call)?;
        let mut handle = None;
        // SAFETY: it writes one pointer; an index that is none is an error.
        check(NAME, unsafe { call(index, &raw mut handle) })?;
        // 999 is NVML's own "unknown".
        let handle = handle.ok_or(NvmlError::Code { function: NAME, code: 999 })?;
        Ok(NvmlDevice { nvml: self, handle })
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        if let Ok(shutdown) = function!(self.driver, "nvmlShutdown", unsafe extern "C" fn() -> c_int) {
            // SAFETY: it answers the one call of nvmlInit_v2 in `open`. Handles borrow `self`, so none is left.
            let _ = unsafe { shutdown() };
        }
    }
}

/// A GPU, or a MIG device of one.
#[derive(Debug, Clone, Copy)]
pub(in crate::system) struct NvmlDevice<'a> {
    nvml: &'a Nvml,
    handle: Handle,
}

impl<'a> NvmlDevice<'a> {
    /// Its name, such as `NVIDIA H200`.
    ///
    /// # Errors
    /// [`NvmlError`].
    pub(in crate::system) fn name(self) -> Result<String, NvmlError> {
        self.text("nvmlDeviceGetName", function!(self.nvml.driver, "nvmlDeviceGetName", DeviceText)?)
    }

    /// Its UUID, with `GPU-` or `MIG-` before it.
    ///
    /// # Errors
    /// [`NvmlError`].
    pub(in crate::system) fn uuid(self) -> Result<String, NvmlError> {
        self.text("nvmlDeviceGetUUID", function!(self.nvml.driver, "nvmlDeviceGetUUID", DeviceText)?)
    }

    fn text(self, name: &'static str, call: DeviceText) -> Result<String, NvmlError> {
        let mut buffer = [0_u8; TEXT as usize];
        // SAFETY: the handle is NVML's own and in use no longer than NVML is; it writes at most the given length to the
        // buffer, which is as long.
        check(name, unsafe { call(self.handle, buffer.as_mut_ptr().cast(), c_uint::from(TEXT)) })?;
        Ok(buffer_text(&buffer))
    }

    /// Its memory, in bytes.
    ///
    /// # Errors
    /// [`NvmlError`]; error 3 on a GPU that has none of its own.
    pub(in crate::system) fn memory_bytes(self) -> Result<u64, NvmlError> {
        type Call = unsafe extern "C" fn(Handle, *mut Memory) -> c_int;
        let call = function!(self.nvml.driver, "nvmlDeviceGetMemoryInfo", Call)?;
        let mut memory = Memory::default();
        // SAFETY: the handle is live, see `text`; it writes one nvmlMemory_t.
        check("nvmlDeviceGetMemoryInfo", unsafe { call(self.handle, &raw mut memory) })?;
        Ok(memory.total)
    }

    /// Its compute capability: major, minor.
    ///
    /// # Errors
    /// [`NvmlError`].
    pub(in crate::system) fn capability(self) -> Result<(c_int, c_int), NvmlError> {
        type Call = unsafe extern "C" fn(Handle, *mut c_int, *mut c_int) -> c_int;
        let call = function!(self.nvml.driver, "nvmlDeviceGetCudaComputeCapability", Call)?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the handle is live, see `text`; it writes two ints.
        check("nvmlDeviceGetCudaComputeCapability", unsafe { call(self.handle, &raw mut major, &raw mut minor) })?;
        Ok((major, minor))
    }

    /// Its place on the PCI bus.
    ///
    /// # Errors
    /// [`NvmlError`].
    pub(in crate::system) fn pci(self) -> Result<Pci, NvmlError> {
        type Call = unsafe extern "C" fn(Handle, *mut PciInfo) -> c_int;
        let call = function!(self.nvml.driver, "nvmlDeviceGetPciInfo_v3", Call)?;
        let mut pci = PciInfo::default();
        // SAFETY: the handle is live, see `text`; it writes one nvmlPciInfo_t.
        check("nvmlDeviceGetPciInfo_v3", unsafe { call(self.handle, &raw mut pci) })?;
        Ok(Pci {
            domain: pci.domain,
            bus: pci.bus,
            device: pci.device,
            device_id: (pci.id >> 16) as u16,
            vendor_id: (pci.id & 0xffff) as u16,
        })
    }

    /// Whether it is in MIG mode. A GPU that knows no such mode is not.
    pub(in crate::system) fn is_mig(self) -> bool {
        type Call = unsafe extern "C" fn(Handle, *mut c_uint, *mut c_uint) -> c_int;
        let Ok(call) = function!(self.nvml.driver, "nvmlDeviceGetMigMode", Call) else { return false };
        let (mut current, mut pending) = (0, 0);
        // SAFETY: the handle is live, see `text`; it writes two unsigned ints.
        let code = unsafe { call(self.handle, &raw mut current, &raw mut pending) };
        code == 0 && current == 1
    }

    /// The most MIG devices that it can have.
    ///
    /// # Errors
    /// [`NvmlError`].
    pub(in crate::system) fn max_mig_devices(self) -> Result<u32, NvmlError> {
        self.number(
            "nvmlDeviceGetMaxMigDeviceCount",
            function!(self.nvml.driver, "nvmlDeviceGetMaxMigDeviceCount", DeviceNumber)?,
        )
    }

    /// One of its MIG devices; error 6 where there is none of this number.
    ///
    /// # Errors
    /// [`NvmlError`].
    pub(in crate::system) fn mig_device(self, index: u32) -> Result<NvmlDevice<'a>, NvmlError> {
        type Call = unsafe extern "C" fn(Handle, c_uint, *mut Option<Handle>) -> c_int;
        const NAME: &str = "nvmlDeviceGetMigDeviceHandleByIndex";
        let call = function!(self.nvml.driver, "nvmlDeviceGetMigDeviceHandleByIndex", Call)?;
        let mut handle = None;
        // SAFETY: the handle is live, see `text`; it writes one pointer.
        check(NAME, unsafe { call(self.handle, index, &raw mut handle) })?;
        let handle = handle.ok_or(NvmlError::Code { function: NAME, code: 999 })?;
        Ok(NvmlDevice { nvml: self.nvml, handle })
    }

    /// Of a MIG device: the numbers of its GPU instance and of its compute instance.
    ///
    /// # Errors
    /// [`NvmlError`].
    pub(in crate::system) fn instances(self) -> Result<(u32, u32), NvmlError> {
        let gpu = function!(self.nvml.driver, "nvmlDeviceGetGpuInstanceId", DeviceNumber)?;
        let compute = function!(self.nvml.driver, "nvmlDeviceGetComputeInstanceId", DeviceNumber)?;
        Ok((self.number("nvmlDeviceGetGpuInstanceId", gpu)?, self.number("nvmlDeviceGetComputeInstanceId", compute)?))
    }

    fn number(self, name: &'static str, call: DeviceNumber) -> Result<u32, NvmlError> {
        let mut number = 0;
        // SAFETY: the handle is live, see `text`; it writes one unsigned int.
        check(name, unsafe { call(self.handle, &raw mut number) })?;
        Ok(number)
    }
}
