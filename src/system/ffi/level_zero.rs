//! Level Zero: the loader of Intel's GPU drivers, opened at run time.
//!
//! Structures and functions as in `ze_api.h` of the Level Zero specification, version 1.8; `zeInitDrivers` came with
//! 1.10 and is used where the loader has it. Only asks; makes no context and runs nothing.
//!
//! A driver is another's code: what it counts is held to bounds, its names need no end, and a call that fails costs what
//! it would have told and no more.
#![expect(unsafe_code, reason = "drivers speak C")]

mod abi;

use std::ffi::c_char;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::ptr;

use libloading::Library;

use abi::{
    DeviceProperties, DriverGet, DriverProperties, ExtensionProperties, Handle, Init, InitDriverType, InitDrivers,
    ListOf, MemoryProperties, ModuleProperties, NAME_BYTES, PciProperties, PropertiesOf,
};

/// The most handles, extensions or memories that one call may bring.
const MAX_COUNT: u32 = 1024;
const SUCCESS: u32 = 0;
const GPU: u32 = 1;

/// What one driver tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::system) struct Driver {
    /// Its version, a number that grows.
    pub(in crate::system) version: u32,
    /// The names of its extensions.
    pub(in crate::system) extensions: Vec<String>,
    /// Its devices, in its order.
    pub(in crate::system) devices: Vec<Device>,
}

/// What a driver tells of one device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "as the specification has them")]
pub(in crate::system) struct Device {
    pub(in crate::system) name: String,
    /// `ze_device_type_t`: 1 for a GPU.
    pub(in crate::system) kind: u32,
    pub(in crate::system) vendor_id: u32,
    pub(in crate::system) device_id: u32,
    /// `ze_device_property_flags_t`.
    pub(in crate::system) flags: u32,
    /// Which tile of its card it is, where the flags say that it is one.
    pub(in crate::system) subdevice_id: u32,
    pub(in crate::system) uuid: [u8; 16],
    /// Its own memory in bytes.
    pub(in crate::system) memory_bytes: Option<u64>,
    /// `(flags, fp16 flags, fp64 flags)` of `ze_device_module_properties_t`.
    pub(in crate::system) module: Option<(u32, u32, u32)>,
    /// Domain, bus, device and function.
    pub(in crate::system) pci_address: Option<[u32; 4]>,
    /// The tiles that it shows as sub-devices; empty inside of a tile.
    pub(in crate::system) tiles: Vec<Device>,
}

/// Why the drivers tell nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::system) enum LevelZeroError {
    /// There is no loader.
    #[error("the Level Zero loader could not be opened: {0}")]
    Loader(String),
    /// The loader lacks a function.
    #[error("the Level Zero loader has no function {0}")]
    Function(&'static str),
    /// The loader says that no driver works. Code 0x78000001: none is installed, or none has a device.
    #[error("the Level Zero loader found no driver with a device ({0:#x})")]
    NoDriver(u32),
    /// A call failed.
    #[error("the Level Zero driver failed in {0} ({1:#x})")]
    Call(&'static str, u32),
    /// A driver counts more than there can be.
    #[error("the Level Zero driver counts {1} in {0}; at most {MAX_COUNT} are believed")]
    Count(&'static str, u32),
}

/// The functions that are used.
struct Functions {
    init: Init,
    init_drivers: Option<InitDrivers>,
    driver_get: DriverGet,
    driver_properties: PropertiesOf<DriverProperties>,
    extensions: ListOf<ExtensionProperties>,
    devices: ListOf<Handle>,
    tiles: ListOf<Handle>,
    device_properties: PropertiesOf<DeviceProperties>,
    module_properties: PropertiesOf<ModuleProperties>,
    memories: ListOf<MemoryProperties>,
    pci_properties: Option<PropertiesOf<PciProperties>>,
}

/// Asks every GPU driver of this machine for its devices. Starts the drivers, in this process and for its whole life; they
/// read the process's own environment, may write to standard error, and may take as long as they like.
///
/// Returns what they told, and a sentence for each question that one of them failed to answer.
///
/// # Errors
/// [`LevelZeroError`], each kind when it says.
pub(in crate::system) fn ask(loader: &Path) -> Result<(Vec<Driver>, Vec<String>), LevelZeroError> {
    // SAFETY: runs the library's initialisers. The loader is the system's own library, which every program for this GPU
    // loads, and is trusted as the C library is.
    let library = unsafe { Library::new(loader) }.map_err(|error| LevelZeroError::Loader(error.to_string()))?;
    // Never unloaded: drivers start threads, whose code must stay.
    let library = ManuallyDrop::new(library);
    let functions = Functions::of(&library)?;
    let mut notes = Vec::new();
    let mut drivers = Vec::new();
    for handle in functions.drivers()? {
        match functions.driver(handle, &mut notes) {
            Ok(driver) => drivers.push(driver),
            Err(error) => notes.push(error.to_string()),
        }
    }
    Ok((drivers, notes))
}

/// A function of the loader.
///
/// # Safety
/// `T` is a function pointer with the signature that the specification gives this name.
unsafe fn symbol<T: Copy>(library: &Library, name: &'static str) -> Result<T, LevelZeroError> {
    // SAFETY: the caller vouches for the type. The pointer outlives `library`, which is never unloaded.
    let symbol = unsafe { library.get::<T>(name) };
    symbol.map(|symbol| *symbol).map_err(|_| LevelZeroError::Function(name))
}

impl Functions {
    fn of(library: &Library) -> Result<Self, LevelZeroError> {
        Ok(Self {
            // SAFETY: the signature of the specification, as everywhere below.
            init: unsafe { symbol(library, "zeInit") }?,
            // SAFETY: as above.
            init_drivers: unsafe { symbol(library, "zeInitDrivers") }.ok(),
            // SAFETY: as above.
            driver_get: unsafe { symbol(library, "zeDriverGet") }?,
            // SAFETY: as above.
            driver_properties: unsafe { symbol(library, "zeDriverGetProperties") }?,
            // SAFETY: as above.
            extensions: unsafe { symbol(library, "zeDriverGetExtensionProperties") }?,
            // SAFETY: as above.
            devices: unsafe { symbol(library, "zeDeviceGet") }?,
            // SAFETY: as above.
            tiles: unsafe { symbol(library, "zeDeviceGetSubDevices") }?,
            // SAFETY: as above.
            device_properties: unsafe { symbol(library, "zeDeviceGetProperties") }?,
            // SAFETY: as above.
            module_properties: unsafe { symbol(library, "zeDeviceGetModuleProperties") }?,
            // SAFETY: as above.
            memories: unsafe { symbol(library, "zeDeviceGetMemoryProperties") }?,
            // SAFETY: as above.
            pci_properties: unsafe { symbol(library, "zeDevicePciGetPropertiesExt") }.ok(),
        })
    }

    /// Starts the GPU drivers and lists them.
    fn drivers(&self) -> Result<Vec<Handle>, LevelZeroError> {
        if let Some(init_drivers) = self.init_drivers {
            let kinds = InitDriverType { stype: 0x0002_0021, next: ptr::null(), flags: 1 };
            let call = |count: *mut u32, handles: *mut Handle| {
                // SAFETY: `count` and `kinds` live through the call; `handles` is null or has room for `*count`.
                unsafe { init_drivers(count, handles, &raw const kinds) }
            };
            match handles("zeInitDrivers", call) {
                Ok(handles) if !handles.is_empty() => return Ok(handles),
                Err(error @ LevelZeroError::Count(..)) => return Err(error),
                // A driver older than the loader knows the older way alone.
                _ => {}
            }
        }
        // SAFETY: takes flags; 1 asks for drivers of GPUs alone.
        let code = unsafe { (self.init)(1) };
        if code != SUCCESS {
            return Err(LevelZeroError::NoDriver(code));
        }
        handles("zeDriverGet", |count, handles| {
            // SAFETY: drivers are started; `count` lives through the call; `handles` is null or has room for `*count`.
            unsafe { (self.driver_get)(count, handles) }
        })
    }

    fn driver(&self, handle: Handle, notes: &mut Vec<String>) -> Result<Driver, LevelZeroError> {
        let mut properties = DriverProperties::empty();
        // SAFETY: a handle that the loader gave, which stays; the structure has its type set and lives through the call.
        let code = unsafe { (self.driver_properties)(handle, &raw mut properties) };
        if code != SUCCESS {
            notes.push(LevelZeroError::Call("zeDriverGetProperties", code).to_string());
        }
        let empty = ExtensionProperties::empty();
        let extensions = list("zeDriverGetExtensionProperties", empty, |count, extensions| {
            // SAFETY: as above; `extensions` is null or has room for `*count`.
            unsafe { (self.extensions)(handle, count, extensions) }
        });
        let extensions = extensions.unwrap_or_else(|error| {
            notes.push(error.to_string());
            Vec::new()
        });
        let handles = handles("zeDeviceGet", |count, handles| {
            // SAFETY: as above; `handles` is null or has room for `*count`.
            unsafe { (self.devices)(handle, count, handles) }
        })?;
        Ok(Driver {
            version: properties.driver_version,
            extensions: extensions.iter().map(|extension| text(&extension.name)).collect(),
            devices: handles.into_iter().filter_map(|handle| self.device(handle, true, notes)).collect(),
        })
    }

    /// A device, with its tiles where it is to be asked for them. `None`: it does not even tell its properties.
    fn device(&self, handle: Handle, with_tiles: bool, notes: &mut Vec<String>) -> Option<Device> {
        // A GPU alone is asked for more.
        let mut device = match self.properties(handle) {
            Ok(device) if device.kind == GPU => device,
            Ok(device) => return Some(device),
            Err(error) => {
                notes.push(error.to_string());
                return None;
            }
        };
        device.memory_bytes = self.memory(handle).map_err(|error| notes.push(error.to_string())).ok();
        device.module = self.module(handle).map_err(|error| notes.push(error.to_string())).ok();
        // An extension: a driver may be without it.
        device.pci_address = self.pci_address(handle);
        if with_tiles {
            let tiles = handles("zeDeviceGetSubDevices", |count, handles| {
                // SAFETY: a handle that the driver gave, which stays; `handles` is null or has room for `*count`.
                unsafe { (self.tiles)(handle, count, handles) }
            });
            match tiles {
                Ok(tiles) => {
                    device.tiles = tiles.into_iter().filter_map(|tile| self.device(tile, false, notes)).collect();
                }
                Err(error) => notes.push(error.to_string()),
            }
        }
        Some(device)
    }

    fn properties(&self, handle: Handle) -> Result<Device, LevelZeroError> {
        let mut told = DeviceProperties::empty();
        // SAFETY: a handle that the driver gave, which stays; the structure has its type set and lives through the call.
        let code = unsafe { (self.device_properties)(handle, &raw mut told) };
        if code != SUCCESS {
            return Err(LevelZeroError::Call("zeDeviceGetProperties", code));
        }
        Ok(Device {
            name: text(&told.name),
            kind: told.kind,
            vendor_id: told.vendor_id,
            device_id: told.device_id,
            flags: told.flags,
            subdevice_id: told.subdevice_id,
            uuid: told.uuid,
            ..Device::default()
        })
    }

    fn memory(&self, handle: Handle) -> Result<u64, LevelZeroError> {
        let empty = MemoryProperties::empty();
        let memories = list("zeDeviceGetMemoryProperties", empty, |count, memories| {
            // SAFETY: a handle that the driver gave, which stays; `memories` is null or has room for `*count`, each with
            // its type set.
            unsafe { (self.memories)(handle, count, memories) }
        })?;
        Ok(memories.iter().fold(0, |sum: u64, memory| sum.saturating_add(memory.total_size)))
    }

    fn module(&self, handle: Handle) -> Result<(u32, u32, u32), LevelZeroError> {
        let mut told = ModuleProperties::empty();
        // SAFETY: a handle that the driver gave, which stays; the structure has its type set and lives through the call.
        let code = unsafe { (self.module_properties)(handle, &raw mut told) };
        if code != SUCCESS {
            return Err(LevelZeroError::Call("zeDeviceGetModuleProperties", code));
        }
        Ok((told.flags, told.fp16_flags, told.fp64_flags))
    }

    fn pci_address(&self, handle: Handle) -> Option<[u32; 4]> {
        let mut told = PciProperties::empty();
        let call = self.pci_properties?;
        // SAFETY: a handle that the driver gave, which stays; the structure has its type set and lives through the call.
        let code = unsafe { call(handle, &raw mut told) };
        (code == SUCCESS).then_some([told.domain, told.bus, told.device, told.function])
    }
}

/// Handles that may be asked: a null one, which no driver should give, would be followed.
fn handles(function: &'static str, call: impl Fn(*mut u32, *mut Handle) -> u32) -> Result<Vec<Handle>, LevelZeroError> {
    let mut found = list(function, ptr::null_mut(), call)?;
    found.retain(|handle: &Handle| !handle.is_null());
    Ok(found)
}

/// Lists by the way of the specification: asks for the number, makes room, asks again.
fn list<T: Copy>(
    function: &'static str,
    empty: T,
    call: impl Fn(*mut u32, *mut T) -> u32,
) -> Result<Vec<T>, LevelZeroError> {
    let mut count = 0;
    let checked = |code, count| match code {
        SUCCESS if count > MAX_COUNT => Err(LevelZeroError::Count(function, count)),
        SUCCESS => Ok(count),
        code => Err(LevelZeroError::Call(function, code)),
    };
    let code = call(&raw mut count, ptr::null_mut());
    let room = checked(code, count)?;
    if room == 0 {
        return Ok(Vec::new());
    }
    let mut found = vec![empty; room as usize];
    let code = call(&raw mut count, found.as_mut_ptr());
    // It may have become fewer in between; more than there was room for were not written.
    found.truncate(checked(code, count.min(room))? as usize);
    Ok(found)
}

/// A name that ends at its first zero, or at the end of its room.
fn text(name: &[c_char; NAME_BYTES]) -> String {
    let bytes: Vec<u8> = name.iter().map(|c| c.to_ne_bytes()[0]).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}
