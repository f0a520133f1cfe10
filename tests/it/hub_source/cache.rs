//! The cache that is shared with the Python tools: F17, F19, F58.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use kernelhub::digest::{BlobId, GitOid, Sha256Digest};
use kernelhub::fetch::{Anchor, Cache, EntryState, FetchError, PruneOptions};
use kernelhub::hub::{Hub, HubError, Selection, check_cache};

use super::{REPO, bring, bring_into, one, repo};
use crate::support::hub::{FakeHub, Published, builder, environment, fast};
use crate::support::packs::VARIANT;
use crate::support::tree;

fn folder(home: &Path) -> PathBuf {
    home.join("hub/kernels--kernels-community--rmsnorm")
}

/// Fills a cache as the Python tools do: blobs by their etags, links, no record of any listing.
fn filled_by_python(home: &Path, published: &Published, prefix: &str, links: bool) {
    let repo = home.join("hub").join(format!("{prefix}--kernels-community--rmsnorm"));
    fs::create_dir_all(repo.join("blobs")).unwrap();
    for (path, bytes) in &published.files {
        let id = if Path::new(path).extension().is_some_and(|extension| extension == "so") {
            BlobId::Sha256(Sha256Digest::of(bytes))
        } else {
            BlobId::Git(GitOid::of_blob(bytes))
        };
        let pointer = repo.join("snapshots").join(&published.commit).join(path);
        fs::create_dir_all(pointer.parent().unwrap()).unwrap();
        if links {
            fs::write(repo.join("blobs").join(id.to_string()), bytes).unwrap();
            let up = "../".repeat(pointer.strip_prefix(&repo).unwrap().components().count() - 1);
            symlink(format!("{up}blobs/{id}"), &pointer).unwrap();
        } else {
            fs::write(&pointer, bytes).unwrap();
        }
    }
    // Running the kernel leaves these.
    let bytecode = repo.join("snapshots").join(&published.commit).join("build").join(VARIANT).join("__pycache__");
    fs::create_dir_all(&bytecode).unwrap();
    fs::write(bytecode.join("__init__.cpython-311.pyc"), b"bytecode").unwrap();
}

#[test]
fn a_cache_that_python_filled_is_a_hit() {
    for (prefix, links) in [("kernels", true), ("kernels", false), ("models", true)] {
        let (fake, published) = one();
        let home = tempfile::tempdir().unwrap();
        filled_by_python(home.path(), &published, prefix, links);
        let brought = bring_into(&fake, home.path(), &published.commit).unwrap();
        assert!(brought.fetched.from_cache && fake.paths().is_empty(), "{prefix} {links}: {:?}", fake.paths());
        assert_eq!(brought.snapshot.files(), 5);
        let Anchor::Hub { metadata, .. } = brought.snapshot.anchor() else { panic!() };
        // Where no link names the blob, nothing anchors the metadata, and the report says so.
        assert_eq!(metadata.is_some(), links);
        assert_eq!(brought.snapshot.anchor().to_string().contains("no record"), !links);
    }
    // By version it takes the one question, and is then known offline.
    let (fake, published) = one();
    let home = tempfile::tempdir().unwrap();
    filled_by_python(home.path(), &published, "kernels", true);
    assert!(bring_into(&fake, home.path(), "v1").unwrap().fetched.from_cache);
    assert_eq!(fake.paths().len(), 1, "{:?}", fake.paths());
    let offline = builder(&fake.endpoint(), home.path()).offline(true).build().unwrap();
    assert!(bring(&offline, "v1").unwrap().fetched.from_cache);
}

#[test]
fn links_lead_into_the_repos_own_blobs_or_are_no_files() {
    let (fake, published) = one();
    let home = tempfile::tempdir().unwrap();
    bring_into(&fake, home.path(), "v1").unwrap();
    let offline = builder(&fake.endpoint(), home.path()).offline(true).build().unwrap();
    let file = folder(home.path()).join("snapshots").join(&published.commit).join("build").join(VARIANT);
    let file = file.join("__init__.py");
    let bytes = fs::read(&file).unwrap();
    let outside = home.path().join("outside");
    fs::write(&outside, &bytes).unwrap();
    for target in [outside.clone(), PathBuf::from("../../../../../../outside"), PathBuf::from("layers.toml")] {
        fs::remove_file(&file).unwrap();
        symlink(&target, &file).unwrap();
        let error = bring(&offline, "v1").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("__init__.py"), "{target:?}: {text}");
    }
    // Online it is repaired.
    let repaired = bring_into(&fake, home.path(), "v1").unwrap();
    assert!(repaired.repaired);
    assert_eq!(fs::read(&file).unwrap(), bytes);
}

#[test]
fn a_damaged_byte_is_named_offline_and_repaired_online_at_the_cost_of_its_file() {
    let (fake, published) = one();
    let home = tempfile::tempdir().unwrap();
    let first = bring_into(&fake, home.path(), "v1").unwrap();
    for name in ["librmsnorm.so", "metadata.json", "sub/one.py"] {
        let path = first.fetched.snapshot.root().join(name);
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).unwrap();
        let cache = Cache::of(&environment(&fake.endpoint(), home.path(), &[])).unwrap();
        let faults = check_cache(&cache).unwrap().into_iter().filter(|checked| checked.fault.is_some()).count();
        let unreadable = cache.inventory().unwrap().iter().filter(|entry| entry.state != EntryState::Complete).count();
        assert!(faults + unreadable >= 1, "{name}");
        let offline = builder(&fake.endpoint(), home.path()).offline(true).build().unwrap();
        bring(&offline, &published.commit).unwrap_err();
        let before = fake.count("/resolve/");
        let repaired = bring_into(&fake, home.path(), &published.commit).unwrap();
        assert!(repaired.repaired || !repaired.fetched.from_cache, "{name}");
        assert_eq!(fake.count("/resolve/") - before, 1, "{name}");
    }
}

#[test]
fn f17_a_hit_writes_nothing_and_a_miss_on_a_cache_that_cannot_be_written_names_the_path() {
    let (fake, published) = one();
    let home = tempfile::tempdir().unwrap();
    bring_into(&fake, home.path(), "v1").unwrap();
    let lock = |mode: u32| {
        for path in tree::list(home.path()).iter().map(|path| home.path().join(path)).chain([home.path().to_owned()]) {
            if path.is_dir() && !path.is_symlink() {
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
        }
    };
    let before = tree::list(home.path());
    lock(0o555);
    if fs::write(home.path().join("probe"), "").is_ok() {
        // Whoever may write everywhere sees no difference; a mount that cannot be written needs rights, too.
        eprintln!("skipped: this user writes into folders that cannot be written");
        fs::remove_file(home.path().join("probe")).unwrap();
        lock(0o755);
    } else {
        assert!(bring_into(&fake, home.path(), "v1").unwrap().fetched.from_cache);
        let mut other = published.clone();
        other.commit = "c".repeat(40);
        let fake = FakeHub::start(vec![other.clone()]);
        let error = bring_into(&fake, home.path(), &other.commit).unwrap_err();
        assert!(
            matches!(&error, HubError::Fetch(FetchError::ReadOnly { path, .. }) if path.starts_with(home.path())),
            "{error:?}"
        );
        lock(0o755);
    }
    assert_eq!(tree::list(home.path()), before);
}

#[test]
fn f19_complete_means_every_file_of_the_chosen_builds_digest() {
    let mut published = Published::new(REPO, 1);
    let other = "tvm-ffi01-cpu-aarch64-linux";
    published.add_build(other, 1, &crate::support::hub::files(), &[]);
    let fake = FakeHub::start(vec![published.clone()]);
    let home = tempfile::tempdir().unwrap();
    let hub = builder(&fake.endpoint(), home.path()).build().unwrap();
    hub.prefetch(&repo(), 1, Selection::AllVariants).unwrap();
    let builds = folder(home.path()).join("snapshots").join(&published.commit).join("build");
    let offline = builder(&fake.endpoint(), home.path()).offline(true).build().unwrap();
    fs::remove_dir_all(builds.join(other)).unwrap();
    assert!(offline.prefetch(&repo(), 1, Selection::ThisMachine).is_ok_and(|builds| builds.len() == 1));
    fs::remove_file(builds.join(VARIANT).join("sub/two.py")).unwrap();
    let error = bring(&offline, "v1").unwrap_err();
    assert!(error.to_string().contains("sub/two.py"), "{error}");
}

#[test]
fn f58_the_listing_shows_both_prefixes_and_each_state_and_pruning_makes_room() {
    let (fake, published) = one();
    let home = tempfile::tempdir().unwrap();
    bring_into(&fake, home.path(), "v1").unwrap();
    let mut old = published.clone();
    old.commit = "d".repeat(40);
    filled_by_python(home.path(), &old, "models", true);
    let mut half = published.clone();
    half.commit = "e".repeat(40);
    filled_by_python(home.path(), &half, "kernels", true);
    let builds = |commit: &str| folder(home.path()).join("snapshots").join(commit).join("build").join(VARIANT);
    fs::remove_file(builds(&half.commit).join("layers.toml")).unwrap();
    fs::write(folder(home.path()).join("blobs/0123.incomplete"), b"half").unwrap();
    fs::create_dir_all(home.path().join("hub/models--someone--llama/blobs")).unwrap();
    fs::create_dir_all(home.path().join("hub/datasets--someone--data")).unwrap();

    let cache = Cache::of(&environment(&fake.endpoint(), home.path(), &[])).unwrap();
    let shown: Vec<String> = cache
        .inventory()
        .unwrap()
        .iter()
        .map(|entry| {
            let state = match &entry.state {
                EntryState::Complete => "complete".to_owned(),
                EntryState::Partial { missing } => format!("partial {}", missing.join(" ")),
                _ => "foreign".to_owned(),
            };
            let revision = entry.revision.as_deref().map_or("-", |revision| &revision[..2]);
            format!("{:?} {} {revision} {:?} {state}", entry.kind, entry.repo.as_ref().unwrap(), entry.refs)
        })
        .collect();
    let mut shown = shown;
    shown.sort();
    let mut expected = vec![
        format!("Hub(Kernel) {REPO} {} [\"v1\"] complete", &published.commit[..2]),
        format!("Hub(Kernel) {REPO} ee [] partial layers.toml"),
        format!("Hub(Model) {REPO} dd [] complete"),
        "Hub(Model) someone/llama - [] foreign".to_owned(),
    ];
    // By folder, which for commits is by their digits.
    expected.sort();
    assert_eq!(shown, expected);
    assert!(check_cache(&cache).unwrap().iter().all(|checked| checked.fault.is_none()));

    let plan = cache.plan_prune(&PruneOptions::default()).unwrap();
    let reasons: Vec<_> = plan.items.iter().map(|item| item.reason).collect();
    assert!(reasons.contains(&"a partial build") && reasons.contains(&"a partial download"), "{plan:?}");
    plan.apply().unwrap();
    assert!(!builds(&half.commit).exists() && builds(&published.commit).exists());
    let left = cache.inventory().unwrap();
    assert_eq!(left.iter().filter(|entry| entry.state == EntryState::Complete).count(), 2);
    assert!(bring_into(&fake, home.path(), &published.commit).unwrap().fetched.from_cache);
    let all = PruneOptions { repo: Some(repo()), all: true, ..PruneOptions::default() };
    cache.plan_prune(&all).unwrap().apply().unwrap();
    assert!(!folder(home.path()).join("refs/v1").exists());
    let whole = |state: &EntryState| *state == EntryState::Complete;
    assert!(!cache.inventory().unwrap().iter().any(|entry| whole(&entry.state)));
}

#[test]
fn without_links_snapshots_hold_the_files() {
    let (fake, published) = one();
    let home = tempfile::tempdir().unwrap();
    let settings = environment(&fake.endpoint(), home.path(), &[("HF_HUB_DISABLE_SYMLINKS", "1")]);
    let hub = Hub::builder().environment(settings).fetch_options(fast()).build().unwrap();
    let brought = bring(&hub, "v1").unwrap();
    for file in ["librmsnorm.so", "sub/one.py", "sub/two.py", "metadata.json"] {
        let kind = brought.fetched.snapshot.root().join(file).symlink_metadata().unwrap();
        assert!(kind.is_file(), "{file}");
    }
    let before = fake.paths().len();
    assert!(bring_into(&fake, home.path(), &published.commit).unwrap().fetched.from_cache);
    assert_eq!(fake.paths().len(), before);
}
