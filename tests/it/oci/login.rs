//! Logins from the Docker config file. By the program, because the file is named by the environment.

#![cfg(feature = "cli")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use super::registry::{Registry, reference};
use crate::support::packs::Published;
use crate::support::server::{Reply, Server};

fn kernelhub(docker_config: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kernelhub"))
        .args(arguments)
        .env("DOCKER_CONFIG", docker_config)
        .env("KERNELHUB_LOG", "trace")
        .env("KERNELHUB_POLICY", crate::support::trust::file("http://127.0.0.1:9"))
        .output()
        .unwrap()
}

/// What the program said, which never is a secret.
fn said(output: &Output) -> String {
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    for secret in ["secret", "a2VybmVsaHViOnNlY3JldA", "the-token"] {
        assert!(!text.contains(secret), "{secret:?} is in {text}");
    }
    text
}

/// A config with this entry for a registry: `"auth": "..."` of user `kernelhub`, or another.
fn config(registry: &str, entry: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), format!(r#"{{"auths": {{"{registry}": {{{entry}}}}}}}"#)).unwrap();
    folder
}

/// base64 of `kernelhub:secret`.
const LOGIN: &str = r#""auth": "a2VybmVsaHViOnNlY3JldA==""#;

#[test]
fn a_registry_with_passwords_takes_the_configured_one() {
    let Some(registry) = Registry::with_login() else { return };
    let published = Published::new();
    let manifest = published.manifest_path();
    let target = registry.reference("rmsnorm");
    let host = format!("127.0.0.1:{}", registry.port());
    let nobody = tempfile::tempdir().unwrap();
    for (folder, expected) in [
        (nobody, "refuses anonymous access"),
        // base64 of `kernelhub:wrong`.
        (config(&host, r#""auth": "a2VybmVsaHViOndyb25n""#), "refuses the login"),
        (config("another.example", LOGIN), "refuses anonymous access"),
        (config(&host, r#""identitytoken": "the-token""#), "DOCKER_CONFIG"),
        (config(&host, r#""auth": "!""#), "cannot read a login"),
    ] {
        let output = kernelhub(folder.path(), &["push", manifest.to_str().unwrap(), &target]);
        let text = said(&output);
        assert!(!output.status.success() && text.contains(expected), "{text}");
    }
    let right = config(&host, LOGIN);
    let output = kernelhub(right.path(), &["push", manifest.to_str().unwrap(), &target]);
    assert!(output.status.success(), "{}", said(&output));
    let cache = tempfile::tempdir().unwrap();
    let place = format!("{target}:v1");
    let arguments = ["fetch", "--all-variants", "--manifest", &place, "--cache", cache.path().to_str().unwrap()];
    let output = kernelhub(right.path(), &arguments);
    assert!(output.status.success(), "{}", said(&output));
    let text = said(&output);
    assert!(text.contains("fetched"), "{text}");
}

/// A proxy that wants tokens, which its own `/token` hands out to whoever knows the password.
fn token_proxy(registry: &Arc<Registry>, token: &'static str, realm: Option<&'static str>) -> Server {
    registry.proxy(move |request, reply| {
        let header = |name: &str| {
            let found = request.headers.iter().find_map(|header| {
                let (found, value) = header.split_once(": ")?;
                found.eq_ignore_ascii_case(name).then(|| value.to_owned())
            });
            found.unwrap_or_default()
        };
        if request.path.starts_with("/token") {
            return if header("authorization") == "Basic a2VybmVsaHViOnNlY3JldA==" && request.path.contains("pull") {
                Reply::ok(serde_json::json!({ "token": token }).to_string())
            } else {
                Reply::error(401)
            };
        }
        if header("authorization") == format!("Bearer {token}") {
            return reply;
        }
        let realm = realm.map_or_else(|| format!("http://{}/token", header("host")), str::to_owned);
        let challenge = format!(r#"Bearer realm="{realm}",service="test""#);
        Reply { headers: vec![("WWW-Authenticate".to_owned(), challenge)], ..Reply::error(401) }
    })
}

#[test]
fn a_registry_with_tokens_hands_one_out() {
    let Some(registry) = Registry::start().map(Arc::new) else { return };
    let published = Published::new();
    super::push(&published, &registry.reference("rmsnorm"), false).unwrap();
    let fetch = |server: &Server, entry: &str| {
        let cache = tempfile::tempdir().unwrap();
        let place = reference(server, "rmsnorm:v1");
        let host = place.trim_start_matches("oci://").split('/').next().unwrap().to_owned();
        let arguments = ["fetch", "--all-variants", "--manifest", &place, "--cache", cache.path().to_str().unwrap()];
        let output = kernelhub(config(&host, entry).path(), &arguments);
        (output.status.success(), said(&output))
    };
    let server = token_proxy(&registry, "the-token", None);
    let (is_done, text) = fetch(&server, LOGIN);
    assert!(is_done, "{text}");
    let (is_done, text) = fetch(&server, "");
    assert!(!is_done && text.contains("the registry did not accept the login"), "{text}");
    // A token that would break out of its header.
    let (is_done, text) = fetch(&token_proxy(&registry, "a\r\nb", None), LOGIN);
    assert!(!is_done && text.contains("refuses"), "{text}");
    let server = token_proxy(&registry, "the-token", Some("http://203.0.113.1/token"));
    let (is_done, text) = fetch(&server, LOGIN);
    assert!(!is_done && text.contains("over plain http"), "{text}");
}
