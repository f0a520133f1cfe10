//! Servers and archives that are not what the manifest says: each a typed error, and a cache that stays empty.

use std::fs;
use std::time::Duration;

use kernelhub::digest::{Sha256Digest, ViolationKind};
use kernelhub::fetch::{Cache, FetchError, FetchOptions, Fetched, Fetcher, Location, NoProgress, RetryPolicy, Reuse};
use kernelhub::hint::Hint as _;
use kernelhub::manifest::{ArtifactUrl, KernelManifest};
use kernelhub::pack;

use crate::support::packs::{Published, spec, write_files};
use crate::support::server::{Reply, Server};
use crate::support::tree;

/// Fetches the published artifact from a server that answers every request with `reply`, with a manifest changed by
/// `edit`. Checks that an error leaves nothing.
fn fetch_from(
    published: &Published,
    edit: impl Fn(&mut KernelManifest),
    reply: impl Fn(&[u8]) -> Reply + Send + Sync + 'static,
) -> Result<Fetched, FetchError> {
    let archive = fs::read(&published.packed.archive).unwrap();
    let server = Server::start(move |_| reply(&archive));
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::at(home.path()).unwrap();
    let mut manifest = published.manifest.clone();
    edit(&mut manifest);
    let base: Location = server.url("rmsnorm.toml").parse().unwrap();
    let client = Fetcher::new(FetchOptions {
        timeout: Duration::from_millis(700),
        retry: RetryPolicy::never(),
        ..FetchOptions::default()
    });
    let result = client.fetch_artifact(&cache, &manifest, &manifest.artifacts[0], &base, &NoProgress, Reuse::IfPresent);
    if result.is_err() {
        // Only the start of a download that broke off stays, for the next fetch to go on with.
        let left = tree::cached(home.path());
        assert!(left.iter().all(|path| path.ends_with(".incomplete")), "{left:?} left behind after {result:?}");
    }
    result
}

type Edit = fn(&mut KernelManifest);

fn unchanged(_: &mut KernelManifest) {}

#[test]
fn error_pages_are_errors_and_never_files() {
    let published = Published::new();
    for status in [404, 500, 403, 204, 206] {
        let error = fetch_from(&published, unchanged, move |_| Reply::error(status)).unwrap_err();
        assert!(matches!(error, FetchError::Status { status: found, .. } if found == status), "{error:?}");
        assert!(error.to_string().contains(&status.to_string()), "{error}");
    }
    // The same page with status 200 is caught by its length, or by the archive's digest.
    let error = fetch_from(&published, unchanged, |_| Reply { status: 200, ..Reply::error(500) }).unwrap_err();
    assert!(matches!(error, FetchError::TooShort { .. }), "{error:?}");
}

#[test]
fn an_archive_with_another_digest_names_both() {
    let published = Published::new();
    let flip = |archive: &[u8]| {
        let mut archive = archive.to_vec();
        let middle = archive.len() / 2;
        archive[middle] ^= 1;
        Reply::ok(archive)
    };
    let error = fetch_from(&published, unchanged, flip).unwrap_err();
    let FetchError::ArchiveDigest { expected, actual, bytes, .. } = &error else { panic!("{error:?}") };
    assert_eq!((*expected, *bytes), (published.packed.sha256, published.packed.size));
    assert!(error.to_string().contains(&expected.to_string()) && error.to_string().contains(&actual.to_string()));
    assert!(error.hint().is_some());

    let wrong = |manifest: &mut KernelManifest| manifest.artifacts[0].sha256 = Sha256Digest::of(b"another");
    let error = fetch_from(&published, wrong, |archive| Reply::ok(archive)).unwrap_err();
    assert!(matches!(error, FetchError::ArchiveDigest { .. }), "{error:?}");
}

#[test]
fn lies_about_length_are_caught() {
    let published = Published::new();
    let size = published.packed.size;
    // Ends early, and says so.
    let short = fetch_from(&published, unchanged, |archive| Reply::ok(&archive[..archive.len() / 2])).unwrap_err();
    assert!(matches!(short, FetchError::TooShort { expected, .. } if expected == size), "{short:?}");
    // Ends early against its own header.
    let cut = |archive: &[u8]| Reply { declared: Some(archive.len()), ..Reply::ok(&archive[..archive.len() / 2]) };
    let error = fetch_from(&published, unchanged, cut).unwrap_err();
    assert!(matches!(error, FetchError::Transport { bytes, .. } if bytes < size), "{error:?}");
    // Ends early with no length at all.
    let open = |archive: &[u8]| Reply { declared: None, ..Reply::ok(&archive[..archive.len() / 2]) };
    let error = fetch_from(&published, unchanged, open).unwrap_err();
    assert!(matches!(error, FetchError::TooShort { .. }), "{error:?}");
    // Sends more than the manifest says, with a header and without.
    for declared in [true, false] {
        let more = move |archive: &[u8]| {
            let body = [archive, b"more"].concat();
            Reply { declared: declared.then_some(body.len()), ..Reply::ok(body) }
        };
        let error = fetch_from(&published, unchanged, more).unwrap_err();
        assert!(matches!(error, FetchError::TooLong { maximum, .. } if maximum == size), "{error:?}");
    }
    // No length, but the whole file: that is no lie.
    fetch_from(&published, unchanged, |archive| Reply { declared: None, ..Reply::ok(archive) }).unwrap();
}

#[test]
fn encodings_silence_and_dead_servers_are_told_apart() {
    let published = Published::new();
    let gzip = |archive: &[u8]| Reply {
        headers: vec![("Content-Encoding".to_owned(), "gzip".to_owned())],
        ..Reply::ok(archive)
    };
    let error = fetch_from(&published, unchanged, gzip).unwrap_err();
    assert!(matches!(&error, FetchError::Encoding { encoding, .. } if encoding == "gzip"), "{error:?}");
    let stall = |archive: &[u8]| Reply { pause: Duration::from_secs(5), ..Reply::ok(archive) };
    let error = fetch_from(&published, unchanged, stall).unwrap_err();
    assert!(matches!(error, FetchError::TimedOut { bytes, .. } if bytes > 0), "{error:?}");
    let elsewhere = |manifest: &mut KernelManifest| {
        manifest.artifacts[0].url = "http://127.0.0.1:1/x.tar.zst".parse::<ArtifactUrl>().unwrap();
    };
    let error = fetch_from(&published, elsewhere, |archive| Reply::ok(archive)).unwrap_err();
    assert!(matches!(error, FetchError::Transport { bytes: 0, .. }), "{error:?}");
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
}

#[test]
fn redirects_are_followed_within_http_and_refused_beyond() {
    let published = Published::new();
    let archive = fs::read(&published.packed.archive).unwrap();
    let target = Server::start(move |_| Reply::ok(archive.clone()));
    let to = target.url("elsewhere");
    fetch_from(&published, unchanged, move |_| Reply::redirect(&to)).unwrap();
    assert_eq!(target.requests().len(), 1);
    for to in ["file:///etc/passwd", "ftp://127.0.0.1/x", "/again"] {
        let error = fetch_from(&published, unchanged, move |_| Reply::redirect(to)).unwrap_err();
        assert!(
            matches!(error, FetchError::Redirect { .. } | FetchError::Status { status: 302, .. }),
            "{to}: {error:?}"
        );
    }
}

#[test]
fn an_archive_for_another_kernel_or_with_other_metadata_is_refused() {
    let published = Published::new();
    let edits: [(Edit, ViolationKind); 4] = [
        (|manifest| manifest.kernel.repo = "kernelhub/rotary".parse().unwrap(), ViolationKind::IdentityMismatch),
        (|manifest| manifest.kernel.version = 2, ViolationKind::IdentityMismatch),
        (
            |manifest| manifest.artifacts[0].metadata_sha256 = Sha256Digest::of(b"another"),
            ViolationKind::MetadataMismatch,
        ),
        // The one folder in the archive is that of another variant, so that this is the archive rules' matter.
        (
            |manifest| manifest.artifacts[0].variant = "tvm-ffi01-cpu-aarch64-linux".parse().unwrap(),
            ViolationKind::Malformed,
        ),
    ];
    for (edit, kind) in edits {
        let error = fetch_from(&published, edit, |archive| Reply::ok(archive)).unwrap_err();
        match &error {
            FetchError::Content { violations, .. } => assert_eq!(violations[0].kind, kind, "{error}"),
            FetchError::Archive { .. } => assert_eq!(kind, ViolationKind::Malformed, "{error}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_remote_manifest_reads_no_file_of_this_machine() {
    let published = Published::new();
    let local = format!("file://{}", published.packed.archive.display());
    let edit = move |manifest: &mut KernelManifest| manifest.artifacts[0].url = local.parse().unwrap();
    let home = tempfile::tempdir().unwrap();
    let mut manifest = published.manifest.clone();
    edit(&mut manifest);
    let base: Location = "https://example.org/rmsnorm.toml".parse().unwrap();
    let error = Fetcher::new(FetchOptions::default())
        .fetch_artifact(
            &Cache::at(home.path()).unwrap(),
            &manifest,
            &manifest.artifacts[0],
            &base,
            &NoProgress,
            Reuse::IfPresent,
        )
        .unwrap_err();
    assert!(matches!(error, FetchError::RemoteToLocal { .. }), "{error:?}");
    assert!(tree::list(home.path()).is_empty());
}

#[test]
fn an_archive_above_the_callers_limit_is_not_downloaded() {
    let published = Published::new();
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::at(home.path()).unwrap();
    let maximum = published.packed.size - 1;
    let base = Location::from(published.manifest_path().as_path());
    let error = Fetcher::new(FetchOptions { max_archive_bytes: maximum, ..FetchOptions::default() })
        .fetch_artifact(&cache, &published.manifest, published.artifact(), &base, &NoProgress, Reuse::IfPresent)
        .unwrap_err();
    assert!(matches!(error, FetchError::TooLong { maximum: limit, .. } if limit == maximum), "{error:?}");
}

#[test]
fn a_failed_replacement_keeps_what_was_there() {
    let published = Published::new();
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::at(home.path()).unwrap();
    let fetcher = Fetcher::new(FetchOptions::default());
    let base = Location::from(published.manifest_path().as_path());
    let fetch =
        |reuse| fetcher.fetch_artifact(&cache, &published.manifest, published.artifact(), &base, &NoProgress, reuse);
    fetch(Reuse::IfPresent).unwrap();
    let before = tree::cached(home.path());
    fs::write(&published.packed.archive, b"no archive").unwrap();
    assert!(matches!(fetch(Reuse::Replace), Err(FetchError::TooShort { .. })));
    assert_eq!(tree::cached(home.path()), before);
    // A new archive of the same version is another entry; the old one stays as it is.
    let files = tempfile::tempdir().unwrap();
    write_files(files.path());
    fs::write(files.path().join("more.py"), "").unwrap();
    let packed = pack::pack_variant(files.path(), &spec(), published.folder.path()).unwrap();
    let manifest = pack::manifest(&spec(), &[packed], published.folder.path()).unwrap();
    fetcher.fetch_artifact(&cache, &manifest, &manifest.artifacts[0], &base, &NoProgress, Reuse::IfPresent).unwrap();
    assert!(cache.snapshot(&published.manifest, published.artifact()).is_some());
    assert!(cache.snapshot(&manifest, &manifest.artifacts[0]).is_some());
}
