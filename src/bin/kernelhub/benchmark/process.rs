//! Starting the program again with another environment.
//!
//! How many threads candle and rayon take, and what the C library does with freed memory, is read from the environment
//! when a process starts, and cannot be set from within it.

use std::ffi::OsString;
use std::process::Command;

use super::error::BenchmarkError;
use crate::failure::Failure;

/// Variables that a run needs, with their values.
#[derive(Debug, Default)]
pub(crate) struct Needed(Vec<(&'static str, String)>);

/// What rayon and candle read.
const THREADS: &str = "RAYON_NUM_THREADS";
/// What glibc reads: never ask the system for single blocks, and never give memory back.
const KEEP: [(&str, &str); 2] = [("MALLOC_MMAP_MAX_", "0"), ("MALLOC_TRIM_THRESHOLD_", "1099511627776")];

impl Needed {
    /// `threads` threads for kernels and reference; `None`: what the variable says, else one for each core. Without the
    /// variable, candle counts cores of its own and rayon hardware threads, which would be no fair comparison.
    pub(crate) fn threads(mut self, threads: Option<usize>) -> Self {
        let is_said = std::env::var(THREADS).is_ok_and(|value| value.parse().is_ok_and(|threads: usize| threads > 0));
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = threads.or_else(|| (!is_said).then(cores));
        self.0.extend(threads.map(|threads| (THREADS, threads.to_string())));
        self
    }

    /// Memory that a call frees stays with the process.
    pub(crate) fn kept_memory(mut self, kept: bool) -> Result<Self, BenchmarkError> {
        if kept && !cfg!(all(target_os = "linux", target_env = "gnu")) {
            return Err(BenchmarkError::KeepMemory);
        }
        self.0.extend(KEEP.iter().filter(|_| kept).map(|(name, value)| (*name, (*value).to_owned())));
        Ok(self)
    }

    /// Runs the program again where a variable has another value; returns when none has.
    pub(crate) fn ensure(self) -> Result<(), Failure> {
        let is_set = |(name, value): &(&'static str, String)| std::env::var(name).as_ref() == Ok(value);
        if self.0.iter().all(is_set) {
            return Ok(());
        }
        let program = std::env::current_exe().map_err(Failure::plain)?;
        let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        let mut command = Command::new(program);
        command.args(arguments).envs(self.0);
        replace(command)
    }
}

#[cfg(unix)]
fn replace(mut command: Command) -> Result<(), Failure> {
    use std::os::unix::process::CommandExt as _;
    Err(Failure::plain(command.exec()))
}

#[cfg(not(unix))]
#[expect(clippy::exit, reason = "its outcome is this process's")]
fn replace(mut command: Command) -> Result<(), Failure> {
    let status = command.status().map_err(Failure::plain)?;
    std::process::exit(status.code().unwrap_or(1));
}

/// Whether this process keeps freed memory.
pub(crate) fn keeps_memory() -> bool {
    cfg!(all(target_os = "linux", target_env = "gnu"))
        && KEEP.iter().all(|(name, value)| std::env::var(name).as_deref() == Ok(*value))
}
