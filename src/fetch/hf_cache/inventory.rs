//! What is in the cache, and how much of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::layout::{HubCache, MAX_REF_BYTES, RepoFolder};
use super::records::Records;
use crate::digest::{BlobId, Sha256Digest};
use crate::fetch::{Anchor, Cache, CommitId, FetchError, RepoType, Snapshot};
use crate::manifest::{MAX_MANIFEST_BYTES, METADATA_FILE, Metadata};
use crate::names::RepoId;
use crate::regular;
use crate::variant::AnyVariant;

/// One build in the cache, or a repo that holds none.
#[derive(Debug, Clone, PartialEq)]
pub struct CacheEntry {
    /// Which part of the cache it is in.
    pub kind: EntryKind,
    /// The kernel. `None`: its folder does not say, which is so for an archive without a recorded manifest.
    pub repo: Option<RepoId>,
    /// The version, as the metadata or the manifest says.
    pub version: Option<u32>,
    /// The commit, or `sha256:<archive>`. `None`: the repo has no snapshot.
    pub revision: Option<String>,
    /// The branches and tags that are recorded as being at this commit.
    pub refs: Vec<String>,
    /// The build. `None`: there is none.
    pub variant: Option<AnyVariant>,
    /// Whether it is whole.
    pub state: EntryState,
    /// The bytes of its files. Files that several builds share count for each.
    pub bytes: u64,
    /// Its folder.
    pub path: PathBuf,
    /// For a whole build: what [`crate::verify::verify`] takes.
    pub snapshot: Option<Snapshot>,
}

/// A part of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// The Hub's repos, of this type.
    Hub(RepoType),
    /// Archives.
    Archive,
}

/// Whether a build is whole. Whether its bytes are right, only [`crate::verify::verify`] tells.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryState {
    /// Every file that its digest lists is there.
    Complete,
    /// Some are missing: a download that broke off, or one that has only begun.
    Partial {
        /// The missing files. Empty: its metadata is missing or unreadable, so that nobody knows.
        missing: Vec<String>,
    },
    /// Nothing that this version takes for a build.
    Foreign {
        /// Why.
        reason: String,
    },
}

impl Cache {
    /// Every build in the cache, sorted by folder, and every repo that holds none. Reads listings and metadata, and no
    /// other file.
    ///
    /// # Errors
    /// [`FetchError::Io`] when a folder cannot be listed.
    pub fn inventory(&self) -> Result<Vec<CacheEntry>, FetchError> {
        let mut entries = Vec::new();
        for (name, path) in folders(self.hub().root())? {
            let Some((repo, repo_type)) = repo_of(&name) else { continue };
            entries.extend(self.hub().entries(&repo, repo_type, &path, &self.records())?);
        }
        entries.extend(self.archive_entries()?);
        Ok(entries)
    }

    fn archive_entries(&self) -> Result<Vec<CacheEntry>, FetchError> {
        let mut named = BTreeMap::new();
        for (_, folder) in folders(&self.root().join("manifests"))? {
            for file in fs::read_dir(&folder).map_err(FetchError::io("list", &folder))?.flatten() {
                let Ok(text) = regular::read(&file.path(), MAX_MANIFEST_BYTES) else { continue };
                let Ok(text) = String::from_utf8(text) else { continue };
                let Ok(manifest) = crate::manifest::KernelManifest::parse(&text, "a recorded manifest") else {
                    continue;
                };
                for artifact in &manifest.artifacts {
                    named.insert(artifact.sha256, (manifest.clone(), artifact.clone()));
                }
            }
        }
        let mut entries = Vec::new();
        for (name, path) in folders(&self.root().join("archives"))? {
            let Ok(sha256) = name.parse::<Sha256Digest>() else { continue };
            let known = named.get(&sha256);
            let snapshot = known.and_then(|(manifest, artifact)| self.snapshot(manifest, artifact));
            let builds = folders(&path.join("build"))?;
            let state = match (&snapshot, builds.as_slice()) {
                (Some(_), _) => EntryState::Complete,
                (None, []) => EntryState::Foreign { reason: "it holds no build".to_owned() },
                (None, _) => EntryState::Foreign { reason: "no recorded manifest names it".to_owned() },
            };
            entries.push(CacheEntry {
                kind: EntryKind::Archive,
                repo: known.map(|(manifest, _)| manifest.kernel.repo.clone()),
                version: known.map(|(manifest, _)| manifest.kernel.version),
                revision: Some(format!("sha256:{sha256}")),
                refs: Vec::new(),
                variant: builds.first().map(|(name, _)| AnyVariant::read(name)),
                state,
                bytes: size_below(&path),
                path,
                snapshot,
            });
        }
        Ok(entries)
    }
}

impl HubCache {
    fn entries(
        &self,
        repo: &RepoId,
        repo_type: RepoType,
        path: &Path,
        records: &Records,
    ) -> Result<Vec<CacheEntry>, FetchError> {
        let folder = self.repo(repo, repo_type);
        let refs = refs(path);
        let nothing = |state| CacheEntry {
            kind: EntryKind::Hub(repo_type),
            repo: Some(repo.clone()),
            version: None,
            revision: None,
            refs: Vec::new(),
            variant: None,
            state,
            bytes: size_below(path),
            path: path.to_path_buf(),
            snapshot: None,
        };
        let mut entries = Vec::new();
        for (name, _) in folders(&path.join("snapshots"))? {
            let Ok(commit) = name.parse::<CommitId>() else {
                entries.push(nothing(EntryState::Foreign {
                    reason: format!("a snapshot of {name:?}, which is no commit"),
                }));
                continue;
            };
            for variant in folder.variants(commit) {
                entries.push(folder.entry(repo, commit, &variant, &refs, records)?);
            }
        }
        if entries.is_empty() {
            // A model that is no kernel looks like a kernel of which nothing has arrived.
            entries.push(nothing(match repo_type {
                RepoType::Kernel => EntryState::Partial { missing: Vec::new() },
                RepoType::Model => EntryState::Foreign { reason: "a model without kernel builds".to_owned() },
            }));
        }
        Ok(entries)
    }
}

impl RepoFolder {
    fn entry(
        &self,
        repo: &RepoId,
        commit: CommitId,
        name: &str,
        refs: &BTreeMap<String, CommitId>,
        records: &Records,
    ) -> Result<CacheEntry, FetchError> {
        let variant = AnyVariant::read(name);
        let path = self.builds(commit).join(name);
        let mut entry = CacheEntry {
            kind: EntryKind::Hub(self.repo_type),
            repo: Some(repo.clone()),
            version: None,
            revision: Some(commit.to_string()),
            refs: refs.iter().filter(|(_, at)| **at == commit).map(|(name, _)| name.clone()).collect(),
            state: EntryState::Partial { missing: Vec::new() },
            bytes: size_below(&path),
            snapshot: None,
            variant: Some(variant.clone()),
            path,
        };
        let Some(known) = variant.known() else {
            entry.state = EntryState::Foreign { reason: "a build whose name is unknown to this version".to_owned() };
            return Ok(entry);
        };
        let Some(bytes) = self.metadata_bytes(commit, &known)? else {
            entry.state = EntryState::Partial { missing: vec![METADATA_FILE.to_owned()] };
            return Ok(entry);
        };
        let metadata = match Metadata::parse(&bytes, METADATA_FILE) {
            Ok(metadata) => metadata,
            Err(error) => {
                entry.state = EntryState::Foreign { reason: error.to_string() };
                return Ok(entry);
            }
        };
        entry.version = Some(metadata.version);
        if metadata.digest.is_none() {
            entry.state = EntryState::Foreign { reason: "a build without a digest".to_owned() };
            return Ok(entry);
        }
        let missing = self.missing(commit, &known, &metadata);
        if !missing.is_empty() {
            entry.state = EntryState::Partial { missing: missing.iter().map(ToString::to_string).collect() };
            return Ok(entry);
        }
        entry.state = EntryState::Complete;
        entry.snapshot = Some(Snapshot {
            repo: repo.clone(),
            version: metadata.version,
            variant: known,
            root: entry.path.clone(),
            anchor: Anchor::Hub {
                repo_type: self.repo_type,
                commit,
                metadata: self.anchor(repo, commit, &known, records),
            },
            blobs: Some(self.blobs()),
        });
        Ok(entry)
    }

    /// What the commit's tree says that a build's `metadata.json` is: the recorded listing's word, else the name of the
    /// linked blob.
    pub(in crate::fetch) fn anchor(
        &self,
        repo: &RepoId,
        commit: CommitId,
        variant: &crate::variant::Variant,
        records: &Records,
    ) -> Option<BlobId> {
        let record = records.builds(repo, self.repo_type, commit);
        let files = record.as_ref().and_then(|record| record.files.get(&variant.to_string()));
        let listed = files.and_then(|files| files.iter().find(|file| file.path.as_str() == METADATA_FILE));
        listed.map(super::TreeFile::blob).or_else(|| self.linked_blob(commit, variant, METADATA_FILE))
    }
}

/// The repo that a folder's name stands for.
pub(super) fn repo_of(folder: &str) -> Option<(RepoId, RepoType)> {
    let (prefix, rest) = folder.split_once("--")?;
    let repo_type = [RepoType::Kernel, RepoType::Model].into_iter().find(|kind| kind.plural() == prefix)?;
    let (owner, name) = rest.split_once("--")?;
    Some((format!("{owner}/{name}").parse().ok()?, repo_type))
}

/// The folders in a folder, by name. None where it is not there.
pub(super) fn folders(folder: &Path) -> Result<Vec<(String, PathBuf)>, FetchError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(FetchError::io("list", folder)(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(FetchError::io("list", folder))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Ok(name) = entry.file_name().into_string()
        {
            found.push((name, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// Every ref of a repo with its commit, refs in folders included.
pub(super) fn refs(repo: &Path) -> BTreeMap<String, CommitId> {
    let mut found = BTreeMap::new();
    let mut open = vec![(repo.join("refs"), String::new())];
    while let Some((folder, prefix)) = open.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push((entry.path(), format!("{name}/")));
            } else if let Some(commit) = commit_of(&entry.path()) {
                found.insert(name, commit);
            }
        }
    }
    found
}

/// What a ref's file says.
fn commit_of(path: &Path) -> Option<CommitId> {
    let text = String::from_utf8(regular::read(path, MAX_REF_BYTES).ok()?).ok()?;
    text.trim().parse().ok()
}

/// The bytes of the files below a folder, behind links too, each file once.
pub(super) fn size_below(folder: &Path) -> u64 {
    files_below(folder)
        .iter()
        .filter_map(|path| path.canonicalize().ok())
        .collect::<BTreeSet<_>>()
        .iter()
        .filter_map(|path| path.metadata().ok())
        .map(|metadata| metadata.len())
        .sum()
}

/// The files and links below a folder.
pub(super) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            } else {
                found.push(entry.path());
            }
        }
    }
    found
}
