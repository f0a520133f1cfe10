//! Making archives.

use std::fs;
use std::os::unix::fs::symlink;

use kernelhub::manifest::{BackendInfo, KernelManifest};
use kernelhub::pack::{self, PackError, PackSpec};

use crate::support::packs::{LAYERS, spec, write_files};

#[test]
fn one_set_of_files_gives_one_archive() {
    let (one, two, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_files(one.path());
    // Another order of creation, other times, a stale metadata: no difference.
    fs::write(two.path().join("metadata.json"), "old").unwrap();
    fs::create_dir(two.path().join("doc")).unwrap();
    fs::write(two.path().join("doc/notes.json"), "{}").unwrap();
    write_files(two.path());
    let first = pack::pack_variant(one.path(), &spec(), &out.path().join("a")).unwrap();
    let second = pack::pack_variant(two.path(), &spec(), &out.path().join("b")).unwrap();
    assert_eq!(fs::read(&first.archive).unwrap(), fs::read(&second.archive).unwrap());
    assert_eq!((first.sha256, first.metadata_sha256), (second.sha256, second.metadata_sha256));
    assert_eq!(
        first.archive.file_name().unwrap().to_str(),
        Some("kernelhub--rmsnorm-v1-tvm-ffi01-cpu-x86_64-linux.tar.zst")
    );
    fs::write(two.path().join("__init__.py"), "import os\n").unwrap();
    assert_ne!(pack::pack_variant(two.path(), &spec(), out.path()).unwrap().sha256, first.sha256);
}

#[test]
fn the_manifest_names_archives_beside_it_and_reads_back() {
    let out = tempfile::tempdir().unwrap();
    let files = tempfile::tempdir().unwrap();
    write_files(files.path());
    let packed = pack::pack_variant(files.path(), &spec(), &out.path().join("archives")).unwrap();
    let manifest = pack::manifest(&spec(), std::slice::from_ref(&packed), out.path()).unwrap();
    assert!(manifest.artifacts[0].url.to_string().starts_with("archives/kernelhub--rmsnorm"));
    let path = pack::write_manifest(&manifest, out.path()).unwrap();
    let text = fs::read_to_string(path).unwrap();
    assert_eq!(KernelManifest::parse(&text, "x").unwrap(), manifest);
    let error = pack::manifest(&spec(), std::slice::from_ref(&packed), files.path()).unwrap_err();
    assert!(matches!(error, PackError::NotBeside { .. }), "{error:?}");
    for packs in [&[][..], &[packed.clone(), packed][..]] {
        let error = pack::manifest(&spec(), packs, out.path()).unwrap_err();
        assert!(matches!(error, PackError::Format { .. }), "{error:?}");
    }
}

#[test]
fn what_a_fetch_would_refuse_is_not_packed() {
    let out = tempfile::tempdir().unwrap();
    let pack = |prepare: &dyn Fn(&std::path::Path), spec: &PackSpec| {
        let files = tempfile::tempdir().unwrap();
        write_files(files.path());
        prepare(files.path());
        pack::pack_variant(files.path(), spec, out.path()).unwrap_err()
    };
    let error = pack(&|files| symlink("layers.toml", files.join("x")).unwrap(), &spec());
    assert!(matches!(error, PackError::NotAFile { .. }), "{error:?}");
    let error = pack(&|files| fs::write(files.join("a:b"), "").unwrap(), &spec());
    assert!(matches!(error, PackError::Name { .. }), "{error:?}");
    let error = pack(&|files| fs::write(files.join("LIBRMSNORM.so"), "").unwrap(), &spec());
    assert!(matches!(error, PackError::CaseCollision { .. }), "{error:?}");
    let error = pack(&|files| fs::remove_file(files.join("layers.toml")).unwrap(), &spec());
    assert!(matches!(error, PackError::LayersAbsent { .. }), "{error:?}");
    let error =
        pack(&|files| fs::write(files.join("layers.toml"), LAYERS.replace("dtypes", "dtype")).unwrap(), &spec());
    assert!(matches!(error, PackError::Format { .. }), "{error:?}");
    let cuda = PackSpec { backend: BackendInfo { kind: "cuda".to_owned(), archs: Vec::new() }, ..spec() };
    let error = pack(&|_| {}, &cuda);
    assert!(matches!(error, PackError::Spec { .. }), "{error:?}");
    assert!(fs::read_dir(out.path()).unwrap().next().is_none());
}

#[test]
fn long_names_survive_the_way_through_an_archive() {
    let files = tempfile::tempdir().unwrap();
    write_files(files.path());
    let name = format!("{}/{}.py", "n".repeat(120), "m".repeat(150));
    fs::create_dir(files.path().join("n".repeat(120))).unwrap();
    fs::write(files.path().join(&name), "x").unwrap();
    let published = crate::support::packs::Published::of(files.path());
    let home = tempfile::tempdir().unwrap();
    let cache = kernelhub::fetch::Cache::at(home.path()).unwrap();
    let base = kernelhub::fetch::Location::from(published.manifest_path().as_path());
    let fetched = kernelhub::fetch::Fetcher::new(kernelhub::fetch::FetchOptions::default())
        .fetch_artifact(
            &cache,
            &published.manifest,
            published.artifact(),
            &base,
            &kernelhub::fetch::NoProgress,
            kernelhub::fetch::Reuse::IfPresent,
        )
        .unwrap();
    let verified = crate::support::trust::verify(&fetched.snapshot).unwrap();
    assert_eq!(verified.text(&name.parse().unwrap()), Some("x"));
}
