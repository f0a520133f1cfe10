//! From files to a verified build: the order in which it is judged.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::str::FromStr as _;

use super::{Content, IntactBuild, VerifiedSnapshot};
use crate::digest::{Sha256Digest, Violation, ViolationKind};
use crate::fetch::{Anchor, Snapshot};
use crate::manifest::{
    LAYERS_FILE, LAYERS_SCHEMA, LayersFile, MAX_METADATA_BYTES, METADATA_FILE, Metadata, is_outside_digest,
};
use crate::names::RelativePath;
use crate::policy::{Admission, OriginKind};
use crate::verify::elf::is_scanned;
use crate::verify::read::ReadFiles;
use crate::verify::signature::{SignedBuild, check_signature};
use crate::verify::walk::{Beside, Found, io_error, not_a_file, open_beside, read_limited, walk};
use crate::verify::{VerifyError, VerifyOptions};

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
