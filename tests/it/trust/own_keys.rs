//! Builds that are trusted by a key of one's own.

use std::fs;

use kernelhub::hub::{Hub, HubError};
use kernelhub::manifest::KernelManifest;
use kernelhub::pack::{self, SigningKey};
use kernelhub::verify::{SignatureError, SignatureStatus, Signer, VerifyError};
use tempfile::TempDir;

use crate::support::packs::{spec, write_files};
use crate::support::tree;
use crate::support::trust;

/// A pack of `kernelhub/rmsnorm`, and a cache for it.
struct Signed {
    folder: TempDir,
    cache: TempDir,
    manifest: KernelManifest,
}

fn key(folder: &TempDir, name: &str) -> SigningKey {
    SigningKey::generate(&folder.path().join(name)).unwrap()
}

impl Signed {
    fn new(key: Option<&SigningKey>) -> Self {
        let (files, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write_files(files.path());
        let packed = match key {
            Some(key) => pack::pack_variant_signed(files.path(), &spec(), folder.path(), key).unwrap(),
            None => pack::pack_variant(files.path(), &spec(), folder.path()).unwrap(),
        };
        let manifest = pack::manifest(&spec(), std::slice::from_ref(&packed), folder.path()).unwrap();
        pack::write_manifest(&manifest, folder.path()).unwrap();
        Self { folder, cache: tempfile::tempdir().unwrap(), manifest }
    }

    /// Verifies it under a policy. Nothing is loaded: its library is no real one.
    fn prefetch(&self, policy: &str) -> Result<kernelhub::hub::Prefetched, HubError> {
        let location = kernelhub::fetch::Location::Local(self.folder.path().join("rmsnorm.toml"));
        let hub = Hub::builder().cache(self.cache.path()).offline(true).policy(trust::policy_of(policy));
        let hub = hub.manifest(self.manifest.clone(), location).build().unwrap();
        let brought = hub.prefetch(&self.manifest.kernel.repo, 1, kernelhub::hub::Selection::ThisMachine);
        brought.map(|mut builds| builds.remove(0))
    }
}

fn policy(keys: &[&SigningKey]) -> String {
    let keys: Vec<_> = keys.iter().map(|key| format!("\"{}\"", key.public())).collect();
    format!("schema = 1\n[[publisher]]\nname = \"kernelhub\"\nkeys = [{}]\n", keys.join(", "))
}

#[track_caller]
fn signature_error(result: Result<kernelhub::hub::Prefetched, HubError>) -> SignatureError {
    match result {
        Err(HubError::Verify(VerifyError::Signature { source, .. })) => *source,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_signed_pack_is_trusted_by_its_key_and_by_no_name() {
    let keys = tempfile::tempdir().unwrap();
    let (mine, theirs) = (key(&keys, "mine.key"), key(&keys, "theirs.key"));
    let signed = Signed::new(Some(&mine));
    let brought = signed.prefetch(&policy(&[&theirs, &mine])).unwrap();
    let SignatureStatus::Signed(Signer::Key { id, comment }) = brought.snapshot.signature() else {
        panic!("{:?}", brought.snapshot.signature())
    };
    assert_eq!(*id, mine.public().id());
    assert_eq!(*comment, format!("kernelhub kernelhub/rmsnorm@v1 {}", crate::support::packs::VARIANT));
    assert!(brought.snapshot.admission().requires_signature() && brought.notes.is_empty(), "{:?}", brought.notes);

    let error = signature_error(signed.prefetch(&policy(&[&theirs])));
    assert!(matches!(&error, SignatureError::UnknownKey { known } if *known == [theirs.public().id()]), "{error}");
    assert!(matches!(signature_error(Signed::new(None).prefetch(&policy(&[&mine]))), SignatureError::Absent));
    // A mode that is off does not open the door that only the key opens.
    let off = policy(&[&mine]).replace("schema = 1", "schema = 1\nsignature = \"off\"");
    assert!(matches!(signature_error(Signed::new(None).prefetch(&off)), SignatureError::Absent));
}

#[test]
fn a_signature_is_of_these_bytes_and_this_build() {
    let keys = tempfile::tempdir().unwrap();
    let mine = key(&keys, "mine.key");
    let trusted = policy(&[&mine]);
    let signed = Signed::new(Some(&mine));
    let root = signed.prefetch(&trusted).unwrap().snapshot.root().to_path_buf();
    let path = root.join("metadata.json.minisig");
    let (whole, metadata) = (fs::read_to_string(&path).unwrap(), fs::read(root.join("metadata.json")).unwrap());
    let meet = |text: &str| {
        tree::overwrite(&path, text.as_bytes());
        signature_error(signed.prefetch(&trusted))
    };
    // One character of each line: the signature, the comment, the signature over both.
    for line in [1, 2, 3] {
        let mut lines: Vec<String> = whole.lines().map(str::to_owned).collect();
        let at = lines[line].len() - 6;
        let other = if lines[line].as_bytes()[at] == b'A' { "B" } else { "A" };
        lines[line].replace_range(at..=at, other);
        let error = meet(&lines.join("\n"));
        assert!(matches!(error, SignatureError::Minisign { .. }), "line {line}: {error}");
    }
    assert!(matches!(meet(""), SignatureError::Minisign { .. } | SignatureError::UnknownKey { .. }));
    assert!(matches!(meet(&"x".repeat(5 << 10)), SignatureError::TooLarge { .. }));
    // By the right key over the right bytes, as another build.
    let other = mine.sign(&metadata, Some("kernelhub/rmsnorm@v2 tvm-ffi01-cpu-x86_64-linux")).unwrap();
    assert!(matches!(meet(&other), SignatureError::OtherKernel { .. }));
    let other = mine.sign(b"{}", Some("kernelhub/rmsnorm@v1 tvm-ffi01-cpu-x86_64-linux")).unwrap();
    assert!(matches!(meet(&other), SignatureError::Minisign { .. }));
    // One that other tools made names no kernel, and is of its bytes.
    tree::overwrite(&path, mine.sign(&metadata, None).unwrap().as_bytes());
    signed.prefetch(&trusted).unwrap();
}

#[test]
fn f23_a_mode_of_signatures_warns_or_refuses_and_the_default_warns() {
    let keys = tempfile::tempdir().unwrap();
    let (mine, theirs) = (key(&keys, "mine.key"), key(&keys, "theirs.key"));
    let trusted = |mode: &str| {
        let opted_in = "trust = true\nfrom = [\"archive\"]\n";
        format!("{}{opted_in}", policy(&[&mine]).replace("schema = 1", &format!("schema = 1\n{mode}")))
    };
    let (unsigned, other) = (Signed::new(None), Signed::new(Some(&theirs)));
    for mode in ["", "signature = \"warn\""] {
        let brought = unsigned.prefetch(&trusted(mode)).unwrap();
        assert!(matches!(brought.snapshot.signature(), SignatureStatus::Absent));
        assert!(brought.notes.iter().any(|note| note.contains("not signed")), "{:?}", brought.notes);
        let brought = other.prefetch(&trusted(mode)).unwrap();
        assert!(matches!(brought.snapshot.signature(), SignatureStatus::Wrong(SignatureError::UnknownKey { .. })));
        assert!(brought.notes.iter().any(|note| note.contains("not right")), "{:?}", brought.notes);
    }
    let off = unsigned.prefetch(&trusted("signature = \"off\"")).unwrap();
    assert!(matches!(off.snapshot.signature(), SignatureStatus::Off) && off.notes.is_empty());
    let required = trusted("signature = \"require\"");
    assert!(matches!(signature_error(unsigned.prefetch(&required)), SignatureError::Absent));
    assert!(matches!(signature_error(other.prefetch(&required)), SignatureError::UnknownKey { .. }));
    Signed::new(Some(&mine)).prefetch(&required).unwrap();
    // The digests are not what a mode is about: they are always checked.
    let root = off.snapshot.root().to_path_buf();
    tree::overwrite(&root.join("__init__.py"), b"evil");
    let error = unsigned.prefetch(&trusted("signature = \"off\"")).unwrap_err();
    assert!(matches!(error, HubError::Verify(VerifyError::Violations { .. })), "{error:?}");
}

#[test]
fn packing_the_same_files_again_gives_the_same_signed_archive() {
    let (keys, files, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mine = key(&keys, "mine.key");
    write_files(files.path());
    let pack = || pack::pack_variant_signed(files.path(), &spec(), out.path(), &mine).unwrap();
    let first = pack();
    assert_eq!(pack(), first);
    fs::write(files.path().join("__init__.py"), "other").unwrap();
    assert_ne!(pack().sha256, first.sha256);
    // A key is made once, and a file in its place is left alone.
    let before = tree::list(keys.path());
    assert!(SigningKey::generate(&keys.path().join("mine.key")).is_err());
    assert_eq!(tree::list(keys.path()), before);
    let again = SigningKey::read(&keys.path().join("mine.key"), None).unwrap();
    assert_eq!(again.public(), mine.public());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(keys.path().join("mine.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
    }
}
