//! One changed byte anywhere in a kernel, through every door.

use std::fs;
use std::path::{Path, PathBuf};

use kernelhub::fetch::Revision;
use kernelhub::hub::lock::{LockError, Locks};
use kernelhub::hub::{Hub, Selection};
use kernelhub::manifest::{KernelLock, KernelVersion, KernelsLock, LockEdition, LockSidecar};
use kernelhub::swap::{KernelConfig, KernelProvider as _, Mode};
use kernelhub::variant::DeviceKey;

use crate::support::hub::{FakeHub, Published, builder};
use crate::support::native::compile_c;
use crate::support::packs::{LAYERS, VARIANT};

const REPO: &str = "o/flips";
const POSITIONS: usize = 1000;

/// Numbers that look random and are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

fn published() -> Published {
    let mut published = Published::new(REPO, 1);
    published.files.clear();
    let library = compile_c("plain.c", "flipped", &[]);
    let files = [
        ("layers.toml", LAYERS.as_bytes().to_vec()),
        ("libflips.so", library),
        ("__init__.py", b"import tvm_ffi\n".to_vec()),
        ("doc/notes.json", b"{\"notes\": []}".to_vec()),
    ];
    published.add_build(VARIANT, 1, &files, &[]);
    published
}

/// A file of a build: its name there, the file that holds its bytes (a blob, where the cache has links), and those.
type Held = (PathBuf, PathBuf, Vec<u8>);

fn files(build: &Path) -> Vec<Held> {
    let names = ["layers.toml", "libflips.so", "__init__.py", "doc/notes.json", "metadata.json"];
    let held = |name: &&str| {
        let place = build.join(name).canonicalize().unwrap();
        (PathBuf::from(name), place.clone(), fs::read(place).unwrap())
    };
    names.iter().map(held).collect()
}

/// A byte of all the files, counted through.
fn choose<'a>(files: &'a [Held], random: &mut Random) -> (&'a Held, Vec<u8>) {
    let total = files.iter().map(|(.., bytes)| bytes.len()).sum();
    let mut at = random.below(total);
    for held @ (.., bytes) in files {
        if at < bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << random.below(8);
            return (held, changed);
        }
        at -= bytes.len();
    }
    unreachable!("a position inside")
}

/// Writes a file anew: it may be read-only, and a repair that got no answer has removed it.
fn put(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap_or_default();
    fs::write(path, bytes).unwrap();
}

/// Whether the library is mapped: the sealed copy has the name of the file that it was made of.
fn is_mapped(files: &[Held]) -> bool {
    let library = files.iter().find(|(path, ..)| path.as_os_str() == "libflips.so").unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let names = [library.1.file_name().unwrap().to_str().unwrap(), "libflips.so"];
    names.iter().any(|name| maps.contains(&format!("memfd:{name}")))
}

#[test]
fn a_changed_byte_anywhere_is_refused_through_every_door() {
    let published = published();
    let fake = FakeHub::start(vec![published.clone()]);
    let home = tempfile::tempdir().unwrap();
    let repo = REPO.parse().unwrap();
    let revision: Revision = published.commit.parse().unwrap();
    let fetched = builder(&fake.endpoint(), home.path()).build().unwrap();
    let build = fetched.prefetch(&repo, Revision::Version(1), Selection::AllVariants).unwrap();
    let build = build[0].snapshot.root().to_path_buf();
    let files = files(&build);
    let local = tempfile::tempdir().unwrap();
    let local_build = local.path().join("build").join(VARIANT);
    fs::create_dir_all(local_build.join("doc")).unwrap();
    for (path, _, bytes) in &files {
        fs::write(local_build.join(path), bytes).unwrap();
    }

    // Nothing can be repaired: nobody answers any more.
    let nobody = "http://127.0.0.1:9";
    let online = builder(nobody, home.path()).build().unwrap();
    let offline = builder(nobody, home.path()).offline(true).build().unwrap();
    let folder = builder(nobody, home.path()).local(repo.clone(), local.path()).build().unwrap();
    let config = KernelConfig::from_toml(&format!("[RMSNorm]\ncpu = \"{REPO}@v1:RMSNorm\"\n"), "test").unwrap();
    let choice = config.kernels().into_iter().next().unwrap().clone();
    assert!(config.choice("RMSNorm", DeviceKey::Cpu, Mode::Inference).is_some());
    let locks = Locks {
        kernels: KernelsLock {
            edition: LockEdition::Dependency,
            kernels: vec![KernelLock {
                repo: repo.clone(),
                version: Some(KernelVersion::Version(1)),
                commit: published.commit.parse().unwrap(),
                variants: std::collections::BTreeMap::new(),
            }],
        },
        sidecar: LockSidecar::default(),
    };
    let by_lock = |hub: &Hub| hub.download(&locks, local.path(), Selection::AllVariants);
    assert!(by_lock(&offline).is_ok(), "the lock is one that downloads when nothing is changed");

    let mut random = Random(7);
    for position in 0..POSITIONS {
        let ((path, place, _), changed) = choose(&files, &mut random);
        put(place, &changed);
        let at = format!("position {position} in {}", path.display());
        assert!(online.get(&repo, revision.clone(), DeviceKey::Cpu).is_err(), "get, {at}");
        assert!(offline.get(&repo, 1, DeviceKey::Cpu).is_err(), "offline, {at}");
        assert!(offline.provide(&choice, "RMSNorm", DeviceKey::Cpu).is_err(), "KernelConfig, {at}");
        assert!(by_lock(&offline).is_err(), "lock download, {at}");
        // A local folder's own metadata is what it is held to; nothing anchors that.
        if path.as_os_str() != "metadata.json" {
            put(&local_build.join(path), &changed);
            assert!(folder.get(&repo, 1, DeviceKey::Cpu).is_err(), "local folder, {at}");
        }
        for (path, place, bytes) in &files {
            if fs::read(place).ok().as_ref() != Some(bytes) {
                put(place, bytes);
            }
            // What a repair took away, it would have brought again.
            if !build.join(path).exists() {
                fs::create_dir_all(build.join(path).parent().unwrap()).unwrap();
                std::os::unix::fs::symlink(place, build.join(path)).unwrap();
            }
            if fs::read(local_build.join(path)).ok().as_ref() != Some(bytes) {
                put(&local_build.join(path), bytes);
            }
        }
    }
    assert!(!is_mapped(&files), "refused before dlopen, every time");
    // The same doors, with nothing changed.
    offline.get(&repo, 1, DeviceKey::Cpu).unwrap();
    online.get(&repo, revision, DeviceKey::Cpu).unwrap();
    folder.get(&repo, 1, DeviceKey::Cpu).unwrap();
    offline.provide(&choice, "RMSNorm", DeviceKey::Cpu).unwrap();
    by_lock(&offline).unwrap();
    assert!(is_mapped(&files));
}

#[test]
fn a_changed_byte_anywhere_in_a_bundle_brings_nothing_foreign_in() {
    let published = published();
    let fake = FakeHub::start(vec![published]);
    let (home, project) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = builder(&fake.endpoint(), home.path()).build().unwrap();
    let manifest = format!(
        "[package]\nname = \"x\"\nversion = \"0.1.0\"\n\n[package.metadata.kernels.dependencies]\n\"{REPO}\" = 1\n"
    );
    fs::write(project.path().join("Cargo.toml"), manifest).unwrap();
    let read = kernelhub::hub::lock::Project::read(project.path(), &source).unwrap();
    let locks = source.lock(&read, LockEdition::Dependency).unwrap();
    source.download(&locks, project.path(), Selection::AllVariants).unwrap();
    let file = project.path().join("bundle.tar");
    let exported = source.export(&locks, Selection::AllVariants, &file).unwrap();
    let bytes = fs::read(&file).unwrap();
    let mut random = Random(11);
    let (mut refused, mut harmless) = (0, 0);
    for position in 0..POSITIONS {
        let (at, bit) = (random.below(bytes.len()), random.below(8));
        let mut changed = bytes.clone();
        changed[at] ^= 1 << bit;
        fs::write(&file, &changed).unwrap();
        let target = tempfile::tempdir().unwrap();
        let hub = builder("http://127.0.0.1:9", target.path()).offline(true).build().unwrap();
        // By the digest that the export printed, each is refused.
        let by_digest = hub.import(&file, Some(exported.sha256), None);
        assert!(matches!(by_digest, Err(LockError::BundleDigest { .. })), "position {position}: {by_digest:?}");
        // Without it, what counts is the content: a byte of the padding changes nothing that is placed.
        if hub.import(&file, None, Some(&locks)).is_err() {
            refused += 1;
            let left = hub.cache().inventory().unwrap();
            assert!(left.iter().all(|entry| entry.snapshot.is_none()), "position {position}: {left:?}");
        } else {
            harmless += 1;
            let builds = hub.verify_cached(&REPO.parse().unwrap(), &Revision::Version(1), Selection::AllVariants);
            assert!(builds.unwrap().iter().all(kernelhub::hub::VerifiedBuild::is_clean), "position {position}");
        }
    }
    assert_eq!(refused + harmless, POSITIONS);
    assert!(refused > POSITIONS / 2, "{refused} refused, {harmless} harmless");
    fs::write(&file, &bytes).unwrap();
    let target = tempfile::tempdir().unwrap();
    let hub = builder("http://127.0.0.1:9", target.path()).offline(true).build().unwrap();
    hub.import(&file, Some(exported.sha256), Some(&locks)).unwrap();
}
