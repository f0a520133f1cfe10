//! Devices by their vendors' own drivers, libraries and files: described machines, drivers that the tests build, and the
//! real device where there is one.

mod cuda;
mod cuda_hostile;
mod cuda_real;
mod no_toolkit;
mod others;
mod rocm;

use std::fs;
use std::process::Command;

use kernelhub::system::{Environment, SystemInfo};
use kernelhub::variant::{Arch, DeviceKey, Os};
use tempfile::TempDir;

/// A described machine: its files, the libraries of its drivers, and the settings of the process.
struct Described {
    root: TempDir,
    environment: Environment,
}

impl Described {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let mut environment = Environment::default();
        environment.root = Some(root.path().to_owned());
        environment.library_path = vec![root.path().join("lib")];
        fs::create_dir(root.path().join("lib")).unwrap();
        Self { root, environment }
    }

    fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        let file = self.root.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
        self
    }

    /// A command of the machine, in a folder of its `PATH`: a script of `sh`.
    fn command(self, name: &str, script: &str) -> Self {
        let folder = self.root.path().join("bin");
        // Written by another process: what this one has just written cannot be started while a thread of it forks.
        let write = "mkdir -p \"$1\" && printf '#!/bin/sh\\n%s\\n' \"$3\" > \"$1/$2\" && chmod +x \"$1/$2\"";
        let mut shell = Command::new("sh");
        shell.args(["-c", write, "sh"]).arg(&folder).args([name, script]);
        assert!(shell.status().unwrap().success());
        let folder = folder.to_str().unwrap().to_owned();
        self.set("PATH", &folder)
    }

    fn set(mut self, name: &str, value: &str) -> Self {
        self.environment.settings.insert(name.to_owned(), value.to_owned());
        self
    }

    fn probe(&self, key: DeviceKey) -> SystemInfo {
        let mut system = SystemInfo::described(Os::Linux, Arch::X86_64);
        system.unprobed.insert(key);
        system.probe_native(key, &self.environment);
        // Whatever was found can be written down and read again.
        let json = serde_json::to_string(&system).unwrap();
        assert_eq!(serde_json::from_str::<SystemInfo>(&json).unwrap(), system);
        assert!(!system.unprobed.contains(&key), "it was looked for");
        system
    }
}

/// The devices in a line: number, number without masks, what hides it.
fn shown(system: &SystemInfo) -> String {
    let shown: Vec<String> = system
        .devices
        .iter()
        .map(|device| {
            let physical = device.physical_index.map_or_else(|| "?".to_owned(), |number| number.to_string());
            match &device.masked_by {
                None => format!("{}={physical}", device.index),
                Some(mask) => format!("{physical} by {mask}"),
            }
        })
        .collect();
    shown.join(", ")
}
