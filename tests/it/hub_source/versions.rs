//! A version of which no build fits, and what is said about the others.

use kernelhub::hint::Hint as _;
use kernelhub::hub::{Hub, HubError, MAX_VERSIONS_LISTED, OtherVersions};
use kernelhub::resolve::{Reason, ResolveError};
use kernelhub::variant::DeviceKey::Cpu;

use super::{REPO, repo};
use crate::support::hub::{FakeHub, Published, builder, files};
use crate::support::packs::VARIANT;
use crate::support::server::Reply;

const TORCH: &str = "torch213-cxx11-cpu-x86_64-linux";

/// A version with these builds.
fn version(version: u32, variants: &[&str]) -> Published {
    let mut published = Published::new(REPO, version);
    published.files.clear();
    published.branches = vec![format!("v{version}")];
    for variant in variants {
        published.add_build(variant, version, &files(), &[]);
    }
    published
}

fn hub(fake: &FakeHub, home: &tempfile::TempDir, offline: bool) -> Hub {
    builder(&fake.endpoint(), home.path()).offline(offline).build().unwrap()
}

fn others(error: &HubError) -> &OtherVersions {
    match error {
        HubError::Resolve { others: Some(others), .. } => others,
        error => panic!("{error:?}"),
    }
}

#[test]
fn f06_the_versions_that_fit_here_are_named_and_none_is_hopped_to() {
    let mut first = version(1, &[TORCH]);
    first.branches.extend(["vx", "release", "v01", "v"].map(str::to_owned));
    let kernels = [version(10, &[VARIANT, TORCH]), first, version(2, &[TORCH]), version(3, &[VARIANT])];
    let commit = kernels[1].commit.clone();
    let fake = FakeHub::start(kernels.to_vec());
    let home = tempfile::tempdir().unwrap();
    let online = hub(&fake, &home, false);
    let error = online.get(&repo(), 1, Cpu).unwrap_err();
    assert_eq!(error.to_string(), format!("no build of {REPO}@v1 fits; v3 and v10 have a usable build"));
    let hint = error.hint().unwrap();
    assert!(hint.contains(&format!("ask for {REPO}@v10 or {REPO}@v3")), "{hint}");
    assert_eq!(others(&error).fitting().collect::<Vec<_>>(), [3, 10], "as numbers, not as texts");
    let fits: Vec<_> = others(&error).versions.iter().map(|v| v.fits.as_ref().map(ToString::to_string)).collect();
    assert_eq!(fits, [None, Some(VARIANT.to_owned()), Some(VARIANT.to_owned())]);

    // Each version is listed once, by one request, and no file of any is fetched.
    assert_eq!((fake.count("/tree/"), fake.count("/resolve/")), (4, 0), "{:?}", fake.paths());
    let before = fake.paths().len();
    assert_eq!(online.get(&repo(), 1, Cpu).unwrap_err().to_string(), error.to_string());
    assert!(fake.count("/tree/") == 4 && fake.paths().len() <= before + 1, "listed again: {:?}", fake.paths());
    // Another process finds the listings recorded.
    assert_eq!(hub(&fake, &home, false).get(&repo(), 1, Cpu).unwrap_err().to_string(), error.to_string());
    assert_eq!(fake.count("/tree/"), 4);

    // Offline it is said that nobody could look.
    let before = fake.paths().len();
    let commit: kernelhub::fetch::Revision = commit.parse().unwrap();
    let error = hub(&fake, &home, true).get(&repo(), commit, Cpu).unwrap_err();
    assert!(error.hint().unwrap().contains("not looked up: versions that are not recorded here: this is offline"));
    assert_eq!(fake.paths().len(), before);
}

#[test]
fn f06_many_versions_are_looked_up_to_a_bound_and_a_failure_hides_no_other() {
    let kernels: Vec<Published> =
        (1..=20).map(|number| version(number, if number == 5 { &[VARIANT] } else { &[TORCH] })).collect();
    let broken = kernels[6].commit.clone();
    let fake = FakeHub::start(kernels);
    fake.lie(move |request, reply| if request.path.contains(&broken) { Reply::error(500) } else { reply });
    let home = tempfile::tempdir().unwrap();
    let error = hub(&fake, &home, false).get(&repo(), 1, Cpu).unwrap_err();
    let others = others(&error);
    assert_eq!(others.fitting().collect::<Vec<_>>(), [5]);
    assert_eq!(error.to_string(), format!("no build of {REPO}@v1 fits; v5 has a usable build"));
    let not_looked_up = &others.not_looked_up;
    assert_eq!(not_looked_up.len(), 2, "{not_looked_up:?}");
    assert!(not_looked_up[0].contains("the oldest 4 of 20"), "{not_looked_up:?}");
    assert!(not_looked_up[1].starts_with("v7: "), "{not_looked_up:?}");
    assert_eq!(others.versions.len(), MAX_VERSIONS_LISTED - 1);
}

#[test]
fn f33_torch_alone_is_refused_with_that_reason_and_what_other_versions_have() {
    let fake = FakeHub::start(vec![version(1, &[TORCH, "torch-cpu"]), version(2, &["torch211-cpu-x86_64-linux"])]);
    let home = tempfile::tempdir().unwrap();
    let error = hub(&fake, &home, false).get(&repo(), 1, Cpu).unwrap_err();
    let HubError::Resolve { source: ResolveError::NothingFits { resolution, .. }, .. } = &error else {
        panic!("{error:?}")
    };
    assert!(resolution.decisions.iter().all(|d| d.reason().is_some_and(Reason::is_about_torch)), "{resolution}");
    let hint = error.hint().unwrap();
    assert!(hint.contains("every build needs Torch or Python") && hint.contains("LIBTORCH"), "{hint}");
    assert!(hint.contains("no other version has a tvm-ffi or wgsl build"), "{hint}");
    assert_eq!(fake.count("/resolve/"), 0, "no file is downloaded");

    let elsewhere = "tvm-ffi01-cpu-x86_64-windows";
    let fake = FakeHub::start(vec![version(1, &[TORCH]), version(4, &[elsewhere])]);
    let home = tempfile::tempdir().unwrap();
    let error = hub(&fake, &home, false).get(&repo(), 1, Cpu).unwrap_err();
    let hint = error.hint().unwrap();
    assert!(hint.contains("of its other versions, only v4 has a tvm-ffi or wgsl build"), "{hint}");
    assert!(hint.contains("nothing in v4 fits either"), "{hint}");
}
