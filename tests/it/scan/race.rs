//! A file that is swapped between its check and its loading, by another process that does nothing else.
//!
//! A process loads one kernel after the other, each with bytes of its own, so that each is really loaded. A second one
//! swaps each kernel's library, as fast as it can, for one whose initialiser makes a file, and back: by renaming
//! another file over it, and by writing into it. Whatever the loader sees, the foreign library's initialiser must never
//! run.
//!
//! `cargo xtask race` makes 10,000 tries; without it there are fewer.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use kernelhub::digest::Sha256Digest;
use kernelhub::hub::{Hub, HubError};
use kernelhub::manifest::{BackendInfo, DigestTable, Metadata};
use kernelhub::variant::DeviceKey;

use crate::support::native::{VARIANT, compile_c};
use crate::support::packs::LAYERS;

const REPO: &str = "demo/raced";
/// As many as one process may have open and mapped, since nothing is ever unloaded.
const TRIES_OF_A_PROCESS: usize = 250;
const FOLDER: &str = "KERNELHUB_TEST_RACE";
const TRIES: &str = "KERNELHUB_TEST_RACE_TRIES";
/// What differs between two kernels.
const PLACE: &str = "0000000000000000";

/// A kernel's folder of its own, `try-<index>`, with the honest library beside the build, where nobody touches it.
fn prepare(folder: &Path, template: &[u8], index: usize) {
    let place = folder.join(format!("try-{index}"));
    let build = place.join("build").join(VARIANT);
    fs::create_dir_all(&build).unwrap();
    let at = template.windows(PLACE.len()).position(|window| window == PLACE.as_bytes()).unwrap();
    let mut library = template.to_vec();
    library[at..at + PLACE.len()].copy_from_slice(format!("{index:016}").as_bytes());
    let digest = |bytes: &[u8]| Sha256Digest::of(bytes);
    let files = [("layers.toml", LAYERS.as_bytes()), ("libraced.so", &library)];
    let metadata = Metadata {
        name: "raced".to_owned(),
        id: "raced_1".to_owned(),
        version: 1,
        license: None,
        python_depends: Vec::new(),
        kernel_depends: Vec::new(),
        backend: BackendInfo::of(&VARIANT.parse().unwrap()),
        digest: Some(DigestTable {
            files: files.iter().map(|(name, bytes)| (name.parse().unwrap(), digest(bytes))).collect(),
            faults: Vec::new(),
        }),
        provenance: None,
    };
    fs::write(build.join("metadata.json"), metadata.to_json()).unwrap();
    for (name, bytes) in files {
        fs::write(build.join(name), bytes).unwrap();
    }
    fs::write(place.join("honest.so"), library).unwrap();
}

fn kernel(folder: &Path, index: usize) -> PathBuf {
    folder.join(format!("try-{index}/build")).join(VARIANT)
}

/// Runs a function of this file in a process of its own.
fn helper(name: &str, folder: &Path, tries: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("scan::race::{name}"), "--nocapture"])
        .env(FOLDER, folder)
        .env(TRIES, tries)
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// Replaces a file by one rename.
fn put(place: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let temporary = place.with_extension("swap");
    fs::write(&temporary, bytes)?;
    fs::rename(&temporary, place.join("libraced.so"))
}

/// Writes into the file that is there.
fn overwrite(place: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).open(place.join("libraced.so"))?;
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)
}

/// The process that swaps.
#[test]
fn helper_that_swaps() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let foreign = fs::read(folder.join("foreign.so")).unwrap();
    while !folder.join("stop").exists() {
        let Ok(index) = fs::read_to_string(folder.join("current")).unwrap_or_default().parse::<usize>() else {
            continue;
        };
        let place = kernel(&folder, index);
        let Ok(honest) = fs::read(folder.join(format!("try-{index}/honest.so"))) else { continue };
        // Errors are the race's own: the loader went on to the next kernel, and this folder is gone.
        let _ = put(&place, &foreign)
            .and_then(|()| put(&place, &honest))
            .and_then(|()| overwrite(&place, &foreign))
            .and_then(|()| overwrite(&place, &honest));
    }
}

/// The process that loads: kernels `first..first + count`, and what became of them in a file.
#[test]
fn helper_that_loads() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let tries = std::env::var(TRIES).unwrap();
    let (first, count) = tries.split_once('+').unwrap();
    let (first, count): (usize, usize) = (first.parse().unwrap(), count.parse().unwrap());
    let template = fs::read(folder.join("template.so")).unwrap();
    let cache = tempfile::tempdir().unwrap();
    let (mut loaded, mut refused) = (0, 0);
    for index in first..first + count {
        prepare(&folder, &template, index);
        fs::write(folder.join("next"), index.to_string()).unwrap();
        fs::rename(folder.join("next"), folder.join("current")).unwrap();
        let hub = Hub::builder()
            .cache(cache.path())
            .offline(true)
            .policy(crate::support::trust::policy())
            .local(REPO.parse().unwrap(), folder.join(format!("try-{index}")))
            .build()
            .unwrap();
        match hub.get(&REPO.parse().unwrap(), 1, DeviceKey::Cpu) {
            Ok(_) => loaded += 1,
            Err(HubError::Verify(error)) => {
                assert!(!error.violations().is_empty(), "{error}");
                refused += 1;
            }
            Err(other) => panic!("neither loaded nor refused: {other:?}"),
        }
        assert!(!folder.join("it-ran").exists(), "foreign code ran");
        fs::remove_dir_all(folder.join(format!("try-{index}"))).unwrap_or_default();
    }
    fs::write(folder.join(format!("outcome-{first}")), format!("{loaded} {refused}")).unwrap();
}

#[test]
fn a_file_that_is_swapped_between_check_and_load_never_loads() {
    let tries: usize = std::env::var("KERNELHUB_RACE_TRIES").map_or(500, |tries| tries.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let marker = folder.join("it-ran");
    fs::write(folder.join("foreign.so"), compile_c("initialiser.c", marker.to_str().unwrap(), &["-DWELL"])).unwrap();
    fs::write(folder.join("template.so"), compile_c("plain.c", PLACE, &[])).unwrap();
    let mut swapper = helper("helper_that_swaps", folder, "");
    let (mut loaded, mut refused) = (0, 0);
    for first in (0..tries).step_by(TRIES_OF_A_PROCESS) {
        let count = TRIES_OF_A_PROCESS.min(tries - first);
        let status = helper("helper_that_loads", folder, &format!("{first}+{count}")).wait().unwrap();
        assert!(status.success(), "{status}");
        let outcome = fs::read_to_string(folder.join(format!("outcome-{first}"))).unwrap();
        let (l, r) = outcome.split_once(' ').unwrap();
        (loaded, refused) = (loaded + l.parse::<usize>().unwrap(), refused + r.parse::<usize>().unwrap());
    }
    fs::write(folder.join("stop"), "").unwrap();
    assert!(swapper.wait().unwrap().success());
    assert!(!marker.exists(), "foreign code ran");
    assert_eq!(loaded + refused, tries);
    // Otherwise nobody raced.
    assert!(loaded > 0 && refused > 0, "{loaded} loaded, {refused} refused");
    // Shown by `--nocapture`.
    println!("{tries} tries: {loaded} loaded the honest library, {refused} were refused, none loaded the foreign one");
}
