//! Push, pull, load.

use kernelhub::fetch::{Cache, FetchError, FetchOptions, Fetcher, Location, NoProgress, Reuse};
use kernelhub::hint::Hint as _;
use kernelhub::oci::{ARTIFACT_TYPE, OciError, VARIANT_MEDIA_TYPE};

use super::registry::Registry;
use super::{pull, push};
use crate::support::packs::{Published, VARIANT};
use crate::support::trust::verify;

#[test]
fn a_pushed_kernel_is_pulled_by_tag_and_by_digest() {
    let Some(registry) = Registry::start() else { return };
    let published = Published::new();
    let target = registry.reference("team/rmsnorm");
    let pushed = push(&published, &target, false).unwrap();
    assert_eq!((pushed.blobs_uploaded, pushed.blobs_present, pushed.tag.as_str()), (2, 0, "v1"));
    assert!(!pushed.unchanged && !pushed.replaced && pushed.bytes_uploaded > published.packed.size);

    for reference in [format!("{target}:v1"), pushed.reference.to_string()] {
        let home = tempfile::tempdir().unwrap();
        let cache = Cache::at(home.path()).unwrap();
        let (manifest, fetched) = pull(&cache, &reference).unwrap();
        assert_eq!(manifest.kernel, published.manifest.kernel);
        // The archive is named by its digest, not by the tag that it was found by.
        let url = format!("{target}@sha256:{}", published.packed.sha256);
        assert_eq!(manifest.artifacts[0].url.to_string(), url);
        assert_eq!((fetched.from_cache, fetched.requests, fetched.bytes_fetched), (false, 1, published.packed.size));
        assert_eq!(verify(&fetched.snapshot).unwrap().variant().to_string(), VARIANT);
        assert_eq!(cache.manifest(&manifest.kernel.repo, 1).unwrap().unwrap(), manifest);
    }
}

#[test]
fn what_is_recorded_serves_offline_and_repairs_itself() {
    let Some(registry) = Registry::start() else { return };
    let published = Published::new();
    let target = registry.reference("rmsnorm");
    push(&published, &target, false).unwrap();
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::at(home.path()).unwrap();
    let (manifest, _) = pull(&cache, &format!("{target}:v1")).unwrap();
    let base: Location = format!("{target}:v1").parse().unwrap();
    let offline = Fetcher::new(FetchOptions { offline: true, ..FetchOptions::default() });
    let fetch = |fetcher: &Fetcher, reuse| {
        fetcher.fetch_artifact(&cache, &manifest, &manifest.artifacts[0], &base, &NoProgress, reuse)
    };
    assert!(fetch(&offline, Reuse::IfPresent).unwrap().from_cache);
    let error = fetch(&offline, Reuse::Replace).unwrap_err();
    assert!(matches!(error, FetchError::Offline { .. }), "{error:?}");
    let error = offline.fetch_manifest(&base).unwrap_err();
    assert!(matches!(error, FetchError::Offline { .. }), "{error:?}");
    // The record alone is enough to fetch the archive again.
    let record = cache.manifest(&manifest.kernel.repo, 1).unwrap().unwrap();
    let elsewhere = Location::Local(home.path().to_path_buf());
    let again = super::fetcher()
        .fetch_artifact(&cache, &record, &record.artifacts[0], &elsewhere, &NoProgress, Reuse::Replace)
        .unwrap();
    assert_eq!((again.from_cache, again.requests), (false, 1));
    verify(&again.snapshot).unwrap();
}

#[test]
fn a_second_push_uploads_nothing_and_other_content_is_refused() {
    let Some(registry) = Registry::start() else { return };
    let published = Published::new();
    let target = registry.reference("rmsnorm");
    let first = push(&published, &target, false).unwrap();
    let second = push(&published, &format!("{target}:v1"), false).unwrap();
    assert!(second.unchanged && !second.replaced);
    assert_eq!((second.blobs_uploaded, second.bytes_uploaded), (0, 0));
    assert_eq!(second.reference, first.reference);

    // Another description is another manifest about the same archive.
    let mut manifest = published.manifest.clone();
    manifest.kernel.description = Some("another".to_owned());
    kernelhub::pack::write_manifest(&manifest, published.folder.path()).unwrap();
    let error = push(&published, &target, false).unwrap_err();
    let OciError::Conflict { reference, existing, pushed } = &error else { panic!("{error:?}") };
    assert_eq!((reference, Some(*existing)), (&format!("{target}:v1"), first.reference.digest()));
    assert_ne!(existing, pushed);
    assert!(error.hint().unwrap().contains("--replace"));

    let third = push(&published, &target, true).unwrap();
    assert!(third.replaced && !third.unchanged);
    assert_eq!((third.blobs_uploaded, third.blobs_present), (1, 1), "the archive is there, its config is not");
    // Both are there by digest; the tag has moved.
    for (reference, description) in [
        (first.reference.to_string(), "a test"),
        (third.reference.to_string(), "another"),
        (format!("{target}:v1"), "another"),
    ] {
        let manifest = super::fetcher().fetch_manifest(&reference.parse().unwrap()).unwrap();
        assert_eq!(manifest.kernel.description.as_deref(), Some(description), "{reference}");
    }
}

#[test]
fn other_tools_see_what_it_is() {
    let Some(registry) = Registry::start() else { return };
    let published = Published::new();
    push(&published, &registry.reference("rmsnorm"), false).unwrap();
    let accept = ["Accept: application/vnd.oci.image.manifest.v1+json".to_owned()];
    let reply = registry.request("GET", "/v2/rmsnorm/manifests/v1", &accept, b"");
    let image: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(image["artifactType"], ARTIFACT_TYPE);
    assert_eq!(image["annotations"]["org.opencontainers.image.version"], "1");
    assert_eq!(image["annotations"]["org.opencontainers.image.licenses"], "Apache-2.0");
    let layer = &image["layers"][0];
    assert_eq!(layer["mediaType"], VARIANT_MEDIA_TYPE);
    assert_eq!(layer["digest"], format!("sha256:{}", published.packed.sha256));
    assert_eq!(layer["annotations"]["dev.kernelhub.variant"], VARIANT);
    assert_eq!(layer["annotations"]["org.opencontainers.image.title"], published.archive_name());
}

#[test]
fn only_the_versions_own_tag_is_pushed_to() {
    let published = Published::new();
    let digest = "0".repeat(64);
    for target in
        ["oci://127.0.0.1:1/a:latest", "oci://127.0.0.1:1/a:v2", &format!("oci://127.0.0.1:1/a@sha256:{digest}")]
    {
        let error = push(&published, target, true).unwrap_err();
        assert!(matches!(&error, OciError::WrongTag { expected, .. } if expected == "v1"), "{error:?}");
    }
}

/// The project's own rmsnorm, pushed, fetched, verified and loaded by the program.
#[cfg(feature = "cli")]
#[test]
fn the_program_pushes_and_loads_a_real_pack() {
    let Some(registry) = Registry::start() else { return };
    let Some(packs) = std::env::var_os("KERNELHUB_TEST_REGISTRY").map(std::path::PathBuf::from) else {
        println!("skipped: KERNELHUB_TEST_REGISTRY does not name the packs; `cargo xtask test` builds them");
        return;
    };
    let home = tempfile::tempdir().unwrap();
    // The signature travels with the archive, and is all that these packs are trusted by.
    let policy = home.path().join("policy.toml");
    crate::support::trust::write(&policy, &crate::support::embedded::policy_text(&packs));
    let run = |arguments: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_kernelhub"))
            .args(arguments)
            .arg("--json")
            .env("DOCKER_CONFIG", home.path())
            .env("KERNELHUB_POLICY", &policy)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let manifest = packs.join("rmsnorm.toml");
    let target = registry.reference("kernelhub/rmsnorm");
    let pushed = run(&["push", manifest.to_str().unwrap(), &target]);
    assert_eq!(pushed[0]["unchanged"], false);
    let place = pushed[0]["place"].as_str().unwrap().to_owned();
    let cache = home.path().join("cache");
    let get = |reference: &str| {
        let cache = cache.to_str().unwrap();
        run(&["get", "kernelhub/rmsnorm@v1", "--manifest", reference, "--cache", cache])
    };
    let cold = get(&format!("{target}:v1"));
    assert_eq!(
        (&cold["repo"], &cold["from_cache"], &cold["requests"]),
        (&"kernelhub/rmsnorm".into(), &false.into(), &1.into())
    );
    assert!(cold["library"]["handshake"].is_object() || cold["library"]["handshake"].is_string(), "{cold}");
    let warm = get(&place);
    assert_eq!((&warm["from_cache"], &warm["requests"]), (&true.into(), &0.into()));
    assert_eq!(run(&["push", manifest.to_str().unwrap(), &target])[0]["unchanged"], true);
}
