//! `kernels.lock`, its sidecar, and what projects declare.

use std::collections::BTreeMap;

use kernelhub::hint::Hint as _;
use kernelhub::manifest::{
    Commit, Dependency, HubBuild, KernelLock, KernelVersion, KernelsLock, LockEdition, LockSidecar, ManifestError, Pin,
    PinnedKernel, VariantHash, cargo_kernels, pyproject_kernels,
};
use kernelhub::variant::AnyVariant;
use proptest::prelude::*;

const COMMIT: &str = "d649efb56fb249ac8f7a57fa1866728ad0c60e52";
const OTHER: &str = "f609e51b856b3d874b0ae8445913e200f02c1735";

fn parse(text: &str) -> Result<KernelsLock, ManifestError> {
    KernelsLock::parse(text.as_bytes(), "kernels.lock")
}

fn entry(repo: &str, version: u32, commit: &str) -> String {
    format!(r#"{{"dependency":{{"repo-id":"{repo}","version":{version}}},"lock":{{"commit":"{commit}"}}}}"#)
}

fn old_entry(repo: &str, sha: &str, variants: &str) -> String {
    format!(r#"{{"repo_id":"{repo}","sha":"{sha}","variants":{{{variants}}}}}"#)
}

fn variant(name: &str, hash: &str) -> String {
    format!(r#""{name}":{{"hash":"{hash}","hash_type":"git_lfs_concat"}}"#)
}

/// The bytes that `kernels` 0.17.2 writes for these two kernels.
const BY_PYTHON: &str = r#"[
  {
    "dependency": {
      "repo-id": "kernels-community/relu",
      "version": 1
    },
    "lock": {
      "commit": "d649efb56fb249ac8f7a57fa1866728ad0c60e52"
    }
  },
  {
    "dependency": {
      "repo-id": "kernels-test/versions",
      "revision": "34fa"
    },
    "lock": {
      "commit": "f609e51b856b3d874b0ae8445913e200f02c1735"
    }
  }
]"#;

#[test]
fn the_edition_of_0_17_is_read_and_written_byte_for_byte() {
    let lock = parse(BY_PYTHON).unwrap();
    assert_eq!(lock.edition, LockEdition::Dependency);
    let [relu, versions] = lock.kernels.as_slice() else { panic!("{lock:?}") };
    assert_eq!((relu.to_string(), relu.commit.as_str()), ("kernels-community/relu@v1".to_owned(), COMMIT));
    assert_eq!(versions.version, Some(KernelVersion::Revision("34fa".to_owned())));
    assert_eq!(lock.to_json().unwrap(), BY_PYTHON);
}

#[test]
fn the_older_edition_is_read_and_written() {
    let hash = format!("sha256-{}", "0b".repeat(32));
    let text = format!("[{}]", old_entry("a/b", COMMIT, &variant("torch210-cxx11-cpu-x86_64-linux", &hash)));
    let lock = parse(&text).unwrap();
    assert_eq!(lock.edition, LockEdition::Variants);
    assert_eq!(lock.kernels[0].variants.values().next().unwrap().to_string(), hash);
    assert_eq!(lock.kernels[0].version, None);
    assert_eq!(parse(&lock.to_json().unwrap()).unwrap(), lock);
    // Names of a grammar to come are kept: the file is another tool's, too.
    let text = text.replace("torch210-cxx11-cpu-x86_64-linux", "torch-of-the-future");
    assert_eq!(parse(&text).unwrap().kernels[0].variants.len(), 1);
}

#[test]
fn entries_are_sorted_however_they_stand() {
    let (a, b) = (entry("a/b", 2, COMMIT), entry("a/b", 1, OTHER));
    let (one, two) = (parse(&format!("[{a},{b}]")).unwrap(), parse(&format!("[{b},{a}]")).unwrap());
    assert_eq!(one, two);
    assert_eq!(one.to_json().unwrap(), two.to_json().unwrap());
    assert_eq!(parse("[]").unwrap().kernels, []);
}

#[test]
fn hostile_locks_are_refused_with_the_fault_named() {
    let good = entry("a/b", 1, COMMIT);
    let hash = format!("sha256-{}", "0b".repeat(32));
    let old = |variants: &str| format!("[{}]", old_entry("a/b", COMMIT, variants));
    let cases: Vec<(String, &str)> = vec![
        ("{}".into(), "list"),
        (String::new(), "not a valid"),
        ("[null]".into(), "object"),
        (format!("[{good}"), "not a valid"),
        (format!("[{good},{good}]"), "twice"),
        (format!("[{good},{}]", entry("a/b", 1, OTHER)), "twice"),
        (format!("[{good},{}]", entry("A/B", 2, OTHER)), "twice"),
        (format!("[{good},{}]", old_entry("c/d", COMMIT, "")), "edition"),
        (format!("[{}]", entry("../../etc", 1, COMMIT)), "repo-id"),
        (format!("[{}]", entry("a/b", 1, "d649efb")), "commit"),
        (format!("[{}]", entry("a/b", 1, &"g".repeat(40))), "commit"),
        (format!("[{}]", entry("a/b", 1, &format!("{COMMIT}/../x"))), "commit"),
        (format!("[{}]", good.replace("\"version\":1", "\"version\":-1")), "version"),
        (format!("[{}]", good.replace("\"version\":1", "\"version\":99999999999")), "version"),
        (format!("[{}]", good.replace("\"version\":1", "\"version\":1,\"revision\":\"x\"")), "excludes"),
        (format!("[{}]", good.replace(",\"version\":1", "")), "version"),
        (format!("[{}]", good.replace("\"version\":1", "\"revision\":\"../../../escaped\"")), "revision"),
        (format!("[{}]", good.replace("\"version\":1", "\"revision\":\"\"")), "revision"),
        (format!("[{}]", good.replace("\"lock\":", "\"locked\":")), "unknown"),
        (format!("[{}]", good.replace("\"commit\":", "\"hash\":\"sha256-x\",\"commit\":")), "unknown"),
        (format!("[{}]", good.replace("\"commit\":", "\"commit\":\"x\",\"commit\":")), "not a valid"),
        (format!("[{}]", good.replace(&format!("\"{COMMIT}\""), "7")), "string"),
        (format!("[{}]", good.replace("},\"lock\"", "},\"x\":1,\"lock\"")), "unknown"),
        (r#"[{"dependency":{"repo-id":"a/b","version":1}}]"#.into(), "lacks lock"),
        (old(&variant("../x", &hash)), "variant"),
        (old(&variant("CON", &hash)), "variant"),
        (old(&variant("torch-cuda", "sha256-00")), "hash"),
        (old(&variant("torch-cuda", &hash.replace("sha256", "md5"))), "hash"),
        (old(&variant("torch-cuda", &hash).replace("git_lfs_concat", "blake9")), "hash_type"),
        (old(&format!("{0},{0}", variant("torch-cuda", &hash))), "not a valid"),
        (old("\"torch-cuda\":[]"), "object"),
        ("[".repeat(100_000), "not a valid"),
        (" ".repeat((16 << 20) + 1), "at most"),
    ];
    for (text, expected) in cases {
        let shown = text.chars().take(200).collect::<String>();
        let error = parse(&text).expect_err(&shown);
        let message = error.to_string();
        assert!(message.contains(expected), "{shown}\n{message}");
        assert!(message.len() < 1000, "{message}");
    }
    let error = parse(&format!("[{}]", good.replace("\"lock\":", "\"lok\":"))).unwrap_err();
    assert_eq!(error.hint().as_deref(), Some("did you mean `lock`?"));
}

fn repo() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9]{0,8}/[a-zA-Z0-9][a-z0-9_]{0,12}"
        .prop_filter("a device name", |text| text.parse::<kernelhub::names::RepoId>().is_ok())
}

fn version() -> impl Strategy<Value = KernelVersion> {
    prop_oneof![
        any::<u32>().prop_map(KernelVersion::Version),
        "[a-zA-Z0-9_]{1,10}(/[a-z0-9]{1,5})?"
            .prop_filter_map("a device name", |text| KernelVersion::revision(&text).ok()),
    ]
}

fn commit() -> impl Strategy<Value = Commit> {
    prop_oneof!["[0-9a-f]{40}", "[0-9a-f]{64}"].prop_map(|text| text.parse().unwrap())
}

fn kernels() -> impl Strategy<Value = Vec<(String, KernelVersion, Commit, [u8; 32])>> {
    proptest::collection::vec((repo(), version(), commit(), any::<[u8; 32]>()), 0..8).prop_map(|mut list| {
        // Kernels stand once, in one spelling.
        list.sort_by_key(|(repo, ..)| repo.to_lowercase());
        list.dedup_by_key(|(repo, ..)| repo.to_lowercase());
        list
    })
}

proptest! {
    #[test]
    fn a_lock_is_what_was_written(list in kernels(), old in any::<bool>()) {
        let edition = if old { LockEdition::Variants } else { LockEdition::Dependency };
        let kernels = list.into_iter().map(|(repo, version, commit, bytes)| KernelLock {
            repo: repo.parse().unwrap(),
            version: (!old).then_some(version),
            commit,
            variants: if old {
                BTreeMap::from([(AnyVariant::read("torch-cuda"), hash(bytes))])
            } else {
                BTreeMap::new()
            },
        });
        let mut lock = KernelsLock { edition, kernels: kernels.collect() };
        lock.kernels.sort();
        if lock.kernels.is_empty() {
            lock.edition = LockEdition::Dependency;
        }
        let text = lock.to_json().unwrap();
        prop_assert_eq!(&KernelsLock::parse(text.as_bytes(), "x").unwrap(), &lock);
        // The order in which they were found plays no part.
        let reversed = KernelsLock { edition: lock.edition, kernels: lock.kernels.iter().rev().cloned().collect() };
        prop_assert_eq!(reversed.to_json().unwrap(), text);
    }

    #[test]
    fn a_sidecar_is_what_was_written(list in kernels(), archive in any::<bool>(), license in proptest::option::of("[A-Za-z0-9. ]{1,12}")) {
        let kernels = list.into_iter().map(|(repo, version, commit, bytes)| {
            let digest = hash(bytes).0;
            let is_archive = archive && matches!(version, KernelVersion::Version(_));
            PinnedKernel {
                repo: repo.parse().unwrap(),
                version,
                license: if is_archive { Some("MIT".to_owned()) } else { license.clone() },
                pin: if is_archive {
                    Pin::Archive(vec![kernelhub::manifest::Artifact {
                        variant: "wgsl-universal".parse().unwrap(),
                        url: "https://example.org/a.tar.zst".parse().unwrap(),
                        size: 7,
                        sha256: digest,
                        metadata_sha256: digest,
                    }])
                } else {
                    let build = HubBuild { variant: "torch-cuda".parse().unwrap(), hash: hash(bytes), metadata_sha256: digest };
                    Pin::Hub { commit, builds: vec![build] }
                },
            }
        });
        let mut sidecar = LockSidecar { kernels: kernels.collect() };
        sidecar.kernels.sort_by(|a, b| (&a.repo, &a.version).cmp(&(&b.repo, &b.version)));
        let text = sidecar.to_toml().unwrap();
        prop_assert_eq!(LockSidecar::parse(&text, "x").unwrap(), sidecar);
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in ".{0,200}") {
        let _ = parse(&text);
        let _ = LockSidecar::parse(&text, "x");
        let _ = cargo_kernels(&text, "x");
        let _ = pyproject_kernels(&text, "x");
    }
}

fn hash(bytes: [u8; 32]) -> VariantHash {
    VariantHash(kernelhub::digest::Sha256Digest::from_bytes(bytes))
}

#[test]
fn a_sidecar_holds_what_belongs_to_its_source_and_nothing_else() {
    let digest = "0b".repeat(32);
    let hub = format!("schema = 1\n[[kernel]]\nrepo = \"a/b\"\nversion = 1\nsource = \"hub\"\ncommit = \"{COMMIT}\"\n");
    let artifact = format!(
        "[[kernel.artifact]]\nvariant = \"torch-cuda\"\nurl = \"x.tar.zst\"\nsize = 1\nsha256 = \"{digest}\"\nmetadata_sha256 = \"{digest}\"\n"
    );
    let archive = format!(
        "schema = 1\n[[kernel]]\nrepo = \"a/b\"\nversion = 1\nsource = \"archive\"\nlicense = \"MIT\"\n{artifact}"
    );
    let build = format!(
        "[[kernel.build]]\nvariant = \"torch-cuda\"\nhash = \"sha256-{digest}\"\nmetadata_sha256 = \"{digest}\"\n"
    );
    for good in [&hub, &archive, &format!("{hub}{build}")] {
        LockSidecar::parse(good, "kernelhub.lock").unwrap();
    }
    for (text, expected) in [
        (hub.replace("schema = 1", "schema = 2"), "schema 2"),
        (hub.replace(&format!("commit = \"{COMMIT}\"\n"), ""), "commit"),
        (hub.replace("version = 1", "version = 1\nrevision = \"x\""), "exclude"),
        (hub.replace("version = 1\n", ""), "version"),
        (hub.replace("version = 1\n", "revision = \"../x\"\n"), "revision"),
        (hub.replace("a/b", "a/.."), "not a valid"),
        (hub.replace("source", "sources"), "not a valid"),
        (hub.replace("commit", "trusted = true\ncommit"), "not a valid"),
        (format!("{hub}{artifact}"), "archives"),
        (format!("{hub}{build}{build}"), "twice"),
        (format!("{hub}{}", hub.replace("schema = 1\n", "")), "twice"),
        (format!("{archive}{build}"), "artifacts"),
        (archive.replace("license = \"MIT\"\n", ""), "licence"),
        (archive.replace("version = 1\n", "revision = \"x\"\n"), "version"),
        (archive.replace("x.tar.zst", "../x.tar.zst"), "not a valid"),
        (archive.replace("size = 1", "size = 0"), "size"),
        (archive.replace(&artifact, ""), "artifact"),
    ] {
        let error = LockSidecar::parse(&text, "kernelhub.lock").expect_err(&text);
        assert!(error.to_string().contains(expected), "{text}\n{error}");
    }
}

#[test]
fn a_commit_that_differs_between_the_two_files_is_refused() {
    let lock = parse(&format!("[{}]", entry("a/b", 1, OTHER))).unwrap();
    let sidecar =
        format!("schema = 1\n[[kernel]]\nrepo = \"a/b\"\nversion = 1\nsource = \"hub\"\ncommit = \"{COMMIT}\"\n");
    let sidecar = LockSidecar::parse(&sidecar, "kernelhub.lock").unwrap();
    let error = sidecar.pinned(&lock.kernels[0], "p").unwrap_err();
    assert!(matches!(&error, ManifestError::Ambiguous { .. }), "{error}");
    let lock = parse(&format!("[{}]", entry("a/b", 2, OTHER))).unwrap();
    assert_eq!(sidecar.pinned(&lock.kernels[0], "p").unwrap(), None);
}

fn shown(dependencies: &[Dependency]) -> Vec<String> {
    dependencies.iter().map(ToString::to_string).collect()
}

#[test]
fn dependencies_are_read_from_cargo_and_python_projects() {
    let cargo = r#"
[package]
name = "app"
[package.metadata.kernels]
config = "kernels.toml"
[package.metadata.kernels.dependencies]
"kernels-community/relu" = 1
"a/b" = { version = 2, variants = ["wgsl-universal", "tvm-ffi01-cpu-x86_64-linux"] }
"c/d" = { revision = "refs/pr/1" }
[workspace.metadata.kernels]
dependencies = { "e/f" = 3, "kernels-community/relu" = 1 }
[package.metadata.docs]
all = true
"#;
    let kernels = cargo_kernels(cargo, "Cargo.toml").unwrap().unwrap();
    assert_eq!(shown(&kernels.dependencies), ["a/b@v2", "c/d@refs/pr/1", "kernels-community/relu@v1", "e/f@v3"]);
    assert_eq!(kernels.dependencies[0].variants.len(), 2);
    assert_eq!(kernels.configs, ["kernels.toml"]);
    assert_eq!(cargo_kernels("[package]\nname = \"x\"\n", "Cargo.toml").unwrap(), None);

    let python = "[project]\nname = \"x\"\n[tool.kernels.dependencies]\n\"a/b\" = 1\n[tool.kernels.other]\nx = 1\n";
    assert_eq!(shown(&pyproject_kernels(python, "pyproject.toml").unwrap().unwrap()), ["a/b@v1"]);
    assert_eq!(pyproject_kernels("[tool.black]\n", "pyproject.toml").unwrap(), None);
}

#[test]
fn slips_in_declarations_are_refused_with_the_near_name() {
    let cargo = |body: &str| cargo_kernels(&format!("[package]\nname = \"x\"\n{body}"), "Cargo.toml");
    for (body, message, hint) in [
        ("[package.metadata.kernel.dependencies]\n\"a/b\" = 1", "unknown", "did you mean `kernels`?"),
        ("[package.metadata.kernels.dependancies]\n\"a/b\" = 1", "not a valid", "did you mean `dependencies`?"),
        ("[package.metadata.kernels.dependencies]\n\"a/b\" = { verison = 1 }", "a/b", "did you mean `version`?"),
        ("[package.metadata.kernels.dependencies]\n\"a/b\" = \"1\"", "version number", ""),
        ("[package.metadata.kernels.dependencies]\n\"a/b\" = -1", "version number", ""),
        ("[package.metadata.kernels.dependencies]\n\"ab\" = 1", "not a valid", ""),
        ("[package.metadata.kernels.dependencies]\n\"a/b\" = {}", "expected `version`", ""),
        ("[package.metadata.kernels.dependencies]\n\"a/b\" = { version = 1, revision = \"x\" }", "exclude", ""),
        (
            "[package.metadata.kernels.dependencies]\n\"a/b\" = { version = 1, variants = [\"torch-cuda\", \"torch-cuda\"] }",
            "twice",
            "",
        ),
        (
            "[package.metadata.kernels.dependencies]\n\"a/b\" = 1\n[workspace.metadata.kernels.dependencies]\n\"a/b\" = 2",
            "twice",
            "leave one of the two",
        ),
    ] {
        let error = cargo(body).expect_err(body);
        assert!(error.to_string().contains(message), "{body}\n{error}");
        assert_eq!(error.hint().unwrap_or_default(), hint, "{body}\n{error}");
    }
    let error = pyproject_kernels("[tool.kernel.dependencies]\n\"a/b\" = 1\n", "p").unwrap_err();
    assert_eq!(error.hint().as_deref(), Some("did you mean `kernels`?"));
    let error = pyproject_kernels("[tool.kernels.dependences]\n\"a/b\" = 1\n", "p").unwrap_err();
    assert_eq!(error.hint().as_deref(), Some("did you mean `dependencies`?"));
}
