//! The verified build.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use super::elf::{Finding, ScanRules, fit, is_scanned};
use super::read::ReadFiles;
use super::signature::{SignatureStatus, SignedBuild, check_signature};
use super::walk::{Beside, Found, io_error, not_a_file, open_beside, read_limited, walk};
use super::{VerifiedLibrary, VerifyError, VerifyOptions};
use crate::digest::{Sha256Digest, Violation, ViolationKind};
use crate::fetch::{Anchor, Snapshot};
use crate::manifest::is_outside_digest;
use crate::manifest::{LAYERS_FILE, LAYERS_SCHEMA, LayerSpec, LayersFile, MAX_METADATA_BYTES, METADATA_FILE, Metadata};
use crate::names::{RelativePath, RepoId};
use crate::policy::{Admission, OriginKind};
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
    admission: Admission,
    signature: SignatureStatus,
    content: Content,
}

/// What was read of a build, every file of it as published.
#[derive(Debug)]
struct Content {
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

/// A build whose files are as published, without a word on who published it. It is for reports: nothing loads it.
#[derive(Debug)]
pub struct IntactBuild {
    content: Content,
}

impl IntactBuild {
    /// What the build says about itself.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.content.metadata
    }

    /// The layers that it serves, by its own word. Empty: it does not say.
    #[must_use]
    pub fn layers(&self) -> &LayersFile {
        &self.content.layers
    }

    /// As [`VerifiedSnapshot::findings`].
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.content.findings
    }

    /// As [`VerifiedSnapshot::fit`].
    #[must_use]
    pub fn fit(&self, linker: &Linker) -> Vec<Finding> {
        self.content.fit(linker)
    }

    /// How many files were hashed, `metadata.json` not counted.
    #[must_use]
    pub fn files(&self) -> usize {
        self.content.files
    }

    /// The bytes of those files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.content.bytes
    }
}

impl Content {
    fn fit(&self, linker: &Linker) -> Vec<Finding> {
        let facts = self.libraries.iter().filter_map(|library| Some((library.relative(), library.facts()?)));
        facts.flat_map(|(path, facts)| fit(path.as_str(), facts, linker, &self.rules)).collect()
    }
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

    /// Why its publisher was trusted, and what was asked of it.
    #[must_use]
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Whether it is signed, and by whom.
    #[must_use]
    pub fn signature(&self) -> &SignatureStatus {
        &self.signature
    }

    /// Whether its files were compared with a digest in its metadata. No: it is a local folder whose metadata has none.
    #[must_use]
    pub fn has_digest(&self) -> bool {
        self.content.has_digest
    }

    /// What the build says about itself.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.content.metadata
    }

    /// Says which layers the build serves, where it does not say so itself: kernels of the Hub have no `layers.toml`,
    /// and a kernel manifest is their binding. A build with a `layers.toml` keeps it.
    #[must_use]
    pub fn with_layers(mut self, layers: Vec<LayerSpec>) -> Self {
        if self.content.layers.layers.is_empty() {
            self.content.layers.layers = layers;
        }
        self
    }

    /// The layers that it serves, from the verified bytes of its `layers.toml`, else from [`Self::with_layers`]. Empty:
    /// nobody says.
    #[must_use]
    pub fn layers(&self) -> &LayersFile {
        &self.content.layers
    }

    /// The build's native library.
    ///
    /// # Errors
    /// [`VerifyError::LibraryCount`] unless the build has exactly one.
    pub fn library(&self) -> Result<&VerifiedLibrary, VerifyError> {
        match self.content.libraries.as_slice() {
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
        self.content.texts.get(path).map(String::as_str)
    }

    /// What the scan of its libraries found, from their files alone. What it refuses does not load:
    /// [`crate::load::KernelLibrary::open`] holds to it.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.content.findings
    }

    /// The rules that its libraries were scanned by.
    #[must_use]
    pub fn rules(&self) -> &ScanRules {
        &self.content.rules
    }

    /// What a machine and a process say to its libraries: those that they need and that are not there, or are too old.
    /// Both what is refused and what is warned of.
    #[must_use]
    pub fn fit(&self, linker: &Linker) -> Vec<Finding> {
        self.content.fit(linker)
    }

    /// How many files were held to their digest: `metadata.json` and its signatures are not counted.
    #[must_use]
    pub fn files(&self) -> usize {
        self.content.files
    }

    /// The bytes of those files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.content.bytes
    }
}

/// Reads and checks every file of a build that a policy has admitted: its signature over the raw bytes of its metadata,
/// then the metadata, then the digest of every file.
///
/// # Errors
/// [`VerifyError::NotAdmitted`] for an admission of another kernel or another kind of place. [`VerifyError::Signature`]
/// when the admission demands a signature and there is no right one. [`VerifyError::Violations`] with everything that
/// is not as published: a `metadata.json` that is not the anchored one or is about another kernel, files with other
/// bytes, missing files, files that the digest does not list, links and other things that are no regular file.
/// [`VerifyError::Absent`], [`VerifyError::Io`] and the other variants when the files cannot be read or the texts in
/// them are outside their format.
///
/// What the scan of libraries finds is in [`VerifiedSnapshot::findings`]: a build for another machine may be brought
/// and passed on whatever its libraries are, and loading one is what the findings refuse.
pub fn verify(snapshot: &Snapshot, admission: &Admission) -> Result<VerifiedSnapshot, VerifyError> {
    verify_with(snapshot, admission, &VerifyOptions::default())
}

/// As [`verify`], by other settings.
///
/// # Errors
/// As [`verify`].
pub fn verify_with(
    snapshot: &Snapshot,
    admission: &Admission,
    options: &VerifyOptions,
) -> Result<VerifiedSnapshot, VerifyError> {
    let kind = match snapshot.anchor() {
        Anchor::Archive { .. } => OriginKind::Archive,
        Anchor::Hub { .. } => OriginKind::Hub,
        Anchor::Local => OriginKind::Local,
    };
    if admission.repo() != snapshot.repo() || admission.origin().kind() != kind {
        return Err(VerifyError::NotAdmitted {
            repo: snapshot.repo().clone(),
            kind,
            admitted: admission.repo().clone(),
            from: admission.origin().kind(),
        });
    }
    let build = SignedBuild {
        repo: snapshot.repo(),
        version: snapshot.version(),
        variant: snapshot.variant(),
        root: snapshot.root(),
        blobs: snapshot.blobs(),
    };
    // The stricter of what the program and the policy say.
    let options = &options.clone().rules(options.rules.with_policy(admission.elf()));
    let (content, signature) = read_build(snapshot, options, |metadata| check_signature(&build, admission, metadata))?;
    if let Some(warning) = signature.warning() {
        tracing::warn!(repo = %snapshot.repo(), version = snapshot.version(), variant = %snapshot.variant(), "{warning}");
    }
    Ok(VerifiedSnapshot {
        repo: snapshot.repo().clone(),
        version: snapshot.version(),
        variant: *snapshot.variant(),
        root: snapshot.root().to_path_buf(),
        anchor: snapshot.anchor().clone(),
        admission: admission.clone(),
        signature,
        content,
    })
}

/// Reads and checks every file of a build, whoever published it. What comes out cannot be loaded.
///
/// # Errors
/// As [`verify`], except for those about trust.
pub fn inspect(snapshot: &Snapshot) -> Result<IntactBuild, VerifyError> {
    inspect_with(snapshot, &VerifyOptions::default())
}

/// As [`inspect`], by other settings.
///
/// # Errors
/// As [`inspect`].
pub fn inspect_with(snapshot: &Snapshot, options: &VerifyOptions) -> Result<IntactBuild, VerifyError> {
    let (content, ()) = read_build(snapshot, options, |_| Ok(()))?;
    Ok(IntactBuild { content })
}

/// Reads a build. `judge` decides on the bytes of its metadata, once they are the anchored ones and before anything
/// parses them.
fn read_build<T>(
    snapshot: &Snapshot,
    options: &VerifyOptions,
    judge: impl FnOnce(&[u8]) -> Result<T, VerifyError>,
) -> Result<(Content, T), VerifyError> {
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
    let judged = judge(&bytes)?;
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
    let content = Content {
        has_digest,
        metadata,
        layers,
        files: metadata_free_count(&read.digests),
        texts: read.texts,
        libraries: read.libraries,
        rules: options.rules,
        findings,
        bytes: read.bytes,
    };
    Ok((content, judged))
}

/// The anchored bytes of `metadata.json`, or in what they are not those.
fn read_metadata(snapshot: &Snapshot) -> Result<Result<Vec<u8>, Violation>, VerifyError> {
    let path = snapshot.root().join(METADATA_FILE);
    let anchor = snapshot.anchor().metadata();
    let expected = anchor.map(|anchor| anchor.describe());
    let violation =
        |kind, actual| Violation { kind, path: METADATA_FILE.to_owned(), expected: expected.clone(), actual };
    let file = match open_beside(&path, snapshot.blobs())? {
        Beside::File(file) => file,
        Beside::NotAFile(what) => return Ok(Err(not_a_file(METADATA_FILE, what))),
        Beside::Absent => return Ok(Err(violation(ViolationKind::FileMissing, None))),
    };
    let bytes = read_limited(file, MAX_METADATA_BYTES, &path)?;
    if let Some(expected) = anchor {
        let actual = expected.of_same_kind(&bytes);
        if actual != expected {
            return Ok(Err(violation(ViolationKind::MetadataMismatch, Some(actual.describe()))));
        }
    }
    Ok(Ok(bytes))
}

fn metadata_free_count(digests: &BTreeMap<RelativePath, Sha256Digest>) -> usize {
    digests.keys().filter(|path| !is_outside_digest(path)).count()
}
