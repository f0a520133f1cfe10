//! A fake Hub on loopback: honest, unless a test makes it lie.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kernelhub::digest::{GitOid, Sha256Digest};
use kernelhub::fetch::{Environment, FetchOptions, RetryPolicy};
use kernelhub::hub::{Hub, HubBuilder};
use kernelhub::manifest::{BackendInfo, DigestTable, Metadata};
use serde_json::{Value, json};

use super::packs::{LAYERS, VARIANT, library};
use super::server::{Reply, Request, Server};

/// One commit of a kernel repo.
#[derive(Clone)]
pub(crate) struct Published {
    pub(crate) repo: String,
    pub(crate) commit: String,
    /// Branches at this commit.
    pub(crate) branches: Vec<String>,
    /// Files by their whole path.
    pub(crate) files: BTreeMap<String, Vec<u8>>,
}

impl Published {
    /// A kernel with one build for this machine, at branch `v<version>`.
    pub(crate) fn new(repo: &str, version: u32) -> Self {
        let commit = GitOid::of_blob(format!("{repo} {version}").as_bytes()).to_string();
        let branches = vec![format!("v{version}"), "main".to_owned()];
        let mut published = Self { repo: repo.to_owned(), commit, branches, files: BTreeMap::new() };
        published.add_build(VARIANT, version, &files(), &[]);
        published
    }

    /// Adds a build of these files, with a `metadata.json` whose digest lists them.
    pub(crate) fn add_build(&mut self, variant: &str, version: u32, files: &[(&str, Vec<u8>)], depends: &[Value]) {
        let digest = files.iter().map(|(path, bytes)| (path.parse().unwrap(), Sha256Digest::of(bytes))).collect();
        let metadata = Metadata {
            name: self.repo.split_once('/').unwrap().1.to_owned(),
            id: format!("{}_{version}", self.repo),
            version,
            license: Some("Apache-2.0".to_owned()),
            python_depends: Vec::new(),
            kernel_depends: depends.to_vec(),
            backend: BackendInfo::of(&variant.parse().unwrap()),
            digest: Some(DigestTable { files: digest, faults: Vec::new() }),
            provenance: None,
        };
        self.files.insert(format!("build/{variant}/metadata.json"), metadata.to_json().into_bytes());
        for (path, bytes) in files {
            self.files.insert(format!("build/{variant}/{path}"), bytes.clone());
        }
    }
}

/// The files of a build: one large, two small, two alike.
pub(crate) fn files() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("layers.toml", LAYERS.as_bytes().to_vec()),
        ("librmsnorm.so", library()),
        ("__init__.py", b"import tvm_ffi\n".to_vec()),
        ("sub/one.py", b"same = 1\n".to_vec()),
        ("sub/two.py", b"same = 1\n".to_vec()),
    ]
}

pub(crate) type Lie = dyn Fn(&Request, Reply) -> Reply + Send + Sync;

/// A running Hub.
pub(crate) struct FakeHub {
    pub(crate) server: Server,
    lie: Arc<Mutex<Arc<Lie>>>,
}

impl FakeHub {
    pub(crate) fn start(kernels: Vec<Published>) -> Self {
        Self::start_as("kernels", kernels, None)
    }

    /// `kind`: the repo type in the API's paths. `cdn`: where large files are, when elsewhere.
    pub(crate) fn start_as(kind: &'static str, kernels: Vec<Published>, cdn: Option<String>) -> Self {
        let lie: Arc<Mutex<Arc<Lie>>> = Arc::new(Mutex::new(Arc::new(|_: &Request, reply| reply)));
        let told = Arc::clone(&lie);
        let server = Server::start(move |request| {
            let lie = Arc::clone(&told.lock().unwrap());
            lie(request, honest(kind, &kernels, cdn.as_deref(), request))
        });
        Self { server, lie }
    }

    /// From now on every honest reply goes through this.
    pub(crate) fn lie(&self, lie: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static) {
        *self.lie.lock().unwrap() = Arc::new(lie);
    }

    pub(crate) fn honest_again(&self) {
        self.lie(|_, reply| reply);
    }

    pub(crate) fn endpoint(&self) -> String {
        self.server.url("").trim_end_matches('/').to_owned()
    }

    /// The paths that were asked for, in order, without queries.
    pub(crate) fn paths(&self) -> Vec<String> {
        let path = |request: Request| request.path.split('?').next().unwrap_or_default().to_owned();
        self.server.requests().into_iter().map(path).collect()
    }

    /// Requests whose path contains this.
    pub(crate) fn count(&self, part: &str) -> usize {
        self.paths().iter().filter(|path| path.contains(part)).count()
    }
}

fn honest(kind: &str, kernels: &[Published], cdn: Option<&str>, request: &Request) -> Reply {
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let find = |owner: &str, name: &str| -> Vec<&Published> {
        kernels.iter().filter(|kernel| kernel.repo == format!("{owner}/{name}")).collect()
    };
    match parts.as_slice() {
        ["api", "organizations", _, "overview"] => json_reply(&json!({"trustedKernelPublisher": true})),
        ["api", asked, owner, name, "refs"] if *asked == kind && !find(owner, name).is_empty() => {
            let branch = |(name, commit): (&String, &String)| json!({"name": name, "ref": format!("refs/heads/{name}"), "targetCommit": commit});
            let found = find(owner, name);
            let branches = found.iter().flat_map(|k| k.branches.iter().map(|name| branch((name, &k.commit))));
            json_reply(&json!({"branches": branches.collect::<Vec<_>>(), "tags": [], "converts": []}))
        }
        ["api", asked, owner, name, "tree", commit, folder @ ..] if *asked == kind => {
            let folder = folder.join("/");
            let found = find(owner, name).into_iter().find(|kernel| kernel.commit == *commit);
            found.map_or_else(|| Reply::error(404), |kernel| json_reply(&tree(kernel, &folder, query)))
        }
        ["cdn", digest] => {
            let files = kernels.iter().flat_map(|kernel| kernel.files.values());
            let found = files.into_iter().find(|bytes| Sha256Digest::of(bytes).to_string() == *digest);
            found.map_or_else(|| Reply::error(404), |bytes| serve(bytes, &format!("\"cdn-{digest}\""), request))
        }
        _ => {
            let rest = if kind == "kernels" { parts.strip_prefix(&["kernels"]) } else { Some(parts.as_slice()) };
            let Some([owner, name, "resolve", commit, file @ ..]) = rest else { return Reply::error(404) };
            let found = find(owner, name).into_iter().find(|kernel| kernel.commit == *commit);
            let Some(bytes) = found.and_then(|kernel| kernel.files.get(&file.join("/"))) else {
                return Reply::error(404);
            };
            let of_commit = ("X-Repo-Commit".to_owned(), (*commit).to_owned());
            if !is_large(&file.join("/")) {
                let mut reply = serve(bytes, &format!("\"{}\"", GitOid::of_blob(bytes)), request);
                reply.headers.push(of_commit);
                return reply;
            }
            let digest = Sha256Digest::of(bytes);
            let base = cdn.unwrap_or_default();
            let mut reply = Reply::redirect(&format!("{base}/cdn/{digest}?signature=abc"));
            reply.body = b"this body has nothing to do with the file".to_vec();
            reply.declared = Some(reply.body.len());
            reply.headers.push(of_commit);
            reply.headers.push(("X-Linked-Size".to_owned(), bytes.len().to_string()));
            reply.headers.push(("X-Linked-Etag".to_owned(), format!("\"{digest}\"")));
            reply
        }
    }
}

pub(crate) fn is_large(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "so")
}

pub(crate) fn json_reply(value: &Value) -> Reply {
    Reply { headers: vec![("Content-Type".to_owned(), "application/json".to_owned())], ..Reply::ok(value.to_string()) }
}

fn tree(kernel: &Published, folder: &str, query: &str) -> Value {
    let recursive = query.contains("recursive=true");
    let mut entries = BTreeMap::new();
    for (path, bytes) in &kernel.files {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let Some(inside) = path.strip_prefix(&prefix) else { continue };
        if let Some((first, _)) = inside.split_once('/')
            && !recursive
        {
            let path = format!("{prefix}{first}");
            let entry = json!({"type": "directory", "oid": GitOid::of_blob(b"tree"), "size": 0, "path": path});
            entries.insert(path, entry);
            continue;
        }
        let mut entry = json!({"type": "file", "oid": GitOid::of_blob(bytes), "size": bytes.len(), "path": path});
        if is_large(path) {
            entry["oid"] = json!(GitOid::of_blob(b"pointer"));
            entry["lfs"] = json!({"oid": Sha256Digest::of(bytes), "size": bytes.len(), "pointerSize": 130});
        }
        entries.insert(path.clone(), entry);
    }
    entries.into_values().collect()
}

/// A file with its tag, or the part of it that is asked for.
pub(crate) fn serve(bytes: &[u8], tag: &str, request: &Request) -> Reply {
    let header = |name: &str| {
        request.headers.iter().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    let tagged = |mut reply: Reply| {
        reply.headers.push(("ETag".to_owned(), tag.to_owned()));
        reply
    };
    let start = header("range")
        .filter(|_| header("if-range").is_none_or(|wanted| wanted == tag))
        .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    match start {
        None => tagged(Reply::ok(bytes)),
        Some(start) if start >= bytes.len() => tagged(Reply::error(416)),
        Some(start) => {
            let mut reply = Reply { status: 206, ..Reply::ok(&bytes[start..]) };
            let range = format!("bytes {start}-{}/{}", bytes.len() - 1, bytes.len());
            reply.headers.push(("Content-Range".to_owned(), range));
            tagged(reply)
        }
    }
}

/// Retries and waits that end in the time of a test.
pub(crate) fn fast() -> FetchOptions {
    FetchOptions {
        timeout: Duration::from_millis(800),
        answer_timeout: Duration::from_millis(800),
        retry: RetryPolicy {
            attempts: 4,
            first_delay: Duration::from_millis(5),
            max_delay: Duration::from_millis(20),
            budget: Duration::from_secs(6),
        },
        lock_timeout: Duration::from_mins(1),
        ..FetchOptions::default()
    }
}

/// What the environment of a user of this Hub says.
pub(crate) fn environment(endpoint: &str, home: &Path, more: &[(&str, &str)]) -> Environment {
    let home = home.to_str().unwrap();
    let policy = super::trust::file(endpoint);
    Environment::read_with(&|name| match name {
        "HF_ENDPOINT" => Some(endpoint.into()),
        "HF_HOME" => Some(home.into()),
        "KERNELHUB_POLICY" if !more.iter().any(|(key, _)| *key == name) => Some(policy.clone().into()),
        _ => more.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into()),
    })
    .unwrap()
}

/// A hub for this endpoint, with its cache below `home`.
pub(crate) fn builder(endpoint: &str, home: &Path) -> HubBuilder {
    Hub::builder().environment(environment(endpoint, home, &[])).fetch_options(fast())
}
