//! Cold, warm and offline; a damaged cache.

use std::fs;
use std::path::Path;

use kernelhub::digest::{Sha256Digest, ViolationKind};
use kernelhub::fetch::{FetchError, Location};
use kernelhub::hint::Hint as _;
use kernelhub::hub::{Hub, HubBuilder, HubError, Selection};
use kernelhub::names::RepoId;
use kernelhub::variant::DeviceKey::Cpu;
use kernelhub::verify::VerifyError;
use tempfile::TempDir;

use crate::support::native::{KIT, NativePack, norm_layer};
use crate::support::server::Server;
use crate::support::trust;

/// A kernel on a server, whose library has bytes of its own.
struct Remote {
    server: Server,
    pack: NativePack,
    cache: TempDir,
    repo: RepoId,
}

impl Remote {
    fn new(name: &str) -> Self {
        let mut library = KIT.clone();
        library.extend_from_slice(name.as_bytes());
        let layers = norm_layer("RMSNorm", "count_rms_norm");
        let pack = NativePack::new(name, &layers, &[(&format!("lib{name}.so"), &library)]);
        let server = Server::folder(pack.folder());
        let repo = pack.manifest().kernel.repo.clone();
        Self { server, pack, cache: tempfile::tempdir().unwrap(), repo }
    }

    fn builder(&self) -> HubBuilder {
        Hub::builder().policy(trust::policy()).cache(self.cache.path()).offline(false)
    }

    /// A hub that was told of the kernel by its manifest's URL.
    fn told(&self) -> Hub {
        let url = self.server.url(&format!("{}.toml", self.repo.name()));
        self.builder().manifest(self.pack.manifest().clone(), url.parse().unwrap()).build().unwrap()
    }
}

/// Flips one byte in the middle of a file, in place.
fn flip_a_byte(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(path, bytes).unwrap();
}

fn is_mapped(library: &str) -> bool {
    fs::read_to_string("/proc/self/maps").unwrap().contains(library)
}

#[test]
fn cold_warm_and_offline() {
    let remote = Remote::new("coldwarm");
    let cold = remote.told().get(&remote.repo, 1, Cpu).unwrap();
    assert!(!cold.fetched().from_cache && !cold.repaired());
    assert_eq!(cold.fetched().requests, 1);
    assert_eq!(cold.fetched().bytes_fetched, remote.pack.manifest().artifacts[0].size);
    assert!(cold.snapshot().root().starts_with(remote.cache.path()));
    assert!(is_mapped("libcoldwarm.so"));

    // Without a manifest, and without the network: the cache knows both.
    let seen = remote.server.requests().len();
    for offline in [false, true] {
        let hub = remote.builder().offline(offline).build().unwrap();
        let warm = hub.get(&remote.repo, 1, Cpu).unwrap();
        assert!(warm.fetched().from_cache);
        assert_eq!((warm.fetched().requests, warm.fetched().bytes_fetched), (0, 0));
        assert_eq!(warm.snapshot().root(), cold.snapshot().root());
        // Asked again, the hub gives what it has.
        assert!(std::sync::Arc::ptr_eq(&warm, &hub.get(&remote.repo, 1, Cpu).unwrap()));
    }
    assert_eq!(remote.server.requests().len(), seen, "a warm start makes no request");
}

#[test]
fn offline_and_cold_is_refused_without_a_request() {
    let remote = Remote::new("offline");
    let url = remote.server.url("offline.toml");
    let hub = remote.builder().offline(true).manifest(remote.pack.manifest().clone(), url.parse().unwrap()).build();
    let error = hub.unwrap().get(&remote.repo, 1, Cpu).unwrap_err();
    assert!(
        matches!(&error, HubError::Fetch(FetchError::Offline { url, .. }) if url.ends_with(".tar.zst")),
        "{error:?}"
    );
    assert!(error.to_string().contains("kernelhub-tests/offline v1"), "{error}");
    assert!(error.hint().is_some());
    assert!(remote.server.requests().is_empty());
    assert_eq!(fs::read_dir(remote.cache.path()).unwrap().count(), 0, "nothing was written");
}

#[test]
fn a_flipped_byte_is_refused_offline_and_repaired_online() {
    let remote = Remote::new("flipped");
    let fetched = remote.told().prefetch(&remote.repo, 1, Selection::AllVariants).unwrap();
    let library = fetched[0].snapshot.root().join("libflipped.so");
    let good = fs::read(&library).unwrap();
    flip_a_byte(&library);

    let offline = remote.builder().offline(true).build().unwrap();
    let error = offline.get(&remote.repo, 1, Cpu).unwrap_err();
    let HubError::Verify(VerifyError::Violations { violations, .. }) = &error else { panic!("{error:?}") };
    assert_eq!(violations.len(), 1);
    assert_eq!((violations[0].kind, violations[0].path.as_str()), (ViolationKind::DigestMismatch, "libflipped.so"));
    let text = error.to_string();
    for digest in [Sha256Digest::of(&good), Sha256Digest::of(&fs::read(&library).unwrap())] {
        assert!(text.contains(&digest.to_string()), "expected and actual digest: {text}");
    }
    assert!(text.contains("libflipped.so"), "{text}");
    assert!(error.hint().is_some());
    assert!(!is_mapped("libflipped.so"), "refused before it was loaded");

    let before = remote.server.requests().len();
    let online = remote.builder().build().unwrap();
    let kernel = online.get(&remote.repo, 1, Cpu).unwrap();
    assert!(kernel.repaired());
    assert_eq!(kernel.fetched().requests, 1);
    assert_eq!(remote.server.requests().len(), before + 1);
    assert_eq!(fs::read(&library).unwrap(), good);
    assert!(is_mapped("libflipped.so"));
    // And it stays so.
    let again = remote.builder().offline(true).build().unwrap().get(&remote.repo, 1, Cpu).unwrap();
    assert!(!again.repaired() && again.fetched().from_cache);
}

#[test]
fn a_repair_that_cannot_be_had_keeps_the_damage_out() {
    let remote = Remote::new("gone");
    let fetched = remote.told().prefetch(&remote.repo, 1, Selection::ThisMachine).unwrap();
    flip_a_byte(&fetched[0].snapshot.root().join("libgone.so"));
    for file in fs::read_dir(remote.pack.folder()).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    let error = remote.builder().build().unwrap().get(&remote.repo, 1, Cpu).unwrap_err();
    assert!(matches!(&error, HubError::Fetch(_)), "{error:?}");
    assert!(!is_mapped("libgone.so"));
}

#[test]
fn a_manifest_that_is_given_goes_before_the_recorded_one() {
    let layers = norm_layer("Old", "count_rms_norm");
    let old = NativePack::kit("versions", &layers);
    let new = NativePack::kit("versions", &norm_layer("New", "count_rms_norm"));
    let cache = tempfile::tempdir().unwrap();
    let hub = |pack: Option<&NativePack>| {
        let builder = Hub::builder().policy(trust::policy()).cache(cache.path()).offline(true);
        let builder = match pack {
            Some(pack) => builder.manifest(pack.manifest().clone(), pack.location()),
            None => builder,
        };
        builder.build().unwrap()
    };
    let repo = &old.manifest().kernel.repo;
    let layer = |hub: &Hub| hub.get(repo, 1, Cpu).unwrap().snapshot().layers().layers[0].name.clone();
    assert_eq!(layer(&hub(Some(&old))), "Old");
    assert_eq!(layer(&hub(None)), "Old", "recorded");
    assert_eq!(layer(&hub(Some(&new))), "New", "given");
    assert_eq!(layer(&hub(None)), "New", "recorded in its turn");
    assert!(matches!(old.location(), Location::Local(_)));
}

#[test]
fn what_has_no_end_is_not_read_to_its_end() {
    let remote = Remote::new("endless");
    let kernel = remote.told().get(&remote.repo, 1, Cpu).unwrap();
    let root = kernel.snapshot().root();
    // Files with holes: a terabyte each, and nothing on the disk.
    for name in ["libendless.so", "layers.toml", "unlisted.bin"] {
        fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(root.join(name))
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
    }
    let offline = || remote.builder().offline(true).build().unwrap();
    let HubError::Verify(VerifyError::Violations { violations, .. }) = offline().get(&remote.repo, 1, Cpu).unwrap_err()
    else {
        panic!("expected violations")
    };
    let found: Vec<_> = violations.iter().map(|violation| (violation.path.as_str(), violation.kind)).collect();
    assert!(found.contains(&("libendless.so", ViolationKind::DigestMismatch)), "{found:?}");
    assert!(found.contains(&("layers.toml", ViolationKind::DigestMismatch)), "{found:?}");
    assert!(found.contains(&("unlisted.bin", ViolationKind::FileUnlisted)), "{found:?}");
    assert_eq!(found.len(), 3);

    // A pipe in the place of the record: nobody writes into it.
    let record = remote.cache.path().join("manifests/kernelhub-tests--endless/v1.toml");
    fs::remove_file(&record).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&record).status().unwrap().success());
    let error = offline().get(&remote.repo, 1, Cpu).unwrap_err();
    assert!(matches!(&error, HubError::Fetch(FetchError::Io { path, .. }) if *path == record), "{error:?}");
    assert!(kernelhub::hub::check_cache(offline().cache()).is_ok());
}
