//! A Hub for kernel repos that tells the truth: refs, trees and files of one commit per version.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use kernelhub::digest::{GitOid, Sha256Digest};
use serde_json::{Value, json};

use super::server::{Reply, Server};

/// Files from this size on are kept outside git.
const LARGE_BYTES: usize = 4096;

type Files = BTreeMap<String, Vec<u8>>;

/// Version → its files, by their paths in the repo.
#[derive(Clone, Default)]
pub(crate) struct Repo {
    versions: BTreeMap<u32, Files>,
}

impl Repo {
    /// Adds a build to a version: the files of a folder.
    pub(crate) fn add(&mut self, version: u32, variant: &str, folder: &Path) {
        let files = self.versions.entry(version).or_default();
        let mut open = vec![(folder.to_path_buf(), format!("build/{variant}"))];
        while let Some((folder, prefix)) = open.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                let name = format!("{prefix}/{}", entry.file_name().to_str().unwrap());
                if entry.path().is_dir() {
                    open.push((entry.path(), name));
                } else {
                    files.insert(name, std::fs::read(entry.path()).unwrap());
                }
            }
        }
    }

    /// Changes a file of a version, which gives it another commit.
    pub(crate) fn change(&mut self, version: u32, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        change(self.versions.get_mut(&version).unwrap().get_mut(path).unwrap());
    }

    /// The commit of a version: of what it holds.
    pub(crate) fn commit(&self, version: u32) -> String {
        let files = &self.versions[&version];
        let state: String =
            files.iter().map(|(path, content)| format!("{path} {}\n", GitOid::of_blob(content))).collect();
        GitOid::of_blob(state.as_bytes()).to_string()
    }

    fn at(&self, commit: &str) -> Option<&Files> {
        self.versions.iter().find(|(version, _)| self.commit(**version) == commit).map(|(_, files)| files)
    }

    fn tree(files: &Files, folder: &str, recursive: bool) -> Value {
        let prefix = format!("{folder}/");
        let mut entries = BTreeMap::new();
        for (path, content) in files {
            let Some(rest) = path.strip_prefix(&prefix) else { continue };
            if let (false, Some((name, _))) = (recursive, rest.split_once('/')) {
                let path = format!("{prefix}{name}");
                let oid = GitOid::of_blob(path.as_bytes());
                entries.insert(path.clone(), json!({"type": "directory", "oid": oid, "size": 0, "path": path}));
                continue;
            }
            let mut entry =
                json!({"type": "file", "oid": GitOid::of_blob(content), "size": content.len(), "path": path});
            if content.len() >= LARGE_BYTES {
                let oid = Sha256Digest::of(content);
                entry["lfs"] = json!({"oid": oid, "size": content.len(), "pointerSize": 134});
            }
            entries.insert(path.clone(), entry);
        }
        entries.into_values().collect()
    }
}

/// Serves repos, by their ids. They can be changed while it runs.
pub(crate) struct SmallHub {
    pub(crate) server: Server,
    pub(crate) repos: Arc<Mutex<BTreeMap<String, Repo>>>,
}

impl SmallHub {
    pub(crate) fn start(repos: impl IntoIterator<Item = (&'static str, Repo)>) -> Self {
        let repos: BTreeMap<_, _> = repos.into_iter().map(|(id, repo)| (id.to_owned(), repo)).collect();
        let repos = Arc::new(Mutex::new(repos));
        let served = Arc::clone(&repos);
        let server = Server::start(move |request| answer(&served.lock().unwrap(), &request.path));
        Self { server, repos }
    }

    pub(crate) fn endpoint(&self) -> String {
        self.server.url("").trim_end_matches('/').to_owned()
    }

    /// The paths of the requests so far.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.server.requests().into_iter().map(|request| request.path).collect()
    }
}

fn answer(repos: &BTreeMap<String, Repo>, target: &str) -> Reply {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let as_json = |value: Value| Reply::ok(value.to_string());
    let repo = |owner: &str, name: &str| repos.get(&format!("{owner}/{name}"));
    match parts.as_slice() {
        ["api", "organizations", owner, "overview"] => as_json(json!({"name": owner, "trustedKernelPublisher": true})),
        ["api", "kernels", owner, name, "refs"] => match repo(owner, name) {
            None => Reply::error(404),
            Some(repo) => {
                let branch = |version: &u32| json!({"name": format!("v{version}"), "ref": format!("refs/heads/v{version}"), "targetCommit": repo.commit(*version)});
                let branches: Vec<Value> = repo.versions.keys().map(branch).collect();
                as_json(json!({"branches": branches, "tags": [], "converts": []}))
            }
        },
        ["api", "kernels", owner, name, "tree", commit, folder @ ..] => {
            match repo(owner, name).and_then(|r| r.at(commit)) {
                None => Reply::error(404),
                Some(files) => as_json(Repo::tree(files, &folder.join("/"), query.contains("recursive=true"))),
            }
        }
        ["kernels", owner, name, "resolve", commit, file @ ..] => {
            match repo(owner, name).and_then(|repo| repo.at(commit)).and_then(|files| files.get(&file.join("/"))) {
                None => Reply::error(404),
                Some(content) => Reply::ok(content.clone()),
            }
        }
        _ => Reply::error(404),
    }
}
