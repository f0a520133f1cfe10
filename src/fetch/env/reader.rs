//! One variable after the other, in its type.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::Url;

use super::{DEFAULT_ENDPOINT, DEFAULT_TIMEOUT};
use crate::fetch::FetchError;
use crate::fetch::http::Token;
use crate::names::RepoId;
use crate::regular;

/// Largest file with a token, in bytes.
const MAX_TOKEN_BYTES: u64 = 64 << 10;

/// Reads one variable. A parameter, so that tests need no process-wide change.
type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Reads typed values.
pub(super) struct Reader<'a> {
    pub(super) lookup: Lookup<'a>,
}

impl Reader<'_> {
    pub(super) fn raw(&self, name: &str) -> Option<OsString> {
        (self.lookup)(name).filter(|value| !value.is_empty())
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.raw(name).map(|value| value.to_string_lossy().into_owned())
    }

    pub(super) fn user_home(&self) -> Option<PathBuf> {
        self.raw("HOME").or_else(|| self.raw("USERPROFILE")).map(PathBuf::from)
    }

    /// A folder of the desktop's rules: by its variable, else below the user's home.
    pub(super) fn folder(&self, name: &str, below_home: &str) -> Option<PathBuf> {
        self.path(name).or_else(|| Some(self.user_home()?.join(below_home)))
    }

    pub(super) fn path(&self, name: &str) -> Option<PathBuf> {
        let path = PathBuf::from(self.raw(name)?);
        // A shell expands a leading `~` only outside quotes; the Python tools always do.
        match (path.strip_prefix("~"), self.user_home()) {
            (Ok(rest), Some(home)) => Some(home.join(rest)),
            _ => Some(path),
        }
    }

    pub(super) fn is_yes(&self, name: &str) -> bool {
        self.text(name)
            .is_some_and(|value| ["1", "true", "yes", "on"].iter().any(|yes| value.trim().eq_ignore_ascii_case(yes)))
    }

    pub(super) fn invalid(name: &'static str, value: impl Into<String>, expected: &'static str) -> FetchError {
        FetchError::Environment { name, value: value.into(), expected }
    }

    pub(super) fn seconds(&self, name: &'static str) -> Result<Duration, FetchError> {
        let Some(value) = self.text(name) else { return Ok(DEFAULT_TIMEOUT) };
        match value.trim().parse::<u32>() {
            // Zero means the default to the Python tools.
            Ok(0) => Ok(DEFAULT_TIMEOUT),
            Ok(seconds) => Ok(Duration::from_secs(seconds.into())),
            Err(_) => Err(Self::invalid(name, value, "a whole number of seconds")),
        }
    }

    pub(super) fn endpoint(&self) -> Result<Url, FetchError> {
        let value = self.text("HF_ENDPOINT").unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned());
        parse_endpoint(&value)
            // Not the value itself, which may hold a password.
            .ok_or_else(|| {
                Self::invalid("HF_ENDPOINT", "(hidden)", "an http or https URL without credentials or query")
            })
    }

    pub(super) fn token(&self, path: Option<&Path>) -> Result<Option<Token>, FetchError> {
        let text = match (self.text("HF_TOKEN"), path) {
            (Some(text), _) => text,
            (None, None) => return Ok(None),
            (None, Some(path)) => match regular::read_text(path, MAX_TOKEN_BYTES) {
                Ok(text) => text,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(FetchError::io("read the token in", path)(error)),
            },
        };
        match text.trim() {
            "" => Ok(None),
            text => Token::new(text)
                .map(Some)
                .ok_or_else(|| Self::invalid("HF_TOKEN", "(hidden)", "letters, digits and punctuation of ASCII")),
        }
    }

    pub(super) fn local_kernels(&self) -> Result<Vec<(RepoId, PathBuf)>, FetchError> {
        let Some(value) = self.text("LOCAL_KERNELS") else { return Ok(Vec::new()) };
        let entry = |entry: &str| {
            let (repo, path) = entry.split_once('=')?;
            (!path.is_empty()).then_some((repo.parse().ok()?, PathBuf::from(path)))
        };
        value
            .split(':')
            .map(|text| entry(text).ok_or_else(|| Self::invalid("LOCAL_KERNELS", text, "owner/name=path")))
            .collect()
    }
}

/// Whether the HTTP client, which reads these variables itself, sends plain requests through a proxy.
pub(in crate::fetch) fn names_proxy() -> bool {
    ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"].iter().any(|name| std::env::var_os(name).is_some())
}

/// An endpoint as requests are built on it: no path's last slash, no query.
fn parse_endpoint(value: &str) -> Option<Url> {
    let url = Url::parse(value.trim().trim_end_matches('/')).ok()?;
    let plain =
        url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none();
    (matches!(url.scheme(), "http" | "https") && url.has_host() && plain).then_some(url)
}
