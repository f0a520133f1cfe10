//! `cargo xtask test`, and the benchmarks of downloads and of verification.

use std::process::Command;

use clap::Args;

use crate::process::{cargo, run as run_command};
use crate::steps::Steps;
use crate::{demo, fuzz, packs, paths, python, registry};

#[derive(Args)]
pub(crate) struct Options {
    /// Leave out the demo on the real model, which downloads 93 MB at its first run.
    #[arg(long)]
    no_demo: bool,
}

/// Features that are off by default and have tests of their own.
const FEATURES: [&str; 2] = ["--features", "kernelhub/oci"];

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let mut steps = Steps::default();
    let result = all(options, &mut steps);
    // Where the time went is told of a run that failed, too.
    steps.finish();
    result?;
    println!("all checks and tests passed");
    Ok(())
}

fn all(options: &Options, steps: &mut Steps) -> anyhow::Result<()> {
    steps.begin("what the tests need of the system");
    run_command(Command::new("bash").arg(paths::root().join("scripts/setup-tests.sh")))?;

    steps.begin("format");
    run_command(&mut cargo(["fmt", "--all", "--check"]))?;
    // In a folder of their own, so that this cargo and the other ones don't wait for each other.
    let libraries = packs::compile_beside();

    steps.begin("lints, and the packs' libraries beside them");
    let deny = ["--", "--deny", "warnings"];
    run_command(cargo(["clippy", "--workspace", "--all-targets"]).args(FEATURES).args(deny))?;
    run_command(cargo(["clippy", "--package", "kernelhub", "--no-default-features"]).args(deny))?;

    steps.begin("documentation");
    // With the examples, dependencies have the features that they have for the lints, and are not checked again.
    let mut doc = cargo(["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"]);
    doc.args(["--lib", "--bin", "xtask", "--examples"]).args(FEATURES);
    run_command(doc.env("RUSTDOCFLAGS", "--deny warnings"))?;

    steps.begin("the programs in release mode");
    if options.no_demo {
        registry::build_kernelhub(false)?;
    } else {
        demo::build(false)?;
    }

    steps.begin("the tests, building");
    let tests = ["test", "--workspace", "--all-targets"];
    run_command(cargo(tests).arg("--no-run").args(FEATURES))?;

    steps.begin("the kernel packs");
    libraries.wait()?;
    packs::build(&registry::kernelhub())?;

    steps.begin("the Python package kernels");
    let interpreter = python::interpreter();

    steps.begin("the tests");
    // Tests that need the packs print why they skip where there are none; here there are, so a skip is a failure.
    let mut tests = cargo(tests);
    tests.args(FEATURES).env("KERNELHUB_TEST_REGISTRY", paths::registry());
    tests.env("KERNELHUB_POLICY", paths::policy());
    if let Some(interpreter) = &interpreter {
        tests.env("KERNELHUB_TEST_PYTHON", interpreter);
    }
    run_command(&mut tests)?;

    steps.begin("the tests in documentation");
    run_command(cargo(["test", "--workspace", "--doc"]).args(FEATURES))?;

    steps.begin("the fuzz targets, for a few seconds each");
    fuzz::run_after_tests(3, &FEATURES)?;

    steps.begin("the Python package kernels on the same Hub, cache and lock file");
    python::interop(interpreter.as_deref())?;

    if !options.no_demo {
        steps.begin("the demo");
        demo::run(&demo::Options::with_cache(paths::target().join("test-cache")))?;
    }
    Ok(())
}

#[derive(Args)]
pub(crate) struct BenchDownloadOptions {
    /// Put the numbers into benches/RESULTS.md.
    #[arg(long)]
    write: bool,
}

/// As [`bench_download`].
pub(crate) fn bench_verify(options: &BenchDownloadOptions) -> anyhow::Result<()> {
    let mut command = cargo(["bench", "--package", "kernelhub", "--no-default-features", "--bench", "verify"]);
    if options.write {
        command.args(["--", "--write"]);
    }
    run_command(&mut command)
}

/// Needs no kernel packs and none of the program's features, so that it builds in less time.
pub(crate) fn bench_download(options: &BenchDownloadOptions) -> anyhow::Result<()> {
    let mut command = cargo(["bench", "--package", "kernelhub", "--no-default-features", "--bench", "download"]);
    if options.write {
        command.args(["--", "--write"]);
    }
    run_command(&mut command)
}
