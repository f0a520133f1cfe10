//! The machine that kernels are resolved for.

use std::collections::BTreeSet;

use crate::resolve::{Candidate, Decision, Request, Resolution, ResolveError, choose};
use crate::system::{Environment, Route, SystemInfo, may_be_adapter};
use crate::variant::{AnyVariant, DeviceKey, Variant};

/// What is known of the machine, and what was looked for. Looking asks the drivers, so it is done once for each key, and
/// only when a device of that key is asked for. Adapters cost most, 0.2 s and more: they are looked for only where a
/// build that runs on one could be chosen.
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

    /// What is known of the machine, the devices of a key included: those of its native driver, and the adapters where
    /// one of them may have that key.
    pub(super) fn with(&mut self, key: DeviceKey) -> &SystemInfo {
        self.native(key);
        if may_be_adapter(key) { self.adapters() } else { &self.system }
    }

    /// What is known of the machine, every device included.
    pub(super) fn with_all(&mut self) -> &SystemInfo {
        self.all_native();
        self.adapters()
    }

    /// What is known of the machine, every device included that one of these builds could run on.
    pub(super) fn with_all_for(&mut self, candidates: &[Candidate]) -> &SystemInfo {
        self.all_native();
        if has_shaders(candidates) { self.adapters() } else { &self.system }
    }

    /// Chooses among builds for a device. Of a trace that was decided by a native build, the shaders say that adapters
    /// were not looked for: they come after it, whatever adapters there are.
    pub(super) fn choose(
        &mut self,
        candidates: &[Candidate],
        device: DeviceKey,
    ) -> Result<(usize, Resolution), ResolveError> {
        let request = Request::device(device);
        let outcome = choose(candidates, self.native(device), &request);
        let is_decided = match &outcome {
            Ok((_, resolution)) => {
                let chosen = resolution.chosen_decision().and_then(Decision::device);
                chosen.is_some_and(|chosen| chosen.route == Route::Native)
            }
            // What would fit other devices of this machine belongs to the error.
            Err(_) => device == DeviceKey::Cpu || !has_shaders(candidates),
        };
        if is_decided || self.adapters_known {
            return outcome;
        }
        choose(candidates, self.adapters(), &request)
    }

    fn all_native(&mut self) {
        for key in DeviceKey::all() {
            self.native(key);
        }
    }

    fn adapters(&mut self) -> &SystemInfo {
        if !self.adapters_known {
            #[cfg(feature = "wgpu")]
            self.system.probe_adapters();
            self.adapters_known = true;
        }
        &self.system
    }
}

/// Whether there are builds that run on adapters.
fn has_shaders(candidates: &[Candidate]) -> bool {
    candidates.iter().any(|candidate| matches!(candidate.variant, AnyVariant::Known(Variant::Shader(_))))
}

#[cfg(test)]
mod tests {
    use super::Machine;
    use crate::resolve::Candidate;
    use crate::system::{DeviceInfo, Route, SystemInfo};
    use crate::variant::{Arch, DeviceKey, Os};

    /// A machine on which nobody has looked for adapters, with one native Intel GPU.
    fn machine() -> Machine {
        let mut system = SystemInfo::described(Os::Linux, Arch::X86_64);
        system.devices.push(DeviceInfo::new(DeviceKey::Xpu, 0, "a GPU".to_owned(), Route::Native));
        system.unprobed.insert(DeviceKey::Wgpu);
        Machine { adapters_known: false, ..Machine::described(system) }
    }

    #[test]
    fn adapters_are_looked_for_only_where_a_shader_could_be_chosen() {
        let (native, shaders) = ("tvm-ffi01-xpu20253-x86_64-linux", "wgsl-universal");
        let looks = |names: &[&str], device| {
            let mut machine = machine();
            machine.system.devices[0].backend_version = Some(crate::variant::Version::new(2025, 3));
            let chosen = machine.choose(&Candidate::from_names(names.iter().copied()), device);
            (machine.adapters_known, chosen.map(|(index, _)| index).ok())
        };
        assert_eq!(looks(&[native, shaders], DeviceKey::Xpu), (false, Some(0)), "a native build fits");
        assert_eq!(looks(&[native], DeviceKey::Cuda), (false, None), "no shader is among them");
        assert_eq!(looks(&[native], DeviceKey::Wgpu), (false, None));
        assert_eq!(looks(&[native, shaders], DeviceKey::Cpu), (false, None), "a shader never runs on the processor");
        for (names, device) in [(&[shaders][..], DeviceKey::Xpu), (&[native, shaders], DeviceKey::Wgpu)] {
            assert!(looks(names, device).0, "{names:?} {device}");
        }
        // For what would fit other devices.
        assert!(looks(&[native, shaders], DeviceKey::Cuda).0);
    }

    #[test]
    fn a_device_that_no_adapter_can_be_asks_no_adapters() {
        let mut machine = machine();
        for key in DeviceKey::all().filter(|key| !matches!(key, DeviceKey::Xpu | DeviceKey::Wgpu)) {
            machine.with(key);
            assert!(!machine.adapters_known, "{key}");
        }
        machine.with(DeviceKey::Wgpu);
        assert!(machine.adapters_known);
    }
}
