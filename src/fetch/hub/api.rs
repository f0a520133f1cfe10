//! The Hub's answers: refs and trees.

use std::collections::{BTreeMap, HashSet};

use reqwest::Url;
use serde_json::Value;

use super::HubSource;
use crate::digest::BlobId;
use crate::fetch::hf_cache::TreeFile;
use crate::fetch::http::{Page, RetryPolicy};
use crate::fetch::revision::parse_version;
use crate::fetch::{CommitId, FetchError, PublishedVersion, RepoType, Revision, Session};
use crate::names::{RelativePath, RepoId};
use crate::variant::Variant;

/// Largest JSON answer, in bytes.
const MAX_PAGE_BYTES: u64 = 16 << 20;
/// Most pages of one listing.
const MAX_PAGES: usize = 100;
/// Most entries of one listing.
const MAX_LISTED: usize = 10_000;
/// Longest name of a build that a listing may hold, in bytes: it is only shown.
const MAX_SHOWN_BYTES: usize = 200;

/// The branches and tags of a repo.
#[derive(Debug, Default)]
pub(super) struct Refs {
    branches: BTreeMap<String, CommitId>,
    tags: BTreeMap<String, CommitId>,
}

impl Refs {
    /// Reads an answer. Refs that are none (no name, no commit) are left out, as are other keys.
    fn read(value: &Value) -> Option<Self> {
        let list = |key: &str| -> BTreeMap<String, CommitId> {
            let refs = value.get(key).and_then(Value::as_array).into_iter().flatten();
            let read = refs.filter_map(|entry| {
                let commit = entry.get("targetCommit")?.as_str()?.parse().ok()?;
                Some((entry.get("name")?.as_str()?.to_owned(), commit))
            });
            read.collect()
        };
        value.get("branches")?.as_array()?;
        Some(Self { branches: list("branches"), tags: list("tags") })
    }

    pub(super) fn find(&self, revision: &Revision) -> Option<CommitId> {
        let name = match revision {
            Revision::Commit(commit) => return Some(*commit),
            other => other.to_string(),
        };
        self.branches.get(&name).or_else(|| self.tags.get(&name)).copied()
    }

    /// The branches `v<N>`, by number.
    pub(super) fn versions(&self) -> Vec<PublishedVersion> {
        let read = |(name, commit): (&String, &CommitId)| {
            Some(PublishedVersion { version: parse_version(name)?, commit: Some(*commit) })
        };
        let mut versions: Vec<_> = self.branches.iter().filter_map(read).collect();
        versions.sort_unstable();
        versions
    }

    /// What to say that there is: the versions, or else every name.
    pub(super) fn names(&self) -> Vec<String> {
        let versions: Vec<_> = self.versions().iter().map(|version| format!("v{}", version.version)).collect();
        if !versions.is_empty() {
            return versions;
        }
        self.branches.keys().chain(self.tags.keys()).take(20).map(|name| name.escape_debug().to_string()).collect()
    }
}

impl HubSource {
    /// `<endpoint>/api/<type>/<owner>/<name>/...`.
    pub(super) fn api(&self, repo_type: RepoType, repo: &RepoId, rest: &[&str]) -> Url {
        let start = ["api", repo_type.plural(), repo.owner(), repo.name()];
        self.url(start.iter().chain(rest))
    }

    /// An address below the endpoint. Each part is percent-encoded, so that it stays one part.
    pub(super) fn url<'a>(&self, parts: impl IntoIterator<Item = &'a &'a str>) -> Url {
        let mut url = self.options().endpoint.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(parts);
        }
        url
    }

    /// The listing of `build/`, or of everything in one build.
    pub(super) fn tree_url(
        &self,
        repo_type: RepoType,
        repo: &RepoId,
        commit: CommitId,
        variant: Option<&Variant>,
    ) -> Url {
        let (commit, variant) = (commit.to_string(), variant.map(ToString::to_string));
        let mut rest = vec!["tree", &commit, "build"];
        rest.extend(variant.as_deref());
        let mut url = self.api(repo_type, repo, &rest);
        url.set_query(Some(&format!("recursive={}&expand=false", variant.is_some())));
        url
    }

    /// The address of a file's bytes.
    pub(super) fn resolve_url(&self, repo_type: RepoType, repo: &RepoId, commit: CommitId, path: &str) -> Url {
        let commit = commit.to_string();
        let mut parts = match repo_type {
            RepoType::Kernel => vec!["kernels"],
            RepoType::Model => Vec::new(),
        };
        parts.extend([repo.owner(), repo.name(), "resolve", &commit]);
        parts.extend(path.split('/'));
        self.url(&parts)
    }

    pub(super) async fn get_refs(
        &self,
        url: &Url,
        retry: RetryPolicy,
        session: &Session<'_>,
    ) -> Result<Refs, FetchError> {
        let page = self.http.get_json(url, MAX_PAGE_BYTES, retry, session).await?;
        Refs::read(&page.value).ok_or_else(|| FetchError::Listing {
            url: url.to_string(),
            reason: "expected an object with a list of branches".to_owned(),
        })
    }

    /// The names of the folders in `build/`, sorted.
    pub(super) async fn get_builds(&self, url: &Url, session: &Session<'_>) -> Result<Vec<String>, FetchError> {
        let mut names = Vec::new();
        for (kind, path, _) in self.entries(url, session).await? {
            // Names are only shown until the grammar of variants has read them.
            if kind == "directory"
                && let Some(name) = path.strip_prefix("build/")
                && !name.is_empty()
                && name.len() <= MAX_SHOWN_BYTES
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// The files of one build, with paths in the build's folder, sorted.
    pub(super) async fn get_files(
        &self,
        url: &Url,
        variant: &Variant,
        session: &Session<'_>,
    ) -> Result<Vec<TreeFile>, FetchError> {
        files_of(self.entries(url, session).await?, variant)
            .map_err(|reason| FetchError::Listing { url: url.to_string(), reason })
    }

    /// The entries of every page: type, path, and the rest.
    async fn entries(&self, url: &Url, session: &Session<'_>) -> Result<Vec<(String, String, Value)>, FetchError> {
        let mut entries = Vec::new();
        let mut seen = HashSet::new();
        let mut next = Some(url.clone());
        while let Some(page_url) = next {
            let refuse = |reason: &'static str| FetchError::Paging { url: url.to_string(), reason };
            if !seen.insert(page_url.clone()) {
                return Err(refuse("a page leads back to one that was read"));
            }
            if seen.len() > MAX_PAGES {
                return Err(refuse("more than 100 pages"));
            }
            let Page { value, next: following } =
                self.http.get_json(&page_url, MAX_PAGE_BYTES, self.fetch.retry, session).await?;
            let page = entries_of(value)
                .map_err(|reason| FetchError::Listing { url: page_url.to_string(), reason: reason.to_owned() })?;
            if entries.len() + page.len() > MAX_LISTED {
                return Err(refuse("more than 10000 entries"));
            }
            entries.extend(page);
            next = following;
        }
        Ok(entries)
    }
}

/// The entries of one page: type, path, and the rest.
fn entries_of(page: Value) -> Result<Vec<(String, String, Value)>, &'static str> {
    let Value::Array(page) = page else { return Err("expected a list") };
    let read = |entry: Value| {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
        let (Some(kind), Some(path)) = (text("type"), text("path")) else {
            return Err("an entry without type and path");
        };
        Ok((kind, path, entry))
    };
    page.into_iter().map(read).collect()
}

/// The files of one build among the entries of its listing, with paths in the build's folder, sorted.
fn files_of(entries: Vec<(String, String, Value)>, variant: &Variant) -> Result<Vec<TreeFile>, String> {
    let prefix = format!("build/{variant}/");
    let mut files = BTreeMap::new();
    let mut folded = HashSet::new();
    for (_, path, entry) in entries.into_iter().filter(|(kind, ..)| kind == "file") {
        let shown = || path.escape_debug().to_string();
        let inside = path.strip_prefix(&prefix).ok_or_else(|| format!("{} is not in {prefix}", shown()))?;
        let inside: RelativePath = inside.parse().map_err(|error| format!("{error}"))?;
        let file =
            tree_file(inside.clone(), &entry).ok_or_else(|| format!("the entry of {} has no oid and size", shown()))?;
        if !folded.insert(inside.case_folded()) {
            return Err(format!("{} stands twice, at least where case is ignored", shown()));
        }
        files.insert(inside, file);
    }
    Ok(files.into_values().collect())
}

/// Reads a page of a listing and the answer about refs, as far as they can be read. For the fuzz targets.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_listing(text: &[u8], variant: &Variant) -> Result<Vec<TreeFile>, String> {
    let value = crate::manifest::parse_json_strict(text).map_err(|error| error.to_string())?;
    if let Some(refs) = Refs::read(&value) {
        return Err(format!("refs: {} {}", refs.versions().len(), refs.names().len()));
    }
    files_of(entries_of(value)?, variant)
}

fn tree_file(path: RelativePath, entry: &Value) -> Option<TreeFile> {
    let lfs = match entry.get("lfs").filter(|lfs| !lfs.is_null()) {
        None => None,
        Some(lfs) => {
            let oid = lfs.get("oid").or_else(|| lfs.get("sha256"))?.as_str()?;
            // Some servers write the algorithm before it.
            Some(oid.strip_prefix("sha256:").unwrap_or(oid).parse().ok()?)
        }
    };
    let oid = entry.get("oid").or_else(|| entry.get("blobId"))?.as_str()?;
    // A size is a hint: one that is no number is none.
    let size = entry.get("size").and_then(Value::as_u64).unwrap_or(0);
    Some(TreeFile { path, size, oid: oid.parse().ok()?, lfs })
}

impl TreeFile {
    /// The listing's size as a hint: nothing where the listing says 0.
    pub(super) fn size_hint(&self) -> Option<u64> {
        (self.size > 0).then_some(self.size)
    }
}

/// The part of a blob's id that a transfer checks beside the metadata's digest.
pub(super) fn git_part(id: BlobId) -> Option<crate::digest::GitOid> {
    match id {
        BlobId::Git(oid) => Some(oid),
        BlobId::Sha256(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Refs;
    use crate::fetch::Revision;

    #[test]
    fn versions_are_ordered_by_number_and_junk_is_left_out() {
        let commit = "0123456789012345678901234567890123456789";
        let branch = |name: &str| json!({"name": name, "ref": format!("refs/heads/{name}"), "targetCommit": commit});
        let value = json!({
            "branches": [
                branch("v10"), branch("v2"), branch("main"), branch("v01"), branch("vx"), branch("v-1"),
                {"name": "v3"}, {"name": 4, "targetCommit": commit}, {"name": "v5", "targetCommit": "short"}, null, 7,
            ],
            "tags": [branch("release")],
            "converts": [],
        });
        let refs = Refs::read(&value).unwrap();
        let versions: Vec<u32> = refs.versions().iter().map(|version| version.version).collect();
        assert_eq!(versions, [2, 10]);
        assert_eq!(refs.names(), ["v2", "v10"]);
        let find = |text: &str| refs.find(&text.parse::<Revision>().unwrap()).map(|commit| commit.to_string());
        assert_eq!(find("v2"), Some(commit.to_owned()));
        assert_eq!(find("release"), Some(commit.to_owned()));
        assert_eq!((find("v3"), find("v5"), find("nothing")), (None, None, None));
        for bad in [json!({}), json!([]), json!({"branches": {}}), json!(null)] {
            assert!(Refs::read(&bad).is_none(), "{bad}");
        }
    }
}
