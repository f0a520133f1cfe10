//! What a probe found out.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::signal_name;
use crate::digest::Violation;
use crate::hint::Hint;

/// A kernel that a child process did not load well, or a child that could not be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// A signal ended the child.
    #[error("loading {} took its process down: {}{}", .path.display(), signal_name(*.signal), when(*.loaded))]
    Crashed {
        /// The build's folder.
        path: PathBuf,
        /// The signal's number; [`signal_name`] has its name.
        signal: i32,
        /// Whether the library was loaded by then, so that it was the end of the process that crashed.
        loaded: bool,
        /// The end of what the child wrote to standard error.
        output: String,
    },
    /// The child did not come to an end, and was killed.
    #[error("loading {} did not end within {} s", .path.display(), .limit.as_secs_f64())]
    Hung {
        /// The build's folder.
        path: PathBuf,
        /// The limit.
        limit: Duration,
        /// The end of what the child wrote to standard error.
        output: String,
    },
    /// The library ended the child's process.
    #[error("loading {} ended its process with exit code {code}{}", .path.display(), when(*.loaded))]
    Exited {
        /// The build's folder.
        path: PathBuf,
        /// The exit code.
        code: i32,
        /// Whether the library was loaded by then.
        loaded: bool,
        /// The end of what the child wrote to standard error.
        output: String,
    },
    /// The child refused the build or its library, and lived to tell.
    #[error("{} is not loaded: {reason}", .path.display())]
    Refused {
        /// The build's folder.
        path: PathBuf,
        /// Why: it is not as published, does not fit, or failed its handshake.
        reason: String,
        /// What is not as published or does not fit. Empty: it is something else.
        violations: Vec<Violation>,
    },
    /// The child could not be started or asked.
    #[error("cannot {action} the process that probes, {}", .program.display())]
    Child {
        /// The operation, as a verb.
        action: &'static str,
        /// The program.
        program: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
}

fn when(loaded: bool) -> &'static str {
    if loaded { " after it was loaded, when the process was to end" } else { "" }
}

impl ProbeError {
    /// What is not as published or does not fit. Empty for the other errors.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        match self {
            Self::Refused { violations, .. } => violations,
            _ => &[],
        }
    }

    /// The end of what the child wrote to standard error.
    #[must_use]
    pub fn output(&self) -> &str {
        match self {
            Self::Crashed { output, .. } | Self::Hung { output, .. } | Self::Exited { output, .. } => output,
            Self::Refused { .. } | Self::Child { .. } => "",
        }
    }
}

impl Hint for ProbeError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Crashed { output, .. } | Self::Exited { output, .. } if !output.trim().is_empty() => {
                Some(format!("its last words: {}", output.trim().lines().last().unwrap_or_default()))
            }
            Self::Crashed { .. } | Self::Exited { .. } => {
                Some("choose another build or version of the kernel, and tell its publisher".to_owned())
            }
            Self::Hung { .. } => Some("give it more time, if its libraries are large".to_owned()),
            Self::Refused { .. } => None,
            Self::Child { .. } => Some("the program named must end up in kernelhub::probe::serve".to_owned()),
        }
    }
}
