//! The machine that kernels are resolved for.

use crate::system::SystemInfo;

/// What is known of the machine, and whether its adapters were looked for. Looking starts the GPU drivers, so it is
/// done once, and only when a device that needs one is asked for.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) system: SystemInfo,
    adapters_known: bool,
}

impl Machine {
    /// This machine, without its adapters.
    pub(super) fn probe() -> Self {
        Self { system: SystemInfo::probe(), adapters_known: false }
    }

    /// A described machine: its description is all there is.
    pub(super) fn described(system: SystemInfo) -> Self {
        Self { system, adapters_known: true }
    }

    /// What is known of the machine, adapters included.
    pub(super) fn with_adapters(&mut self) -> &SystemInfo {
        if !self.adapters_known {
            #[cfg(feature = "wgpu")]
            self.system.probe_adapters();
            self.adapters_known = true;
        }
        &self.system
    }
}
