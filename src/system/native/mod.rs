//! The devices of each vendor, by its own driver, library or public files: one file or folder per key.
//!
//! Every prober takes the [`Environment`], whose root stands for `/`, so that each can be tested on a described tree of
//! files. What was tested on such trees only, and never on the real device, is said at the top of each file.

mod cuda;
mod files;
mod hpu;
mod list;
mod mps;
mod neuron;
mod npu;
mod pci;
mod rocm;
mod tpu;
mod watch;
mod xpu;

use super::device::DeviceInfo;
use super::environment::Environment;
use super::mask::Mask;
use crate::variant::DeviceKey;

/// What one look brought up.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// The devices, those that a mask hides included.
    pub(super) devices: Vec<DeviceInfo>,
    /// The settings that were read.
    pub(super) masks: Vec<Mask>,
    /// What went wrong, and what would help.
    pub(super) notes: Vec<String>,
}

/// Looks for the devices of a key; `None` for a key without a native driver.
pub(super) fn probe(key: DeviceKey, environment: &Environment) -> Option<Found> {
    match key {
        DeviceKey::Cpu | DeviceKey::Wgpu => None,
        DeviceKey::Cuda => cuda::probe(environment),
        DeviceKey::Rocm => rocm::probe(environment),
        DeviceKey::Xpu => xpu::probe(environment),
        DeviceKey::Hpu => hpu::probe(environment),
        DeviceKey::Mps => mps::probe(environment),
        DeviceKey::Npu => npu::probe(environment),
        DeviceKey::Neuron => neuron::probe(environment),
        DeviceKey::Tpu => tpu::probe(environment),
    }
}

/// The environment with folders of the machine behind those of `PATH`: where a vendor installs its commands without
/// listing them there.
fn with_commands_of(environment: &Environment, folders: &[&str]) -> Environment {
    let mut environment = environment.clone();
    let path = environment.setting("PATH").unwrap_or_default().to_owned();
    let listed = std::env::split_paths(&path).chain(folders.iter().map(|folder| environment.path(folder)));
    // A folder with the separator in its name cannot be listed; then PATH stays as it was.
    if let Ok(joined) = std::env::join_paths(listed) {
        environment.settings.insert("PATH".to_owned(), joined.to_string_lossy().into_owned());
    }
    environment
}
