//! The environment variables of the whole library, read here and nowhere else.
//!
//! They are those of the Python tools, and `KERNELHUB_POLICY`, with their meanings: a variable that is set and empty
//! counts as unset; yes is `1`, `true`, `yes` or `on` in any case; a leading `~` is the home folder.

mod reader;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reader::Reader;
pub(super) use reader::names_proxy;
use reqwest::Url;
use serde::Serialize;

use super::FetchError;
use super::http::Token;
use crate::names::RepoId;
use crate::policy::PolicyFiles;

/// The Hub that is asked where `HF_ENDPOINT` names no other.
pub use crate::policy::DEFAULT_ENDPOINT;
/// How long to wait for a connection, an answer, and the next piece of one, where no variable says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// What the environment says.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "one for each switch that the environment has")]
pub struct Environment {
    /// The Hub. `HF_ENDPOINT`.
    pub endpoint: Url,
    /// The folder of the Hugging Face tools. `HF_HOME`, else `$XDG_CACHE_HOME/huggingface`, else
    /// `~/.cache/huggingface`. `None` where there is no home folder either.
    pub home: Option<PathBuf>,
    /// The folder of the repos. `KERNELS_CACHE`, `HF_HUB_CACHE`, else `hub` in [`Self::home`].
    pub hub_cache: Option<PathBuf>,
    /// The folder of archives, manifests and records: `kernelhub` in the first of `KERNELS_CACHE`, `HF_HUB_CACHE` and
    /// [`Self::home`].
    pub archive_cache: Option<PathBuf>,
    /// The token for the endpoint. `HF_TOKEN`, else the text in the file `HF_TOKEN_PATH`, else in `token` in
    /// [`Self::home`].
    pub token: Option<Token>,
    /// Open no socket. `HF_HUB_OFFLINE`.
    pub offline: bool,
    /// How long to wait for the next piece of a download. `HF_HUB_DOWNLOAD_TIMEOUT`, in seconds.
    pub download_timeout: Duration,
    /// How long to wait for an answer to begin. `HF_HUB_ETAG_TIMEOUT`, in seconds.
    pub answer_timeout: Duration,
    /// Put files, not links, into snapshots. `HF_HUB_DISABLE_SYMLINKS`.
    pub disable_symlinks: bool,
    /// Draw no progress bars. `HF_HUB_DISABLE_PROGRESS_BARS`.
    pub disable_progress_bars: bool,
    /// Tell the Hub nothing about this machine: `HF_HUB_DISABLE_TELEMETRY` or `DO_NOT_TRACK`. This library sends its
    /// own name and version and nothing else, with or without it.
    pub disable_telemetry: bool,
    /// Folders that take a kernel's place. `LOCAL_KERNELS`, `owner/name=path` separated by `:`.
    pub local_kernels: Vec<(RepoId, PathBuf)>,
    /// Whether hosts may use kernels at all. `USE_HUB_KERNELS`; unset means yes.
    pub use_hub_kernels: bool,
    /// Whether no mapping from layers to kernels is in force. `DISABLE_KERNEL_MAPPING`.
    pub disable_kernel_mapping: bool,
    /// The user's policy: `KERNELHUB_POLICY`, else `kernelhub/policy.toml` in `$XDG_CONFIG_HOME`, else in `~/.config`.
    /// `None` where there is no home folder either.
    pub policy: Option<PathBuf>,
    /// Whether `KERNELHUB_POLICY` names it, so that it has to be there.
    pub policy_is_named: bool,
    /// Whether hashes that were recorded are believed without hashing again. `KERNELHUB_TRUST_RECORDED_HASHES`; see
    /// [`crate::verify::TrustedHashes`] for what that gives up.
    pub trust_recorded_hashes: bool,
    /// Which variable, if any, each value came from.
    variables: Vec<Variable>,
}

/// One variable with its effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it is set to. `None`: unset or empty. A token is never shown: `(set)` stands for it.
    pub set: Option<String>,
    /// The value that is in force, wherever it came from.
    pub effective: String,
}

impl Environment {
    /// Reads the process's environment, and the token's file where there is one.
    ///
    /// # Errors
    /// [`FetchError::Environment`] for a variable whose value cannot be read.
    pub fn read() -> Result<Self, FetchError> {
        Self::read_with(&|name| std::env::var_os(name))
    }

    /// Reads the environment that a function describes.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_with(lookup: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, FetchError> {
        let reader = Reader { lookup };
        let home = match reader.path("HF_HOME") {
            Some(home) => Some(home),
            None => match reader.path("XDG_CACHE_HOME") {
                Some(cache) => Some(cache.join("huggingface")),
                None => reader.user_home().map(|home| home.join(".cache/huggingface")),
            },
        };
        let named_cache = reader.path("KERNELS_CACHE").or_else(|| reader.path("HF_HUB_CACHE"));
        let named_policy = reader.path("KERNELHUB_POLICY");
        let config = reader.folder("XDG_CONFIG_HOME", ".config");
        let token_path = reader.path("HF_TOKEN_PATH").or_else(|| Some(home.as_ref()?.join("token")));
        let mut environment = Self {
            endpoint: reader.endpoint()?,
            hub_cache: named_cache.clone().or_else(|| Some(home.as_ref()?.join("hub"))),
            archive_cache: named_cache.or_else(|| home.clone()).map(|folder| folder.join("kernelhub")),
            token: reader.token(token_path.as_deref())?,
            home,
            offline: reader.is_yes("HF_HUB_OFFLINE"),
            download_timeout: reader.seconds("HF_HUB_DOWNLOAD_TIMEOUT")?,
            answer_timeout: reader.seconds("HF_HUB_ETAG_TIMEOUT")?,
            disable_symlinks: reader.is_yes("HF_HUB_DISABLE_SYMLINKS"),
            disable_progress_bars: reader.is_yes("HF_HUB_DISABLE_PROGRESS_BARS"),
            disable_telemetry: reader.is_yes("HF_HUB_DISABLE_TELEMETRY") || reader.is_yes("DO_NOT_TRACK"),
            local_kernels: reader.local_kernels()?,
            use_hub_kernels: reader.text("USE_HUB_KERNELS").is_none() || reader.is_yes("USE_HUB_KERNELS"),
            disable_kernel_mapping: reader.is_yes("DISABLE_KERNEL_MAPPING"),
            policy_is_named: named_policy.is_some(),
            policy: named_policy.or_else(|| Some(config?.join("kernelhub/policy.toml"))),
            trust_recorded_hashes: reader.is_yes("KERNELHUB_TRUST_RECORDED_HASHES"),
            variables: Vec::new(),
        };
        environment.variables = environment.list(&reader, token_path.as_deref());
        Ok(environment)
    }

    /// What switches kernels off for every model of the process; `None`: nothing does. The variables mean what they
    /// mean to the Python tools.
    #[must_use]
    pub fn kernels_off(&self) -> Option<&'static str> {
        match self {
            Self { use_hub_kernels: false, .. } => Some("USE_HUB_KERNELS says no"),
            Self { disable_kernel_mapping: true, .. } => Some("DISABLE_KERNEL_MAPPING says yes"),
            _ => None,
        }
    }

    /// Every variable that is read, with what it is set to and what is in force.
    #[must_use]
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// Where the policies of the machine and the user stand.
    #[must_use]
    pub fn policy_files(&self) -> PolicyFiles {
        PolicyFiles { user: self.policy.clone(), user_is_named: self.policy_is_named, ..PolicyFiles::of_machine() }
    }

    fn list(&self, reader: &Reader<'_>, token_path: Option<&Path>) -> Vec<Variable> {
        let path = |path: Option<&Path>| path.map_or_else(|| "(none)".to_owned(), |path| path.display().to_string());
        let yes = |value: bool| if value { "yes" } else { "no" }.to_owned();
        let seconds = |value: Duration| format!("{} s", value.as_secs());
        let hub_cache = path(self.hub_cache.as_deref());
        let local = self.local_kernels.iter().map(|(repo, path)| format!("{repo}={}", path.display()));
        let token = if self.token.is_some() { "(set)" } else { "(none)" };
        [
            ("HF_ENDPOINT", self.endpoint.as_str().trim_end_matches('/').to_owned()),
            ("HF_HOME", path(self.home.as_deref())),
            ("HF_HUB_CACHE", hub_cache.clone()),
            ("XDG_CACHE_HOME", path(reader.folder("XDG_CACHE_HOME", ".cache").as_deref())),
            ("KERNELS_CACHE", hub_cache),
            ("HF_HUB_OFFLINE", yes(self.offline)),
            ("HF_TOKEN", token.to_owned()),
            ("HF_TOKEN_PATH", path(token_path)),
            ("HF_HUB_DISABLE_TELEMETRY", yes(self.disable_telemetry)),
            ("DO_NOT_TRACK", yes(self.disable_telemetry)),
            ("HF_HUB_DOWNLOAD_TIMEOUT", seconds(self.download_timeout)),
            ("HF_HUB_ETAG_TIMEOUT", seconds(self.answer_timeout)),
            ("HF_HUB_DISABLE_SYMLINKS", yes(self.disable_symlinks)),
            ("HF_HUB_DISABLE_PROGRESS_BARS", yes(self.disable_progress_bars)),
            ("LOCAL_KERNELS", local.collect::<Vec<_>>().join(":")),
            ("USE_HUB_KERNELS", yes(self.use_hub_kernels)),
            ("DISABLE_KERNEL_MAPPING", yes(self.disable_kernel_mapping)),
            ("KERNELHUB_POLICY", path(self.policy.as_deref())),
            ("XDG_CONFIG_HOME", path(reader.folder("XDG_CONFIG_HOME", ".config").as_deref())),
            ("KERNELHUB_TRUST_RECORDED_HASHES", yes(self.trust_recorded_hashes)),
        ]
        .into_iter()
        .map(|(name, effective)| {
            let set = reader.text(name).map(|value| match name {
                "HF_TOKEN" => "(set)".to_owned(),
                "HF_ENDPOINT" => effective.clone(),
                _ => value,
            });
            Variable { name, set, effective }
        })
        .collect()
    }
}

#[cfg(test)]
mod tests;
