//! `--manifest`: files, folders and URLs.

use std::path::Path;

use kernelhub::fetch::{Environment, FetchOptions, Fetcher, Location};
use kernelhub::hub::{Hub, HubBuilder};
use kernelhub::manifest::KernelManifest;

use crate::failure::Failure;
use crate::progress::Bars;

/// Settings that every command about kernels shares.
#[derive(clap::Args)]
pub(crate) struct HubOptions {
    /// A kernel manifest: a file, a folder of *.toml files, or a URL of scheme http, https, file or oci (a registry,
    /// with the tag or the digest at the end). May be given more than once.
    #[arg(long, value_name = "FILE|DIR|URL")]
    manifest: Vec<String>,
    /// Keep kernels below this folder instead of the default cache.
    #[arg(long, value_name = "DIR")]
    cache: Option<std::path::PathBuf>,
    /// Open no socket.
    #[arg(long)]
    offline: bool,
    /// Believe recorded hashes of large files that have not changed since, by their inode, size and times.
    #[arg(long)]
    trust_recorded_hashes: bool,
}

impl HubOptions {
    /// The first of these options that was given and has no effect where no kernel is looked for by its name.
    pub(crate) fn only_for_names(&self) -> Option<&'static str> {
        let given = [
            (!self.manifest.is_empty(), "--manifest"),
            (self.cache.is_some(), "--cache"),
            (self.trust_recorded_hashes, "--trust-recorded-hashes"),
        ];
        given.into_iter().find(|(is_given, _)| *is_given).map(|(_, name)| name)
    }

    /// Reads the manifests and sets up the hub. A policy in the current folder counts.
    pub(crate) fn hub(&self) -> Result<(Hub, Vec<KernelManifest>), Failure> {
        self.hub_with(|builder| builder)
    }

    /// As [`Self::hub`], with a command's own settings.
    pub(crate) fn hub_with(
        &self,
        set: impl FnOnce(HubBuilder) -> HubBuilder,
    ) -> Result<(Hub, Vec<KernelManifest>), Failure> {
        self.hub_of(Path::new("."), set)
    }

    /// As [`Self::hub`], for a project, whose policy counts.
    pub(crate) fn hub_for(&self, project: &Path) -> Result<(Hub, Vec<KernelManifest>), Failure> {
        self.hub_of(project, |builder| builder)
    }

    fn hub_of(
        &self,
        project: &Path,
        set: impl FnOnce(HubBuilder) -> HubBuilder,
    ) -> Result<(Hub, Vec<KernelManifest>), Failure> {
        let environment = Environment::read()?;
        let mut options = FetchOptions::of(&environment);
        options.offline |= self.offline;
        let fetcher = Fetcher::new(options.clone());
        let mut builder: HubBuilder = Hub::builder().offline(options.offline).progress(Bars::of(&environment));
        if self.trust_recorded_hashes {
            builder = builder.trust_recorded_hashes(true);
        }
        if let Some(cache) = &self.cache {
            builder = builder.cache(cache);
        }
        let mut manifests = Vec::new();
        for argument in &self.manifest {
            for location in locations(argument)? {
                let manifest = fetcher.fetch_manifest(&location)?;
                manifests.push(manifest.clone());
                builder = builder.manifest(manifest, location);
            }
        }
        Ok((set(builder.environment(environment).project(project)).build()?, manifests))
    }
}

/// The manifests that an argument names: itself, or the `*.toml` files of a folder, by name.
fn locations(argument: &str) -> Result<Vec<Location>, Failure> {
    let folder = Path::new(argument);
    if !folder.is_dir() {
        return Ok(vec![argument.parse()?]);
    }
    let unreadable = |error: std::io::Error| Failure::new(format!("cannot list {argument}: {error}"), None);
    let mut files = Vec::new();
    for entry in folder.read_dir().map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.is_file() && path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(Failure::new(format!("{argument} holds no manifest"), Some("a manifest is a file *.toml")));
    }
    Ok(files.into_iter().map(Location::Local).collect())
}
