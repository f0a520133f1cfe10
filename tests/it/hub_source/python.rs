//! The same cache under the Python package `kernels`. Needs an interpreter that has it, named by
//! `KERNELHUB_TEST_PYTHON`; the tests print that they are skipped where there is none.

use std::path::Path;
use std::process::Command;

use super::{REPO, bring, bring_into, one};
use crate::support::hub::{FakeHub, Published, builder};

/// Runs a script with what the package reads of the environment. `None`: there is no interpreter.
#[expect(clippy::print_stderr, reason = "a skip says why")]
fn python(endpoint: &str, home: &Path, offline: bool, script: &str) -> Option<String> {
    let Some(interpreter) = std::env::var_os("KERNELHUB_TEST_PYTHON") else {
        eprintln!("skipped: KERNELHUB_TEST_PYTHON names no interpreter");
        return None;
    };
    let output = Command::new(interpreter)
        .args(["-c", script])
        .env("HF_HOME", home)
        .env("HF_ENDPOINT", endpoint)
        .env("HF_HUB_OFFLINE", if offline { "1" } else { "0" })
        .env("HF_HUB_DISABLE_TELEMETRY", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    Some(text.trim().to_owned())
}

#[test]
fn python_finds_what_we_fetched_by_version_and_by_commit_without_a_request() {
    let (fake, published) = one();
    let home = tempfile::tempdir().unwrap();
    let brought = bring_into(&fake, home.path(), "v1").unwrap();
    let before = fake.paths().len();
    let commit = &published.commit;
    let script = format!(
        "from huggingface_hub import snapshot_download, scan_cache_dir\n\
         from kernels._versions import resolve_version_spec_as_ref\n\
         assert resolve_version_spec_as_ref('{REPO}', 1, local_files_only=True).target_commit == '{commit}'\n\
         assert not scan_cache_dir().warnings or all('kernelhub' in str(w) for w in scan_cache_dir().warnings)\n\
         print(snapshot_download('{REPO}', repo_type='kernel', revision='{commit}', local_files_only=True))"
    );
    let Some(path) = python(&fake.endpoint(), home.path(), true, &script) else { return };
    assert!(brought.fetched.snapshot.root().starts_with(path));
    assert_eq!(fake.paths().len(), before);
}

#[test]
fn what_python_fetched_is_a_hit_for_us() {
    let published = Published::new(REPO, 1);
    // The package takes the answer for large files from the endpoint's own host only.
    let cdn = FakeHub::start(vec![published.clone()]);
    let elsewhere = cdn.endpoint().replace("127.0.0.1", "localhost");
    let fake = FakeHub::start_as("kernels", vec![published.clone()], Some(elsewhere));
    let home = tempfile::tempdir().unwrap();
    let commit = &published.commit;
    let script = format!(
        "from huggingface_hub import snapshot_download\n\
         print(snapshot_download('{REPO}', repo_type='kernel', revision='{commit}', allow_patterns='build/*'))"
    );
    let Some(path) = python(&fake.endpoint(), home.path(), false, &script) else { return };
    let before = fake.paths().len();
    let hub = builder(&fake.endpoint(), home.path()).build().unwrap();
    let brought = bring(&hub, commit).unwrap();
    assert!(brought.fetched.from_cache && brought.fetched.snapshot.root().starts_with(path));
    assert!(brought.snapshot.anchor().metadata().is_some(), "{}", brought.snapshot.anchor());
    assert_eq!(fake.paths().len(), before);
}
