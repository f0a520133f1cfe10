//! Making room: what would go, and letting it go.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::inventory::{CacheEntry, EntryKind, EntryState, files_below, folders, refs, repo_of};
use super::lock::is_held;
use crate::fetch::{Cache, FetchError, RepoType};
use crate::names::RepoId;

/// What to make room of. Leftovers go in any case: partial builds, partial downloads, blobs of no build, archives that
/// no recorded manifest names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PruneOptions {
    /// Only this kernel's. Default: every kernel's.
    pub repo: Option<RepoId>,
    /// Builds of commits that no branch and no tag is recorded at, too. Default: no, because a lock file may pin one.
    pub unreferenced: bool,
    /// Everything. Default: no.
    pub all: bool,
}

/// What would go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrunePlan {
    /// Folders and files, each with why it goes and its bytes. Deeper ones never stand beside their folder.
    pub items: Vec<PruneItem>,
}

/// One folder or file that would go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PruneItem {
    /// Where it is.
    pub path: PathBuf,
    /// What it is.
    pub reason: &'static str,
    /// Its bytes. A link counts nothing; its blob is an item of its own.
    pub bytes: u64,
}

impl PrunePlan {
    /// The bytes that would be free.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.items.iter().map(|item| item.bytes).sum()
    }

    /// Removes everything in the plan. What is gone already is no error.
    ///
    /// # Errors
    /// [`FetchError::Io`] with the first item that could not be removed; those before it are gone.
    pub fn apply(&self) -> Result<(), FetchError> {
        for PruneItem { path, .. } in &self.items {
            let is_folder = path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
            let removed = if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
            match removed {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(FetchError::io("remove", path)(error));
                }
                _ => {}
            }
            // A commit without builds and a build folder without a commit are nothing; they go when they are empty.
            for parent in path.ancestors().skip(1).take(3) {
                let name = parent.file_name().unwrap_or_default();
                if name == "snapshots" || name == "blobs" || name == "archives" || fs::remove_dir(parent).is_err() {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl Cache {
    /// What would go. Removes nothing.
    ///
    /// # Errors
    /// [`FetchError::Io`] when a folder cannot be listed.
    pub fn plan_prune(&self, options: &PruneOptions) -> Result<PrunePlan, FetchError> {
        let mut items = Vec::new();
        let mut gone: BTreeSet<PathBuf> = BTreeSet::new();
        for entry in self.inventory()? {
            if options.repo.is_some() && entry.repo != options.repo {
                continue;
            }
            if self.is_at_work(&entry) {
                continue;
            }
            let is_build = entry.variant.is_some();
            let reason = match (&entry.kind, &entry.state) {
                _ if options.all && is_build => "everything is to go",
                (EntryKind::Hub(_), EntryState::Partial { .. }) if is_build => "a partial build",
                (EntryKind::Archive, EntryState::Foreign { .. }) => "an archive that no recorded manifest names",
                (EntryKind::Hub(_), _) if is_build && options.unreferenced && entry.refs.is_empty() => {
                    "a build of a commit that no ref is at"
                }
                _ => continue,
            };
            let bytes = match entry.kind {
                EntryKind::Archive => entry.bytes,
                // Links count nothing here.
                EntryKind::Hub(_) => own_bytes(&entry.path),
            };
            gone.insert(entry.path.clone());
            items.push(PruneItem { path: entry.path, reason, bytes });
        }
        for (name, path) in folders(self.hub().root())? {
            let is_meant = |repo: &RepoId| options.repo.as_ref().is_none_or(|only| only == repo);
            match repo_of(&name) {
                // Blobs of a model may belong to files of it that are no kernel's; snapshots tell.
                Some((repo, _)) if is_meant(&repo) => {
                    let locks = self.hub().root().join(".locks").join(&name);
                    if !is_held(&self.hub().repo(&repo, RepoType::Kernel).lock_path()) {
                        items.extend(leftovers(&path, &locks, &gone)?);
                    }
                }
                _ => {}
            }
        }
        Ok(PrunePlan { items })
    }

    /// Whether a process fetches an entry's kernel at this moment: what it has brought so far is not a leftover.
    fn is_at_work(&self, entry: &CacheEntry) -> bool {
        match (entry.kind, &entry.repo) {
            // One lock for both types: the kernel's.
            (EntryKind::Hub(_), Some(repo)) => is_held(&self.hub().repo(repo, RepoType::Kernel).lock_path()),
            _ => false,
        }
    }
}

/// Blobs that no file of a build that stays is linked to and that nobody works on, and refs whose commit goes.
fn leftovers(repo: &Path, locks: &Path, gone: &BTreeSet<PathBuf>) -> Result<Vec<PruneItem>, FetchError> {
    let mut used = BTreeSet::new();
    let mut staying = BTreeSet::new();
    for (commit, snapshot) in folders(&repo.join("snapshots"))? {
        for file in files_below(&snapshot) {
            if gone.iter().any(|folder| file.starts_with(folder)) {
                continue;
            }
            staying.insert(commit.clone());
            used.extend(file.read_link().ok().and_then(|target| target.file_name().map(ToOwned::to_owned)));
        }
    }
    let mut items = Vec::new();
    let blobs = repo.join("blobs");
    if blobs.is_dir() {
        for entry in fs::read_dir(&blobs).map_err(FetchError::io("list", &blobs))? {
            let entry = entry.map_err(FetchError::io("list", &blobs))?;
            if used.contains(&entry.file_name()) {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            if is_held(&locks.join(format!("{}.lock", name.split('.').next().unwrap_or(&name)))) {
                continue;
            }
            let is_partial = entry.file_name().to_string_lossy().ends_with(".incomplete");
            let reason = if is_partial { "a partial download" } else { "a blob of no build" };
            let bytes = entry.metadata().map_or(0, |metadata| metadata.len());
            items.push(PruneItem { path: entry.path(), reason, bytes });
        }
    }
    for (name, commit) in refs(repo) {
        if !staying.contains(&commit.to_string()) {
            let path = repo.join("refs").join(name);
            items.push(PruneItem { path, reason: "a ref of a commit that is not here", bytes: 0 });
        }
    }
    items.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(items)
}

/// The bytes of files below a folder, without those behind links.
fn own_bytes(folder: &Path) -> u64 {
    let metadata = files_below(folder).into_iter().filter_map(|path| path.symlink_metadata().ok());
    metadata.filter(fs::Metadata::is_file).map(|metadata| metadata.len()).sum()
}
