//! The test beside the Python package `kernels`.

use std::path::Path;
use std::process::Command;

use crate::{paths, process, registry};

/// What the test runs on: the release whose lock file and cache this project shares, and what loads our packs without
/// Torch.
const PACKAGES: [&str; 3] = ["kernels==0.17.2", "apache-tvm-ffi>=0.1.9,<0.2", "numpy"];

/// Runs `tests/python/interop.py` in a virtual environment of its own. Prints why where that cannot be made.
pub(crate) fn interop() -> anyhow::Result<()> {
    let venv = paths::target().join("venv");
    if let Err(reason) = prepare(&venv) {
        println!("skipped: {reason:#}");
        return Ok(());
    }
    let mut command = Command::new(python(&venv));
    command.arg(paths::root().join("tests/python/interop.py")).arg(registry::kernelhub()).arg(paths::registry());
    process::run(&mut command)
}

fn prepare(venv: &Path) -> anyhow::Result<()> {
    if !python(venv).exists() {
        process::run(Command::new("python3").args(["-m", "venv"]).arg(venv))?;
    }
    process::run(Command::new(python(venv)).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES))
}

fn python(venv: &Path) -> std::path::PathBuf {
    let folder = if cfg!(windows) { "Scripts" } else { "bin" };
    venv.join(folder).join(format!("python{}", std::env::consts::EXE_SUFFIX))
}
