//! `cargo xtask memcheck`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use clap::Args;

use crate::packs;
use crate::process::{self, cargo};

#[derive(Args)]
pub(crate) struct Options {
    /// Only tests whose path begins with this, such as softmax.
    #[arg(long, value_name = "PREFIX")]
    only: Option<String>,
}

/// Reads behind its input on purpose: memcheck has to see it.
const CANARY: &str = "packs::memcheck_sees_one_element_too_many";

/// Runs the tests of the CPU pack in valgrind, on the libraries as they ship. Valgrind shows a processor with AVX2 and
/// without AVX-512, and that is the level that the libraries then choose.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    ensure!(
        Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success()),
        "valgrind is not installed (Debian's package valgrind)"
    );
    let libraries = packs::libraries()?;
    let tests = build()?;
    let status = valgrind(&tests, &libraries, ["--ignored", "--exact", CANARY]).output()?.status;
    ensure!(status.code() == Some(FOUND), "memcheck did not see a read behind an array: {status}");
    println!("memcheck sees a read of one element behind an array");
    let only = options.only.as_deref().unwrap_or_default();
    let groups: Vec<String> = groups(&tests)?.into_iter().filter(|group| group.starts_with(only)).collect();
    ensure!(!groups.is_empty(), "no test begins with {only:?}");
    process::run_all(groups.iter().map(|group| valgrind(&tests, &libraries, [group])))?;
    println!("memcheck found nothing in {} groups of tests", groups.len());
    Ok(())
}

/// What valgrind exits with when it has found something; the tests' own failure is 101.
const FOUND: i32 = 99;

/// Tests run one after another: valgrind runs one thread at a time, and the tests leak on purpose.
fn valgrind<S: AsRef<OsStr>>(tests: &Path, libraries: &Path, arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--leak-check=no", &format!("--error-exitcode={FOUND}")]);
    command.arg(tests).args(["--quiet", "--test-threads=1"]).args(arguments).env("KERNELHUB_CPU_PACKS", libraries);
    command
}

/// Builds the tests, and answers their program.
fn build() -> anyhow::Result<PathBuf> {
    let mut command = cargo(["test", "--package", "kernelhub-cpu", "--test", "it", "--no-run"]);
    let output = command.arg("--message-format=json").stderr(std::process::Stdio::inherit()).output()?;
    ensure!(output.status.success(), "the tests of kernelhub-cpu do not build: {}", output.status);
    let artifacts = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    for line in artifacts {
        let artifact: serde_json::Value = serde_json::from_slice(line).context("cargo's JSON")?;
        if artifact["target"]["name"] == "it"
            && let Some(program) = artifact["executable"].as_str()
        {
            return Ok(program.into());
        }
    }
    bail!("cargo told of no program `it`")
}

/// The modules of the tests, each followed by `::`.
fn groups(tests: &Path) -> anyhow::Result<BTreeSet<String>> {
    let output = Command::new(tests).args(["--list", "--format=terse"]).output()?;
    ensure!(output.status.success(), "{} --list: {}", tests.display(), output.status);
    let list = String::from_utf8(output.stdout)?;
    Ok(list.lines().filter_map(|line| line.split_once("::")).map(|(module, _)| format!("{module}::")).collect())
}
