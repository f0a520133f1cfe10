//! One verdict below every entry point.

use std::fs;
use std::path::Path;

use kernelhub::fetch::Anchor;
use kernelhub::hint::Hint as _;
use kernelhub::hub::lock::{LockError, Locks};
use kernelhub::hub::{Hub, HubError, Selection};
use kernelhub::policy::{Origin, PolicyError, Word};
use kernelhub::swap::{KernelProvider as _, KernelRef};
use kernelhub::variant::DeviceKey::Cpu;

use crate::support::hub::{FakeHub, Published, builder, environment, fast, files, json_reply};
use crate::support::native::{KIT, NativePack, VARIANT, norm_layer};
use crate::support::server::Reply;
use crate::support::{tree, trust};

const REPO: &str = "stranger/rmsnorm";

/// A Hub whose flag for every publisher is this, and a policy that lets it say so.
fn strangers_hub(flag: Option<bool>) -> FakeHub {
    let fake = FakeHub::start(vec![Published::new(REPO, 1)]);
    fake.lie(move |request, reply| match flag {
        _ if !request.path.ends_with("/overview") => reply,
        Some(flag) => json_reply(&serde_json::json!({ "trustedKernelPublisher": flag })),
        None => Reply::error(404),
    });
    fake
}

/// The publisher's name, from the error that says that it is not trusted.
#[track_caller]
fn untrusted(error: &HubError) -> (String, Origin, Option<Word>) {
    match error {
        HubError::Policy(PolicyError::Untrusted { repo, origin, word, .. }) => {
            let hint = error.hint().unwrap();
            assert!(hint.contains("`kernelhub trust ") && !hint.contains("--trust"), "{hint}");
            (repo.owner().to_owned(), (**origin).clone(), *word)
        }
        HubError::DependencyFailed { source, .. } => untrusted(source),
        other => panic!("{other:?}"),
    }
}

#[test]
fn f24_an_untrusted_publisher_gets_one_verdict_by_every_way() {
    let fake = strangers_hub(Some(false));
    let home = tempfile::tempdir().unwrap();
    let hub = || builder(&fake.endpoint(), home.path()).build().unwrap();
    let repo = REPO.parse().unwrap();
    let kernel_files = || fake.paths().into_iter().filter(|path| !path.ends_with("/overview")).collect::<Vec<_>>();

    // (a) By its name.
    let error = hub().get(&repo, 1, Cpu).unwrap_err();
    assert_eq!((&*untrusted(&error).0, untrusted(&error).2), ("stranger", Some(Word::NotTrusted)));
    for part in [REPO, "\"stranger\"", &*fake.endpoint(), "(user, read)", "/etc/kernelhub/policy.toml"] {
        assert!(error.to_string().contains(part), "{part} in {error}");
    }
    untrusted(&hub().prefetch(&repo, 1, Selection::ThisMachine).unwrap_err());
    // (b) By a model's configuration.
    let reference: KernelRef = format!("{REPO}@v1").parse().unwrap();
    untrusted(&hub().layer(&reference, "RMSNorm", Cpu).unwrap_err());
    let provided = hub().provide(&reference, "RMSNorm", Cpu).unwrap_err();
    assert!(provided.source.to_string().contains("\"stranger\" is not trusted"), "{}", provided.source);
    // (c) By a lock file, written by somebody who trusts it.
    let project = tempfile::tempdir().unwrap();
    lock(&fake, project.path());
    let before = kernel_files().len();
    let locks = Locks::read(project.path()).unwrap();
    match hub().download(&locks, project.path(), Selection::ThisMachine) {
        Err(LockError::Hub(error)) => drop(untrusted(&error)),
        other => panic!("{other:?}"),
    }
    assert_eq!(kernel_files().len(), before);
    // (d) By a folder of this machine.
    let checkout = tempfile::tempdir().unwrap();
    write_build(checkout.path());
    let local = builder(&fake.endpoint(), home.path()).local(repo.clone(), checkout.path()).build().unwrap();
    assert!(matches!(untrusted(&local.get(&repo, 1, Cpu).unwrap_err()).1, Origin::Local { .. }));
    let variable = format!("{REPO}={}", checkout.path().display());
    let named = environment(&fake.endpoint(), home.path(), &[("LOCAL_KERNELS", &variable)]);
    let named = Hub::builder().environment(named).fetch_options(fast()).build().unwrap();
    assert!(matches!(untrusted(&named.get(&repo, 1, Cpu).unwrap_err()).1, Origin::Local { .. }));
    // Nothing but the publisher was asked for, and nothing of the kernel is here.
    assert!(!tree::list(home.path()).iter().any(|path| path.contains("kernels--stranger")));
    // (e) Offline: with the answer on record, and in a cache that somebody else filled, without one.
    let offline = builder(&fake.endpoint(), home.path()).offline(true).build().unwrap();
    assert_eq!(untrusted(&offline.get(&repo, 1, Cpu).unwrap_err()).2, Some(Word::NotTrusted));
    let filled = tempfile::tempdir().unwrap();
    trusting(&fake, filled.path()).prefetch(&repo, 1, Selection::ThisMachine).unwrap();
    fs::remove_dir_all(filled.path().join("kernelhub/publishers")).ok();
    let offline = builder(&fake.endpoint(), filled.path()).offline(true).build().unwrap();
    assert_eq!(untrusted(&offline.get(&repo, 1, Cpu).unwrap_err()).2, Some(Word::NotRecorded));
}

/// A hub of a user who trusts the stranger.
fn trusting(fake: &FakeHub, home: &Path) -> Hub {
    let policy = format!(
        "{}\n[[publisher]]\nname = \"stranger\"\ntrust = true\nfrom = [\"hub\"]\n",
        trust::text(&fake.endpoint())
    );
    builder(&fake.endpoint(), home).policy(trust::policy_of(&policy)).build().unwrap()
}

fn lock(fake: &FakeHub, project: &Path) {
    let declared = format!("[package.metadata.kernels.dependencies]\n\"{REPO}\" = 1\n");
    fs::write(project.join("Cargo.toml"), format!("[package]\nname = \"p\"\n{declared}")).unwrap();
    let cache = tempfile::tempdir().unwrap();
    let hub = trusting(fake, cache.path());
    let declared = kernelhub::hub::lock::Project::read(project, &hub).unwrap();
    hub.lock(&declared, kernelhub::manifest::LockEdition::Dependency).unwrap().write(project).unwrap();
    // Locking is an entry point, too.
    let refusing = builder(&fake.endpoint(), cache.path()).build().unwrap();
    match refusing.lock(&declared, kernelhub::manifest::LockEdition::Dependency) {
        Err(LockError::Hub(error)) => drop(untrusted(&error)),
        other => panic!("{other:?}"),
    }
}

/// The kernel as a checkout has it.
fn write_build(checkout: &Path) {
    for (path, bytes) in Published::new(REPO, 1).files {
        let path = checkout.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

#[test]
fn a_hub_that_says_nothing_about_a_publisher_trusts_nobody() {
    let repo = REPO.parse().unwrap();
    for (flag, expected) in [(None, Word::Silent), (Some(false), Word::NotTrusted)] {
        let (fake, home) = (strangers_hub(flag), tempfile::tempdir().unwrap());
        let error = builder(&fake.endpoint(), home.path()).build().unwrap().get(&repo, 1, Cpu).unwrap_err();
        assert_eq!(untrusted(&error).2, Some(expected));
    }
    // A Hub whose flags no policy accepts is not even asked.
    let (fake, home) = (strangers_hub(Some(true)), tempfile::tempdir().unwrap());
    let names = format!("schema = 1\n[[endpoint]]\nurl = \"{}\"\n", fake.endpoint());
    for policy in ["schema = 1\n", &names] {
        let hub = builder(&fake.endpoint(), home.path()).policy(trust::policy_of(policy)).build().unwrap();
        assert_eq!(untrusted(&hub.get(&repo, 1, Cpu).unwrap_err()).2, None);
    }
    assert!(fake.paths().is_empty(), "{:?}", fake.paths());
}

#[test]
fn a_flag_that_counts_is_asked_for_first_once_and_is_on_record() {
    let (fake, home) = (strangers_hub(Some(true)), tempfile::tempdir().unwrap());
    let repo = REPO.parse().unwrap();
    let hub = || builder(&fake.endpoint(), home.path()).build().unwrap();
    let brought = hub().prefetch(&repo, 1, Selection::ThisMachine).unwrap();
    let admission = brought[0].snapshot.admission().to_string();
    assert!(admission.contains("stranger") && admission.contains(&fake.endpoint()), "{admission}");
    assert!(fake.paths()[0].ends_with("/api/organizations/stranger/overview"), "{:?}", fake.paths());
    let publisher = hub().hub().publisher("stranger").unwrap();
    assert!(publisher.trusted == Some(true) && publisher.expires_at > publisher.checked_at);
    let elsewhere = builder("http://127.0.0.1:9", home.path()).build().unwrap();
    assert_eq!(elsewhere.hub().publisher("stranger"), None, "another Hub's word");
    // Offline and warm, the recorded word counts.
    hub().prefetch(&repo, 1, Selection::ThisMachine).unwrap();
    let offline = builder(&fake.endpoint(), home.path()).offline(true).build().unwrap();
    offline.prefetch(&repo, 1, Selection::ThisMachine).unwrap();
    assert_eq!(fake.count("/overview"), 1);
    // A word that has expired is asked for again; where nobody answers, it still counts, which is said.
    let record = find(home.path(), "stranger.json");
    let mut value: serde_json::Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    value["checked_at"] = 1.into();
    value["expires_at"] = 2.into();
    fs::write(&record, value.to_string()).unwrap();
    offline.prefetch(&repo, 1, Selection::ThisMachine).unwrap();
    fake.lie(|_, _| Reply::error(503));
    hub().prefetch(&repo, 1, Selection::ThisMachine).unwrap();
    fake.lie(|request, reply| {
        if request.path.ends_with("/overview") {
            json_reply(&serde_json::json!({"trustedKernelPublisher": false}))
        } else {
            reply
        }
    });
    untrusted(&hub().prefetch(&repo, 1, Selection::ThisMachine).unwrap_err());
    untrusted(&offline.prefetch(&repo, 1, Selection::ThisMachine).unwrap_err());
}

fn find(folder: &Path, name: &str) -> std::path::PathBuf {
    let found = tree::list(folder).into_iter().find(|path| path.ends_with(name)).expect(name);
    folder.join(found)
}

#[test]
fn a_dependency_passes_the_same_gate() {
    let mut needs = Published::new("kernels-community/rmsnorm", 1);
    let depends = [serde_json::json!({"repo-id": REPO, "version": 1})];
    needs.add_build(VARIANT, 1, &files(), &depends);
    let fake = FakeHub::start(vec![needs, Published::new(REPO, 1)]);
    fake.lie(|request, reply| if request.path.ends_with("/overview") { Reply::error(404) } else { reply });
    let home = tempfile::tempdir().unwrap();
    let hub = builder(&fake.endpoint(), home.path()).build().unwrap();
    let repo = "kernels-community/rmsnorm".parse().unwrap();
    let error = hub.prefetch(&repo, 1, Selection::ThisMachine).unwrap_err();
    assert_eq!(untrusted(&error).0, "stranger");
    assert_eq!(fake.count("/stranger/"), 1, "only the publisher was asked for: {:?}", fake.paths());
}

#[test]
fn an_archive_passes_the_gate_whatever_name_it_bears() {
    // As a manifest of a stranger could say it: a name that is trusted on the Hub.
    let pack = NativePack::new("rmsnorm", &norm_layer("RMSNorm", "count_rms_norm"), &[("libkit.so", &KIT)]);
    let mut manifest = pack.manifest().clone();
    for owner in ["kernels-community", "kernelhub", "stranger"] {
        manifest.kernel.repo = format!("{owner}/rmsnorm").parse().unwrap();
        let cache = tempfile::tempdir().unwrap();
        let hub = |policy: &str| {
            let builder = Hub::builder().cache(cache.path()).offline(true).policy(trust::policy_of(policy));
            builder.manifest(manifest.clone(), pack.location()).build().unwrap()
        };
        let error = hub("schema = 1\n").get(&manifest.kernel.repo, 1, Cpu).unwrap_err();
        match owner {
            // Its signature could vouch for it, and there is none.
            "kernels-community" => assert!(
                matches!(&error, HubError::Verify(kernelhub::verify::VerifyError::Signature { .. })),
                "{error:?}"
            ),
            _ => assert_eq!(untrusted(&error).1, Origin::Archive),
        }
        let from_hub = format!("schema = 1\n[[publisher]]\nname = \"{owner}\"\ntrust = true\n");
        assert!(hub(&from_hub).get(&manifest.kernel.repo, 1, Cpu).is_err(), "trust on the Hub is none in an archive");
        let from_archive = format!("{from_hub}from = [\"archive\"]\n");
        let kernel = hub(&from_archive).get(&manifest.kernel.repo, 1, Cpu).unwrap();
        assert!(matches!(kernel.snapshot().anchor(), Anchor::Archive { .. }));
    }
}

#[test]
fn an_admission_is_of_one_kernel_and_one_kind_of_place() {
    use kernelhub::verify::{VerifyError, verify};
    let (one, other) = (
        NativePack::kit("one", &norm_layer("RMSNorm", "count_rms_norm")),
        NativePack::kit("other", &norm_layer("RMSNorm", "count_rms_norm")),
    );
    let (one, other) = (one.get().unwrap(), other.get().unwrap());
    let (snapshot, admission) = (&one.fetched().snapshot, one.snapshot().admission());
    verify(snapshot, admission).unwrap();
    let foreign = verify(snapshot, other.snapshot().admission());
    assert!(matches!(foreign, Err(VerifyError::NotAdmitted { .. })), "{foreign:?}");
    let local = Origin::Local { folder: snapshot.root().to_path_buf() };
    let Ok(kernelhub::policy::Decision::Admitted(local)) = trust::policy().decide(snapshot.repo(), &local) else {
        panic!("the tests' policy admits it")
    };
    assert!(matches!(verify(snapshot, &local), Err(VerifyError::NotAdmitted { .. })));
}
