//! What is on disk against what was published.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use kernelhub::digest::{BlobId, Sha256Digest, ViolationKind};
use kernelhub::fetch::{Cache, FetchOptions, Fetcher, Location, NoProgress, Reuse, Snapshot};
use kernelhub::hint::Hint as _;
use kernelhub::manifest::Metadata;
use kernelhub::pack;
use kernelhub::verify::VerifyError;
use tempfile::TempDir;

use crate::support::packs::{Published, library, spec, write_files};
use crate::support::trust::verify;

struct Installed {
    published: Published,
    _home: TempDir,
    cache: Cache,
    snapshot: Snapshot,
}

impl Installed {
    fn new() -> Self {
        Self::of(Published::new())
    }

    fn of(published: Published) -> Self {
        let home = tempfile::tempdir().unwrap();
        let cache = Cache::at(home.path()).unwrap();
        let snapshot = fetch(&published, &cache, Reuse::IfPresent);
        Self { published, _home: home, cache, snapshot }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.snapshot.root().join(name)
    }

    /// (kind, path) of every violation.
    fn violations(&self) -> Vec<(ViolationKind, String)> {
        match verify(&self.snapshot) {
            Err(VerifyError::Violations { violations, .. }) => {
                violations.into_iter().map(|violation| (violation.kind, violation.path)).collect()
            }
            other => panic!("{other:?}"),
        }
    }
}

fn fetch(published: &Published, cache: &Cache, reuse: Reuse) -> Snapshot {
    let base = Location::from(published.manifest_path().as_path());
    Fetcher::new(FetchOptions::default())
        .fetch_artifact(cache, &published.manifest, published.artifact(), &base, &NoProgress, reuse)
        .unwrap()
        .snapshot
}

#[test]
fn a_whole_build_gives_its_layers_texts_and_library() {
    let installed = Installed::new();
    let verified = verify(&installed.snapshot).unwrap();
    assert_eq!((verified.repo().to_string().as_str(), verified.version()), ("kernelhub/rmsnorm", 1));
    assert_eq!(verified.layers().layers[0].name, "RMSNorm");
    assert_eq!(verified.text(&"__init__.py".parse().unwrap()), Some("import tvm_ffi\n"));
    assert_eq!(verified.text(&"doc/notes.json".parse().unwrap()), Some("{}"));
    assert_eq!(verified.text(&"librmsnorm.so".parse().unwrap()), None);
    let folder_bytes: u64 = ["layers.toml", "librmsnorm.so", "__init__.py", "doc/notes.json"]
        .iter()
        .map(|name| installed.file(name).metadata().unwrap().len())
        .sum();
    assert_eq!((verified.files(), verified.bytes()), (4, folder_bytes));
    let metadata = Metadata::parse(&fs::read(installed.file("metadata.json")).unwrap(), "x").unwrap();
    assert_eq!(*verified.metadata(), metadata);
    let native = verified.library().unwrap();
    assert_eq!(native.path(), installed.file("librmsnorm.so"));
    assert_eq!(native.sha256(), Sha256Digest::of(&library()));
}

#[test]
fn what_is_loaded_is_what_was_hashed_and_cannot_change() {
    let installed = Installed::new();
    let verified = verify(&installed.snapshot).unwrap();
    let native = verified.library().unwrap().clone();
    drop(verified);
    // The file in the cache changes after its check; the bytes to load do not.
    fs::write(installed.file("librmsnorm.so"), b"evil").unwrap();
    assert!(native.load_path().is_absolute());
    assert_eq!(fs::read(native.load_path()).unwrap(), library());
    if cfg!(target_os = "linux") {
        let opened = fs::OpenOptions::new().write(true).open(native.load_path());
        let written = opened.and_then(|mut file| std::io::Write::write_all(&mut file, b"evil"));
        assert!(written.is_err(), "the copy could be written");
        assert_eq!(fs::read(native.load_path()).unwrap(), library());
    }
    let path = native.load_path().to_path_buf();
    native.keep_open();
    drop(native);
    assert_eq!(fs::read(path).unwrap(), library(), "the copy went away");
}

#[test]
fn a_flipped_byte_names_the_file_and_both_digests_and_a_replacement_repairs_it() {
    let installed = Installed::new();
    let path = installed.file("librmsnorm.so");
    let mut bytes = fs::read(&path).unwrap();
    bytes[1234] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error = verify(&installed.snapshot).unwrap_err();
    let text = error.to_string();
    for part in ["kernelhub/rmsnorm", "v1", "librmsnorm.so"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(text.contains(&format!("expected sha256 {}", Sha256Digest::of(&library()))), "{text}");
    assert!(text.contains(&format!("found sha256 {}", Sha256Digest::of(&bytes))), "{text}");
    assert!(error.hint().unwrap().contains("fetch"));
    // A hit does not look inside; a replacement repairs.
    fetch(&installed.published, &installed.cache, Reuse::IfPresent);
    assert!(verify(&installed.snapshot).is_err());
    let repaired = fetch(&installed.published, &installed.cache, Reuse::Replace);
    assert_eq!(repaired, installed.snapshot);
    verify(&repaired).unwrap();
}

#[test]
fn everything_that_is_wrong_is_reported_at_once_in_a_stable_order() {
    let installed = Installed::new();
    fs::write(installed.file("__init__.py"), "import os\n").unwrap();
    fs::remove_file(installed.file("layers.toml")).unwrap();
    fs::write(installed.file("doc/extra.so"), "").unwrap();
    fs::create_dir(installed.file("__pycache__")).unwrap();
    fs::write(installed.file("__pycache__/x.pyc"), "").unwrap();
    fs::write(installed.file(".hidden"), "").unwrap();
    // A link in place of a file is no file, even where it leads to the right bytes.
    let elsewhere = tempfile::tempdir().unwrap();
    fs::rename(installed.file("librmsnorm.so"), elsewhere.path().join("x.so")).unwrap();
    symlink(elsewhere.path().join("x.so"), installed.file("librmsnorm.so")).unwrap();
    symlink(elsewhere.path(), installed.file("linked")).unwrap();
    let expected: Vec<(ViolationKind, String)> = [
        (ViolationKind::DigestMismatch, "__init__.py"),
        (ViolationKind::FileMissing, "layers.toml"),
        (ViolationKind::FileUnlisted, ".hidden"),
        (ViolationKind::FileUnlisted, "__pycache__/x.pyc"),
        (ViolationKind::FileUnlisted, "doc/extra.so"),
        (ViolationKind::NotAFile, "librmsnorm.so"),
        (ViolationKind::NotAFile, "linked"),
    ]
    .map(|(kind, path)| (kind, path.to_owned()))
    .to_vec();
    assert_eq!(installed.violations(), expected);
    assert_eq!(installed.violations(), expected);
}

#[test]
fn pipes_and_links_in_odd_places_neither_hang_nor_pass() {
    let installed = Installed::new();
    let path = installed.file("__init__.py");
    fs::remove_file(&path).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    assert_eq!(installed.violations(), [(ViolationKind::NotAFile, "__init__.py".to_owned())]);

    let installed = Installed::new();
    let metadata = installed.file("metadata.json");
    fs::rename(&metadata, installed.file("other")).unwrap();
    symlink("other", &metadata).unwrap();
    assert_eq!(installed.violations(), [(ViolationKind::NotAFile, "metadata.json".to_owned())]);

    let installed = Installed::new();
    let root = installed.snapshot.root();
    let moved = root.with_extension("moved");
    fs::rename(root, &moved).unwrap();
    symlink(&moved, root).unwrap();
    assert_eq!(installed.violations(), [(ViolationKind::NotAFile, ".".to_owned())]);
}

#[test]
fn metadata_is_anchored_and_speaks_for_itself_only_when_it_is_the_right_one() {
    // Another build's metadata, whole in itself, with files to match.
    let installed = Installed::new();
    let files = tempfile::tempdir().unwrap();
    write_files(files.path());
    fs::write(files.path().join("librmsnorm.so"), "evil").unwrap();
    let out = tempfile::tempdir().unwrap();
    let packed = pack::pack_variant(files.path(), &spec(), out.path()).unwrap();
    assert_ne!(Some(BlobId::Sha256(packed.metadata_sha256)), installed.snapshot.anchor().metadata());
    let text = fs::read_to_string(installed.file("metadata.json")).unwrap();
    let swapped = text.replace(&Sha256Digest::of(&library()).to_base64(), &Sha256Digest::of(b"evil").to_base64());
    assert_ne!(swapped, text);
    fs::write(installed.file("metadata.json"), swapped).unwrap();
    fs::write(installed.file("librmsnorm.so"), "evil").unwrap();
    assert_eq!(installed.violations(), [(ViolationKind::MetadataMismatch, "metadata.json".to_owned())]);

    fs::write(installed.file("metadata.json"), "not json").unwrap();
    assert_eq!(installed.violations(), [(ViolationKind::MetadataMismatch, "metadata.json".to_owned())]);
    fs::remove_file(installed.file("metadata.json")).unwrap();
    assert_eq!(installed.violations(), [(ViolationKind::FileMissing, "metadata.json".to_owned())]);

    fs::remove_dir_all(installed.snapshot.root()).unwrap();
    let error = verify(&installed.snapshot).unwrap_err();
    assert!(matches!(error, VerifyError::Absent { .. }), "{error:?}");
}

#[test]
fn a_signature_beside_the_metadata_is_no_unlisted_file() {
    let installed = Installed::new();
    fs::write(installed.file("metadata.json.sigstore"), "{}").unwrap();
    verify(&installed.snapshot).unwrap();
}

#[test]
fn a_build_without_one_library_says_what_it_has() {
    for (remove, add, count) in [(true, None, 0), (false, Some("libother.so.1"), 2)] {
        let files = tempfile::tempdir().unwrap();
        write_files(files.path());
        if remove {
            fs::remove_file(files.path().join("librmsnorm.so")).unwrap();
        }
        if let Some(name) = add {
            fs::write(files.path().join(name), "x").unwrap();
        }
        let published = Published::of(files.path());
        let installed = Installed::of(published);
        let error = verify(&installed.snapshot).unwrap().library().map(|_| ()).unwrap_err();
        assert!(matches!(&error, VerifyError::LibraryCount { found, .. } if found.len() == count), "{error:?}");
        assert!(error.hint().is_some());
    }
}
