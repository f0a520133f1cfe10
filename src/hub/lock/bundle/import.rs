//! Taking a bundle in.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::super::listing::variant_hash;
use super::super::project::read_text;
use super::super::{LockError, Locks, commit_id, named, revision_of};
use super::export::digest;
use super::{BUNDLE_SCHEMA, BundledBuild, INDEX_FILE, Imported, Index, MAX_INDEX_BYTES, listing_path, place};
use crate::digest::{Sha256Digest, Violation, ViolationKind};
use crate::fetch::{Cancel, Cost, HubPlace, Location, Session, TreeFile, UnpackError, unpack_bundle};
use crate::hub::Hub;
use crate::manifest::{
    KernelVersion, LOCK_FILE, MAX_METADATA_BYTES, METADATA_FILE, Metadata, Pin, PinnedKernel, SIDECAR_FILE,
};
use crate::names::RelativePath;
use crate::policy::Origin;
use crate::regular;
use crate::variant::Variant;
use crate::verify::{SignedBuild, check_signature, inspect_with};

/// A build of the bundle that was checked.
struct Checked<'a> {
    kernel: &'a PinnedKernel,
    variant: Variant,
    /// Its version, by its metadata.
    version: u32,
    /// Its folder in the bundle.
    folder: String,
    listing: Option<Vec<TreeFile>>,
}

/// A build that was placed where nothing was before.
enum Placed<'a> {
    Archive(Sha256Digest),
    Build(HubPlace<'a>),
}

impl Hub {
    /// Takes the kernels of a bundle into the cache, all of them or none. Makes no request.
    ///
    /// `expected` is the digest that the export printed, and `project` the lock files of the project that the kernels
    /// are for. With neither, the bundle's own lock is all that its builds are held to.
    ///
    /// # Errors
    /// [`LockError::BundleDigest`], [`LockError::Archive`] for a bundle that breaks the archive rules,
    /// [`LockError::Hub`] for a build that the policy does not admit from an archive, [`LockError::Bundle`] for one
    /// that holds more or less than it announces, [`LockError::Violations`] for a build that is not as locked,
    /// [`LockError::NotTheProjects`], [`LockError::Format`], [`LockError::Io`].
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
        for build in &checked {
            self.check_trust(&root, build)?;
        }
        let present = self.place(file, &root, &checked)?;
        Ok(Imported { builds, present, anchored: expected.is_some() || project.is_some() })
    }

    /// Whether the policy admits a build of a bundle. Whoever made the bundle could write any name into it, so that it
    /// counts as an archive, whatever it says that its builds are of.
    fn check_trust(&self, root: &Path, build: &Checked<'_>) -> Result<(), LockError> {
        let Checked { kernel, variant, folder, version, .. } = build;
        let (cancel, cost) = (Cancel::default(), Cost::default());
        let session = Session::new(&*self.progress, &cancel, &cost);
        let admission = self.admit(&kernel.repo, &Origin::Archive, self.hub(), &session)?;
        let root = root.join(folder);
        let file = root.join(METADATA_FILE);
        let metadata = regular::read(&file, MAX_METADATA_BYTES).map_err(LockError::io("read", &file))?;
        let build = SignedBuild { repo: &kernel.repo, version: *version, variant, root: &root, blobs: None };
        let status = check_signature(&build, &admission, &metadata).map_err(crate::hub::HubError::from)?;
        if let Some(warning) = status.warning() {
            self.progress.note(&format!("{} ({variant}): {warning}", kernel.repo));
        }
        Ok(())
    }

    /// Moves every checked build to its place. Returns how many were there already.
    fn place(&self, file: &Path, root: &Path, checked: &[Checked<'_>]) -> Result<usize, LockError> {
        let (cancel, cost) = (Cancel::default(), Cost::default());
        let session = Session::new(&*self.progress, &cancel, &cost);
        let mut present = 0;
        let mut placed = Vec::new();
        let result = checked.iter().try_for_each(|build| {
            if self.is_here(build)? {
                present += 1;
                return Ok(());
            }
            self.place_one(root, build, &session).map(|new| placed.extend(new))
        });
        let result = result.and_then(|()| self.record(file, checked));
        if let Err(error) = result {
            for build in placed {
                let undone = match build {
                    Placed::Archive(archive) => self.cache().forget_archive(archive, &session),
                    Placed::Build(place) => self.cache().forget_build(place, &session),
                };
                if let Err(left) = undone {
                    tracing::error!(error = %left, "a build of a refused bundle stays in the cache");
                }
            }
            return Err(error);
        }
        Ok(present)
    }

    /// Whether a build is in the cache, whole and as locked.
    fn is_here(&self, build: &Checked<'_>) -> Result<bool, LockError> {
        let Some(snapshot) = self.locked_snapshot(build.kernel, build.variant)? else { return Ok(false) };
        let Some((_, expected)) = place(build.kernel, build.variant) else { return Ok(false) };
        let metadata = read_text(&snapshot.root().join(METADATA_FILE), MAX_METADATA_BYTES)?.unwrap_or_default();
        let is_whole = inspect_with(&snapshot, &self.verify).is_ok();
        Ok(Sha256Digest::of(metadata.as_bytes()) == expected && is_whole)
    }

    /// Places one build. Returns it, where nothing was in its place before.
    fn place_one<'a>(
        &self,
        root: &Path,
        build: &'a Checked<'_>,
        session: &Session<'_>,
    ) -> Result<Option<Placed<'a>>, LockError> {
        let Checked { kernel, variant, folder, listing, .. } = build;
        let folder = root.join(folder);
        match &kernel.pin {
            Pin::Archive(artifacts) => {
                let Some(artifact) = artifacts.iter().find(|artifact| artifact.variant == *variant) else {
                    return Err(LockError::NoDigests { kernel: named(&kernel.repo, &kernel.version) });
                };
                let archive = artifact.sha256;
                let is_new = self.locked_snapshot(kernel, *variant)?.is_none();
                // `archives/<sha256>`, above `build/<variant>`.
                let whole = folder.ancestors().nth(2).unwrap_or(&folder);
                self.cache().adopt_archive(archive, whole, session)?;
                Ok(is_new.then_some(Placed::Archive(archive)))
            }
            Pin::Hub { commit, .. } => {
                let commit = commit_id(&named(&kernel.repo, &kernel.version), commit)?;
                let place = HubPlace { repo: &kernel.repo, commit, variant };
                let is_new = self.locked_snapshot(kernel, *variant)?.is_none();
                // The Hub's repos may stand on another file system than the archives.
                let beside = self.cache().hub_import_folder()?;
                let moved = beside.path().join(variant.to_string());
                move_folder(&folder, &moved)?;
                self.cache().adopt_build(place, &moved, listing.as_deref(), session)?;
                Ok(is_new.then_some(Placed::Build(place)))
            }
        }
    }

    /// Records what makes the versions resolve offline.
    fn record(&self, file: &Path, checked: &[Checked<'_>]) -> Result<(), LockError> {
        // A path in the lock was relative to a project that is not here.
        let base = Location::from(file);
        for Checked { kernel, .. } in checked {
            match &kernel.pin {
                Pin::Archive(_) => {
                    if let Some(manifest) = kernel.manifest() {
                        self.cache().record_manifest(&self.widened(&manifest, &base)?)?;
                    }
                }
                Pin::Hub { commit, .. } => {
                    let commit = commit_id(&named(&kernel.repo, &kernel.version), commit)?;
                    self.cache().record_ref(&kernel.repo, &revision_of(&kernel.version)?, commit)?;
                }
            }
        }
        Ok(())
    }
}

/// Moves a folder, by copying where a rename cannot.
fn move_folder(from: &Path, to: &Path) -> Result<(), LockError> {
    if fs::rename(from, to).is_ok() {
        return Ok(());
    }
    fs::create_dir_all(to).map_err(LockError::io("make the folder", to))?;
    for entry in fs::read_dir(from).map_err(LockError::io("list", from))? {
        let entry = entry.map_err(LockError::io("list", from))?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().map_err(LockError::io("look at", &from))?.is_dir() {
            move_folder(&from, &to)?;
        } else {
            fs::copy(&from, &to).map_err(LockError::io("copy", &from))?;
        }
    }
    Ok(())
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
        let (violations, stated) = violations(file, root, &folder, build, metadata_sha256, &found)?;
        if !violations.is_empty() {
            return Err(LockError::Violations { kernel: name, variant: build.variant.to_string(), violations });
        }
        let listing = read_listing(file, root, &folder, kernel, build.variant)?;
        if listing.is_some() {
            claimed.extend(files.keys().map(RelativePath::as_str).filter(|path| *path == listing_path(&folder)));
        }
        checked.push(Checked { kernel, variant: build.variant, version: stated, folder, listing });
    }
    match files.keys().find(|path| !claimed.contains(path.as_str())) {
        Some(stranger) => Err(refuse(format!("{stranger} belongs to none of its builds"))),
        None => Ok(checked),
    }
}

/// The commit's listing of a build, held to the lock by its hash.
fn read_listing(
    file: &Path,
    root: &Path,
    folder: &str,
    kernel: &PinnedKernel,
    variant: Variant,
) -> Result<Option<Vec<TreeFile>>, LockError> {
    let Pin::Hub { builds, .. } = &kernel.pin else { return Ok(None) };
    let path = listing_path(folder);
    let Some(text) = read_text(&root.join(&path), MAX_INDEX_BYTES)? else { return Ok(None) };
    let refuse = |reason: String| LockError::Bundle { file: file.to_path_buf(), reason: format!("{path}: {reason}") };
    let files: Vec<TreeFile> = crate::manifest::parse_json_strict(text.as_bytes())
        .and_then(serde_json::from_value)
        .map_err(|error| refuse(error.to_string()))?;
    let locked = builds.iter().find(|build| build.variant == variant);
    if locked.is_none_or(|build| build.hash != variant_hash(&files)) {
        return Err(refuse("it is not the listing that is locked".to_owned()));
    }
    Ok(Some(files))
}

/// In what the files of a build are not as locked; and its version, by its metadata.
fn violations(
    file: &Path,
    root: &Path,
    folder: &str,
    build: &BundledBuild,
    expected: Sha256Digest,
    found: &BTreeMap<RelativePath, Sha256Digest>,
) -> Result<(Vec<Violation>, u32), LockError> {
    let anchor = |kind, actual: Option<String>| Violation {
        kind,
        path: METADATA_FILE.to_owned(),
        expected: Some(format!("sha256 {expected}")),
        actual,
    };
    let actual = found.iter().find(|(path, _)| path.as_str() == METADATA_FILE).map(|(_, digest)| *digest);
    // The anchor first: metadata that is not the locked one says nothing about the other files.
    match actual {
        None => return Ok((vec![anchor(ViolationKind::FileMissing, None)], 0)),
        Some(actual) if actual != expected => {
            return Ok((vec![anchor(ViolationKind::MetadataMismatch, Some(format!("sha256 {actual}")))], 0));
        }
        Some(_) => {}
    }
    let path = root.join(folder).join(METADATA_FILE);
    let text = read_text(&path, MAX_METADATA_BYTES)?.unwrap_or_default();
    let metadata = Metadata::parse(text.as_bytes(), &format!("{}: {folder}/{METADATA_FILE}", file.display()))?;
    let mut violations = metadata.violations(found);
    let version = match build.version {
        KernelVersion::Version(version) => version,
        // A revision says nothing about the version.
        KernelVersion::Revision(_) => metadata.version,
    };
    violations.extend(metadata.identity_violations(&build.repo, version, &build.variant));
    violations.sort();
    Ok((violations, metadata.version))
}

/// Whether the project locks a build of the bundle to the same bytes.
fn check_project(file: &Path, build: &Checked<'_>, project: &Locks) -> Result<(), LockError> {
    let Checked { kernel, variant, .. } = build;
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
