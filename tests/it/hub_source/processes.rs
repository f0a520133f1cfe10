//! Several processes at once, and processes that are killed.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kernelhub::fetch::Cache;
use kernelhub::hub::check_cache;

use super::{bring_into, one, repo};
use crate::support::hub::{builder, environment};
use crate::support::server::Reply;

/// Runs in a process of its own; see [`spawn`].
#[test]
fn helper_that_brings_a_kernel_in_another_process() {
    let (Ok(endpoint), Ok(home)) = (std::env::var("KERNELHUB_TEST_HUB"), std::env::var("KERNELHUB_TEST_HOME")) else {
        return;
    };
    let hub = builder(&endpoint, Path::new(&home)).build().unwrap();
    hub.prefetch(&repo(), 1, kernelhub::hub::Selection::ThisMachine).unwrap();
}

fn spawn(endpoint: &str, home: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hub_source::processes::helper_that_brings_a_kernel_in_another_process"])
        .env("KERNELHUB_TEST_HUB", endpoint)
        .env("KERNELHUB_TEST_HOME", home)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn f10_sixteen_processes_share_one_listing_and_one_download() {
    let (fake, _) = one();
    fake.lie(
        |request, reply| {
            if request.path.contains("/cdn/") { Reply { pause: Duration::from_millis(300), ..reply } } else { reply }
        },
    );
    let home = tempfile::tempdir().unwrap();
    let mut children: Vec<Child> = (0..16).map(|_| spawn(&fake.endpoint(), home.path())).collect();
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let paths: Vec<String> = fake.paths().into_iter().filter(|path| !path.ends_with("/refs")).collect();
    let mut once = paths.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), paths.len(), "something was sent twice: {paths:?}");
    assert_eq!(fake.count("/tree/"), 2);
    // Whoever found the version on record asked whether it has moved; nobody asked more than once.
    assert!(fake.count("/refs") <= 16, "{}", fake.count("/refs"));
}

#[test]
fn kills_at_any_moment_leave_a_clean_cache_and_nothing_is_fetched_twice() {
    let kills: u32 = std::env::var("KERNELHUB_TEST_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(200);
    let (fake, published) = one();
    // Slow enough for a kill to fall anywhere.
    fake.lie(|request, reply| {
        let pause = if request.path.contains("/cdn/") { 12 } else { 2 };
        Reply { pause: Duration::from_millis(pause), ..reply }
    });
    let mut home = tempfile::tempdir().unwrap();
    let mut whole = 0;
    for round in 0..kills {
        let before = fake.paths().len();
        let cache = Cache::of(&environment(&fake.endpoint(), home.path(), &[])).unwrap();
        // The record, not the folder that it is made in.
        let records = home.path().join("kernelhub/hub").join(repo().cache_folder());
        let is_record =
            |name: &str| !name.starts_with('.') && std::path::Path::new(name).extension().is_some_and(|e| e == "json");
        let has_listing = std::fs::read_dir(records)
            .is_ok_and(|entries| entries.flatten().any(|entry| entry.file_name().to_str().is_some_and(is_record)));
        let mut child = spawn(&fake.endpoint(), home.path());
        std::thread::sleep(Duration::from_millis(2 + u64::from(round.wrapping_mul(2_654_435_761) >> 24) / 3));
        child.kill().unwrap();
        child.wait().unwrap();
        let asked = fake.paths().split_off(before);
        if has_listing {
            let again = asked.iter().any(|path| path.ends_with("/build"));
            assert!(!again, "round {round}: a listing was asked for again: {asked:?}");
        }
        for checked in check_cache(&cache).unwrap() {
            assert!(checked.fault.is_none(), "round {round}: {:?}", checked.fault);
        }
        if cache.hub().recorded_versions(&repo()).is_empty() {
            continue;
        }
        // A recorded version is whole, and offline serves it.
        let offline = builder(&fake.endpoint(), home.path()).offline(true).build().unwrap();
        super::bring(&offline, "v1").unwrap_or_else(|error| panic!("round {round}: {error}"));
        whole += 1;
        home = tempfile::tempdir().unwrap();
    }
    // The last cache, whatever is in it, is filled by asking for what is missing.
    let blobs = home.path().join("hub/kernels--kernels-community--rmsnorm/blobs");
    let here: Vec<String> = std::fs::read_dir(blobs)
        .map(|entries| entries.flatten().map(|entry| entry.file_name().into_string().unwrap()).collect())
        .unwrap_or_default();
    let before = fake.paths().len();
    let brought = bring_into(&fake, home.path(), "v1").unwrap();
    let asked = fake.paths().split_off(before);
    for (path, bytes) in &published.files {
        let is_here = here.contains(&kernelhub::digest::GitOid::of_blob(bytes).to_string())
            || here.contains(&kernelhub::digest::Sha256Digest::of(bytes).to_string());
        let was_asked = asked.iter().any(|asked| asked.ends_with(path.as_str()));
        assert!(!(is_here && was_asked), "{path} was asked for though it was here");
    }
    assert_eq!(brought.snapshot.files(), 5);
    eprintln!("{kills} kills, of which {whole} came after the kernel was whole");
}
