//! Folders of this machine in a kernel's place: `LOCAL_KERNELS`, or what a program names.
//!
//! A folder is a kernel repo's checkout with `build/` in it, a folder of builds, or one build. Nothing anchors its
//! metadata: whoever named the folder vouches for it. Its files are still held to the metadata's own digest where there
//! is one, and results say that the kernel is a local one.

use std::fs;
use std::path::{Path, PathBuf};

use super::file::read_file;
use super::source::Pin;
use super::{Anchor, Builds, FetchError, Fetched, PublishedVersion, Revision, Session, Snapshot, Source};
use crate::elf::{Depth, ElfFacts, split_version};
use crate::manifest::{MAX_METADATA_BYTES, METADATA_FILE, Metadata};
use crate::names::RepoId;
use crate::policy::Origin;
use crate::regular;
use crate::resolve::{Candidate, MAX_LISTED};
use crate::variant::{AnyVariant, Variant, Version};

/// Kernels in folders of this machine.
#[derive(Debug, Default)]
pub struct LocalSource {
    folders: Vec<(RepoId, PathBuf)>,
}

impl LocalSource {
    /// Each of these kernels is taken from its folder, whatever revision is asked for.
    #[must_use]
    pub fn new(folders: Vec<(RepoId, PathBuf)>) -> Self {
        Self { folders }
    }

    /// The kernel in a folder that is named by its path alone, with the id that reports give it, `local/<name>`, and
    /// its version.
    ///
    /// # Errors
    /// [`FetchError::LocalFolder`] when there is none in it, or its metadata has no usable name;
    /// [`FetchError::Metadata`].
    pub fn of_folder(folder: &Path) -> Result<(RepoId, u32, Self), FetchError> {
        let refuse = |reason: String| FetchError::LocalFolder { path: folder.to_path_buf(), reason };
        let builds = find_builds(folder)?;
        let (_, first) = builds.first().ok_or_else(|| refuse("it holds no build".to_owned()))?;
        let metadata = read_metadata(first)?;
        let repo: RepoId = format!("local/{}", metadata.name)
            .parse()
            .map_err(|_| refuse(format!("its kernel's name {:?} is no name of a repo", metadata.name)))?;
        Ok((repo.clone(), metadata.version, Self::new(vec![(repo, folder.to_path_buf())])))
    }

    /// The builds in a folder with what their metadata and libraries say, whether it can be used or not: a broken or missing
    /// `metadata.json` stands in its candidate's fault and hides no other build. Of the folder's own `build/` every
    /// folder is a build, as in a listing; of a folder without one, those that have metadata or the name of a variant.
    ///
    /// # Errors
    /// [`FetchError::LocalFolder`] when there is no build in the folder, or more than a listing may have;
    /// [`FetchError::Io`] when it cannot be listed.
    pub fn candidates(folder: &Path) -> Result<Vec<Candidate>, FetchError> {
        let refuse = |reason: String| FetchError::LocalFolder { path: folder.to_path_buf(), reason };
        if !folder.is_dir() || folder.join(METADATA_FILE).is_file() {
            let builds = find_builds(folder)?;
            return Ok(builds
                .into_iter()
                .enumerate()
                .map(|(at, (variant, place))| described(variant, at, &place))
                .collect());
        }
        let build = folder.join("build");
        let (place, is_build) = if build.is_dir() { (build, true) } else { (folder.to_path_buf(), false) };
        let mut builds = Vec::new();
        for entry in fs::read_dir(&place).map_err(FetchError::io("list", &place))? {
            let path = entry.map_err(FetchError::io("list", &place))?.path();
            let variant = AnyVariant::read(&path.file_name().unwrap_or_default().to_string_lossy());
            let is_one = is_build || variant.known().is_some() || path.join(METADATA_FILE).is_file();
            if path.is_dir() && is_one {
                builds.push((variant, path));
            }
            if builds.len() > MAX_LISTED {
                return Err(refuse(format!("it holds more than {MAX_LISTED} builds")));
            }
        }
        builds.sort();
        if builds.is_empty() {
            return Err(refuse("neither it nor its build folder holds a build".to_owned()));
        }
        Ok(builds.into_iter().enumerate().map(|(at, (variant, place))| described(variant, at, &place)).collect())
    }

    fn folder(&self, repo: &RepoId) -> Option<&Path> {
        self.folders.iter().find(|(named, _)| named == repo).map(|(_, folder)| folder.as_path())
    }
}

/// A build with what its metadata says.
fn described(variant: AnyVariant, artifact: usize, folder: &Path) -> Candidate {
    let mut candidate = Candidate::new(variant, artifact);
    if !folder.join(METADATA_FILE).is_file() {
        candidate.metadata_fault = Some(format!("it has no {METADATA_FILE}"));
        return candidate;
    }
    candidate.minimum_glibc = minimum_glibc(folder);
    match read_metadata(folder) {
        Ok(metadata) => candidate.archs = Some(metadata.backend.archs).filter(|archs| !archs.is_empty()),
        Err(FetchError::Metadata { source, .. }) => {
            let cause = std::error::Error::source(&source).map(|cause| format!(": {cause}")).unwrap_or_default();
            candidate.metadata_fault = Some(format!("{source}{cause}"));
        }
        Err(error) => candidate.metadata_fault = Some(error.to_string()),
    }
    candidate
}

/// Most libraries of one build that are asked for what they need.
const MAX_LIBRARIES: usize = 64;

/// The glibc that the libraries in a build's folder ask for. `None`: none says. One that cannot be read says nothing here,
/// and is refused when it is to be loaded.
fn minimum_glibc(folder: &Path) -> Option<Version> {
    let libraries = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let is_library = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "so") && path.is_file();
    let versions = libraries.filter(is_library).take(MAX_LIBRARIES).flat_map(|path| {
        let file = regular::open(&path).ok();
        let facts = file.and_then(|file| ElfFacts::from_file(file, Depth::WithoutSymbols).ok()).unwrap_or_default();
        facts.needed_versions.into_iter().filter(|need| !need.is_weak).filter_map(|need| {
            let (family, numbers) = split_version(&need.version)?;
            (family == "GLIBC").then(|| Some(Version::new(*numbers.first()?, *numbers.get(1)?)))?
        })
    });
    versions.max()
}

/// The builds in a folder, each with its own folder.
fn find_builds(folder: &Path) -> Result<Vec<(AnyVariant, PathBuf)>, FetchError> {
    let refuse = |reason: &str| FetchError::LocalFolder { path: folder.to_path_buf(), reason: reason.to_owned() };
    if !folder.is_dir() {
        return Err(refuse("it is not there, or is no folder"));
    }
    let folder = std::path::absolute(folder).map_err(FetchError::io("make absolute", folder))?;
    if folder.join(METADATA_FILE).is_file() {
        return Ok(vec![(variant_of(&folder)?, folder)]);
    }
    let place = if folder.join("build").is_dir() { folder.join("build") } else { folder.clone() };
    let mut builds = Vec::new();
    for entry in fs::read_dir(&place).map_err(FetchError::io("list", &place))? {
        let entry = entry.map_err(FetchError::io("list", &place))?;
        if entry.path().join(METADATA_FILE).is_file() {
            builds.push((AnyVariant::read(&entry.file_name().to_string_lossy()), entry.path()));
        }
    }
    builds.sort();
    if builds.is_empty() {
        return Err(refuse("neither it nor a folder in it or in its build folder has a metadata.json"));
    }
    Ok(builds)
}

/// The variant of one build's folder: its name, or where it has another one, what its metadata says it runs on.
fn variant_of(folder: &Path) -> Result<AnyVariant, FetchError> {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if let AnyVariant::Known(variant) = AnyVariant::read(&name) {
        return Ok(variant.into());
    }
    let metadata = read_metadata(folder)?;
    // A shader pack's target is its backend. A library is taken for one for this machine, by the interface that this
    // crate speaks: whoever named the folder vouches for it, and loading it finds out.
    let (kind, arch, os) = (&metadata.backend.kind, std::env::consts::ARCH, std::env::consts::OS);
    let os = if os == "macos" { "darwin" } else { os };
    let names = [format!("wgsl-{kind}"), format!("tvm-ffi01-{kind}-{arch}-{os}")];
    let known = names.iter().find_map(|name| name.parse::<Variant>().ok());
    Ok(known.map_or_else(|| AnyVariant::read(&name), AnyVariant::Known))
}

fn read_metadata(folder: &Path) -> Result<Metadata, FetchError> {
    let path = folder.join(METADATA_FILE);
    let origin = path.display().to_string();
    Metadata::parse(&read_file(&path, MAX_METADATA_BYTES)?, &origin)
        .map_err(|source| FetchError::Metadata { url: origin, source })
}

impl Source for LocalSource {
    fn name(&self) -> String {
        "local folders".to_owned()
    }

    fn origin(&self, repo: &RepoId, _: &Revision) -> Result<Option<Origin>, FetchError> {
        Ok(self.folder(repo).map(|folder| Origin::Local { folder: folder.to_path_buf() }))
    }

    fn versions(&self, repo: &RepoId, _: &Session<'_>) -> Result<Vec<PublishedVersion>, FetchError> {
        let Some(folder) = self.folder(repo) else { return Ok(Vec::new()) };
        let mut versions = Vec::new();
        for (_, folder) in find_builds(folder)? {
            versions.push(PublishedVersion { version: read_metadata(&folder)?.version, commit: None });
        }
        versions.sort_unstable();
        versions.dedup();
        Ok(versions)
    }

    fn builds(&self, repo: &RepoId, _: &Revision, session: &Session<'_>) -> Result<Option<Builds>, FetchError> {
        let Some(folder) = self.folder(repo) else { return Ok(None) };
        let (variants, folders): (Vec<_>, Vec<_>) = find_builds(folder)?.into_iter().unzip();
        let note = format!("{repo} is taken from the local folder {}", folder.display());
        tracing::info!("{note}");
        session.progress.note(&note);
        Ok(Some(Builds {
            repo: repo.clone(),
            version: None,
            candidates: variants.into_iter().enumerate().map(|(index, v)| Candidate::new(v, index)).collect(),
            is_whole_listing: true,
            notes: vec![note],
            pin: Pin::Local(folders),
        }))
    }

    fn metadata(&self, builds: &Builds, candidate: usize, _: &Session<'_>) -> Result<Option<Metadata>, FetchError> {
        read_metadata(folder_of(builds, candidate)?.1).map(Some)
    }

    fn fetch(&self, builds: &Builds, candidate: usize, _: &Session<'_>) -> Result<Fetched, FetchError> {
        let (variant, folder) = folder_of(builds, candidate)?;
        let snapshot = Snapshot {
            repo: builds.repo.clone(),
            version: read_metadata(folder)?.version,
            variant,
            root: folder.to_path_buf(),
            anchor: Anchor::Local,
            blobs: None,
        };
        Ok(Fetched { snapshot, from_cache: true, requests: 0, bytes_fetched: 0 })
    }
}

fn folder_of(builds: &Builds, candidate: usize) -> Result<(Variant, &Path), FetchError> {
    let variant = builds.candidates.get(candidate).and_then(|candidate| candidate.variant.known());
    match (&builds.pin, variant) {
        (Pin::Local(folders), Some(variant)) if candidate < folders.len() => Ok((variant, &folders[candidate])),
        _ => Err(builds.of_another_source()),
    }
}
