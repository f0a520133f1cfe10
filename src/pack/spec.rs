//! What a pack is, and how it is made.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::PackError;
use super::archive::{self, PackFile};
use super::collect::{collect, io_error};
use crate::digest::Sha256Digest;
use crate::manifest::{
    Artifact, ArtifactUrl, BackendInfo, DigestTable, KernelInfo, KernelManifest, LAYERS_FILE, LayersFile,
    MANIFEST_SCHEMA, METADATA_FILE, MINISIGN_FILE, ManifestError, Metadata, Source, is_outside_digest,
};
use crate::names::{RelativePath, RepoId};
use crate::variant::Variant;

/// What a pack says about itself.
#[derive(Debug, Clone, PartialEq)]
pub struct PackSpec {
    /// The publisher's repo, such as `kernelhub/rmsnorm`.
    pub repo: RepoId,
    /// The kernel's version.
    pub version: u32,
    /// SPDX expression.
    pub license: String,
    /// One line for the manifest. Absent: none.
    pub description: Option<String>,
    /// The build.
    pub variant: Variant,
    /// What the build runs on; its kind is the variant's backend.
    pub backend: BackendInfo,
    /// Who built it, from what. Absent: unknown.
    pub provenance: Option<Value>,
}

/// A pack on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// The archive.
    pub archive: PathBuf,
    /// The build in it.
    pub variant: Variant,
    /// The archive's size, in bytes.
    pub size: u64,
    /// The archive's digest.
    pub sha256: Sha256Digest,
    /// The digest of the `metadata.json` inside.
    pub metadata_sha256: Sha256Digest,
}

/// Packs the files of a folder as one build: `<out>/<owner>--<name>-v<version>-<variant>.tar.zst`.
///
/// A `metadata.json` or a signature in the folder is not packed; the metadata is written here.
///
/// # Errors
/// [`PackError::Io`] for a folder that cannot be read or an output that cannot be written; [`PackError::Name`],
/// [`PackError::NotAFile`], [`PackError::LayersAbsent`] and [`PackError::Format`] for what a fetch or a verification
/// would refuse.
pub fn pack_variant(folder: &Path, spec: &PackSpec, out: &Path) -> Result<Packed, PackError> {
    pack_files(folder, spec, out, None)
}

/// As [`pack_variant`], with a signature of the metadata beside it, by which who trusts the key trusts the build.
///
/// # Errors
/// As [`pack_variant`], and [`PackError::Sign`].
#[cfg(feature = "sign")]
pub fn pack_variant_signed(
    folder: &Path,
    spec: &PackSpec,
    out: &Path,
    key: &super::SigningKey,
) -> Result<Packed, PackError> {
    let kernel = format!("{}@v{} {}", spec.repo, spec.version, spec.variant);
    let sign = |metadata: &[u8], earlier: Option<String>| match earlier {
        // Signatures are made with random numbers. One that holds is kept, so that the same files give the same
        // archive.
        Some(earlier) if key.has_signed(metadata, &kernel, &earlier) => Ok(earlier),
        _ => key.sign(metadata, Some(&kernel)),
    };
    pack_files(folder, spec, out, Some(&sign))
}

/// Signs the bytes of a `metadata.json`, given the signature that stands in the archive to be replaced.
type Sign<'a> = &'a dyn Fn(&[u8], Option<String>) -> Result<String, PackError>;

fn pack_files(folder: &Path, spec: &PackSpec, out: &Path, sign: Option<Sign<'_>>) -> Result<Packed, PackError> {
    let mut files = collect(folder)?;
    files.retain(|file| !is_outside_digest(&file.path));
    let Some(layers) = files.iter().find(|file| file.path.as_str() == LAYERS_FILE) else {
        return Err(PackError::LayersAbsent { folder: folder.to_path_buf() });
    };
    check_layers_text(&layers.bytes, folder)?;
    let metadata = metadata(spec, &files)?.to_json().into_bytes();
    let metadata_sha256 = Sha256Digest::of(&metadata);
    let name = |name: &str| name.parse().map_err(|source| PackError::Name { path: folder.join(name), source });
    let archive = out.join(archive_name(&spec.repo, spec.version, &spec.variant));
    if let Some(sign) = sign {
        let earlier = archive::read_text(&archive, &format!("build/{}/{MINISIGN_FILE}", spec.variant));
        let bytes = sign(&metadata, earlier)?.into_bytes();
        files.push(PackFile { path: name(MINISIGN_FILE)?, bytes, is_executable: false });
    }
    files.push(PackFile { path: name(METADATA_FILE)?, bytes: metadata, is_executable: false });
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let bytes = archive::build(&files, &spec.variant).map_err(io_error("pack", folder))?;
    fs::create_dir_all(out).map_err(io_error("make the folder", out))?;
    write_atomically(&archive, &bytes)?;
    Ok(Packed {
        archive,
        variant: spec.variant,
        size: bytes.len() as u64,
        sha256: Sha256Digest::of(&bytes),
        metadata_sha256,
    })
}

/// The manifest of one version's packs, with URLs relative to `folder`, where the manifest will stand.
///
/// # Errors
/// [`PackError::NotBeside`] for an archive outside that folder, [`PackError::Format`] when the packs make no valid
/// manifest: none at all, or two of one variant.
pub fn manifest(spec: &PackSpec, packs: &[Packed], folder: &Path) -> Result<KernelManifest, PackError> {
    let artifacts = packs.iter().map(|pack| {
        let not_beside = || PackError::NotBeside { archive: pack.archive.clone(), folder: folder.to_path_buf() };
        let relative = pack.archive.strip_prefix(folder).map_err(|_| not_beside())?;
        let parts: Option<Vec<&str>> = relative.iter().map(|part| part.to_str()).collect();
        let path: RelativePath = parts
            .ok_or_else(not_beside)?
            .join("/")
            .parse()
            .map_err(|source| PackError::Name { path: pack.archive.clone(), source })?;
        Ok(Artifact {
            variant: pack.variant,
            url: ArtifactUrl::Relative(path),
            size: pack.size,
            sha256: pack.sha256,
            metadata_sha256: pack.metadata_sha256,
        })
    });
    let mut artifacts = artifacts.collect::<Result<Vec<_>, PackError>>()?;
    artifacts.sort_by_key(|a| a.variant);
    let manifest = KernelManifest {
        schema: MANIFEST_SCHEMA,
        kernel: KernelInfo {
            repo: spec.repo.clone(),
            version: spec.version,
            license: spec.license.clone(),
            description: spec.description.clone(),
            source: Source::Archive,
        },
        artifacts,
        layers: Vec::new(),
    };
    manifest.check("the packs").map_err(|source| PackError::Format { source })?;
    Ok(manifest)
}

/// Writes a manifest as `<folder>/<repo name>.toml` and returns its path.
///
/// # Errors
/// [`PackError::Format`] for a manifest outside its format, [`PackError::Io`] when it cannot be written.
pub fn write_manifest(manifest: &KernelManifest, folder: &Path) -> Result<PathBuf, PackError> {
    let text = manifest.to_toml().map_err(|source| PackError::Format { source })?;
    let path = folder.join(format!("{}.toml", manifest.kernel.repo.name()));
    fs::create_dir_all(folder).map_err(io_error("make the folder", folder))?;
    write_atomically(&path, text.as_bytes())?;
    Ok(path)
}

/// What the pack says about itself, checked as a fetch would check it.
fn metadata(spec: &PackSpec, files: &[PackFile]) -> Result<Metadata, PackError> {
    let digests: BTreeMap<_, _> = files.iter().map(|file| (file.path.clone(), Sha256Digest::of(&file.bytes))).collect();
    // The id names this very build: the digest of its files' digests.
    let mut content = String::new();
    for (path, digest) in &digests {
        writeln!(content, "{digest}  {path}").ok();
    }
    let digest = Sha256Digest::of(content.as_bytes()).to_string();
    let metadata = Metadata {
        name: spec.repo.name().to_owned(),
        id: format!("_{}_{}_{}", spec.repo.name().replace('-', "_"), spec.backend.kind, &digest[..12]),
        version: spec.version,
        license: Some(spec.license.clone()),
        python_depends: Vec::new(),
        kernel_depends: Vec::new(),
        backend: spec.backend.clone(),
        digest: Some(DigestTable { files: digests, faults: Vec::new() }),
        provenance: spec.provenance.clone(),
    };
    let violations = metadata.identity_violations(&spec.repo, spec.version, &spec.variant);
    if violations.is_empty() { Ok(metadata) } else { Err(PackError::Spec { violations }) }
}

fn check_layers_text(bytes: &[u8], folder: &Path) -> Result<(), PackError> {
    let origin = folder.join(LAYERS_FILE).display().to_string();
    let source = match std::str::from_utf8(bytes) {
        Ok(text) => match LayersFile::parse(text, &origin) {
            Ok(_) => return Ok(()),
            Err(source) => source,
        },
        Err(error) => ManifestError::Invalid {
            origin,
            field: LAYERS_FILE.to_owned(),
            reason: format!("not UTF-8 at byte {}", error.valid_up_to()),
        },
    };
    Err(PackError::Format { source })
}

/// The file name of a build's archive.
pub(crate) fn archive_name(repo: &RepoId, version: u32, variant: &Variant) -> String {
    format!("{}--{}-v{version}-{variant}.tar.zst", repo.owner(), repo.name())
}

/// A temporary file, to be moved into place in the same folder.
pub(super) fn temporary_in(folder: &Path) -> Result<tempfile::NamedTempFile, PackError> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".pack-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        // A temporary file is private; a pack is meant to be served. The process's umask still counts.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder).map_err(io_error("make a file in", folder))
}

/// A reader meets the old file or the new one, never a part.
pub(super) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), PackError> {
    let mut file = temporary_in(path.parent().unwrap_or_else(|| Path::new(".")))?;
    file.write_all(bytes).map_err(io_error("write", path))?;
    file.persist(path).map_err(|error| io_error("write", path)(error.error))?;
    Ok(())
}
