//! The verified build.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use super::elf::{Finding, ScanRules, fit, is_scanned};
use super::read::ReadFiles;
use super::walk::{Found, io_error, not_a_file, open_regular, place_of, walk};
use super::{VerifiedLibrary, VerifyError, VerifyOptions};
use crate::digest::{Sha256Digest, Violation, ViolationKind};
use crate::fetch::{Anchor, Snapshot};
use crate::manifest::{LAYERS_FILE, LAYERS_SCHEMA, LayerSpec, LayersFile, MAX_METADATA_BYTES, METADATA_FILE, Metadata};
use crate::names::{RelativePath, RepoId};
use crate::system::linker::Linker;
use crate::variant::Variant;

/// Most files and folders in a build.
pub const MAX_FILES: usize = 10_000;
/// Largest text file that is kept in memory, in bytes.
pub const MAX_TEXT_BYTES: u64 = 16 << 20;

/// A build whose every file had its digest when it was read.
#[derive(Debug)]
pub struct VerifiedSnapshot {
    repo: RepoId,
    version: u32,
    variant: Variant,
    root: PathBuf,
    anchor: Anchor,
    has_digest: bool,
    metadata: Metadata,
    layers: LayersFile,
    texts: BTreeMap<RelativePath, String>,
    libraries: Vec<VerifiedLibrary>,
    rules: ScanRules,
    findings: Vec<Finding>,
    files: usize,
    bytes: u64,
}

impl VerifiedSnapshot {
    /// The kernel's repo.
    #[must_use]
    pub fn repo(&self) -> &RepoId {
        &self.repo
    }

    /// The kernel's version.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The build.
    #[must_use]
    pub fn variant(&self) -> &Variant {
        &self.variant
    }

    /// The build's folder in the cache. For reports: what is loaded comes from [`Self::library`] and [`Self::text`].
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What its metadata was compared with.
    #[must_use]
    pub fn anchor(&self) -> &Anchor {
        &self.anchor
    }

    /// Whether its files were compared with a digest in its metadata. No: it is a local folder whose metadata has none.
    #[must_use]
    pub fn has_digest(&self) -> bool {
        self.has_digest
    }

    /// What the build says about itself.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Says which layers the build serves, where it does not say so itself: kernels of the Hub have no `layers.toml`, and
    /// a kernel manifest is their binding. A build with a `layers.toml` keeps it.
    #[must_use]
    pub fn with_layers(mut self, layers: Vec<LayerSpec>) -> Self {
        if self.layers.layers.is_empty() {
            self.layers.layers = layers;
        }
        self
    }

    /// The layers that it serves, from the verified bytes of its `layers.toml`, else from [`Self::with_layers`]. Empty:
    /// nobody says.
    #[must_use]
    pub fn layers(&self) -> &LayersFile {
        &self.layers
    }

    /// The build's native library.
    ///
    /// # Errors
    /// [`VerifyError::LibraryCount`] unless the build has exactly one.
    pub fn library(&self) -> Result<&VerifiedLibrary, VerifyError> {
        match self.libraries.as_slice() {
            [library] => Ok(library),
            libraries => Err(VerifyError::LibraryCount {
                repo: self.repo.clone(),
                version: self.version,
                variant: self.variant,
                found: libraries.iter().map(|library| library.path().display().to_string()).collect(),
            }),
        }
    }

    /// The verified text of a `.toml`, `.wgsl`, `.json` or `.py` file. `None`: the digest lists no such file, or it is
    /// not UTF-8.
    #[must_use]
    pub fn text(&self, path: &RelativePath) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// What the scan of its libraries found, from their files alone. What it refuses does not load:
    /// [`crate::load::KernelLibrary::open`] holds to it.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The rules that its libraries were scanned by.
    #[must_use]
    pub fn rules(&self) -> &ScanRules {
        &self.rules
    }

    /// What a machine and a process say to its libraries: those that they need and that are not there, or are too old.
    /// Both what is refused and what is warned of.
    #[must_use]
    pub fn fit(&self, linker: &Linker) -> Vec<Finding> {
        let facts = self.libraries.iter().filter_map(|library| Some((library.relative(), library.facts()?)));
        facts.flat_map(|(path, facts)| fit(path.as_str(), facts, linker, &self.rules)).collect()
    }

    /// How many files were hashed, `metadata.json` not counted.
    #[must_use]
    pub fn files(&self) -> usize {
        self.files
    }

    /// The bytes of those files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Reads and checks every file of a build.
///
/// # Errors
/// [`VerifyError::Violations`] with everything that is not as published: a `metadata.json` that is not the anchored one
/// or is about another kernel, files with other bytes, missing files, files that the digest does not list, links and
/// other things that are no regular file. [`VerifyError::Absent`], [`VerifyError::Io`] and the other variants when the
/// files cannot be read or the texts in them are outside their format.
///
/// What the scan of libraries finds is in [`VerifiedSnapshot::findings`]: a build for another machine may be brought and
/// passed on whatever its libraries are, and loading one is what the findings refuse.
pub fn verify(snapshot: &Snapshot) -> Result<VerifiedSnapshot, VerifyError> {
    verify_with(snapshot, &VerifyOptions::default())
}

/// As [`verify`], by other settings.
///
/// # Errors
/// As [`verify`].
pub fn verify_with(snapshot: &Snapshot, options: &VerifyOptions) -> Result<VerifiedSnapshot, VerifyError> {
    let (repo, version, variant) = (snapshot.repo(), snapshot.version(), snapshot.variant());
    let root = snapshot.root();
    let refuse =
        |violations| Err(VerifyError::Violations { repo: repo.clone(), version, variant: *variant, violations });
    match root.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => return refuse(vec![not_a_file(".", "something that is no folder")]),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let root = root.to_path_buf();
            return Err(VerifyError::Absent { repo: repo.clone(), version, variant: *variant, root });
        }
        Err(error) => return Err(io_error("look at", root)(error)),
    }
    // The anchor first: metadata that is not the anchored one says nothing about the other files.
    let bytes = match read_metadata(snapshot)? {
        Ok(bytes) => bytes,
        Err(violation) => return refuse(vec![violation]),
    };
    let origin = root.join(METADATA_FILE).display().to_string();
    let metadata = Metadata::parse(&bytes, &origin).map_err(|source| VerifyError::Metadata {
        repo: repo.clone(),
        version,
        variant: *variant,
        source: Box::new(source),
    })?;
    let Found { files, mut violations } = walk(snapshot)?;
    let mut read = ReadFiles::read(files, &metadata, options.trusted.as_ref())?;
    violations.append(&mut read.violations);
    let no_files: BTreeSet<String> = violations.iter().map(|violation| violation.path.clone()).collect();
    // What is there but is no file, or was not read, was reported as that; it is not missing as well.
    let content = metadata
        .violations(&read.digests)
        .into_iter()
        .filter(|violation| violation.kind != ViolationKind::FileMissing || !no_files.contains(&violation.path));
    let has_digest = metadata.digest.is_some();
    // Whoever named a local folder vouches for it; a digest that is there still counts.
    if has_digest || *snapshot.anchor() != Anchor::Local {
        violations.extend(content);
    }
    violations.extend(metadata.identity_violations(repo, version, variant));
    violations.sort();
    if !violations.is_empty() {
        return refuse(violations);
    }
    // Last: of bytes that are not the published ones, what they are is of no interest.
    let mut findings = Vec::new();
    if is_scanned(variant) {
        for library in &mut read.libraries {
            findings.extend(library.scan(variant, &options.rules)?);
        }
    }
    let layers_path = RelativePath::from_str(LAYERS_FILE).ok();
    let layers = match layers_path.and_then(|path| read.texts.get(&path)) {
        Some(text) => LayersFile::parse(text, &root.join(LAYERS_FILE).display().to_string()).map_err(|source| {
            VerifyError::Layers { repo: repo.clone(), version, variant: *variant, source: Box::new(source) }
        })?,
        None if snapshot.anchor().archive_sha256().is_some() => {
            return Err(VerifyError::LayersAbsent { repo: repo.clone(), version, variant: *variant });
        }
        None => LayersFile { schema: LAYERS_SCHEMA, layers: Vec::new() },
    };
    tracing::debug!(%repo, version, %variant, files = read.digests.len(), bytes = read.bytes, "verified");
    Ok(VerifiedSnapshot {
        repo: repo.clone(),
        version,
        variant: *variant,
        root: root.to_path_buf(),
        anchor: snapshot.anchor().clone(),
        has_digest,
        metadata,
        layers,
        files: metadata_free_count(&read.digests),
        texts: read.texts,
        libraries: read.libraries,
        rules: options.rules,
        findings,
        bytes: read.bytes,
    })
}

/// The anchored bytes of `metadata.json`, or in what they are not those.
fn read_metadata(snapshot: &Snapshot) -> Result<Result<Vec<u8>, Violation>, VerifyError> {
    let path = snapshot.root().join(METADATA_FILE);
    let anchor = snapshot.anchor().metadata();
    let expected = anchor.map(|anchor| anchor.describe());
    let violation =
        |kind, actual| Violation { kind, path: METADATA_FILE.to_owned(), expected: expected.clone(), actual };
    let place = match place_of(&path, snapshot.blobs()) {
        Ok(Some(place)) => place,
        Ok(None) => return Ok(Err(not_a_file(METADATA_FILE, "a link to elsewhere"))),
        Err(VerifyError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(Err(violation(ViolationKind::FileMissing, None)));
        }
        Err(error) => return Err(error),
    };
    let file = match open_regular(&place) {
        Ok(Some(file)) => file,
        Ok(None) => return Ok(Err(not_a_file(METADATA_FILE, "something else"))),
        Err(VerifyError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(Err(violation(ViolationKind::FileMissing, None)));
        }
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    // One byte more than the limit, so that a larger file has another digest than its anchored part.
    file.take(MAX_METADATA_BYTES + 1).read_to_end(&mut bytes).map_err(io_error("read", &path))?;
    if let Some(expected) = anchor {
        let actual = expected.of_same_kind(&bytes);
        if actual != expected {
            return Ok(Err(violation(ViolationKind::MetadataMismatch, Some(actual.describe()))));
        }
    }
    Ok(Ok(bytes))
}

fn metadata_free_count(digests: &BTreeMap<RelativePath, Sha256Digest>) -> usize {
    digests.keys().filter(|path| path.as_str() != METADATA_FILE).count()
}
