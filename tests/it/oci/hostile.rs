//! Registries that lie, and things in registries that are no kernels: each a typed error, and a cache that stays empty.

use std::sync::Arc;

use kernelhub::digest::Sha256Digest;
use kernelhub::fetch::{Cache, FetchError, Fetched};
use kernelhub::hint::Hint as _;
use kernelhub::manifest::KernelManifest;
use kernelhub::oci::{MAX_IMAGE_MANIFEST_BYTES, OciError};
use serde_json::{Value, json};

use super::registry::{Registry, reference};
use super::{pull, push};
use crate::support::packs::Published;
use crate::support::server::{Reply, Server};
use crate::support::tree;

/// Pulls into an empty cache, and checks that an error leaves nothing in it.
fn try_pull(reference: &str) -> Result<(KernelManifest, Fetched), FetchError> {
    let home = tempfile::tempdir().unwrap();
    let result = pull(&Cache::at(home.path()).unwrap(), reference);
    if result.is_err() {
        assert_eq!(tree::cached(home.path()), Vec::<String>::new(), "left behind after {result:?}");
    }
    result
}

fn refusal(reference: &str) -> OciError {
    match try_pull(reference) {
        Err(FetchError::Oci(error)) => error,
        other => panic!("{reference}: {other:?}"),
    }
}

/// A registry that has `rmsnorm:v1`.
fn filled() -> Option<(Arc<Registry>, Published, Sha256Digest)> {
    let registry = Registry::start()?;
    let published = Published::new();
    let pushed = push(&published, &registry.reference("rmsnorm"), false).unwrap();
    Some((Arc::new(registry), published, pushed.reference.digest().unwrap()))
}

fn flipped(mut reply: Reply) -> Reply {
    let middle = reply.body.len() / 2;
    reply.body[middle] ^= 1;
    reply
}

fn without_digest(mut reply: Reply) -> Reply {
    reply.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("docker-content-digest"));
    reply
}

#[test]
fn a_manifest_with_another_digest_is_refused() {
    let Some((registry, _, digest)) = filled() else { return };
    let by_digest = format!("rmsnorm@sha256:{digest}");
    let changed =
        registry.proxy(|request, reply| if request.path.contains("/manifests/") { flipped(reply) } else { reply });
    let silent =
        registry.proxy(
            |request, reply| {
                if request.path.contains("/manifests/") { without_digest(flipped(reply)) } else { reply }
            },
        );
    // By tag there is only the registry's own word to compare with.
    for place in [reference(&changed, &by_digest), reference(&silent, &by_digest), reference(&changed, "rmsnorm:v1")] {
        let error = refusal(&place);
        let OciError::Digest { expected, actual, .. } = &error else { panic!("{error:?}") };
        assert_eq!(*expected, digest);
        assert!(error.to_string().contains(&actual.to_string()) && error.hint().is_some(), "{error}");
    }
    // A registry that names another digest for the right bytes contradicts itself.
    let other = registry.proxy(|_, mut reply| {
        for (name, value) in &mut reply.headers {
            if name.eq_ignore_ascii_case("docker-content-digest") {
                *value = format!("sha256:{}", "0".repeat(64));
            }
        }
        reply
    });
    assert!(matches!(refusal(&reference(&other, "rmsnorm:v1")), OciError::Digest { .. }));
}

#[test]
fn a_changed_config_is_refused() {
    let Some((registry, published, _)) = filled() else { return };
    let layer = published.packed.sha256.to_string();
    let server = registry.proxy(move |request, reply| {
        if request.path.contains("/blobs/") && !request.path.contains(&layer) { flipped(reply) } else { reply }
    });
    assert!(matches!(refusal(&reference(&server, "rmsnorm:v1")), OciError::Digest { .. }));
}

#[test]
fn a_flipped_a_cut_and_an_overlong_layer_are_refused() {
    let Some((registry, published, _)) = filled() else { return };
    let with = |change: fn(Reply) -> Reply| {
        let path = format!("/v2/rmsnorm/blobs/sha256:{}", published.packed.sha256);
        let server = registry.proxy(move |request, reply| if request.path == path { change(reply) } else { reply });
        try_pull(&reference(&server, "rmsnorm:v1")).unwrap_err()
    };
    let size = published.packed.size;
    let error = with(flipped);
    assert!(matches!(&error, FetchError::ArchiveDigest { expected, .. } if *expected == published.packed.sha256));
    let error = with(|reply| Reply::ok(&reply.body[..reply.body.len() / 2]));
    assert!(matches!(&error, FetchError::TooShort { expected, .. } if *expected == size), "{error:?}");
    let error =
        with(|reply| Reply { declared: Some(reply.body.len()), ..Reply::ok(&reply.body[..reply.body.len() / 2]) });
    assert!(matches!(&error, FetchError::Oci(OciError::Transport { bytes, .. }) if *bytes < size), "{error:?}");
    let longer: [fn(Reply) -> Reply; 2] = [
        |reply| Reply::ok([&reply.body[..], b"more"].concat()),
        |reply| Reply { declared: None, ..Reply::ok([&reply.body[..], b"more"].concat()) },
    ];
    for change in longer {
        let error = with(change);
        assert!(matches!(&error, FetchError::Oci(OciError::TooLong { maximum, .. }) if *maximum == size), "{error:?}");
    }
    let error = with(|_| Reply::error(500));
    assert!(matches!(&error, FetchError::Oci(OciError::Status { status: 500, .. })), "{error:?}");
    let error = with(|_| Reply { status: 200, ..Reply::error(404) });
    assert!(matches!(&error, FetchError::TooShort { .. }), "{error:?}");
    let error = with(|_| Reply::error(404));
    assert!(matches!(&error, FetchError::Oci(OciError::NotFound { what: "blob", .. })), "{error:?}");
    let error = with(|_| Reply::redirect("http://203.0.113.1/blob"));
    assert!(matches!(&error, FetchError::Oci(OciError::Redirect { .. })), "{error:?}");
    let gzip = |reply: Reply| Reply { headers: vec![("Content-Encoding".to_owned(), "gzip".to_owned())], ..reply };
    let error = with(gzip);
    assert!(matches!(&error, FetchError::Oci(OciError::Status { .. })), "{error:?}");
}

#[test]
fn an_endless_manifest_is_cut_off() {
    let body = vec![b' '; usize::try_from(MAX_IMAGE_MANIFEST_BYTES).unwrap() + 1];
    for declared in [true, false] {
        let body = body.clone();
        let server =
            Server::start(move |_| Reply { declared: declared.then_some(body.len()), ..Reply::ok(body.clone()) });
        let error = refusal(&reference(&server, "a:v1"));
        assert!(matches!(error, OciError::TooLong { maximum: MAX_IMAGE_MANIFEST_BYTES, .. }), "{error:?}");
    }
}

#[test]
fn what_is_not_there_is_said_to_be() {
    let Some((registry, _, _)) = filled() else { return };
    for place in ["rmsnorm:v2", "other:v1", &format!("rmsnorm@sha256:{}", "0".repeat(64))] {
        let error = refusal(&registry.reference(place));
        assert!(matches!(error, OciError::NotFound { what: "artifact", .. }), "{error:?}");
        assert!(error.hint().is_some());
    }
    let error = refusal(&registry.reference("rmsnorm"));
    assert!(matches!(&error, OciError::NoVersion { .. }) && error.hint().unwrap().contains(":v1"), "{error:?}");
}

#[test]
fn other_machines_are_never_spoken_to_in_the_clear() {
    let Some((registry, published, _)) = filled() else { return };
    // An address that leads to this machine and is no loopback address: the registry is there, and speaks no TLS.
    let place = format!("oci://0.0.0.0:{}/rmsnorm", registry.port());
    let error = refusal(&format!("{place}:v1"));
    assert!(matches!(&error, OciError::Transport { url, bytes: 0, .. } if url.starts_with("https://")), "{error:?}");
    let error = push(&published, &place, false).unwrap_err();
    assert!(matches!(error, OciError::Transport { .. }), "{error:?}");
    assert!(error.hint().unwrap().contains("https"));
}

/// What a registry says of a manifest that was changed, with its own digest.
fn of_image(registry: &Arc<Registry>, change: impl Fn(&mut Value)) -> OciError {
    let accept = ["Accept: application/vnd.oci.image.manifest.v1+json".to_owned()];
    let reply = registry.request("GET", "/v2/rmsnorm/manifests/v1", &accept, b"");
    let mut image: Value = serde_json::from_slice(&reply.body).unwrap();
    change(&mut image);
    let body = serde_json::to_vec(&image).unwrap();
    let server = registry.proxy(
        move |request, reply| {
            if request.path.contains("/manifests/") { Reply::ok(body.clone()) } else { reply }
        },
    );
    refusal(&reference(&server, "rmsnorm:v1"))
}

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

type Change = Box<dyn Fn(&mut Value)>;

#[test]
fn what_is_no_kernel_says_why() {
    let Some((registry, _, _)) = filled() else { return };
    let zeros = format!("sha256:{}", "0".repeat(64));
    let cases: Vec<(Change, &str)> = vec![
        (Box::new(|image| image["artifactType"] = "application/x".into()), "found \"application/x\""),
        (Box::new(|image| drop(image.as_object_mut().unwrap().remove("artifactType"))), "it is an image"),
        (Box::new(|image| image["mediaType"] = INDEX.into()), INDEX),
        (Box::new(|image| *image = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [] })), INDEX),
        (Box::new(|image| image["schemaVersion"] = 1.into()), "schemaVersion 2, found 1"),
        (Box::new(|image| *image = json!([])), "not an image manifest"),
        (Box::new(|image| image["config"]["mediaType"] = "application/json".into()), "config: expected"),
        (Box::new(|image| image["config"]["digest"] = "sha512:00".into()), "config: expected"),
        (Box::new(|image| image["config"]["size"] = (-1).into()), "config: expected"),
        (Box::new(|image| image["config"]["size"] = (1_u64 << 40).into()), "config: expected"),
        (Box::new(|image| image["layers"] = json!([])), "1 builds, and it has 0 layers"),
        (Box::new(move |image| image["layers"][0]["digest"] = zeros.clone().into()), "no layer is the archive"),
        (Box::new(|image| image["layers"][0]["size"] = 1.into()), "no layer is the archive"),
        (Box::new(|image| image["layers"][0]["mediaType"] = "application/x".into()), "layer: expected"),
        (
            Box::new(|image| image["layers"][0]["annotations"] = json!({})),
            "annotation dev.kernelhub.variant: its manifest says",
        ),
        (
            Box::new(|image| image["layers"][0]["annotations"]["dev.kernelhub.variant"] = "torch-cuda".into()),
            "torch-cuda",
        ),
        (Box::new(|image| image["annotations"]["dev.kernelhub.repo"] = "a/b".into()), "a/b"),
        (Box::new(|image| image["annotations"]["org.opencontainers.image.version"] = "2".into()), "\"2\""),
    ];
    for (change, expected) in cases {
        let error = of_image(&registry, change);
        assert!(matches!(error, OciError::NotAKernel { .. }), "{expected}: {error:?}");
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
}

#[test]
fn a_config_of_another_edition_is_refused() {
    let Some((registry, _, _)) = filled() else { return };
    for (config, expected) in [(json!({ "schema": 2 }), "schema 2"), (json!({}), "not a valid kernel manifest")] {
        let config = serde_json::to_vec(&config).unwrap();
        let (digest, size) = (Sha256Digest::of(&config).to_string(), config.len());
        let accept = ["Accept: application/vnd.oci.image.manifest.v1+json".to_owned()];
        let reply = registry.request("GET", "/v2/rmsnorm/manifests/v1", &accept, b"");
        let mut image: Value = serde_json::from_slice(&reply.body).unwrap();
        image["config"]["digest"] = format!("sha256:{digest}").into();
        image["config"]["size"] = size.into();
        let image = serde_json::to_vec(&image).unwrap();
        let server = Server::start(move |request| {
            Reply::ok(if request.path.contains("/manifests/") { image.clone() } else { config.clone() })
        });
        let error = refusal(&reference(&server, "rmsnorm:v1"));
        let OciError::Manifest { source, .. } = &error else { panic!("{error:?}") };
        assert!(source.to_string().contains(expected), "{source}");
    }
}
