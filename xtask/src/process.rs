//! Running other programs, visibly.

use std::ffi::OsStr;
use std::num::NonZero;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, anyhow, bail};

use crate::paths;

/// `cargo` with these arguments, in the repository's root.
pub(crate) fn cargo<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(paths::root());
    command
}

/// Switches off Mesa's layer that asks the display server which GPU it prefers: without a display it complains on
/// standard error, and it opens a socket, which an offline run must not.
fn without_display(command: &mut Command) -> &mut Command {
    command.env("NODEVICE_SELECT", "1")
}

/// Prints the command, runs it, and fails when it fails.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let shown = show(command);
    println!("$ {shown}");
    let start = Instant::now();
    let status = without_display(command).status().with_context(|| format!("cannot start {shown}"))?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    println!("  ({:.1} s)", start.elapsed().as_secs_f64());
    Ok(())
}

/// As [`run`], for a command beside others: prints all at once when it has ended, and standard error
/// only when it has failed.
pub(crate) fn run_beside(command: &mut Command) -> anyhow::Result<()> {
    let shown = show(command);
    let start = Instant::now();
    let output = without_display(command).output().with_context(|| format!("cannot start {shown}"))?;
    if !output.status.success() {
        let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        bail!("{shown}: {}\n{out}{err}", output.status);
    }
    print!("beside: {shown} ({:.1} s)\n{}", start.elapsed().as_secs_f64(), String::from_utf8_lossy(&output.stdout));
    Ok(())
}

/// Runs commands as [`run_beside`] does, as many at a time as there are processors. The first that fails ends it, after
/// those that run.
pub(crate) fn run_all(commands: impl IntoIterator<Item = Command, IntoIter: Send>) -> anyhow::Result<()> {
    let commands = Mutex::new(commands.into_iter());
    let failed = AtomicBool::new(false);
    let work = || -> anyhow::Result<()> {
        while !failed.load(Ordering::Relaxed) {
            let command = commands.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(mut command) = command else { break };
            run_beside(&mut command).inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
        }
        Ok(())
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let panicked = |_| Err(anyhow!("a thread that runs commands panicked"));
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(panicked))
    })
}

/// The command as a person would type it.
fn show(command: &Command) -> String {
    let root = paths::root().to_string_lossy().into_owned();
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    let arguments = command.get_args().map(|argument| argument.to_string_lossy().replace(&format!("{root}/"), ""));
    std::iter::once(name).chain(arguments).collect::<Vec<_>>().join(" ")
}
