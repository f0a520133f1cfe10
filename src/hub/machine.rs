//! The machine that kernels are resolved for.

use std::collections::BTreeSet;

use crate::system::{Environment, SystemInfo};
use crate::variant::DeviceKey;

/// What is known of the machine, and what was looked for. Looking asks the drivers, so it is done once for each key, and
/// only when a device of that key is asked for.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) system: SystemInfo,
    /// Keys that were looked for, or whose devices a description tells.
    known: BTreeSet<DeviceKey>,
    adapters_known: bool,
}

impl Machine {
    /// This machine, with no more than its processor.
    pub(super) fn probe() -> Self {
        Self { system: SystemInfo::probe(), known: [DeviceKey::Cpu].into(), adapters_known: false }
    }

    /// A described machine: its description is all there is.
    pub(super) fn described(system: SystemInfo) -> Self {
        Self { system, known: DeviceKey::all().collect(), adapters_known: true }
    }

    /// What is known of the machine, the devices of a key's native driver included.
    pub(super) fn native(&mut self, key: DeviceKey) -> &SystemInfo {
        if self.known.insert(key) {
            self.system.probe_native(key, &Environment::read());
        }
        &self.system
    }

    /// What is known of the machine, the devices of a key included: those of its native driver, and the adapters.
    pub(super) fn with(&mut self, key: DeviceKey) -> &SystemInfo {
        self.native(key);
        if key != DeviceKey::Cpu && !self.adapters_known {
            #[cfg(feature = "wgpu")]
            self.system.probe_adapters();
            self.adapters_known = true;
        }
        &self.system
    }

    /// What is known of the machine, every device included.
    pub(super) fn with_all(&mut self) -> &SystemInfo {
        for key in DeviceKey::all() {
            self.with(key);
        }
        &self.system
    }
}
