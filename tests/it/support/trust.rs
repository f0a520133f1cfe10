//! Whom the tests trust: a policy as a user would write it, given through the front door.

use std::path::{Path, PathBuf};

use kernelhub::fetch::{Anchor, Snapshot};
use kernelhub::policy::{Admission, Decision, Level, Origin, OriginKind, Policy, SignatureMode};
use kernelhub::verify::{VerifiedSnapshot, VerifyError};

/// The publishers of the tests' own kernels, which are unsigned.
const PUBLISHERS: [&str; 7] = ["a", "demo", "kernelhub", "kernelhub-tests", "kernels-community", "o", "somebody"];

/// The user's policy: the tests' publishers wherever they come from, and a Hub with its names and flags.
pub(crate) fn text(endpoint: &str) -> String {
    let publisher = |name: &&str| {
        format!("\n[[publisher]]\nname = \"{name}\"\ntrust = true\nfrom = [\"hub\", \"archive\", \"local\"]\n")
    };
    let publishers: Vec<String> = PUBLISHERS.iter().map(publisher).collect();
    let text = format!("schema = 1\nsignature = \"warn\"\n{}", publishers.concat());
    text + &format!("\n[[endpoint]]\nurl = \"{endpoint}\"\naccept_publisher_flags = true\n")
}

/// The same in a file, for `KERNELHUB_POLICY`.
pub(crate) fn file(endpoint: &str) -> PathBuf {
    let name = endpoint.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("policies").join(format!("{name}.toml"));
    write(&path, &text(endpoint));
    path
}

/// Writes a policy at once: other threads and processes of the tests may read it now.
pub(crate) fn write(path: &Path, text: &str) {
    let folder = path.parent().unwrap();
    std::fs::create_dir_all(folder).unwrap();
    let file = tempfile::NamedTempFile::new_in(folder).unwrap();
    std::fs::write(file.path(), text).unwrap();
    file.persist(path).unwrap();
}

/// The same for a program that names no Hub of its own.
pub(crate) fn policy() -> Policy {
    policy_of(&text("http://127.0.0.1:9"))
}

/// The same, with the kernels in a folder and below it.
pub(crate) fn policy_with_folder(folder: &Path) -> Policy {
    policy_of(&format!("{}\n[[folder]]\npath = \"{}\"\n", text("http://127.0.0.1:9"), folder.display()))
}

pub(crate) fn policy_of(text: &str) -> Policy {
    let mut policy = Policy::builtin();
    policy.add(text, Level::User, Path::new("tests' policy")).unwrap();
    policy
}

/// What the tests' policy says about a build.
pub(crate) fn admission(snapshot: &Snapshot) -> Admission {
    let origin = match snapshot.anchor() {
        Anchor::Hub { .. } => Origin::Hub { endpoint: "http://127.0.0.1:9".parse().unwrap() },
        Anchor::Local => Origin::Local { folder: snapshot.root().to_path_buf() },
        _ => Origin::Archive,
    };
    match policy().decide(snapshot.repo(), &origin).unwrap() {
        Decision::Admitted(admission) => {
            assert_eq!(admission.signature().mode(), SignatureMode::Warn);
            assert!(OriginKind::ALL.contains(&admission.origin().kind()));
            admission
        }
        Decision::AskEndpoint(pending) => pending.answer(kernelhub::policy::Word::Trusted).unwrap(),
    }
}

/// Verifies a build that the tests' policy admits.
pub(crate) fn verify(snapshot: &Snapshot) -> Result<VerifiedSnapshot, VerifyError> {
    kernelhub::verify::verify(snapshot, &admission(snapshot))
}
