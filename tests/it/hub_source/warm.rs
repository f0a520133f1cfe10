//! How many requests it takes, cold and warm.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use kernelhub::fetch::{Anchor, RepoType};
use kernelhub::hub::Selection;

use super::{REPO, bring, bring_into, one, repo};
use crate::support::hub::{FakeHub, Published, builder, environment, fast};
use crate::support::packs::VARIANT;
use crate::support::server::{Reply, Server};
use crate::support::tree;
use crate::support::trust::verify;

#[test]
fn a_cold_kernel_takes_one_request_for_each_thing_and_a_warm_one_none() {
    let (fake, published) = one();
    let home = tempfile::tempdir().unwrap();
    let cold = bring_into(&fake, home.path(), "v1").unwrap();
    assert!(!cold.fetched.from_cache);
    let mut asked = fake.paths();
    asked.sort();
    asked.dedup();
    assert_eq!(asked.len(), fake.paths().len(), "something was asked for twice: {:?}", fake.paths());
    // refs, build/, the build; metadata and the other files, two of which are alike; one redirect. Nobody is asked
    // about a publisher that the policy trusts by its name.
    assert_eq!(asked.len(), 3 + 1 + 4 + 1, "{asked:?}");
    let snapshot = &cold.fetched.snapshot;
    let anchor = snapshot.anchor();
    assert!(
        matches!(anchor, Anchor::Hub { repo_type: RepoType::Kernel, commit, metadata: Some(_) } if commit.to_string() == published.commit)
    );
    assert_eq!((snapshot.version(), cold.snapshot.files()), (1, 5));
    assert_eq!(cold.snapshot.layers().layers.len(), 1);

    // The layout of the Python tools.
    let folder = home.path().join("hub/kernels--kernels-community--rmsnorm");
    assert_eq!(fs::read_to_string(folder.join("refs/v1")).unwrap(), published.commit);
    let build = folder.join("snapshots").join(&published.commit).join("build").join(VARIANT);
    assert_eq!(snapshot.root(), build);
    let link = fs::read_link(build.join("sub/one.py")).unwrap();
    assert!(link.to_str().unwrap().starts_with("../../../../../blobs/"), "{link:?}");
    assert_eq!(fs::read_dir(folder.join("blobs")).unwrap().count(), 5, "one blob for each file's bytes");

    // Warm: a commit takes nothing, a version one question, which is not asked offline.
    let before = (fake.paths().len(), tree::list(home.path()));
    let pinned = bring_into(&fake, home.path(), &published.commit).unwrap();
    assert!(pinned.fetched.from_cache && pinned.fetched.requests == 0);
    assert_eq!((fake.paths().len(), tree::list(home.path())), before);
    let named = bring_into(&fake, home.path(), "v1").unwrap();
    assert!(named.fetched.from_cache);
    assert_eq!((fake.paths().len(), tree::list(home.path())), (before.0 + 1, before.1.clone()));
    let offline = builder(&fake.endpoint(), home.path()).offline(true).build().unwrap();
    for revision in ["v1", &published.commit] {
        assert!(bring(&offline, revision).unwrap().fetched.from_cache);
    }
    assert_eq!((fake.paths().len(), tree::list(home.path())), (before.0 + 1, before.1));
}

#[test]
fn a_version_that_moves_is_followed_and_both_commits_share_their_blobs() {
    let first = Published::new(REPO, 1);
    let mut second = first.clone();
    second.commit = "b".repeat(40);
    second.branches = Vec::new();
    second.files.insert("README.md".to_owned(), b"new".to_vec());
    let fake = FakeHub::start(vec![first.clone(), second.clone()]);
    let home = tempfile::tempdir().unwrap();
    bring_into(&fake, home.path(), "v1").unwrap();
    let (old, new) = (first.commit.clone(), second.commit.clone());
    fake.lie(move |request, mut reply| {
        if request.path.ends_with("/refs") {
            let text = String::from_utf8(reply.body).unwrap().replace(&old, &new);
            reply = Reply { headers: reply.headers, ..Reply::ok(text) };
        }
        reply
    });
    let before = fake.count("/resolve/");
    let moved = bring_into(&fake, home.path(), "v1").unwrap();
    assert_eq!(moved.fetched.snapshot.anchor().revision(), second.commit);
    assert_eq!(fake.count("/resolve/"), before, "blobs that were there were fetched again");
}

#[test]
fn f18_offline_opens_no_socket_and_says_what_is_missing() {
    let (fake, published) = one();
    let home = tempfile::tempdir().unwrap();
    let offline = builder(&fake.endpoint(), home.path()).offline(true).build().unwrap();
    for revision in ["v1", "main", &published.commit] {
        let error = bring(&offline, revision).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("offline") && text.contains(revision) && text.contains(REPO), "{text}");
    }
    assert!(fake.paths().is_empty());
    assert!(tree::list(home.path()).is_empty(), "an offline miss wrote into the cache");
}

#[test]
fn a_hub_that_is_down_does_not_stop_a_kernel_that_is_here_and_the_report_says_so() {
    let (fake, published) = one();
    let home = tempfile::tempdir().unwrap();
    bring_into(&fake, home.path(), "v1").unwrap();
    fake.lie(|_, _| Reply::error(503));
    let warm = bring_into(&fake, home.path(), "v1").unwrap();
    assert!(warm.fetched.from_cache);
    assert!(warm.notes.iter().any(|note| note.contains(&published.commit)), "{:?}", warm.notes);
    // Gone is not down.
    fake.lie(|_, _| Reply::error(404));
    bring_into(&fake, home.path(), "v1").unwrap_err();
}

#[test]
fn local_folders_go_first_and_are_said_to_be_local() {
    let (fake, published) = one();
    let home = tempfile::tempdir().unwrap();
    let checkout = tempfile::tempdir().unwrap();
    for (path, bytes) in &published.files {
        let path = checkout.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let build = checkout.path().join("build").join(VARIANT);
    for folder in [checkout.path(), &checkout.path().join("build"), &build] {
        let value = format!("{REPO}={}", folder.display());
        let environment = environment(&fake.endpoint(), home.path(), &[("LOCAL_KERNELS", &value)]);
        let hub = kernelhub::hub::Hub::builder().environment(environment).fetch_options(fast()).build().unwrap();
        let local = bring(&hub, "v7").unwrap();
        assert_eq!(local.fetched.snapshot.anchor(), &Anchor::Local);
        assert!(local.snapshot.has_digest());
        assert_eq!(local.fetched.snapshot.root(), build);
        assert!(local.notes.iter().any(|note| note.contains("local folder")), "{:?}", local.notes);
    }
    assert!(fake.paths().is_empty());
    // A build under any name, such as a build tool's `result`.
    let result = checkout.path().join("result");
    fs::create_dir(&result).unwrap();
    for file in ["metadata.json", "__init__.py", "layers.toml", "librmsnorm.so"] {
        fs::copy(build.join(file), result.join(file)).unwrap();
    }
    fs::create_dir(result.join("sub")).unwrap();
    for file in ["sub/one.py", "sub/two.py"] {
        fs::copy(build.join(file), result.join(file)).unwrap();
    }
    let hub = builder(&fake.endpoint(), home.path()).local(repo(), &result).build().unwrap();
    assert_eq!(bring(&hub, "v1").unwrap().fetched.snapshot.variant().to_string(), VARIANT);
    // Without a digest nothing is compared, and the report can say so.
    let text = fs::read_to_string(result.join("metadata.json")).unwrap().replace("\"digest\"", "\"nothing\"");
    fs::write(result.join("metadata.json"), text).unwrap();
    let hub = builder(&fake.endpoint(), home.path()).local(repo(), &result).build().unwrap();
    assert!(!bring(&hub, "v1").unwrap().snapshot.has_digest());
    // Its own digest still counts.
    fs::write(build.join("__init__.py"), "evil").unwrap();
    let hub = builder(&fake.endpoint(), home.path()).local(repo(), checkout.path()).build().unwrap();
    assert!(bring(&hub, "v1").unwrap_err().to_string().contains("__init__.py"));
    let gone = builder(&fake.endpoint(), home.path()).local(repo(), checkout.path().join("no")).build().unwrap();
    assert!(bring(&gone, "v1").unwrap_err().to_string().contains("is no kernel"));
}

#[test]
fn all_variants_and_layers_of_a_kernel_without_layers_toml() {
    let mut published = Published::new(REPO, 1);
    let bare = vec![("librmsnorm.so", b"other bytes".to_vec()), ("__init__.py", b"import x\n".to_vec())];
    published.add_build("torch29-cxx11-cu128-x86_64-linux", 1, &bare, &[]);
    published.add_build(VARIANT, 1, &bare, &[]);
    published.files.remove(&format!("build/{VARIANT}/layers.toml"));
    published.files.retain(|path, _| !path.contains(&format!("{VARIANT}/sub")));
    let fake = FakeHub::start(vec![published]);
    let home = tempfile::tempdir().unwrap();
    let hub = builder(&fake.endpoint(), home.path()).build().unwrap();
    let one = bring(&hub, "v1").unwrap();
    // What a shipped manifest says about version 1 of this kernel.
    assert_eq!(one.snapshot.layers().layers[0].name, "RMSNorm");
    let all = hub.prefetch(&repo(), 1, Selection::AllVariants).unwrap();
    assert_eq!(all.len(), 2);
    for build in &all {
        verify(&build.fetched.snapshot).unwrap();
    }
}

#[test]
fn the_asynchronous_face_does_the_same_and_a_dropped_future_stops_the_work() {
    let (fake, _) = one();
    let home = tempfile::tempdir().unwrap();
    let hub = Arc::new(builder(&fake.endpoint(), home.path()).build().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // The library is none, so that the error comes from the last stage.
    let get = hub.get_async(&repo(), 1, kernelhub::variant::DeviceKey::Cpu);
    let error = runtime.block_on(get).unwrap_err();
    assert!(matches!(error, kernelhub::hub::HubError::Load(_)), "{error:?}");

    let home = tempfile::tempdir().unwrap();
    let late = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&late);
    fake.lie(move |request, reply| {
        if request.path.contains("/cdn/") {
            seen.fetch_add(1, Ordering::SeqCst);
            return Reply { pause: std::time::Duration::from_millis(700), ..reply };
        }
        reply
    });
    let hub = Arc::new(builder(&fake.endpoint(), home.path()).build().unwrap());
    let get = hub.get_async(&repo(), 1, kernelhub::variant::DeviceKey::Cpu);
    runtime.block_on(async {
        let mut get = std::pin::pin!(get);
        // Until the file is being sent, however long that takes on a busy machine; the reply then takes its time.
        while late.load(Ordering::SeqCst) == 0 {
            let _ = tokio::time::timeout(std::time::Duration::from_millis(20), get.as_mut()).await.unwrap_err();
        }
    });
    drop(hub);
    std::thread::sleep(std::time::Duration::from_millis(1200));
    let blobs = home.path().join("hub/kernels--kernels-community--rmsnorm/blobs");
    let whole = fs::read_dir(blobs).map_or(0, |entries| {
        entries.flatten().filter(|entry| entry.metadata().is_ok_and(|m| m.len() >= 300_000)).count()
    });
    assert_eq!((whole, late.load(Ordering::SeqCst)), (0, 1), "the work went on");
}

#[test]
fn proxies_of_only_one_repo_type_work() {
    let published = Published::new(REPO, 1);
    let fake = FakeHub::start_as("models", vec![published], None);
    let home = tempfile::tempdir().unwrap();
    let error = bring_into(&fake, home.path(), "v1").unwrap_err();
    let text = error.to_string();
    assert!(text.contains("type kernel at") && text.contains("/api/kernels/"), "{text}");
    assert!(kernelhub::hint::Hint::hint(&error).unwrap().contains("legacy"));
    let hub = builder(&fake.endpoint(), home.path()).legacy_models(true).build().unwrap();
    let brought = bring(&hub, "v1").unwrap();
    assert!(matches!(brought.fetched.snapshot.anchor(), Anchor::Hub { repo_type: RepoType::Model, .. }));
    assert!(brought.fetched.snapshot.root().to_str().unwrap().contains("/models--"));
    // Found again under its old prefix, without being told to look there.
    let offline = builder(&fake.endpoint(), home.path()).offline(true).build().unwrap();
    assert!(bring(&offline, "v1").unwrap().fetched.from_cache);
    drop(Server::folder(home.path()));
}
