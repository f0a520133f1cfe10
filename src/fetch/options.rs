//! How to fetch.

use std::time::Duration;

use super::env::DEFAULT_TIMEOUT;
use super::{Environment, FetchError, MAX_ARCHIVE_BYTES, RetryPolicy};

/// How to fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchOptions {
    /// Open no socket. Files of this machine are still read. Default: false.
    pub offline: bool,
    /// How long to wait for each next piece of an answer. A slow but steady transfer is not cut off, unless it brings
    /// less than 10 KiB in 20 s. Default: 10 s.
    pub timeout: Duration,
    /// How long to wait for a connection, and for an answer to begin. Default: 10 s.
    pub answer_timeout: Duration,
    /// How failures that may pass are met.
    pub retry: RetryPolicy,
    /// Largest archive to accept, in bytes. Default: [`MAX_ARCHIVE_BYTES`].
    pub max_archive_bytes: u64,
    /// Most files that are downloaded at a time. Default: 8.
    pub parallel: usize,
    /// How long to wait for another process that works on the same kernel. Default: 10 minutes.
    pub lock_timeout: Duration,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self {
            offline: false,
            timeout: DEFAULT_TIMEOUT,
            answer_timeout: DEFAULT_TIMEOUT,
            retry: RetryPolicy::default(),
            max_archive_bytes: MAX_ARCHIVE_BYTES,
            parallel: 8,
            lock_timeout: Duration::from_mins(10),
        }
    }
}

impl FetchOptions {
    /// What the environment says, and the defaults for the rest.
    ///
    /// # Errors
    /// [`FetchError::Environment`] for a variable whose value cannot be read.
    pub fn from_env() -> Result<Self, FetchError> {
        Environment::read().map(|environment| Self::of(&environment))
    }

    /// What an environment says, and the defaults for the rest.
    #[must_use]
    pub fn of(environment: &Environment) -> Self {
        Self {
            offline: environment.offline,
            timeout: environment.download_timeout,
            answer_timeout: environment.answer_timeout,
            ..Self::default()
        }
    }
}
