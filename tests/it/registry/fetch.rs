//! From a manifest on a server to a snapshot in the cache.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use kernelhub::fetch::{
    Cache, FetchError, FetchOptions, Fetched, Fetcher, Location, NoProgress, Progress, RetryPolicy, Reuse,
};
use kernelhub::hint::Hint as _;

use crate::support::hub::serve;
use crate::support::packs::Published;
use crate::support::server::{Reply, Server};
use crate::support::tree;
use crate::support::trust::verify;

fn fetcher(offline: bool) -> Fetcher {
    Fetcher::new(FetchOptions { offline, timeout: Duration::from_secs(10), ..FetchOptions::default() })
}

/// Fetches the first artifact of the manifest at `url`, as a program would.
fn fetch(fetcher: &Fetcher, cache: &Cache, url: &str, reuse: Reuse) -> Result<Fetched, FetchError> {
    let base: Location = url.parse()?;
    let manifest = fetcher.fetch_manifest(&base)?;
    fetcher.fetch_artifact(cache, &manifest, &manifest.artifacts[0], &base, &NoProgress, reuse)
}

#[derive(Default)]
struct Log(Mutex<Vec<String>>);

impl Progress for Log {
    fn started(&self, name: &str, total: Option<u64>) {
        self.0.lock().unwrap().push(format!("started {name} {total:?}"));
    }

    fn advanced(&self, _: &str, bytes: u64) {
        self.0.lock().unwrap().push(format!("advanced {bytes}"));
    }

    fn note(&self, message: &str) {
        self.0.lock().unwrap().push(message.to_owned());
    }

    fn finished(&self, name: &str) {
        self.0.lock().unwrap().push(format!("finished {name}"));
    }
}

#[test]
fn a_cold_fetch_downloads_once_and_a_warm_one_touches_nothing() {
    let published = Published::new();
    let server = Server::folder(published.folder.path());
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::at(home.path().join("cache")).unwrap();
    let url = server.url("rmsnorm.toml");
    let base: Location = url.parse().unwrap();
    let fetcher = fetcher(false);
    let manifest = fetcher.fetch_manifest(&base).unwrap();
    assert_eq!(manifest, published.manifest);

    let log = Log::default();
    let artifact = &manifest.artifacts[0];
    let cold = fetcher.fetch_artifact(&cache, &manifest, artifact, &base, &log, Reuse::IfPresent).unwrap();
    assert_eq!((cold.from_cache, cold.requests, cold.bytes_fetched), (false, 1, published.packed.size));
    assert_eq!(cold.snapshot.anchor().archive_sha256(), Some(published.packed.sha256));
    let log = log.0.into_inner().unwrap();
    let advanced: u64 = log.iter().filter_map(|line| line.strip_prefix("advanced ")?.parse::<u64>().ok()).sum();
    assert_eq!(advanced, published.packed.size);
    assert!(log[0].starts_with("started kernelhub/rmsnorm v1") && log.last().unwrap().starts_with("finished"));
    assert_eq!(verify(&cold.snapshot).unwrap().files(), 4);

    let before = (server.requests().len(), tree::list(cache.root()));
    let warm = fetcher.fetch_artifact(&cache, &manifest, artifact, &base, &NoProgress, Reuse::IfPresent).unwrap();
    assert_eq!((warm.from_cache, warm.requests, warm.bytes_fetched), (true, 0, 0));
    assert_eq!(warm.snapshot, cold.snapshot);
    assert_eq!((server.requests().len(), tree::list(cache.root())), before);
    assert!(fs::read_dir(cache.root().join("tmp")).unwrap().next().is_none(), "work was left behind");
    for request in server.requests() {
        assert!(
            request.headers.iter().any(|line| line.eq_ignore_ascii_case("accept-encoding: identity")),
            "{request:?}"
        );
    }
}

#[test]
fn offline_serves_the_cache_by_version_and_opens_no_socket() {
    let published = Published::new();
    let server = Server::folder(published.folder.path());
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::at(home.path()).unwrap();
    let url = server.url("rmsnorm.toml");
    let base: Location = url.parse().unwrap();
    let repo = "kernelhub/rmsnorm".parse().unwrap();

    // Cold and offline: nothing to serve, and the error says what to fetch.
    let offline = fetcher(true);
    let error = offline.fetch_manifest(&base).unwrap_err();
    assert!(matches!(&error, FetchError::Offline { url: missing, .. } if *missing == url), "{error}");
    let error = offline
        .fetch_artifact(&cache, &published.manifest, published.artifact(), &base, &NoProgress, Reuse::IfPresent)
        .unwrap_err();
    assert!(matches!(&error, FetchError::Offline { what, .. } if what.starts_with("kernelhub/rmsnorm v1")), "{error}");
    assert!(error.hint().unwrap().contains(&published.archive_name()));
    assert!(server.requests().is_empty());
    assert!(tree::list(home.path()).is_empty(), "an offline miss wrote into the cache");
    assert_eq!(cache.manifest(&repo, 1).unwrap(), None);
    assert!(cache.versions(&repo).unwrap().is_empty());

    fetch(&fetcher(false), &cache, &url, Reuse::IfPresent).unwrap();
    let requests = server.requests().len();

    assert_eq!(cache.versions(&repo).unwrap(), [1]);
    let manifest = cache.manifest(&repo, 1).unwrap().unwrap();
    assert!(manifest.artifacts[0].url.to_string().starts_with("http://127.0.0.1"), "the record's URL is not absolute");
    let snapshot = cache.snapshot(&manifest, &manifest.artifacts[0]).unwrap();
    verify(&snapshot).unwrap();
    // From the recorded manifest, whatever its base.
    let base = Location::from(Path::new("nowhere.toml"));
    let warm = offline
        .fetch_artifact(&cache, &manifest, &manifest.artifacts[0], &base, &NoProgress, Reuse::IfPresent)
        .unwrap();
    assert!(warm.from_cache);
    // A repair needs the network.
    let error = offline
        .fetch_artifact(&cache, &manifest, &manifest.artifacts[0], &base, &NoProgress, Reuse::Replace)
        .unwrap_err();
    assert!(matches!(error, FetchError::Offline { .. }), "{error}");
    assert_eq!(server.requests().len(), requests);
}

#[test]
fn files_and_file_urls_work_without_any_server_and_offline() {
    let published = Published::new();
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::at(home.path()).unwrap();
    let path = published.manifest_path().display().to_string();
    let fetched = fetch(&fetcher(true), &cache, &path, Reuse::IfPresent).unwrap();
    assert_eq!((fetched.from_cache, fetched.requests, fetched.bytes_fetched), (false, 0, published.packed.size));
    let again = fetch(&fetcher(true), &cache, &format!("file://{path}"), Reuse::Replace).unwrap();
    assert!(!again.from_cache);
    verify(&again.snapshot).unwrap();
    let recorded = cache.manifest(&"kernelhub/rmsnorm".parse().unwrap(), 1).unwrap().unwrap();
    assert!(recorded.artifacts[0].url.to_string().starts_with("file:///"));
}

#[test]
fn a_read_only_cache_serves_hits_and_a_miss_names_the_folder() {
    use std::os::unix::fs::PermissionsExt as _;
    let published = Published::new();
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("cache");
    let path = published.manifest_path().display().to_string();
    // A file where the folder should be cannot be written whoever runs the test.
    fs::write(&root, "").unwrap();
    let cache = Cache::at(&root).unwrap();
    let error = fetch(&fetcher(true), &cache, &path, Reuse::IfPresent).unwrap_err();
    assert!(matches!(&error, FetchError::Io { path, .. } if path.starts_with(&root)), "{error}");
    fs::remove_file(&root).unwrap();

    fetch(&fetcher(true), &cache, &path, Reuse::IfPresent).unwrap();
    fs::remove_dir_all(root.join("locks")).unwrap();
    fs::remove_dir_all(root.join("tmp")).unwrap();
    fs::set_permissions(&root, fs::Permissions::from_mode(0o555)).unwrap();
    let warm = fetch(&fetcher(true), &cache, &path, Reuse::IfPresent);
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(warm.unwrap().from_cache);
    assert!(!root.join("locks").exists() && !root.join("tmp").exists(), "a hit wrote into the cache");
    // Where the manifest cannot be recorded, a hit says so and serves.
    fs::remove_dir_all(root.join("manifests")).unwrap();
    fs::write(root.join("manifests"), "").unwrap();
    let log = Log::default();
    let base: Location = path.parse().unwrap();
    let artifact = published.artifact();
    let warm =
        fetcher(true).fetch_artifact(&cache, &published.manifest, artifact, &base, &log, Reuse::IfPresent).unwrap();
    assert!(warm.from_cache);
    assert!(log.0.into_inner().unwrap()[0].contains("could not be recorded"));
}

#[test]
fn many_threads_download_an_archive_once() {
    let published = Published::new();
    let archive = fs::read(&published.packed.archive).unwrap();
    let manifest = fs::read(published.manifest_path()).unwrap();
    let server = Server::start(move |request| {
        if request.path == "/rmsnorm.toml" {
            return Reply::ok(manifest.clone());
        }
        Reply { pause: Duration::from_millis(200), ..Reply::ok(archive.clone()) }
    });
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::at(home.path()).unwrap();
    let url = server.url("rmsnorm.toml");
    let fresh = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| fetch(&fetcher(false), &cache, &url, Reuse::IfPresent).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|fetched| !fetched.from_cache).count()
    });
    assert_eq!(fresh, 1);
    assert_eq!(server.requests().iter().filter(|request| request.path != "/rmsnorm.toml").count(), 1);
}

/// Runs in a process of its own; see [`spawn`].
#[test]
fn helper_that_fetches_in_another_process() {
    let (Ok(url), Ok(root)) = (std::env::var("KERNELHUB_TEST_URL"), std::env::var("KERNELHUB_TEST_CACHE")) else {
        return;
    };
    fetch(&fetcher(false), &Cache::at(root).unwrap(), &url, Reuse::IfPresent).unwrap();
}

fn spawn(url: &str, root: &Path) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "registry::fetch::helper_that_fetches_in_another_process"])
        .env("KERNELHUB_TEST_URL", url)
        .env("KERNELHUB_TEST_CACHE", root)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn processes_share_a_download_and_a_killed_one_leaves_nothing() {
    let published = Published::new();
    let archive = fs::read(&published.packed.archive).unwrap();
    let manifest = fs::read(published.manifest_path()).unwrap();
    let pause = std::sync::Arc::new(Mutex::new(Duration::from_secs(30)));
    let slow = std::sync::Arc::clone(&pause);
    let server = Server::start(move |request| {
        if request.path == "/rmsnorm.toml" {
            return Reply::ok(manifest.clone());
        }
        Reply { pause: *slow.lock().unwrap(), ..Reply::ok(archive.clone()) }
    });
    let home = tempfile::tempdir().unwrap();
    let url = server.url("rmsnorm.toml");
    let archives = || server.requests().iter().filter(|request| request.path != "/rmsnorm.toml").count();

    // One is killed in the middle of the archive.
    let mut killed = spawn(&url, home.path());
    let patience = Instant::now();
    while archives() == 0 || tree::cached(home.path()).is_empty() {
        assert!(patience.elapsed() < Duration::from_secs(20), "the other process did not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(!home.path().join("archives").exists(), "a half download reached the cache");

    // Two others then share one download, and sweep what the first left.
    *pause.lock().unwrap() = Duration::from_millis(300);
    let mut children = [spawn(&url, home.path()), spawn(&url, home.path())];
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(archives(), 2, "one killed, one for both others");
    let cache = Cache::at(home.path()).unwrap();
    verify(&cache.snapshot(&published.manifest, published.artifact()).unwrap()).unwrap();
    assert!(
        fs::read_dir(home.path().join("tmp")).unwrap().next().is_none(),
        "the killed process's work is still there"
    );
}

#[test]
fn an_archive_that_broke_off_is_gone_on_with_by_the_next_fetch() {
    let published = Published::new();
    let archive = fs::read(&published.packed.archive).unwrap();
    let half = archive.len() / 2;
    let manifest = fs::read(published.manifest_path()).unwrap();
    let server = Server::start(move |request| {
        if request.path == "/rmsnorm.toml" {
            return Reply::ok(manifest.clone());
        }
        let mut reply = serve(&archive, "\"tag\"", request);
        if reply.status == 200 {
            reply.body.truncate(half);
        }
        reply
    });
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::at(home.path()).unwrap();
    let once = Fetcher::new(FetchOptions { retry: RetryPolicy::never(), ..FetchOptions::default() });
    let url = server.url("rmsnorm.toml");
    fetch(&once, &cache, &url, Reuse::IfPresent).unwrap_err();
    let fetched = fetch(&once, &cache, &url, Reuse::IfPresent).unwrap();
    assert_eq!(fetched.bytes_fetched, published.packed.size - half as u64);
    let asked = server.requests();
    let headers = &asked.last().unwrap().headers;
    assert!(headers.iter().any(|line| line.eq_ignore_ascii_case("if-range: \"tag\"")), "{headers:?}");
    verify(&fetched.snapshot).unwrap();
    assert!(fs::read_dir(home.path().join("tmp")).unwrap().next().is_none(), "work was left behind");
}

#[test]
fn a_fetch_works_inside_an_asynchronous_runtime() {
    let published = Published::new();
    let server = Server::folder(published.folder.path());
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::at(home.path()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let fetched = runtime
        .block_on(async { fetch(&fetcher(false), &cache, &server.url("rmsnorm.toml"), Reuse::IfPresent) })
        .unwrap();
    assert!(!fetched.from_cache);
}
