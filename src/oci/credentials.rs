//! Logins from the Docker config file.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oci_client::secrets::RegistryAuth;
use serde::Deserialize;

use super::{Login, OciError};
use crate::regular;

/// Largest Docker config that is read, in bytes.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// What the Docker config file says about a registry.
pub(super) struct Credentials {
    pub(super) login: Login,
    user: Option<(String, String)>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("login", &self.login).finish_non_exhaustive()
    }
}

impl Credentials {
    const ANONYMOUS: Self = Self { login: Login::Anonymous, user: None };

    /// User and password. `None`: nobody.
    pub(super) fn user(&self) -> Option<(&str, &str)> {
        self.user.as_ref().map(|(user, password)| (user.as_str(), password.as_str()))
    }

    /// The same for the client.
    pub(super) fn auth(&self) -> RegistryAuth {
        match &self.user {
            Some((user, password)) => RegistryAuth::Basic(user.clone(), password.clone()),
            None => RegistryAuth::Anonymous,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DockerConfig {
    #[serde(default)]
    auths: HashMap<String, Entry>,
    #[serde(default)]
    creds_store: Option<String>,
    #[serde(default)]
    cred_helpers: HashMap<String, String>,
}

#[derive(Deserialize, Default)]
struct Entry {
    #[serde(default)]
    auth: Option<String>,
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    password: Option<String>,
    #[serde(default)]
    identitytoken: Option<String>,
    #[serde(default)]
    registrytoken: Option<String>,
}

/// The config file that the environment names. The only place of this room that reads the environment.
fn config_path() -> Option<PathBuf> {
    let get = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = get("DOCKER_CONFIG").or_else(|| Some(get("HOME").or_else(|| get("USERPROFILE"))?.join(".docker")))?;
    Some(folder.join("config.json"))
}

/// The login for a registry.
pub(super) fn find(registry: &str) -> Result<Credentials, OciError> {
    let Some(path) = config_path() else { return Ok(Credentials::ANONYMOUS) };
    let fail = |reason: String| OciError::DockerConfig { path: path.clone(), registry: registry.to_owned(), reason };
    match read(&path) {
        Ok(None) => Ok(Credentials::ANONYMOUS),
        Ok(Some(text)) => parse(&text, registry).map_err(fail),
        Err(error) => Err(fail(error.to_string())),
    }
}

fn read(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    match regular::read(path, MAX_CONFIG_BYTES) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The login for a registry in a config's text. Errors name the place, never the content.
fn parse(text: &[u8], registry: &str) -> Result<Credentials, String> {
    let config: DockerConfig = serde_json::from_slice(text)
        .map_err(|error| format!("not a Docker config, at line {}, column {}", error.line(), error.column()))?;
    let is_registry = |key: &str| host(key) == host(registry);
    let unsupported = Credentials { login: Login::Unsupported, user: None };
    // A helper goes before what the file holds, as it does for Docker.
    if config.cred_helpers.keys().any(|key| is_registry(key)) {
        return Ok(unsupported);
    }
    let Some((key, entry)) = config.auths.iter().find(|(key, _)| is_registry(key)) else {
        return Ok(Credentials::ANONYMOUS);
    };
    let present = |value: &Option<String>| value.as_ref().is_some_and(|value| !value.is_empty());
    if present(&entry.identitytoken) || present(&entry.registrytoken) {
        return Ok(unsupported);
    }
    let user = match (&entry.auth, &entry.username, &entry.password) {
        (Some(auth), _, _) if !auth.is_empty() => {
            decode(auth).ok_or_else(|| format!("auths[{key:?}].auth is not the base64 form of user:password"))?
        }
        (_, Some(user), Some(password)) if !user.is_empty() => (user.clone(), password.clone()),
        // An empty entry says that the login stands in the store of `credsStore`.
        _ if config.creds_store.is_some() => return Ok(unsupported),
        _ => return Ok(Credentials::ANONYMOUS),
    };
    Ok(Credentials { login: Login::Configured, user: Some(user) })
}

fn decode(auth: &str) -> Option<(String, String)> {
    let text = String::from_utf8(STANDARD.decode(auth.trim()).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    // Docker pads with zeros in old files.
    Some((user.to_owned(), password.trim_end_matches('\0').to_owned()))
}

/// The host of a key, which may be a URL with a path; the names of Docker's own registry are one.
fn host(key: &str) -> String {
    let rest = key.split_once("://").map_or(key, |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or(rest).to_ascii_lowercase();
    if matches!(host.as_str(), "index.docker.io" | "registry-1.docker.io") { "docker.io".to_owned() } else { host }
}

#[cfg(test)]
mod tests {
    use super::{Login, parse};

    #[test]
    fn a_login_is_found_by_its_host() {
        let text = br#"{"auths": {
            "https://index.docker.io/v1/": {"auth": "bWU6c2VjcmV0OngA"},
            "h:5000": {"username": "u", "password": "p"},
            "token": {"identitytoken": "t"}, "empty": {}, "bad": {"auth": "bm9jb2xvbg=="}
        }, "credHelpers": {"ecr": "x"}, "HttpHeaders": {}}"#;
        let find = |registry: &str| parse(text, registry);
        assert_eq!(find("docker.io").unwrap().user(), Some(("me", "secret:x")));
        assert_eq!(find("h:5000").unwrap().user(), Some(("u", "p")));
        for (registry, login) in [
            ("h", Login::Anonymous),
            ("h:5001", Login::Anonymous),
            ("empty", Login::Anonymous),
            ("token", Login::Unsupported),
            ("ecr", Login::Unsupported),
        ] {
            let found = find(registry).unwrap();
            assert_eq!((found.login, found.user()), (login, None), "{registry}");
        }
        let error = find("bad").unwrap_err();
        assert!(error.contains("bad") && !error.contains("nocolon") && !error.contains("bm9j"), "{error}");
    }

    #[test]
    fn a_store_is_said_to_be_unsupported_and_a_broken_file_is_an_error() {
        let store = br#"{"auths": {"h": {}}, "credsStore": "desktop"}"#;
        assert_eq!(parse(store, "h").unwrap().login, Login::Unsupported);
        assert!(parse(b"{\"auths\": 1}", "h").is_err());
        assert!(
            !format!("{:?}", parse(br#"{"auths": {"h": {"username": "u", "password": "p4ss"}}}"#, "h"))
                .contains("p4ss")
        );
    }
}
