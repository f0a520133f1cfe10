//! The program's commands, run as a user runs them.

mod bundle;
mod hub_lock;
mod lock;
mod show;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::hub::{self, FakeHub};
use crate::support::packs::{Published, VARIANT};
use crate::support::trust;

/// A machine of its own: a cache, a project, and nothing of the user's environment.
pub(crate) struct Machine {
    folder: TempDir,
    endpoint: String,
}

impl Machine {
    pub(crate) fn new() -> Self {
        // A wrong turn must fail, not ask the world.
        Self::at("http://127.0.0.1:9")
    }

    pub(crate) fn at(endpoint: &str) -> Self {
        let machine = Self { folder: tempfile::tempdir().unwrap(), endpoint: endpoint.to_owned() };
        fs::create_dir(machine.project()).unwrap();
        machine
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn declare(&self, dependencies: &str) {
        let text = format!("[package]\nname = \"app\"\n[package.metadata.kernels.dependencies]\n{dependencies}\n");
        fs::write(self.project().join("Cargo.toml"), text).unwrap();
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kernelhub"));
        command.env_clear().env("HF_HOME", self.home()).env("HOME", self.folder.path());
        command.env("HF_ENDPOINT", &self.endpoint).env("KERNELHUB_POLICY", trust::file(&self.endpoint));
        command.current_dir(self.project()).args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The standard output of a run that succeeds.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}\n{stderr}");
        assert!(!output.stdout.contains(&0x1b) && !stderr.contains('\u{1b}'), "colours without a terminal");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        serde_json::from_str(&self.ok(&arguments)).unwrap()
    }

    /// The standard error of a run that fails with this code.
    pub(crate) fn fails(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{stderr}");
        assert_eq!(output.stdout, b"", "{arguments:?}");
        stderr
    }
}

pub(crate) fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// A machine whose project locks the published kernel.
fn locked(published: &Published) -> Machine {
    let machine = Machine::new();
    machine.declare("\"kernelhub/rmsnorm\" = 1");
    machine.ok(&["lock", "--manifest", &text(&published.manifest_path())]);
    machine
}

/// A Hub with `o/rmsnorm` in versions 1 and 2, where a build of version 1 needs `o/helper@v1`, which needs this.
fn start_hub(needs: &[Value]) -> FakeHub {
    let mut first = hub::Published::new("o/rmsnorm", 1);
    first.add_build(VARIANT, 1, &hub::files(), &[json!({"repo-id": "o/helper", "version": 1})]);
    first.add_build("tvm-ffi01-cpu-aarch64-linux", 1, &hub::files(), &[]);
    let mut helper = hub::Published::new("o/helper", 1);
    helper.add_build(VARIANT, 1, &hub::files(), needs);
    FakeHub::start(vec![first, hub::Published::new("o/rmsnorm", 2), helper])
}

fn commit(repo: &str, version: u32) -> String {
    hub::Published::new(repo, version).commit
}
