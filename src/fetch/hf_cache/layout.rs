//! Where things stand, and reading them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::digest::BlobId;
use crate::fetch::{CommitId, FetchError, RepoType, Revision};
use crate::manifest::{MAX_METADATA_BYTES, METADATA_FILE, Metadata};
use crate::names::{RelativePath, RepoId};
use crate::regular;
use crate::variant::Variant;

/// Largest ref, in bytes: one commit and at most a line's end.
pub(super) const MAX_REF_BYTES: u64 = 64;

/// The folder of the Hub's repos on this machine.
#[derive(Debug, Clone)]
pub struct HubCache {
    root: PathBuf,
    links: bool,
}

impl HubCache {
    pub(in crate::fetch) fn at(root: PathBuf, links: bool) -> Self {
        Self { root, links }
    }

    /// The folder, absolute. It may not exist yet.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of one repo.
    #[must_use]
    pub fn repo_path(&self, repo: &RepoId, repo_type: RepoType) -> PathBuf {
        self.repo(repo, repo_type).path
    }

    /// The commit that a branch or tag was at when something of it was last fetched.
    #[must_use]
    pub fn recorded_ref(&self, repo: &RepoId, repo_type: RepoType, name: &Revision) -> Option<CommitId> {
        self.repo(repo, repo_type).read_ref(&name.to_string())
    }

    /// The versions whose refs are recorded, ascending, each with its commit.
    #[must_use]
    pub fn recorded_versions(&self, repo: &RepoId) -> Vec<(u32, CommitId)> {
        let mut versions = Vec::new();
        for repo_type in [RepoType::Kernel, RepoType::Model] {
            let folder = self.repo(repo, repo_type);
            let Ok(entries) = fs::read_dir(folder.path.join("refs")) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name();
                let version = name.to_str().and_then(crate::fetch::revision::parse_version);
                let known = |version| versions.iter().any(|(known, _)| *known == version);
                if let Some(version) = version.filter(|version| !known(*version))
                    && let Some(commit) = folder.read_ref(&format!("v{version}"))
                {
                    versions.push((version, commit));
                }
            }
        }
        versions.sort_unstable();
        versions
    }

    pub(in crate::fetch) fn repo(&self, repo: &RepoId, repo_type: RepoType) -> RepoFolder {
        let name = format!("{}--{}--{}", repo_type.plural(), repo.owner(), repo.name());
        RepoFolder {
            locks: self.root.join(".locks").join(&name),
            path: self.root.join(&name),
            links: self.links,
            repo_type,
        }
    }
}

/// The folder of one repo.
#[derive(Debug, Clone)]
pub(in crate::fetch) struct RepoFolder {
    pub(in crate::fetch) path: PathBuf,
    pub(super) locks: PathBuf,
    pub(super) links: bool,
    pub(in crate::fetch) repo_type: RepoType,
}

impl RepoFolder {
    pub(in crate::fetch) fn blobs(&self) -> PathBuf {
        self.path.join("blobs")
    }

    pub(in crate::fetch) fn blob(&self, id: BlobId) -> PathBuf {
        self.blobs().join(id.to_string())
    }

    pub(in crate::fetch) fn partial(&self, id: BlobId) -> PathBuf {
        self.blobs().join(format!("{id}.incomplete"))
    }

    pub(in crate::fetch) fn builds(&self, commit: CommitId) -> PathBuf {
        self.path.join("snapshots").join(commit.to_string()).join("build")
    }

    pub(in crate::fetch) fn variant(&self, commit: CommitId, variant: &Variant) -> PathBuf {
        self.builds(commit).join(variant.to_string())
    }

    /// The names of the builds of which something is here, sorted.
    pub(in crate::fetch) fn variants(&self, commit: CommitId) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.builds(commit)) else { return Vec::new() };
        let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let mut names: Vec<String> = folders.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// The commit of a ref, `None` where none is recorded or the record is not a commit.
    pub(in crate::fetch) fn read_ref(&self, name: &str) -> Option<CommitId> {
        let path = name.parse::<RelativePath>().ok()?.below(&self.path.join("refs"));
        let text = regular::read(&path, MAX_REF_BYTES).ok()?;
        std::str::from_utf8(&text).ok()?.trim().parse().ok()
    }

    /// Records a ref by one rename. Writes nothing where it is recorded already.
    pub(in crate::fetch) fn write_ref(&self, name: &str, commit: CommitId) -> Result<(), FetchError> {
        if self.read_ref(name) == Some(commit) {
            return Ok(());
        }
        let Ok(name) = name.parse::<RelativePath>() else { return Ok(()) };
        write_atomically(&name.below(&self.path.join("refs")), commit.to_string().as_bytes())
    }

    /// The bytes of a build's `metadata.json`, `None` where it is not here.
    pub(in crate::fetch) fn metadata_bytes(
        &self,
        commit: CommitId,
        variant: &Variant,
    ) -> Result<Option<Vec<u8>>, FetchError> {
        let path = self.variant(commit, variant).join(METADATA_FILE);
        let file = match regular::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(FetchError::io("open", path)(error)),
        };
        regular::read_start(file, MAX_METADATA_BYTES + 1).map(Some).map_err(FetchError::io("read", &path))
    }

    /// What the name of a linked blob says that a file is. `None`: it is no link, or one to elsewhere.
    pub(in crate::fetch) fn linked_blob(&self, commit: CommitId, variant: &Variant, file: &str) -> Option<BlobId> {
        let target = fs::read_link(self.variant(commit, variant).join(file)).ok()?;
        target.file_name()?.to_str()?.parse().ok()
    }

    /// The files that the metadata lists and that are not here, in the metadata's order.
    pub(in crate::fetch) fn missing(
        &self,
        commit: CommitId,
        variant: &Variant,
        metadata: &Metadata,
    ) -> Vec<RelativePath> {
        let root = self.variant(commit, variant);
        let files = metadata.digest.iter().flat_map(|digest| digest.files.keys());
        files.filter(|path| !path.below(&root).is_file()).cloned().collect()
    }
}

/// Writes a small file by one rename.
pub(in crate::fetch) fn write_atomically(path: &Path, text: &[u8]) -> Result<(), FetchError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(FetchError::io("make the folder", folder))?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(".record-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        // A temporary file is private; a cache may be shared. The process's umask still counts.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let temporary = builder.tempfile_in(folder).map_err(FetchError::io("make a file in", folder))?;
    fs::write(temporary.path(), text).map_err(FetchError::io("write", temporary.path()))?;
    temporary.persist(path).map_err(|error| FetchError::io("write", path)(error.error))?;
    Ok(())
}
