//! Starting the program again with another environment.
//!
//! How many threads candle and rayon take, and what the C library does with freed memory, is read from the environment
//! when a process starts, and cannot be set from within it.

use std::ffi::OsString;
use std::process::Command;

use crate::failure::Failure;

/// Variables that a run needs, with their values.
#[derive(Debug, Default)]
pub(crate) struct Needed(Vec<(&'static str, String)>);

/// What glibc reads: never ask the system for single blocks, and never give memory back.
const KEEP: [(&str, &str); 2] = [("MALLOC_MMAP_MAX_", "0"), ("MALLOC_TRIM_THRESHOLD_", "1099511627776")];

impl Needed {
    /// `threads` threads for kernels and reference.
    pub(crate) fn threads(mut self, threads: Option<usize>) -> Self {
        self.0.extend(threads.map(|threads| ("RAYON_NUM_THREADS", threads.to_string())));
        self
    }

    /// Memory that a call frees stays with the process.
    pub(crate) fn kept_memory(mut self, kept: bool) -> Self {
        self.0.extend(KEEP.iter().filter(|_| kept).map(|(name, value)| (*name, (*value).to_owned())));
        self
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
    KEEP.iter().all(|(name, value)| std::env::var(name).as_deref() == Ok(*value))
}
