//! Devices of vendors, on described trees of files, with commands and drivers of the tests' own.

mod described;
mod hpu;
mod level_zero;
mod xpu;

use std::fs;
use std::path::{Path, PathBuf};

use kernelhub::system::{DeviceInfo, Environment, Mask, SystemInfo};
use kernelhub::variant::{Arch, DeviceKey, Os};
use tempfile::TempDir;

/// A folder that stands for `/`.
struct Root(TempDir);

impl Root {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file, with the folders above it.
    fn file(&self, path: &str, content: &str) -> PathBuf {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
    }

    /// A command: `script` for a shell, found by the `PATH` of [`Root::environment`].
    fn command(&self, name: &str, script: &str) {
        self.file(&format!("commands/{name}.sh"), script);
        // The file that is started is a link to one that nobody writes: a file that was just written cannot be started
        // while another thread forks.
        let runner = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/command.sh");
        self.link(&format!("commands/{name}"), runner.to_str().unwrap());
    }

    /// The environment of the described machine.
    fn environment(&self, settings: &[(&str, &str)]) -> Environment {
        let mut environment = Environment::default();
        environment.root = Some(self.path().to_owned());
        let path = self.path().join("commands").display().to_string();
        environment.settings.insert("PATH".to_owned(), path);
        for (name, value) in settings {
            environment.settings.insert((*name).to_owned(), (*value).to_owned());
        }
        environment
    }

    fn probe(&self, key: DeviceKey, settings: &[(&str, &str)]) -> SystemInfo {
        let mut system = SystemInfo::described(Os::Linux, Arch::X86_64);
        system.unprobed.insert(key);
        system.probe_native(key, &self.environment(settings));
        assert!(system.unprobed.is_empty());
        system
    }
}

fn mask<'a>(system: &'a SystemInfo, variable: &str) -> &'a Mask {
    system.masks.iter().find(|mask| mask.variable == variable).unwrap()
}

/// `index/physical index` of the devices, those that are hidden in brackets.
fn numbers(devices: &[DeviceInfo]) -> String {
    let number = |device: &DeviceInfo| {
        let physical = device.physical_index.map_or("?".to_owned(), |physical| physical.to_string());
        let text = format!("{}/{physical}", device.index);
        if device.masked_by.is_some() { format!("[{text}]") } else { text }
    };
    devices.iter().map(number).collect::<Vec<_>>().join(" ")
}
