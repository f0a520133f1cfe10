//! `kernelhub lock` and `kernelhub download`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use kernelhub::hub::Selection;
use kernelhub::hub::lock::{Locks, Project};
use kernelhub::manifest::{LOCK_FILE, LockEdition, Pin, SIDECAR_FILE};
use serde_json::json;

use crate::failure::Failure;
use crate::fetch::{build_json, build_line};
use crate::manifests::HubOptions;

#[derive(Args)]
pub(crate) struct Options {
    /// A project folder with a Cargo.toml or a pyproject.toml, or a file that declares kernels: one of these two, or a
    /// `KernelConfig` (.toml, .json).
    #[arg(default_value = ".", value_name = "PATH")]
    project: PathBuf,
    /// Write kernels.lock for this version of the Python package `kernels`.
    #[arg(long, value_enum, default_value = "0.17")]
    edition: Edition,
    /// Change nothing, and fail unless the lock files are as this would write them.
    #[arg(long)]
    check: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    hub: HubOptions,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Edition {
    /// Dependency and commit.
    #[value(name = "0.17")]
    Dependency,
    /// Repo, commit and the hash of every variant, as 0.16 and older have it.
    #[value(name = "0.16")]
    Variants,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let (hub, _) = options.hub.hub_for(&Locks::folder(&options.project)?)?;
    let project = Project::read(&options.project, &hub)?;
    let edition = match options.edition {
        Edition::Dependency => LockEdition::Dependency,
        Edition::Variants => LockEdition::Variants,
    };
    let locks = hub.lock(&project, edition)?;
    let changed = if options.check {
        let standing = Locks::read(project.folder())?;
        if standing != locks {
            return Err(Failure::new(
                format!("the lock files in {} are out of date", project.folder().display()),
                Some("run `kernelhub lock`"),
            ));
        }
        false
    } else {
        locks.write(project.folder())?
    };
    if options.json {
        let kernels = locks.sidecar.kernels.iter().map(|kernel| {
            json!({
                "repo": kernel.repo,
                "version": kernel.version,
                "license": kernel.license,
                "source": match &kernel.pin { Pin::Hub { .. } => "hub", Pin::Archive(_) => "archive" },
                "revision": match &kernel.pin { Pin::Hub { commit, .. } => Some(commit), Pin::Archive(_) => None },
                "variants": kernel.variants().collect::<Vec<_>>(),
            })
        });
        let kernels: Vec<_> = kernels.collect();
        let files: Vec<_> = [LOCK_FILE, SIDECAR_FILE]
            .iter()
            .map(|name| project.folder().join(name))
            .filter(|file| file.is_file())
            .collect();
        return crate::print_json(&json!({ "files": files, "changed": changed, "kernels": kernels }));
    }
    for kernel in &locks.sidecar.kernels {
        let name = format!("{}@{}", kernel.repo, kernel.version);
        println!("locked    {name:32}  {}, {} builds", kernel.pin, kernel.variants().count());
    }
    let what = if changed { "wrote" } else { "unchanged:" };
    println!("{what} {}", project.folder().join(SIDECAR_FILE).display());
    if !locks.kernels.kernels.is_empty() {
        println!("{what} {}", project.folder().join(LOCK_FILE).display());
    }
    Ok(())
}

#[derive(Args)]
pub(crate) struct DownloadOptions {
    /// The project folder with the lock files, or a file in it.
    #[arg(default_value = ".", value_name = "PATH")]
    project: PathBuf,
    /// Every locked build, not only those for this machine.
    #[arg(long)]
    all_variants: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    hub: HubOptions,
}

pub(crate) fn run_download(options: &DownloadOptions) -> Result<(), Failure> {
    let folder = Locks::folder(&options.project)?;
    let locks = Locks::read(&folder)?;
    let (hub, _) = options.hub.hub_for(&folder)?;
    let selection = if options.all_variants { Selection::AllVariants } else { Selection::ThisMachine };
    let brought = hub.download(&locks, &folder, selection)?;
    if options.json {
        return crate::print_json(&brought.iter().map(build_json).collect::<Vec<_>>());
    }
    for build in &brought {
        println!("{}", build_line(build));
    }
    Ok(())
}
