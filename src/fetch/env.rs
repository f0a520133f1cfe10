//! The environment variables of the whole library, read here and nowhere else.
//!
//! They are those of the Python tools, and `KERNELHUB_POLICY`, with their meanings: a variable that is set and empty
//! counts as unset; yes is `1`, `true`, `yes` or `on` in any case; a leading `~` is the home folder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::Url;
use serde::Serialize;

use super::FetchError;
use super::http::Token;
use crate::names::RepoId;
use crate::policy::PolicyFiles;
use crate::regular;

/// The Hub that is asked where `HF_ENDPOINT` names no other.
pub use crate::policy::DEFAULT_ENDPOINT;
/// How long to wait for a connection, an answer, and the next piece of one, where no variable says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads one variable. A parameter, so that tests need no process-wide change.
type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

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

/// Largest file with a token, in bytes.
const MAX_TOKEN_BYTES: u64 = 64 << 10;

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

/// Reads typed values.
struct Reader<'a> {
    lookup: Lookup<'a>,
}

impl Reader<'_> {
    fn raw(&self, name: &str) -> Option<OsString> {
        (self.lookup)(name).filter(|value| !value.is_empty())
    }

    fn text(&self, name: &str) -> Option<String> {
        self.raw(name).map(|value| value.to_string_lossy().into_owned())
    }

    fn user_home(&self) -> Option<PathBuf> {
        self.raw("HOME").or_else(|| self.raw("USERPROFILE")).map(PathBuf::from)
    }

    /// A folder of the desktop's rules: by its variable, else below the user's home.
    fn folder(&self, name: &str, below_home: &str) -> Option<PathBuf> {
        self.path(name).or_else(|| Some(self.user_home()?.join(below_home)))
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        let path = PathBuf::from(self.raw(name)?);
        // A shell expands a leading `~` only outside quotes; the Python tools always do.
        match (path.strip_prefix("~"), self.user_home()) {
            (Ok(rest), Some(home)) => Some(home.join(rest)),
            _ => Some(path),
        }
    }

    fn is_yes(&self, name: &str) -> bool {
        self.text(name)
            .is_some_and(|value| ["1", "true", "yes", "on"].iter().any(|yes| value.trim().eq_ignore_ascii_case(yes)))
    }

    fn invalid(name: &'static str, value: impl Into<String>, expected: &'static str) -> FetchError {
        FetchError::Environment { name, value: value.into(), expected }
    }

    fn seconds(&self, name: &'static str) -> Result<Duration, FetchError> {
        let Some(value) = self.text(name) else { return Ok(DEFAULT_TIMEOUT) };
        match value.trim().parse::<u32>() {
            // Zero means the default to the Python tools.
            Ok(0) => Ok(DEFAULT_TIMEOUT),
            Ok(seconds) => Ok(Duration::from_secs(seconds.into())),
            Err(_) => Err(Self::invalid(name, value, "a whole number of seconds")),
        }
    }

    fn endpoint(&self) -> Result<Url, FetchError> {
        let value = self.text("HF_ENDPOINT").unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned());
        parse_endpoint(&value)
            // Not the value itself, which may hold a password.
            .ok_or_else(|| {
                Self::invalid("HF_ENDPOINT", "(hidden)", "an http or https URL without credentials or query")
            })
    }

    fn token(&self, path: Option<&Path>) -> Result<Option<Token>, FetchError> {
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

    fn local_kernels(&self) -> Result<Vec<(RepoId, PathBuf)>, FetchError> {
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
pub(super) fn names_proxy() -> bool {
    ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"].iter().any(|name| std::env::var_os(name).is_some())
}

/// An endpoint as requests are built on it: no path's last slash, no query.
pub(super) fn parse_endpoint(value: &str) -> Option<Url> {
    let url = Url::parse(value.trim().trim_end_matches('/')).ok()?;
    let plain =
        url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none();
    (matches!(url.scheme(), "http" | "https") && url.has_host() && plain).then_some(url)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use super::{Environment, FetchError};

    fn read(set: &[(&str, &str)]) -> Result<Environment, FetchError> {
        Environment::read_with(&|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)))
    }

    #[test]
    fn f15_the_first_variable_that_is_set_names_each_folder() {
        let all = [
            ("KERNELS_CACHE", "/k"),
            ("HF_HUB_CACHE", "/c"),
            ("HF_HOME", "/h"),
            ("XDG_CACHE_HOME", "/x"),
            ("HOME", "/home/u"),
        ];
        let expected = [
            ("/k", "/k/kernelhub"),
            ("/c", "/c/kernelhub"),
            ("/h/hub", "/h/kernelhub"),
            ("/x/huggingface/hub", "/x/huggingface/kernelhub"),
            ("/home/u/.cache/huggingface/hub", "/home/u/.cache/huggingface/kernelhub"),
        ];
        for (skip, (hub, archives)) in expected.into_iter().enumerate() {
            let environment = read(&all[skip..]).unwrap();
            assert_eq!(environment.hub_cache.as_deref(), Some(Path::new(hub)));
            assert_eq!(environment.archive_cache.as_deref(), Some(Path::new(archives)));
        }
        let home = |set: &[(&str, &str)]| read(set).unwrap().hub_cache;
        assert_eq!(home(&[("KERNELS_CACHE", ""), ("HF_HOME", "/h")]), Some(PathBuf::from("/h/hub")));
        assert_eq!(home(&[("HF_HOME", "~/m"), ("HOME", "/home/u")]), Some(PathBuf::from("/home/u/m/hub")));
        assert_eq!(home(&[]), None);
    }

    #[test]
    fn yes_is_what_the_python_tools_take_for_true() {
        for (value, expected) in [("1", true), ("TRUE", true), ("yes", true), ("on", true), ("0", false), ("", false)] {
            let environment = read(&[
                ("HF_HUB_OFFLINE", value),
                ("HF_HUB_DISABLE_SYMLINKS", value),
                ("HF_HUB_DISABLE_PROGRESS_BARS", value),
                ("DISABLE_KERNEL_MAPPING", value),
                ("DO_NOT_TRACK", value),
            ])
            .unwrap();
            let all = [
                environment.offline,
                environment.disable_symlinks,
                environment.disable_progress_bars,
                environment.disable_kernel_mapping,
                environment.disable_telemetry,
            ];
            assert_eq!(all, [expected; 5], "{value:?}");
        }
        assert!(read(&[]).unwrap().use_hub_kernels && !read(&[("USE_HUB_KERNELS", "0")]).unwrap().use_hub_kernels);
    }

    #[test]
    fn the_switches_of_the_environment_say_which_of_them_it_is() {
        let off = |name: &str, value: &str| read(&[(name, value)]).unwrap().kernels_off();
        assert_eq!(read(&[]).unwrap().kernels_off(), None);
        assert_eq!(off("USE_HUB_KERNELS", "1"), None);
        assert_eq!(off("USE_HUB_KERNELS", "0"), Some("USE_HUB_KERNELS says no"));
        assert_eq!(off("DISABLE_KERNEL_MAPPING", "1"), Some("DISABLE_KERNEL_MAPPING says yes"));
        assert_eq!(off("DISABLE_KERNEL_MAPPING", "0"), None);
    }

    #[test]
    fn values_that_cannot_be_read_are_named_and_secrets_are_not_shown() {
        let bad = [
            ("HF_HUB_DOWNLOAD_TIMEOUT", "soon"),
            ("HF_HUB_ETAG_TIMEOUT", "-1"),
            ("HF_ENDPOINT", "ftp://h"),
            ("HF_ENDPOINT", "https://me:hunter2@h"),
            ("HF_ENDPOINT", "h"),
            ("HF_TOKEN", "hunter2\u{e9}"),
            ("LOCAL_KERNELS", "a/b"),
            ("LOCAL_KERNELS", "a/b=/x:"),
            ("LOCAL_KERNELS", "../b=/x"),
        ];
        for (name, value) in bad {
            let error = read(&[(name, value)]).unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(matches!(error, FetchError::Environment { name: found, .. } if found == name), "{text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
        let environment = read(&[("HF_TOKEN", " hf_hunter2\n")]).unwrap();
        let text = format!("{environment:?} {:?}", environment.variables());
        assert!(environment.token.is_some() && !text.contains("hunter2"), "{text}");
    }

    #[test]
    fn every_variable_of_the_python_tools_is_listed_with_what_is_in_force() {
        let environment = read(&[
            ("HF_ENDPOINT", "http://127.0.0.1:8080/"),
            ("HF_HUB_ETAG_TIMEOUT", "3"),
            ("HOME", "/home/u"),
            ("LOCAL_KERNELS", "a/b=/x:c/d=y"),
        ])
        .unwrap();
        assert_eq!(environment.answer_timeout, Duration::from_secs(3));
        assert_eq!(environment.local_kernels.len(), 2);
        let effective = |name: &str| {
            environment.variables().iter().find(|variable| variable.name == name).unwrap().effective.clone()
        };
        assert_eq!(effective("HF_ENDPOINT"), "http://127.0.0.1:8080");
        assert_eq!(effective("HF_HUB_ETAG_TIMEOUT"), "3 s");
        assert_eq!(effective("HF_HUB_DOWNLOAD_TIMEOUT"), "10 s");
        assert_eq!(effective("HF_HUB_CACHE"), "/home/u/.cache/huggingface/hub");
        assert_eq!(effective("LOCAL_KERNELS"), "a/b=/x:c/d=y");
        assert_eq!(environment.variables().len(), 20);
        // A folder that another variable goes before is still the one that it is set to.
        let environment = read(&[
            ("HF_HOME", "/h"),
            ("XDG_CACHE_HOME", "/x/cache"),
            ("KERNELHUB_POLICY", "/p/policy.toml"),
            ("XDG_CONFIG_HOME", "/x/config"),
        ])
        .unwrap();
        let effective = |name: &str| {
            environment.variables().iter().find(|variable| variable.name == name).unwrap().effective.clone()
        };
        assert_eq!(effective("XDG_CACHE_HOME"), "/x/cache");
        assert_eq!(effective("XDG_CONFIG_HOME"), "/x/config");
        assert_eq!(effective("KERNELHUB_POLICY"), "/p/policy.toml");
    }
}
