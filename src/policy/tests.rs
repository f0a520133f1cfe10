//! What a set of policies says about a kernel.

use std::path::Path;

use super::SignatureMode::{Off, Require, Warn};
use super::*;
use crate::hint::Hint as _;
use crate::names::RepoId;

const KEY: &str = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";

fn policy(texts: &[(Level, &str)]) -> Result<Policy, PolicyError> {
    let mut policy = Policy::builtin();
    for (level, text) in texts {
        policy.add(&format!("schema = 1\n{text}"), *level, Path::new(&format!("/{level}.toml")))?;
    }
    Ok(policy)
}

fn hub(endpoint: &str) -> Origin {
    Origin::Hub { endpoint: endpoint.parse().unwrap() }
}

fn local() -> Origin {
    Origin::Local { folder: "/kernels".into() }
}

/// The outcome in a word: the basis, or the error.
fn outcome(policy: &Policy, repo: &str, origin: &Origin, flag: Option<bool>) -> String {
    let word = match flag {
        Some(true) => Word::Trusted,
        Some(false) => Word::NotTrusted,
        None => Word::Silent,
    };
    let decided = policy.decide(&repo.parse().unwrap(), origin).and_then(|decision| match decision {
        Decision::Admitted(admission) => Ok(admission),
        Decision::AskEndpoint(pending) => pending.answer(word),
    });
    match decided {
        Ok(admission) => match admission.basis() {
            Basis::BuiltIn => "built in",
            Basis::Policy { .. } => "policy",
            Basis::Endpoint { .. } => "endpoint",
            Basis::Parent => "parent",
            Basis::Signature => {
                assert!(admission.requires_signature());
                "signature"
            }
        },
        Err(PolicyError::Untrusted { .. }) => "untrusted",
        Err(PolicyError::Refused { .. }) => "refused",
        Err(PolicyError::NoSigner { .. }) => "no signer",
        Err(other) => panic!("{other}"),
    }
    .to_owned()
}

#[test]
fn without_a_file_the_default_hub_vouches_for_names_and_nobody_else_does() {
    let policy = Policy::builtin();
    let (hf, foreign) = (hub(DEFAULT_ENDPOINT), hub("http://127.0.0.1:8080"));
    for (repo, origin, flag, expected) in [
        ("kernels-community/x", &hf, None, "built in"),
        ("acme/x", &hf, Some(true), "endpoint"),
        ("acme/x", &hf, Some(false), "untrusted"),
        ("acme/x", &hf, None, "untrusted"),
        ("Kernels-Community/x", &hf, None, "untrusted"),
        // A name from elsewhere is believed by the built-in publisher's signature alone.
        ("kernels-community/x", &foreign, Some(true), "signature"),
        ("kernels-community/x", &Origin::Archive, Some(true), "signature"),
        ("kernels-community/x", &local(), Some(true), "signature"),
        ("acme/x", &foreign, Some(true), "untrusted"),
        ("acme/x", &Origin::Archive, Some(true), "untrusted"),
        ("acme/x", &local(), Some(true), "untrusted"),
        ("kernelhub/rmsnorm", &Origin::Archive, Some(true), "untrusted"),
    ] {
        assert_eq!(outcome(&policy, repo, origin, flag), expected, "{repo} from {origin}, flag {flag:?}");
    }
    // The same Hub in other letters is the same; another scheme, port or path is not.
    assert_eq!(outcome(&policy, "kernels-community/x", &hub("HTTPS://HuggingFace.co:443/"), None), "built in");
    for other in [
        "http://huggingface.co",
        "https://huggingface.co:8443",
        "https://huggingface.co/x",
        "https://huggingface.co.evil.example",
    ] {
        assert_eq!(outcome(&policy, "kernels-community/x", &hub(other), Some(true)), "signature", "{other}");
        assert_eq!(outcome(&policy, "acme/x", &hub(other), Some(true)), "untrusted", "{other}");
    }
}

#[test]
fn an_opt_in_holds_for_its_subject_and_its_places_only() {
    let acme = policy(&[(Level::User, "[[publisher]]\nname = \"acme\"\ntrust = true\n")]).unwrap();
    let hf = hub(DEFAULT_ENDPOINT);
    assert_eq!(outcome(&acme, "acme/x", &hf, None), "policy");
    for (repo, origin) in [("acme2/x", &hf), ("x/acme", &hf), ("acme/x", &Origin::Archive), ("acme/x", &local())] {
        assert_eq!(outcome(&acme, repo, origin, None), "untrusted", "{repo} from {origin}");
    }
    assert_eq!(outcome(&acme, "acme/x", &hub("http://mirror:1"), Some(true)), "untrusted", "an endpoint nobody lists");

    let repo = "[[repo]]\nname = \"acme/x\"\ntrust = true\nfrom = [\"archive\", \"local\"]\n";
    let repo = policy(&[(Level::Machine, repo)]).unwrap();
    assert_eq!(outcome(&repo, "acme/x", &Origin::Archive, None), "policy");
    assert_eq!(outcome(&repo, "acme/x", &local(), None), "policy");
    assert_eq!(outcome(&repo, "acme/x", &hf, None), "untrusted");
    assert_eq!(outcome(&repo, "acme/y", &Origin::Archive, None), "untrusted");
}

#[test]
fn an_endpoint_counts_as_far_as_it_is_listed() {
    let mirror = hub("http://mirror:1");
    let list = |flags: &str| format!("[[endpoint]]\nurl = \"http://mirror:1/\"\n{flags}");
    let names = policy(&[(Level::User, &list(""))]).unwrap();
    assert_eq!(outcome(&names, "kernels-community/x", &mirror, None), "built in");
    assert_eq!(outcome(&names, "acme/x", &mirror, Some(true)), "untrusted");
    let flags = policy(&[(Level::User, &list("accept_publisher_flags = true"))]).unwrap();
    assert_eq!(outcome(&flags, "acme/x", &mirror, Some(true)), "endpoint");
    assert_eq!(outcome(&flags, "acme/x", &mirror, Some(false)), "untrusted");
    assert_eq!(outcome(&flags, "acme/x", &hub("http://mirror:2"), Some(true)), "untrusted");
    // Where two policies disagree, the stricter one holds; the default Hub can be told to be quiet, too.
    let both = [
        (Level::Machine, &*list("accept_publisher_flags = false")),
        (Level::User, &list("accept_publisher_flags = true")),
    ];
    assert_eq!(outcome(&policy(&both).unwrap(), "acme/x", &mirror, Some(true)), "untrusted");
    let quiet = policy(&[(Level::Machine, "[[endpoint]]\nurl = \"https://huggingface.co\"\n")]).unwrap();
    assert_eq!(outcome(&quiet, "acme/x", &hub(DEFAULT_ENDPOINT), Some(true)), "untrusted");
    assert_eq!(outcome(&quiet, "kernels-community/x", &hub(DEFAULT_ENDPOINT), None), "built in");
}

#[test]
fn a_key_trusts_what_is_signed_wherever_it_comes_from() {
    let keyed =
        policy(&[(Level::User, &format!("[[publisher]]\nname = \"kernelhub\"\nkeys = [\"{KEY}\"]\n"))]).unwrap();
    for origin in [hub("http://any:1"), Origin::Archive, local()] {
        assert_eq!(outcome(&keyed, "kernelhub/rmsnorm", &origin, None), "signature");
    }
    assert_eq!(outcome(&keyed, "acme/x", &Origin::Archive, None), "untrusted");
    // A mode that is off does not make a name that only the key vouches for unsigned.
    let off = format!("signature = \"off\"\n[[publisher]]\nname = \"kernelhub\"\nkeys = [\"{KEY}\"]\n");
    assert_eq!(outcome(&policy(&[(Level::User, &off)]).unwrap(), "kernelhub/x", &Origin::Archive, None), "signature");
}

#[test]
fn of_two_policies_the_stricter_one_holds() {
    let trust = "[[publisher]]\nname = \"acme\"\ntrust = true\n";
    let hf = hub(DEFAULT_ENDPOINT);
    for level in [Level::Machine, Level::User, Level::Program, Level::Project] {
        let refusal = "[[publisher]]\nname = \"acme\"\ntrust = false\n";
        let refused = policy(&[(Level::User, trust), (level, refusal)]).unwrap();
        assert_eq!(outcome(&refused, "acme/x", &hf, Some(true)), "refused", "{level}");
        let built_in = policy(&[(level, "[[repo]]\nname = \"kernels-community/x\"\ntrust = false\n")]).unwrap();
        assert_eq!(outcome(&built_in, "kernels-community/x", &hf, None), "refused", "{level}");
        assert_eq!(outcome(&built_in, "kernels-community/y", &hf, None), "built in", "{level}");
    }
    let word = |mode: Option<SignatureMode>| mode.map_or_else(String::new, |mode| format!("signature = \"{mode}\""));
    for (machine, user, project, expected) in [
        (None, None, None, Warn),
        (None, Some(Off), None, Off),
        (Some(Off), Some(Off), Some(Warn), Warn),
        (Some(Off), Some(Warn), None, Warn),
        (Some(Require), Some(Off), Some(Off), Require),
        (None, Some(Require), None, Require),
        (None, None, Some(Require), Require),
        // What a project says never loosens the default.
        (None, None, Some(Off), Warn),
    ] {
        let texts = [(Level::Machine, word(machine)), (Level::User, word(user)), (Level::Project, word(project))];
        let texts: Vec<_> = texts.iter().map(|(level, text)| (*level, text.as_str())).collect();
        assert_eq!(policy(&texts).unwrap().signature_mode(), expected, "{texts:?}");
    }
    let strict = policy(&[(Level::User, &format!("signature = \"require\"\n{trust}"))]).unwrap();
    assert_eq!(outcome(&strict, "acme/x", &hf, None), "no signer");
    let elf = [
        (Level::Machine, "[elf]\nexec_stack = \"refuse\""),
        (Level::User, "[elf]\nexec_stack = \"warn\"\ngnu_unique = \"refuse\""),
    ];
    let rules = *policy(&elf).unwrap().elf();
    assert_eq!(
        (rules.exec_stack, rules.text_relocations, rules.gnu_unique),
        (Severity::Refuse, Severity::Warn, Severity::Refuse)
    );
}

#[test]
fn a_project_may_tighten_and_never_trust() {
    for trust in [
        "[[publisher]]\nname = \"me\"\ntrust = true",
        "[[repo]]\nname = \"me/x\"\ntrust = true",
        &format!("[[publisher]]\nname = \"me\"\nkeys = [\"{KEY}\"]"),
        "[[publisher]]\nname = \"me\"\nidentity = { all = [{ issuer = \"i\" }, { source_repository = \"r\" }] }",
        "[[endpoint]]\nurl = \"http://me:1\"\naccept_publisher_flags = true",
        "[[folder]]\npath = \"/me\"",
        &format!("sigstore_root = {{ path = \"root.json\", sha256 = \"{}\" }}", "0".repeat(64)),
    ] {
        let error = policy(&[(Level::Project, trust)]).unwrap_err();
        assert!(matches!(error, PolicyError::ProjectTrusts { .. }), "{trust}: {error}");
        assert!(error.to_string().contains("a repository could then trust itself"), "{error}");
        policy(&[(Level::User, trust)]).unwrap();
    }
    let tight = "signature = \"require\"\n[elf]\nexec_stack = \"refuse\"\n[[publisher]]\nname = \"me\"\ntrust = false";
    policy(&[(Level::Project, tight)]).unwrap();
}

#[test]
fn a_mistake_in_a_policy_is_an_error_that_names_the_near_word() {
    for (text, hint) in [
        ("signatur = \"warn\"", Some("did you mean `signature`?")),
        ("[[publisher]]\nname = \"a\"\ntrsut = true", Some("did you mean `trust`?")),
        (
            "[[endpoint]]\nurl = \"http://h\"\naccept_publisher_flag = true",
            Some("did you mean `accept_publisher_flags`?"),
        ),
        ("[elf]\nexecstack = \"warn\"", Some("did you mean `exec_stack`?")),
        ("signature = \"maybe\"", None),
        ("[[publisher]]\nname = \"*\"\ntrust = true", None),
        ("[[publisher]]\nname = \"a/b\"\ntrust = true", None),
        ("[[publisher]]\nname = \"\"\ntrust = true", None),
        ("[[publisher]]\nname = \"a\"", None),
        ("[[publisher]]\nname = \"a\"\ntrust = true\nfrom = []", None),
        ("[[publisher]]\nname = \"a\"\nkeys = [\"nonsense\"]", None),
        ("[[publisher]]\nname = \"a\"\nfrom = [\"hub\"]\nsignature = \"warn\"", None),
        ("[[publisher]]\nname = \"a\"\nidentity = { any = [] }", None),
        ("[[publisher]]\nname = \"a\"\nidentity = { issuer = \"i\" }", None),
        ("[[publisher]]\nname = \"a\"\nidentity = { source_repository = \"r\" }", None),
        ("[[repo]]\nname = \"a\"\ntrust = true", None),
        ("[[folder]]\npath = \"kernels\"", None),
        ("[[endpoint]]\nurl = \"ftp://h\"", None),
        ("[[endpoint]]\nurl = \"http://u:p@h\"", None),
        ("signature = \"warn\"\nsignature = \"off\"", None),
    ] {
        let error = policy(&[(Level::User, text)]).unwrap_err();
        assert!(matches!(error, PolicyError::Format { .. } | PolicyError::Invalid { .. }), "{text}: {error}");
        if hint.is_some() {
            assert_eq!(error.hint().as_deref(), hint, "{text}");
        }
    }
    let mut policy = Policy::builtin();
    for (text, found) in [("schema = 2", 2), ("schema = 0", 0)] {
        let error = policy.add(text, Level::User, Path::new("p")).unwrap_err();
        assert!(matches!(error, PolicyError::Schema { found: actual, .. } if actual == found), "{error}");
    }
    assert!(policy.add("", Level::User, Path::new("p")).is_err(), "no schema");
}

#[test]
fn files_that_are_not_there_do_not_count_and_one_that_was_named_must_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| Some(folder.path().join(name));
    let files = PolicyFiles { machine: at("m"), user: at("u"), user_is_named: false, project: at("p") };
    let read = Policy::read(&files).unwrap();
    assert!(read.files().len() == 3 && read.files().iter().all(|file| !file.is_there));
    assert_eq!(read.signature_mode(), SignatureMode::Warn);
    let named = PolicyFiles { user_is_named: true, ..files.clone() };
    assert!(matches!(Policy::read(&named), Err(PolicyError::Absent { .. })));
    std::fs::write(folder.path().join("p"), "schema = 1\nsignature = \"require\"\n").unwrap();
    assert_eq!(Policy::read(&files).unwrap().signature_mode(), SignatureMode::Require);
    std::fs::create_dir(folder.path().join("u")).unwrap();
    assert!(matches!(Policy::read(&files), Err(PolicyError::Io { .. })), "a folder is no policy");
    std::fs::remove_dir(folder.path().join("u")).unwrap();
    std::fs::write(folder.path().join("u"), vec![b'#'; usize::try_from(MAX_POLICY_BYTES).unwrap() + 1]).unwrap();
    assert!(matches!(Policy::read(&files), Err(PolicyError::TooLarge { .. })));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::write(folder.path().join("u"), "schema = 1\n").unwrap();
        std::fs::set_permissions(folder.path().join("u"), std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(matches!(Policy::read(&files), Err(PolicyError::Writable { .. })));
    }
}

#[test]
fn a_refusal_says_who_where_by_what_and_how_to_say_otherwise() {
    let mut policy = Policy::builtin();
    policy.add("schema = 1", Level::User, Path::new("/home/u/policy.toml")).unwrap();
    let repo: RepoId = "acme/x".parse().unwrap();
    let refused = |origin: &Origin| match policy.decide(&repo, origin) {
        Ok(Decision::AskEndpoint(pending)) => pending.answer(Word::NotTrusted).unwrap_err(),
        Err(error) => error,
        Ok(Decision::Admitted(admission)) => panic!("{admission}"),
    };
    let error = refused(&hub(DEFAULT_ENDPOINT));
    let text = error.to_string();
    for part in ["acme/x", "\"acme\"", DEFAULT_ENDPOINT, "/home/u/policy.toml (user, read)", "does not call it trusted"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(error.hint().unwrap().contains("`kernelhub trust publisher acme`"));
    assert!(refused(&Origin::Archive).hint().unwrap().contains("`kernelhub trust repo acme/x --from archive`"));
    assert!(refused(&local()).hint().unwrap().contains("`kernelhub trust folder /kernels`"));
    let foreign = refused(&hub("http://mirror:1"));
    assert!(foreign.hint().unwrap().contains("`kernelhub trust endpoint http://mirror:1`"), "{foreign}");
}

#[test]
fn the_example_of_the_documentation_is_a_policy() {
    let page = include_str!("../../docs/policy.md");
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let example =
        example.replace("RWQ...", KEY).replace("sha256 = \"...\"", &format!("sha256 = \"{}\"", "0".repeat(64)));
    let mut policy = Policy::builtin();
    policy.add(&example, Level::User, Path::new("docs/policy.md")).unwrap();
    assert_eq!((policy.signature_mode(), policy.elf().exec_stack), (SignatureMode::Require, Severity::Refuse));
    assert_eq!(outcome(&policy, "lab/x", &Origin::Archive, None), "signature");
}

#[test]
fn a_trusted_folder_is_that_folder_and_what_stands_below_it() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    for folder in ["mine/deep", "mine2", "other"] {
        std::fs::create_dir_all(at(folder)).unwrap();
    }
    let mine = policy(&[(Level::User, &format!("[[folder]]\npath = \"{}\"", at("mine").display()))]).unwrap();
    let local = |name: &str| Origin::Local { folder: at(name) };
    for trusted in ["mine", "mine/deep", "mine/deep/..", "other/../mine"] {
        assert_eq!(outcome(&mine, "local/x", &local(trusted), None), "policy", "{trusted}");
    }
    for other in ["mine2", "other", "mine/../other", "mine/absent", "."] {
        assert_eq!(outcome(&mine, "local/x", &local(other), None), "untrusted", "{other}");
    }
    assert_eq!(outcome(&mine, "local/x", &Origin::Archive, None), "untrusted");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(at("other"), at("mine/link")).unwrap();
        assert_eq!(outcome(&mine, "local/x", &local("mine/link"), None), "untrusted", "a link leads elsewhere");
    }
    let refused = "[[publisher]]\nname = \"local\"\ntrust = false";
    let refused = format!("[[folder]]\npath = \"{}\"\n{refused}", at("mine").display());
    assert_eq!(outcome(&policy(&[(Level::User, &refused)]).unwrap(), "local/x", &local("mine"), None), "refused");
}
