//! Taking a bundle in.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::super::project::read_text;
use super::super::{LockError, Locks, named};
use super::export::digest;
use super::{BUNDLE_SCHEMA, BundledBuild, INDEX_FILE, Imported, Index, MAX_INDEX_BYTES, place};
use crate::digest::{Sha256Digest, Violation, ViolationKind};
use crate::fetch::{Location, UnpackError, unpack_bundle};
use crate::hub::Hub;
use crate::manifest::{
    KernelVersion, LOCK_FILE, MAX_METADATA_BYTES, METADATA_FILE, Metadata, Pin, PinnedKernel, SIDECAR_FILE,
};
use crate::names::RelativePath;
use crate::variant::Variant;
use crate::verify::verify;

/// A build of the bundle that was checked.
struct Checked<'a> {
    kernel: &'a PinnedKernel,
    variant: Variant,
}

impl Hub {
    /// Takes the kernels of a bundle into the cache, all of them or none. Makes no request.
    ///
    /// `expected` is the digest that the export printed, and `project` the lock files of the project that the kernels
    /// are for. With neither, the bundle's own lock is all that its builds are held to.
    ///
    /// # Errors
    /// [`LockError::BundleDigest`], [`LockError::Archive`] for a bundle that breaks the archive rules,
    /// [`LockError::Bundle`] for one that holds more or less than it announces, [`LockError::Violations`] for a build
    /// that is not as locked, [`LockError::NotTheProjects`], [`LockError::Format`], [`LockError::Io`].
    pub fn import(
        &self,
        file: &Path,
        expected: Option<Sha256Digest>,
        project: Option<&Locks>,
    ) -> Result<Imported, LockError> {
        if let Some(expected) = expected {
            let (actual, _) = digest(file)?;
            if actual != expected {
                return Err(LockError::BundleDigest { file: file.to_path_buf(), expected, actual });
            }
        }
        let work = self.cache().import_folder()?;
        let root = work.path().join("bundle");
        let files = unpack_bundle(file, &root).map_err(|error| match error {
            UnpackError::Refused(source) => LockError::Archive { file: file.to_path_buf(), source },
            UnpackError::Io { action, path, source } => LockError::Io { action, path, source },
        })?;
        let locks = Locks::read(&root)?;
        let builds = read_index(file, &root)?;
        let checked = check(file, &root, &files, &locks, &builds)?;
        if let Some(project) = project {
            for build in &checked {
                check_project(file, build, project)?;
            }
        }
        let present = self.place(file, &root, &checked)?;
        Ok(Imported { builds, present, anchored: expected.is_some() || project.is_some() })
    }

    /// Moves every checked build to its place. Returns how many were there already.
    fn place(&self, file: &Path, root: &Path, checked: &[Checked<'_>]) -> Result<usize, LockError> {
        let mut present = 0;
        let mut placed = Vec::new();
        let result = checked.iter().try_for_each(|build| {
            if self.is_here(build) {
                present += 1;
                return Ok(());
            }
            self.place_one(root, build).map(|new| placed.extend(new))
        });
        let result = result.and_then(|()| self.record(file, checked));
        if let Err(error) = result {
            for archive in placed {
                if let Err(left) = self.cache().forget(archive, &*self.progress) {
                    tracing::error!(error = %left, "a build of a refused bundle stays in the cache");
                }
            }
            return Err(error);
        }
        Ok(present)
    }

    /// Whether a build is in the cache, whole and as locked.
    fn is_here(&self, build: &Checked<'_>) -> bool {
        let Some(manifest) = build.kernel.manifest() else { return false };
        let snapshot =
            manifest.artifact(&build.variant).and_then(|artifact| self.cache().snapshot(&manifest, artifact));
        snapshot.is_some_and(|snapshot| verify(&snapshot).is_ok())
    }

    /// Places one build. Returns its archive, where nothing was in its place before.
    fn place_one(&self, root: &Path, build: &Checked<'_>) -> Result<Option<Sha256Digest>, LockError> {
        let Pin::Archive(artifacts) = &build.kernel.pin else {
            return Err(LockError::NoDigests { kernel: named(&build.kernel.repo, &build.kernel.version) });
        };
        let Some(artifact) = artifacts.iter().find(|artifact| artifact.variant == build.variant) else {
            return Err(LockError::NoDigests { kernel: named(&build.kernel.repo, &build.kernel.version) });
        };
        let is_new =
            build.kernel.manifest().is_some_and(|manifest| self.cache().snapshot(&manifest, artifact).is_none());
        let folder = root.join("archives").join(artifact.sha256.to_string());
        self.cache().adopt(artifact.sha256, &folder, &*self.progress)?;
        Ok(is_new.then_some(artifact.sha256))
    }

    /// Records what makes the versions resolve offline.
    fn record(&self, file: &Path, checked: &[Checked<'_>]) -> Result<(), LockError> {
        // A path in the lock was relative to a project that is not here.
        let base = Location::from(file);
        for build in checked {
            if let Some(manifest) = build.kernel.manifest() {
                self.cache().record_manifest(&manifest.with_absolute_urls(&base)?)?;
            }
        }
        Ok(())
    }
}

fn read_index(file: &Path, root: &Path) -> Result<Vec<BundledBuild>, LockError> {
    let refuse = |reason: String| LockError::Bundle { file: file.to_path_buf(), reason };
    let text = read_text(&root.join(INDEX_FILE), MAX_INDEX_BYTES)?;
    let text = text.ok_or_else(|| refuse(format!("it holds no {INDEX_FILE}; it is no bundle of kernels")))?;
    let value = crate::manifest::parse_json_strict(text.as_bytes())
        .map_err(|error| refuse(format!("{INDEX_FILE}: {error}")))?;
    // The edition decides before the keys do: a newer edition has keys that this one does not know.
    if value.get("schema").and_then(serde_json::Value::as_u64) != Some(BUNDLE_SCHEMA.into()) {
        return Err(refuse(format!("{INDEX_FILE}: expected schema {BUNDLE_SCHEMA}")));
    }
    let Index { builds, .. } =
        serde_json::from_value(value).map_err(|error| refuse(format!("{INDEX_FILE}: {error}")))?;
    if builds.is_empty() {
        return Err(refuse("it carries no kernels".to_owned()));
    }
    let distinct: BTreeSet<_> = builds.iter().collect();
    if distinct.len() != builds.len() {
        return Err(refuse(format!("{INDEX_FILE} lists a build twice")));
    }
    Ok(builds)
}

/// Holds every announced build to the lock, and every file to an announced build.
fn check<'a>(
    file: &Path,
    root: &Path,
    files: &BTreeMap<RelativePath, Sha256Digest>,
    locks: &'a Locks,
    builds: &[BundledBuild],
) -> Result<Vec<Checked<'a>>, LockError> {
    let refuse = |reason: String| LockError::Bundle { file: file.to_path_buf(), reason };
    let mut claimed: BTreeSet<&str> = [INDEX_FILE, LOCK_FILE, SIDECAR_FILE].into();
    let mut checked = Vec::new();
    for build in builds {
        let name = named(&build.repo, &build.version);
        let kernel = locks.sidecar.kernels.iter().find(|k| k.repo == build.repo && k.version == build.version);
        let Some((kernel, (folder, metadata_sha256))) =
            kernel.and_then(|kernel| Some((kernel, place(kernel, build.variant)?)))
        else {
            return Err(refuse(format!("its lock does not hold {name}, {}", build.variant)));
        };
        let prefix = format!("{folder}/");
        let mut found = BTreeMap::new();
        for (path, digest) in files {
            if let Some(inside) = path.as_str().strip_prefix(&prefix) {
                claimed.insert(path.as_str());
                let inside = inside.parse().map_err(|error: crate::names::NameError| refuse(error.to_string()))?;
                found.insert(inside, *digest);
            }
        }
        let violations = violations(file, root, &folder, build, metadata_sha256, &found)?;
        if !violations.is_empty() {
            return Err(LockError::Violations { kernel: name, variant: build.variant.to_string(), violations });
        }
        checked.push(Checked { kernel, variant: build.variant });
    }
    match files.keys().find(|path| !claimed.contains(path.as_str())) {
        Some(stranger) => Err(refuse(format!("{stranger} belongs to none of its builds"))),
        None => Ok(checked),
    }
}

/// In what the files of a build are not as locked.
fn violations(
    file: &Path,
    root: &Path,
    folder: &str,
    build: &BundledBuild,
    expected: Sha256Digest,
    found: &BTreeMap<RelativePath, Sha256Digest>,
) -> Result<Vec<Violation>, LockError> {
    let anchor = |kind, actual: Option<String>| Violation {
        kind,
        path: METADATA_FILE.to_owned(),
        expected: Some(format!("sha256 {expected}")),
        actual,
    };
    let actual = found.iter().find(|(path, _)| path.as_str() == METADATA_FILE).map(|(_, digest)| *digest);
    // The anchor first: metadata that is not the locked one says nothing about the other files.
    match actual {
        None => return Ok(vec![anchor(ViolationKind::FileMissing, None)]),
        Some(actual) if actual != expected => {
            return Ok(vec![anchor(ViolationKind::MetadataMismatch, Some(format!("sha256 {actual}")))]);
        }
        Some(_) => {}
    }
    let path = root.join(folder).join(METADATA_FILE);
    let text = read_text(&path, MAX_METADATA_BYTES)?.unwrap_or_default();
    let metadata = Metadata::parse(text.as_bytes(), &format!("{}: {folder}/{METADATA_FILE}", file.display()))?;
    let mut violations = metadata.violations(found);
    if let KernelVersion::Version(version) = build.version {
        violations.extend(metadata.identity_violations(&build.repo, version, &build.variant));
    }
    violations.sort();
    Ok(violations)
}

/// Whether the project locks a build of the bundle to the same bytes.
fn check_project(file: &Path, build: &Checked<'_>, project: &Locks) -> Result<(), LockError> {
    let Checked { kernel, variant } = build;
    let same = project.sidecar.kernels.iter().any(|locked| {
        locked.repo == kernel.repo
            && locked.version == kernel.version
            && place(locked, *variant) == place(kernel, *variant)
    });
    if same {
        return Ok(());
    }
    Err(LockError::NotTheProjects { file: file.to_path_buf(), repo: kernel.repo.clone() })
}
