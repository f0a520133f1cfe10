//! Publishing what was packed: the check before it, and folder mirrors.

use std::fs;

use kernelhub::fetch::{Cache, FetchOptions, Fetcher, Location, NoProgress, Reuse};
use kernelhub::hint::Hint as _;
use kernelhub::manifest::KernelManifest;
use kernelhub::pack::{PackError, Publication};

use crate::support::packs::{Published, write_files};
use crate::support::tree;
use crate::support::trust::verify;

fn publication(published: &Published) -> Publication {
    Publication::open(&published.manifest_path()).unwrap()
}

#[test]
fn only_whole_packs_are_published() {
    let published = Published::new();
    let open = || Publication::open(&published.manifest_path()).unwrap_err();
    let archive = fs::read(&published.packed.archive).unwrap();
    for other in [&archive[..archive.len() - 1], &[&archive[..], b"x"].concat(), &[b"x", &archive[1..]].concat()] {
        fs::write(&published.packed.archive, other).unwrap();
        let error = open();
        assert!(
            matches!(&error, PackError::OtherArchive { expected_bytes, .. } if *expected_bytes == published.packed.size)
        );
        assert!(error.hint().is_some());
    }
    fs::remove_file(&published.packed.archive).unwrap();
    assert!(matches!(open(), PackError::Io { action: "open", .. }));
    for url in ["https://h/a.tar.zst", "oci://h/a@sha256:x"] {
        let mut manifest = published.manifest.clone();
        manifest.artifacts[0].url = url.parse().unwrap();
        kernelhub::pack::write_manifest(&manifest, published.folder.path()).unwrap();
        assert!(matches!(open(), PackError::NotLocal { url: found, .. } if found == url));
    }
    fs::write(published.manifest_path(), "schema = 1\n").unwrap();
    assert!(matches!(open(), PackError::Format { .. }));
}

#[test]
fn a_folder_mirror_is_filled_once_and_serves() {
    let published = Published::new();
    let home = tempfile::tempdir().unwrap();
    let mirror = home.path().join("mirror");
    let publication = publication(&published);
    let first = publication.mirror(&mirror, false).unwrap();
    assert_eq!((first.copied, first.bytes_copied, first.unchanged), (1, published.packed.size, false));
    assert_eq!(first.manifest, mirror.join("kernelhub--rmsnorm-v1.toml"));
    let before = tree::list(&mirror);
    assert_eq!(before.len(), 2, "{before:?}");
    let second = publication.mirror(&mirror, false).unwrap();
    assert_eq!((second.copied, second.unchanged), (0, true));
    assert_eq!(tree::list(&mirror), before);
    // A damaged archive is put right.
    let archive = mirror.join(before.iter().find(|name| name.ends_with(".tar.zst")).unwrap());
    fs::write(&archive, "damaged").unwrap();
    assert_eq!(publication.mirror(&mirror, false).unwrap().copied, 1);
    let cache = Cache::at(home.path().join("cache")).unwrap();
    let base: Location = first.manifest.to_str().unwrap().parse().unwrap();
    let fetcher = Fetcher::new(FetchOptions { offline: true, ..FetchOptions::default() });
    let manifest = fetcher.fetch_manifest(&base).unwrap();
    let artifact = &manifest.artifacts[0];
    let fetched = fetcher.fetch_artifact(&cache, &manifest, artifact, &base, &NoProgress, Reuse::IfPresent).unwrap();
    verify(&fetched.snapshot).unwrap();
}

#[test]
fn a_folder_mirror_refuses_other_content_until_told() {
    let published = Published::new();
    let mirror = tempfile::tempdir().unwrap();
    let first = publication(&published).mirror(mirror.path(), false).unwrap();
    let text = fs::read_to_string(&first.manifest).unwrap();
    let files = tempfile::tempdir().unwrap();
    write_files(files.path());
    fs::write(files.path().join("__init__.py"), "import os\n").unwrap();
    let other = Published::of(files.path());
    let error = publication(&other).mirror(mirror.path(), false).unwrap_err();
    assert!(matches!(&error, PackError::Conflict { manifest } if *manifest == first.manifest), "{error:?}");
    assert!(error.hint().unwrap().contains("--replace"));
    assert_eq!(fs::read_to_string(&first.manifest).unwrap(), text);
    let replaced = publication(&other).mirror(mirror.path(), true).unwrap();
    assert!(replaced.replaced && !replaced.unchanged);
    let manifest = KernelManifest::parse(&fs::read_to_string(&first.manifest).unwrap(), "x").unwrap();
    assert_eq!(manifest.artifacts[0].sha256, other.packed.sha256);
    // What a reader of the old manifest is about to fetch is still there.
    let old = KernelManifest::parse(&text, "x").unwrap().artifacts[0].url.to_string();
    assert!(mirror.path().join(old).exists());

    fs::write(&first.manifest, "not a manifest").unwrap();
    let error = publication(&other).mirror(mirror.path(), false).unwrap_err();
    assert!(matches!(error, PackError::Format { .. }), "{error:?}");
    assert_eq!(fs::read_to_string(&first.manifest).unwrap(), "not a manifest");
    publication(&other).mirror(mirror.path(), true).unwrap();
}
