//! `kernelhub export` and `kernelhub import`.

use std::path::PathBuf;

use clap::Args;
use kernelhub::digest::Sha256Digest;
use kernelhub::hub::Selection;
use kernelhub::hub::lock::{BundledBuild, Locks};

use crate::failure::Failure;
use crate::manifests::HubOptions;
use crate::size::human;

#[derive(Args)]
pub(crate) struct ExportOptions {
    /// The bundle to write: a .tar, or a .tar.zst.
    file: PathBuf,
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

pub(crate) fn run_export(options: &ExportOptions) -> Result<(), Failure> {
    let folder = Locks::folder(&options.project)?;
    let locks = Locks::read(&folder)?;
    let (hub, _) = options.hub.hub_for(&folder)?;
    let selection = if options.all_variants { Selection::AllVariants } else { Selection::ThisMachine };
    let exported = hub.export(&locks, selection, &options.file)?;
    if options.json {
        return crate::print_json(&exported);
    }
    exported.builds.iter().for_each(|build| println!("exported  {}", line(build)));
    println!("wrote {} ({})", exported.file.display(), human(exported.bytes));
    println!("sha256 {}", exported.sha256);
    Ok(())
}

#[derive(Args)]
pub(crate) struct ImportOptions {
    /// The bundle.
    file: PathBuf,
    /// The project that the kernels are for: the bundle has to hold what its lock files say.
    #[arg(long, value_name = "PATH")]
    project: Option<PathBuf>,
    /// The digest that the export printed. Another file is refused.
    #[arg(long, value_name = "HEX")]
    sha256: Option<Sha256Digest>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    hub: HubOptions,
}

pub(crate) fn run_import(options: &ImportOptions) -> Result<(), Failure> {
    let project = match &options.project {
        Some(path) => Some(Locks::read(&Locks::folder(path)?)?),
        None => None,
    };
    let (hub, _) = options.hub.hub()?;
    let imported = hub.import(&options.file, options.sha256, project.as_ref())?;
    if !imported.anchored {
        eprintln!(
            "note: this bundle was held to its own lock only; name its --sha256 or your --project to know that it is \
             the one that was exported"
        );
    }
    if options.json {
        return crate::print_json(&imported);
    }
    imported.builds.iter().for_each(|build| println!("imported  {}", line(build)));
    println!("{} builds verified, {} of them were here before", imported.builds.len(), imported.present);
    Ok(())
}

fn line(build: &BundledBuild) -> String {
    let name = format!("{}@{}", build.repo, build.version);
    format!("{name:32}  {}", build.variant)
}
