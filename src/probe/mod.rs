//! Loading a kernel in a child process first.
//!
//! Loading a library runs its initialisers, and one that crashes, ends the process or never returns takes the program
//! down with it. [`probe`] has a child process do it: the child verifies the build itself, loads it, shakes hands with
//! it and answers; whatever happens to the child becomes a [`ProbeError`] that names it.
//!
//! Owns: the request and the answer, the child's limits, the time limit. Refuses: to be a wall. The child has the
//! rights of its parent, and a library that wants to can write the answer itself. Who may run at all is decided before.
//!
//! # The child
//! It is a program that calls [`serve`] and nothing else: `kernelhub` has a command for it, which [`ProbeCommand::own`]
//! starts where the program is `kernelhub` itself. Another program gives its own way to get there:
//!
//! ```no_run
//! use kernelhub::hub::Hub;
//! use kernelhub::probe::{self, ProbeCommand, ProbeOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! if std::env::args_os().nth(1).is_some_and(|argument| argument == "--probe-child") {
//!     std::process::exit(probe::serve().into());
//! }
//! let command = ProbeCommand::own(["--probe-child"])?;
//! let hub = Hub::builder().probe(ProbeOptions::new(command)).build()?;
//! # Ok(())
//! # }
//! ```
//!
//! No code of the library runs outside the child before the answer, and none in it before its bytes had their digest.

mod child;
mod error;
mod parent;
mod signals;
mod wire;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::load::Handshake;

pub use child::serve;
pub use error::ProbeError;
pub use parent::probe;
pub use signals::signal_name;

/// How long a probe may take, by default: large libraries for GPUs take seconds to load.
pub const DEFAULT_TIME_LIMIT: Duration = Duration::from_mins(1);

/// A program that ends up in [`serve`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeCommand {
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl ProbeCommand {
    /// This program with these arguments.
    #[must_use]
    pub fn new<S: Into<OsString>>(program: impl Into<PathBuf>, arguments: impl IntoIterator<Item = S>) -> Self {
        Self { program: program.into(), arguments: arguments.into_iter().map(Into::into).collect() }
    }

    /// The program that runs now, with these arguments.
    ///
    /// # Errors
    /// The system's, when it does not tell which file that is.
    pub fn own<S: Into<OsString>>(arguments: impl IntoIterator<Item = S>) -> io::Result<Self> {
        Ok(Self::new(std::env::current_exe()?, arguments))
    }
}

/// How to probe.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProbeOptions {
    /// The child.
    pub command: ProbeCommand,
    /// How long it may take, from its start to its end; then it is killed.
    pub time_limit: Duration,
}

impl ProbeOptions {
    /// With this child and [`DEFAULT_TIME_LIMIT`].
    #[must_use]
    pub fn new(command: ProbeCommand) -> Self {
        Self { command, time_limit: DEFAULT_TIME_LIMIT }
    }

    /// With this limit.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }
}

/// A probe that went well: the child loaded the library, shook hands and ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ProbeReport {
    /// How the child made sure of the interface. `None`: the build has no library, so that nothing was to be loaded.
    pub handshake: Option<Handshake>,
    /// How long the child took, in milliseconds, its start included.
    pub ms: f64,
}
