//! The test beside the Python package `kernels`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{paths, process, registry};

/// What the test runs on: the release whose lock file and cache this project shares, and what loads our packs without
/// Torch.
const PACKAGES: [&str; 3] = ["kernels==0.17.2", "apache-tvm-ffi>=0.1.9,<0.2", "numpy"];

/// The interpreter of a virtual environment of its own. Prints why where that cannot be made.
pub(crate) fn interpreter() -> Option<PathBuf> {
    let venv = paths::target().join("venv");
    match prepare(&venv) {
        Ok(()) => Some(python(&venv)),
        Err(reason) => {
            println!("no Python for the tests beside it, which are skipped: {reason:#}");
            None
        }
    }
}

/// Runs `tests/python/interop.py`.
pub(crate) fn interop(interpreter: Option<&Path>) -> anyhow::Result<()> {
    let Some(interpreter) = interpreter else {
        println!("skipped: no Python with the package kernels");
        return Ok(());
    };
    let mut command = Command::new(interpreter);
    command.arg(paths::root().join("tests/python/interop.py")).arg(registry::kernelhub()).arg(paths::registry());
    command.env("KERNELHUB_POLICY", paths::policy());
    process::run(&mut command)
}

fn prepare(venv: &Path) -> anyhow::Result<()> {
    if !python(venv).exists() {
        process::run(Command::new("python3").args(["-m", "venv"]).arg(venv))?;
    }
    process::run(Command::new(python(venv)).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES))
}

fn python(venv: &Path) -> PathBuf {
    let folder = if cfg!(windows) { "Scripts" } else { "bin" };
    venv.join(folder).join(format!("python{}", std::env::consts::EXE_SUFFIX))
}
