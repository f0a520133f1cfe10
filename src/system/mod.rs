//! What this machine offers.
//!
//! Owns: [`SystemInfo`], plain data that can be probed, written by hand or read from JSON, and the only code that
//! looks at the machine. Refuses: decisions; [`crate::resolve`] takes a `SystemInfo` as an argument, so that every
//! machine can be described in a test.
//!
//! Probing is in steps with different prices. [`SystemInfo::probe`] reads a few small files and starts nothing: it
//! costs well under a millisecond and serves a program that runs on the CPU. [`SystemInfo::probe_native`] asks one
//! vendor's driver, and [`SystemInfo::probe_adapters`] starts the GPU drivers through wgpu, which costs 0.2 s and more.
//! The price of the split: after the first step alone the devices are unknown, so [`SystemInfo::unprobed`] names every device key that nobody has looked for yet, and reports repeat it.
//!
//! [`retain_freed_memory`] and [`use_huge_pages`] are the two things here that are set and not read: how the C library
//! treats freed memory, and which pages hold it, for programs that ask.
//!
//! Invariant: a missing file, library or driver is never an error here. What could not be found is absent; what went
//! wrong while looking is a sentence in [`SystemInfo::notes`].
//!
//! The environment is read by [`Environment::read`] and nowhere else in this room.

#[cfg(feature = "wgpu")]
mod adapters;
mod command;
mod cpu;
mod description;
mod device;
mod environment;
mod ffi;
mod library;
pub mod linker;
mod mask;
mod memory;
mod native;
mod os;
mod show;
mod table;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::variant::{Arch, DeviceKey, Os};

#[cfg(feature = "wgpu")]
pub(crate) use adapters::instance;
pub use cpu::CpuInfo;
pub use description::{DescriptionError, MAX_DEVICES, MAX_SYSTEM_BYTES};
pub(crate) use device::may_be_adapter;
pub use device::{Capability, CapabilityError, DeviceInfo, Route};
pub use environment::Environment;
pub use library::LibraryFound;
pub use mask::Mask;
pub use memory::{RetainError, retain_freed_memory, use_huge_pages};
pub use os::Libc;
pub(crate) use table::{Table, printable, printable_sentence, printable_up_to};

/// What a machine offers, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SystemInfo {
    /// The operating system; `None` on one that no build is published for.
    pub os: Option<Os>,
    /// The system's own version, such as `26.1` on macOS or a distribution's name on Linux.
    #[serde(default)]
    pub os_version: Option<String>,
    /// The processor architecture; `None` for one that no build is published for.
    pub arch: Option<Arch>,
    /// The processor.
    #[serde(default)]
    pub cpu: CpuInfo,
    /// The C library that this process runs on; `None` where it is unknown or plays no part (macOS, Windows).
    #[serde(default)]
    pub libc: Option<Libc>,
    /// `libtvm_ffi`, when it was found.
    #[serde(default)]
    pub tvm_ffi: Option<LibraryFound>,
    /// libtorch, when it was found.
    #[serde(default)]
    pub torch: Option<LibraryFound>,
    /// Devices other than the processor, in the order of their keys and indices.
    #[serde(default)]
    pub devices: Vec<DeviceInfo>,
    /// Keys whose devices nobody has looked for. `xpu` here speaks of the native driver: an Intel adapter may still be
    /// among the devices, found through wgpu.
    #[serde(default)]
    pub unprobed: BTreeSet<DeviceKey>,
    /// The settings that hide, order or split devices, with what each did.
    #[serde(default)]
    pub masks: Vec<Mask>,
    /// What went wrong while looking, and what would help, a sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl SystemInfo {
    /// A machine of this kind with nothing else known: the start of a description by hand.
    #[must_use]
    pub fn described(os: Os, arch: Arch) -> Self {
        Self {
            os: Some(os),
            os_version: None,
            arch: Some(arch),
            cpu: CpuInfo::default(),
            libc: None,
            tvm_ffi: None,
            torch: None,
            devices: Vec::new(),
            unprobed: BTreeSet::new(),
            masks: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Looks at the processor, the C library and the libraries on the usual paths. Starts no driver, loads no library.
    ///
    /// Reads the environment by [`Environment::read`]; [`SystemInfo::probe_in`] takes it as an argument.
    #[must_use]
    pub fn probe() -> Self {
        Self::probe_in(&Environment::read())
    }

    /// [`SystemInfo::probe`] with a given environment.
    #[must_use]
    pub fn probe_in(environment: &Environment) -> Self {
        let mut notes = Vec::new();
        let packages = library::packages(environment);
        let tvm_ffi = library::find_tvm_ffi(environment, &packages, &mut notes);
        let torch = library::find_torch(environment, &packages, &mut notes);
        Self {
            os: os::current(),
            os_version: os::version(),
            arch: Arch::from_word(std::env::consts::ARCH),
            cpu: CpuInfo::probe(),
            libc: os::libc(),
            tvm_ffi,
            torch,
            devices: Vec::new(),
            unprobed: DeviceKey::all().filter(|key| *key != DeviceKey::Cpu).collect(),
            masks: Vec::new(),
            notes,
        }
    }

    /// Looks for the devices of one key by their vendor's own driver, library or public files, and adds them to the
    /// devices. Nothing is needed at build time: libraries are opened at run time, and their absence is a note.
    ///
    /// Makes no context on any device. What a driver keeps for the whole process it keeps, as when a program uses it: the
    /// CUDA driver itself is started where there is no NVML or where GPUs are of several kinds, and reads
    /// `CUDA_VISIBLE_DEVICES` for the last time then. A driver that hangs and a command that does not end cost their time
    /// limit, 30 s at most, and a note.
    ///
    /// Does nothing for `cpu` and `wgpu`, which have no native driver. Calling it again replaces what was found before.
    pub fn probe_native(&mut self, key: DeviceKey, environment: &Environment) {
        let Some(found) = native::probe(key, environment) else { return };
        self.devices.retain(|device| device.route != Route::Native || device.key != key);
        self.devices.extend(found.devices);
        self.devices.sort_by_key(|device| (device.key, device.route, device.masked_by.is_some(), device.index));
        self.masks.retain(|mask| mask.key != key);
        self.masks.extend(found.masks);
        self.notes.retain(|note| !found.notes.contains(note));
        self.notes.extend(found.notes);
        self.unprobed.remove(&key);
    }

    /// Looks for the devices of one key by every way there is: its native driver, and wgpu for the keys that adapters
    /// have. Does nothing for `cpu`.
    pub fn probe_key(&mut self, key: DeviceKey, environment: &Environment) {
        self.probe_native(key, environment);
        #[cfg(feature = "wgpu")]
        if may_be_adapter(key) {
            self.probe_adapters();
        }
    }

    /// Asks wgpu for its adapters and adds them to the devices. Starts the GPU drivers: 0.2 s and more, and a driver
    /// may write to standard error.
    ///
    /// An adapter's key is that of its vendor where the vendor has one (Intel: `xpu`), else `wgpu`. Adapters that
    /// compute on the processor are marked as software. When wgpu fails, a note says how, and `wgpu` stays unprobed.
    /// Calling it again replaces the adapters that were found before.
    #[cfg(feature = "wgpu")]
    pub fn probe_adapters(&mut self) {
        match adapters::enumerate() {
            Ok(found) => {
                self.devices.retain(|device| device.route != Route::Adapter);
                self.devices.extend(found);
                self.devices.sort_by_key(|device| (device.key, device.route, device.masked_by.is_some(), device.index));
                self.unprobed.remove(&DeviceKey::Wgpu);
            }
            Err(note) => self.notes.push(note),
        }
    }

    /// The devices of this key that this process may use: those that no mask hides.
    pub fn visible(&self, key: DeviceKey) -> impl Iterator<Item = &DeviceInfo> {
        self.devices.iter().filter(move |device| device.key == key && device.masked_by.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::{Environment, SystemInfo};
    use crate::variant::{Arch, DeviceKey, Os};

    #[test]
    fn this_machine_is_probed_cheaply_and_survives_json() {
        let timed = || {
            let start = std::time::Instant::now();
            drop(SystemInfo::probe_in(&Environment::default()));
            start.elapsed()
        };
        // The least of a few, so that it speaks of the probe and not of what else the machine does.
        let took = (0..5).map(|_| timed()).min().unwrap();
        let system = SystemInfo::probe_in(&Environment::default());
        assert!(took < std::time::Duration::from_millis(20), "{took:?}");
        assert_eq!(system.arch, Arch::from_word(std::env::consts::ARCH));
        assert!(system.unprobed.contains(&DeviceKey::Cuda) && !system.unprobed.contains(&DeviceKey::Cpu));
        assert!(system.cpu.logical_cores.is_some_and(|cores| cores > 0));
        let json = serde_json::to_string(&system).unwrap();
        assert_eq!(serde_json::from_str::<SystemInfo>(&json).unwrap(), system);
    }

    #[test]
    fn a_description_needs_only_what_it_says_and_a_slip_is_an_error() {
        let system: SystemInfo = serde_json::from_str(r#"{"os": "linux", "arch": "aarch64"}"#).unwrap();
        assert_eq!(system, SystemInfo::described(Os::Linux, Arch::Aarch64));
        for bad in [
            r#"{"os": "Linux", "arch": "aarch64"}"#,
            r#"{"os": "linux", "arch": "aarch64", "devises": []}"#,
            r#"{"os": "linux", "arch": "aarch64", "unprobed": ["gpu"]}"#,
        ] {
            assert!(serde_json::from_str::<SystemInfo>(bad).is_err(), "{bad}");
        }
    }

    #[cfg(feature = "wgpu")]
    #[test]
    fn adapters_are_found_or_their_absence_is_said() {
        let mut system = SystemInfo::probe_in(&Environment::default());
        system.probe_adapters();
        let once = system.devices.clone();
        system.probe_adapters();
        assert_eq!(system.devices, once, "a second look does not list an adapter twice");
        assert_eq!(system.unprobed.contains(&DeviceKey::Wgpu), !system.notes.is_empty());
    }
}
