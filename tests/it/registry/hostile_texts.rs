//! Metadata, names and lock files that break a rule: each with the error that it must give. Nothing of them reaches a
//! file system: the tables are read from memory, and the kernels with such metadata are fetched by `hostile.rs`'s
//! rules.

use kernelhub::digest::ViolationKind;
use kernelhub::fetch::Revision;
use kernelhub::manifest::{KernelsLock, LockSidecar, ManifestError, Metadata};
use kernelhub::names::{RelativePath, RepoId};
use kernelhub::variant::Variant;

use crate::support::tree;

const DIGEST: &str = "uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek=";
const HEX: &str = "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9";
const COMMIT: &str = "0123456789012345678901234567890123456789";

/// The error's variant, by its name.
fn kind(error: &ManifestError) -> &'static str {
    match error {
        ManifestError::Toml { .. } => "Toml",
        ManifestError::Json { .. } => "Json",
        ManifestError::Schema { .. } => "Schema",
        ManifestError::MissingFields { .. } => "MissingFields",
        ManifestError::UnknownKey { .. } => "UnknownKey",
        ManifestError::Ambiguous { .. } => "Ambiguous",
        ManifestError::TooLarge { .. } => "TooLarge",
        ManifestError::Invalid { .. } => "Invalid",
        _ => "another",
    }
}

/// Metadata that cannot be used, or whose digest table has this fault.
#[test]
fn forty_metadata_files_are_refused_each_by_its_error() {
    let good = format!(
        r#"{{"name":"x","id":"x_1","version":1,"license":"MIT","python-depends":[],"kernel-depends":[],"backend":{{"type":"cpu","archs":[]}},"digest":{{"algorithm":"sha256","files":{{"a.so":"{DIGEST}"}}}}}}"#
    );
    let with = |from: &str, to: &str| {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good, "{from}");
        text.into_bytes()
    };
    let file = |name: &str| with("\"a.so\"", &format!("{name:?}"));
    let value = |value: &str| with(&format!("\"{DIGEST}\""), value);
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let refused: Vec<(Vec<u8>, &str)> = vec![
        (Vec::new(), "Json"),
        (b"null".to_vec(), "Invalid"),
        (b"[]".to_vec(), "Invalid"),
        (b"{}".to_vec(), "MissingFields"),
        (b"{\"name\":\"x\"".to_vec(), "Json"),
        (b"\xef\xbb\xbf{}".to_vec(), "Json"),
        (b"\xff\xfe".to_vec(), "Json"),
        ([good.as_bytes(), b"{}"].concat(), "Json"),
        (deep.into_bytes(), "Json"),
        (vec![b' '; (4 << 20) + 1], "Invalid"),
        (with("\"version\":1", "\"version\":1,\"version\":2"), "Json"),
        (with("\"a.so\"", "\"a.so\":\"\",\"a.so\""), "Json"),
        (with("\"version\":1", "\"version\":1.5"), "Invalid"),
        (with("\"version\":1", "\"version\":\"1\""), "Invalid"),
        (with("\"version\":1", "\"version\":-1"), "Invalid"),
        (with("\"version\":1", "\"version\":1e99"), "Invalid"),
        (with("\"version\":1", "\"version\":4294967296"), "Invalid"),
        (with("\"name\":\"x\"", "\"name\":\"../x\""), "Invalid"),
        (with("\"name\":\"x\"", "\"name\":\"a/b\""), "Invalid"),
        (with("\"name\":\"x\"", "\"name\":\"con\""), "Invalid"),
        (with("\"name\":\"x\"", "\"name\":7"), "Invalid"),
        (with("\"name\":\"x\"", "\"name\":null"), "MissingFields"),
        (with("\"id\":\"x_1\",", ""), "MissingFields"),
        (with("\"backend\":{\"type\":\"cpu\",\"archs\":[]}", "\"backend\":[]"), "Invalid"),
        (with("\"type\":\"cpu\",", ""), "MissingFields"),
        (with("\"archs\":[]", "\"archs\":[1]"), "Invalid"),
        (with("\"license\":\"MIT\"", "\"license\":{}"), "Invalid"),
        (with("\"kernel-depends\":[]", "\"kernel-depends\":{}"), "Invalid"),
        (with("\"digest\":{\"algorithm\"", "\"digest\":[],\"x\":{\"algorithm\""), "Invalid"),
    ];
    let faulty: Vec<(Vec<u8>, ViolationKind)> = vec![
        (with("sha256", "sha1"), ViolationKind::AlgorithmUnsupported),
        (with("sha256", "SHA256"), ViolationKind::AlgorithmUnsupported),
        (with("\"algorithm\":\"sha256\",", ""), ViolationKind::AlgorithmUnsupported),
        (with("\"files\"", "\"other\""), ViolationKind::Malformed),
        (file("../a.so"), ViolationKind::Malformed),
        (file("/etc/a.so"), ViolationKind::Malformed),
        (file("a/../../b"), ViolationKind::Malformed),
        (file("C:\\a.so"), ViolationKind::Malformed),
        (file("metadata.json"), ViolationKind::Malformed),
        (value("\"\""), ViolationKind::Malformed),
        (value("7"), ViolationKind::Malformed),
        (value(&format!("{HEX:?}")), ViolationKind::Malformed),
        (with("\"a.so\"", &format!("\"A.so\":\"{DIGEST}\",\"a.so\"")), ViolationKind::Malformed),
    ];
    assert!(refused.len() + faulty.len() >= 40, "{}", refused.len() + faulty.len());
    assert!(Metadata::parse(good.as_bytes(), "m").unwrap().digest.unwrap().faults.is_empty());
    for (text, expected) in refused {
        let shown = String::from_utf8_lossy(&text[..text.len().min(120)]).into_owned();
        let error = Metadata::parse(&text, "m.json").expect_err(&shown);
        assert_eq!(kind(&error), expected, "{shown}: {error}");
        assert!(error.to_string().contains("m.json"), "{error}");
    }
    for (text, expected) in faulty {
        let shown = String::from_utf8_lossy(&text).into_owned();
        let metadata = Metadata::parse(&text, "m.json").expect(&shown);
        let faults = metadata.digest.unwrap().faults;
        assert!(faults.iter().any(|fault| fault.kind == expected), "{shown}: {faults:?}");
    }
}

#[test]
fn thirty_names_are_refused_each_by_its_rule() {
    let long = "x".repeat(201);
    let longer = "x/".repeat(300);
    let deep = "x/".repeat(17) + "x";
    let paths: [(&str, &str); 22] = [
        ("", "an empty component"),
        (".", ". or .."),
        ("..", ". or .."),
        ("../x", ". or .."),
        ("a/../../b", ". or .."),
        ("./x", ". or .."),
        ("/etc/x", "absolute"),
        ("a//b", "an empty component"),
        ("a/", "an empty component"),
        ("C:\\x", "cannot hold"),
        ("D:foo", "cannot hold"),
        ("\\x", "cannot hold"),
        ("\\\\host\\share\\x", "cannot hold"),
        ("a\0b", "cannot hold"),
        ("a\nb", "cannot hold"),
        ("x:stream", "cannot hold"),
        ("CON", "device name"),
        ("lpt1.so", "device name"),
        ("x.", "ends with a dot"),
        ("x ", "ends with a dot"),
        ("a\u{202e}os.b", "invisible"),
        (&long, "200 bytes"),
    ];
    for (text, rule) in paths.into_iter().chain([(&*longer, "512 bytes"), (&deep, "16 components")]) {
        let error = text.parse::<RelativePath>().unwrap_err();
        assert!(error.reason.contains(rule), "{text:?}: {error}");
        assert_eq!(error.value, text);
    }
    let repos = [
        ("x", "owner/name"),
        ("a/b/c", "cannot hold"),
        ("../b", ". or .."),
        ("a--b/c", "'--'"),
        (".a/b", "starts or ends"),
        ("a/b c", "letters, digits"),
        ("a/é", "letters, digits"),
    ];
    for (text, rule) in repos {
        let error = text.parse::<RepoId>().unwrap_err();
        assert!(error.reason.contains(rule), "{text:?}: {error}");
    }
    for text in ["../../../escaped", "v1/../x", "\\x", "a:b"] {
        text.parse::<Revision>().unwrap_err();
    }
    for text in ["torch-cuda/..", "../torch-cuda", "torch213-cxx11-cu130-x86_64-linux\0"] {
        text.parse::<Variant>().unwrap_err();
    }
}

#[test]
fn twenty_lock_files_are_refused_each_by_its_error() {
    let entry = format!(r#"{{"dependency":{{"repo-id":"a/b","version":1}},"lock":{{"commit":"{COMMIT}"}}}}"#);
    let older = format!(
        r#"{{"repo_id":"a/b","sha":"{COMMIT}","variants":{{"torch-cuda":{{"hash":"sha256-{HEX}","hash_type":"git_lfs_concat"}}}}}}"#
    );
    let list = |entries: &[&str]| format!("[{}]", entries.join(",")).into_bytes();
    let with = |text: &str, from: &str, to: &str| {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        list(&[&changed])
    };
    KernelsLock::parse(&list(&[&entry]), "x").unwrap();
    KernelsLock::parse(&list(&[&older]), "x").unwrap();
    let locks: Vec<(Vec<u8>, &str)> = vec![
        (Vec::new(), "Json"),
        (b"{}".to_vec(), "Invalid"),
        (b"[7]".to_vec(), "Invalid"),
        (b"[".repeat(300), "Json"),
        (vec![b' '; 64 << 20], "TooLarge"),
        (list(&[&entry, &entry]), "Ambiguous"),
        (list(&[&entry, &entry.replace("a/b", "A/B")]), "Ambiguous"),
        (list(&[&entry, &older]), "Ambiguous"),
        (with(&entry, "\"version\":1", "\"version\":1,\"version\":2"), "Json"),
        (with(&entry, "\"version\":1", "\"version\":1,\"trusted\":true"), "UnknownKey"),
        (with(&entry, "\"version\":1", "\"version\":-1"), "Invalid"),
        (with(&entry, "\"version\":1", "\"version\":1,\"revision\":\"x\""), "Invalid"),
        (with(&entry, "\"version\":1", "\"revision\":\"../x\""), "Invalid"),
        (with(&entry, "a/b", "../b"), "Invalid"),
        (with(&entry, COMMIT, "main"), "Invalid"),
        (with(&entry, COMMIT, &COMMIT.replace('0', "G")), "Invalid"),
        (with(&entry, "\"commit\"", "\"commits\""), "UnknownKey"),
        (with(&older, "torch-cuda", "../torch-cuda"), "Invalid"),
        (with(&older, "sha256-", "sha1-"), "Invalid"),
        (with(&older, "git_lfs_concat", "none"), "Invalid"),
        (with(&older, HEX, "00"), "Invalid"),
    ];
    let pinned =
        format!("schema = 1\n\n[[kernel]]\nrepo = \"a/b\"\nversion = 1\nsource = \"hub\"\ncommit = \"{COMMIT}\"\n");
    LockSidecar::parse(&pinned, "x").unwrap();
    let other = |from: &str, to: &str| {
        let changed = pinned.replacen(from, to, 1);
        assert_ne!(changed, pinned, "{from}");
        changed
    };
    let sidecars = [
        (String::new(), "Toml"),
        (other("schema = 1", "schema = 2"), "Schema"),
        (other("a/b", "../b"), "Toml"),
        (other(&format!("commit = \"{COMMIT}\""), ""), "Invalid"),
        (other("\"hub\"", "\"archive\""), "Invalid"),
        (other("version = 1", "version = 1\ntrusted = true"), "Toml"),
        (format!("{pinned}\n{}", pinned.replacen("schema = 1", "", 1)), "Ambiguous"),
    ];
    assert!(locks.len() >= 20, "{}", locks.len());
    for (text, expected) in locks {
        let shown = String::from_utf8_lossy(&text[..text.len().min(160)]).into_owned();
        let error = KernelsLock::parse(&text, "kernels.lock").expect_err(&shown);
        assert_eq!(kind(&error), expected, "{shown}: {error}");
    }
    for (text, expected) in sidecars {
        let error = LockSidecar::parse(&text, "kernelhub.lock").expect_err(&text);
        assert_eq!(kind(&error), expected, "{text}: {error}");
    }
}

/// The same lock files in a project: refused by the program's own path, with nothing written beside them.
#[test]
fn a_hostile_lock_file_changes_nothing_around_it() {
    use kernelhub::hub::lock::Locks;
    let world = tempfile::tempdir().unwrap();
    let project = world.path().join("home/project");
    std::fs::create_dir_all(&project).unwrap();
    std::fs::write(world.path().join("home/above"), "above").unwrap();
    for text in ["[7]", r#"[{"dependency":{"repo-id":"../../above","version":1},"lock":{"commit":"x"}}]"#] {
        std::fs::write(project.join("kernels.lock"), text).unwrap();
        let before = tree::list(world.path());
        Locks::read(&project).unwrap_err();
        assert_eq!(tree::list(world.path()), before);
    }
    assert_eq!(std::fs::read_to_string(world.path().join("home/above")).unwrap(), "above");
}
