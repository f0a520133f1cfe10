//! A folder of archives and manifests, which a web server or a shared file system offers to others.

use std::io;
use std::path::{Path, PathBuf};

use super::PackError;
use super::collect::io_error;
use super::publication::{Publication, copy_checked, local_path, read_manifest};
use super::spec::{archive_name, temporary_in, write_atomically};
use crate::manifest::{Artifact, ArtifactUrl, KernelManifest};
use crate::regular;

/// What a push to a folder did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirrored {
    /// The manifest in the folder.
    pub manifest: PathBuf,
    /// Archives that were copied.
    pub copied: u32,
    /// Bytes of the archives that were copied.
    pub bytes_copied: u64,
    /// Whether the version had another content before.
    pub replaced: bool,
    /// Whether the version was there already, whole; then nothing was written.
    pub unchanged: bool,
}

impl Publication {
    /// Copies a kernel into a folder mirror: the archives, then `<owner>--<name>-v<version>.toml`, each by one rename,
    /// so that a reader meets the version whole or not at all.
    ///
    /// An archive's name carries its digest. With `replace`, a reader of the old manifest therefore still finds its
    /// archives; they stay in the folder.
    ///
    /// # Errors
    /// [`PackError::Conflict`] when the version is there with another content and `replace` is false;
    /// [`PackError::OtherArchive`] for an archive that changed since it was opened; [`PackError::Format`] when what
    /// stands there is no manifest; [`PackError::Io`] when the folder cannot be read or written.
    pub fn mirror(&self, folder: &Path, replace: bool) -> Result<Mirrored, PackError> {
        let kernel = &self.manifest().kernel;
        let path = folder.join(format!("{}--{}-v{}.toml", kernel.repo.owner(), kernel.repo.name(), kernel.version));
        let existing = match read_manifest(&path) {
            Ok(existing) => Some(existing),
            Err(PackError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
            // Whatever stands there is what `replace` is for.
            Err(PackError::Format { .. }) if replace => None,
            Err(error) => return Err(error),
        };
        let is_same = existing.as_ref().is_some_and(|existing| content(existing) == content(self.manifest()));
        if existing.is_some() && !is_same && !replace {
            return Err(PackError::Conflict { manifest: path });
        }
        std::fs::create_dir_all(folder).map_err(io_error("make the folder", folder))?;
        let mut published = match existing {
            Some(existing) if is_same => existing,
            _ => {
                let mut manifest = self.manifest().clone();
                for artifact in &mut manifest.artifacts {
                    let name = mirrored_name(&manifest.kernel, artifact);
                    let path = name.parse().map_err(|source| PackError::Name { path: folder.join(&name), source })?;
                    artifact.url = ArtifactUrl::Relative(path);
                }
                manifest
            }
        };
        published.artifacts.sort_by_key(|artifact| artifact.variant);
        let mut mirrored =
            Mirrored { manifest: path.clone(), copied: 0, bytes_copied: 0, replaced: false, unchanged: is_same };
        for (artifact, archive) in self.manifest().artifacts.iter().zip(self.archives()) {
            let Some(target) = published.artifact(&artifact.variant) else { continue };
            let target = local_path(target, folder)?;
            if is_there(&target, artifact) {
                continue;
            }
            copy(archive, artifact, &target, folder)?;
            mirrored.copied += 1;
            mirrored.bytes_copied += artifact.size;
            mirrored.unchanged = false;
        }
        if is_same {
            return Ok(mirrored);
        }
        let text = published.to_toml().map_err(|source| PackError::Format { source })?;
        if replace {
            mirrored.replaced = path.exists();
            write_atomically(&path, text.as_bytes())?;
        } else {
            write_new(&path, text.as_bytes(), folder)?;
        }
        Ok(mirrored)
    }
}

/// What makes two manifests the same publication: everything but where the archives are and their order.
fn content(manifest: &KernelManifest) -> KernelManifest {
    let mut manifest = manifest.clone();
    for artifact in &mut manifest.artifacts {
        if let Ok(url) = artifact.sha256.to_string().parse() {
            artifact.url = url;
        }
    }
    manifest.artifacts.sort_by_key(|artifact| artifact.variant);
    manifest
}

fn mirrored_name(kernel: &crate::manifest::KernelInfo, artifact: &Artifact) -> String {
    let name = archive_name(&kernel.repo, kernel.version, &artifact.variant);
    let digest = artifact.sha256.to_string();
    format!("{}-{}.tar.zst", name.trim_end_matches(".tar.zst"), &digest[..16])
}

/// Whether the archive stands there, whole.
fn is_there(path: &Path, artifact: &Artifact) -> bool {
    regular::open(path).is_ok_and(|file| copy_checked(file, path, artifact, &mut io::sink(), Path::new("")).is_ok())
}

fn copy(from: &Path, artifact: &Artifact, to: &Path, folder: &Path) -> Result<(), PackError> {
    let mut file = temporary_in(folder)?;
    let archive = regular::open(from).map_err(io_error("open", from))?;
    copy_checked(archive, from, artifact, &mut file, to)?;
    file.as_file().sync_all().map_err(io_error("write", to))?;
    file.persist(to).map_err(|error| io_error("write", to)(error.error))?;
    Ok(())
}

/// Writes a manifest where none stands. Another process that was faster is met here.
fn write_new(path: &Path, bytes: &[u8], folder: &Path) -> Result<(), PackError> {
    use std::io::Write as _;
    let mut file = temporary_in(folder)?;
    file.write_all(bytes).map_err(io_error("write", path))?;
    file.persist_noclobber(path).map(drop).map_err(|error| {
        if error.error.kind() == io::ErrorKind::AlreadyExists {
            PackError::Conflict { manifest: path.to_path_buf() }
        } else {
            io_error("write", path)(error.error)
        }
    })
}
