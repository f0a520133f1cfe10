//! `kernelhub verify`.

use clap::Args;
use kernelhub::digest::Violation;
use kernelhub::hub::{Selection, VerifiedBuild};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::kernel_name::KernelName;
use crate::manifests::HubOptions;

#[derive(Args)]
pub(crate) struct Options {
    /// The kernel with its version, commit, branch or tag, such as kernelhub/rmsnorm@v1.
    #[arg(value_name = "ORG/NAME@REVISION")]
    kernel: KernelName,
    /// Every build in the cache, not only those for this machine.
    #[arg(long)]
    all_variants: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    hub: HubOptions,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let KernelName { repo, revision } = &options.kernel;
    let (hub, _) = options.hub.hub()?;
    let revision = match revision {
        Some(revision) => revision.clone(),
        None => hub.default_version(repo)?.into(),
    };
    let selection = if options.all_variants { Selection::AllVariants } else { Selection::ThisMachine };
    let builds = hub.verify_cached(repo, &revision, selection)?;
    let faulty = builds.iter().filter(|build| !build.is_clean()).count();
    if options.json {
        let violations: Vec<Value> =
            builds.iter().flat_map(|build| build.violations.iter().map(|found| of_build(build, found))).collect();
        crate::print_json(&json!({
            "repo": repo,
            "revision": revision,
            "clean": faulty == 0,
            "builds": builds.iter().map(build_json).collect::<Vec<_>>(),
            "violations": violations,
        }))?;
    } else {
        builds.iter().for_each(print);
    }
    if faulty == 0 {
        return Ok(());
    }
    let is_damage = |build: &VerifiedBuild| build.violations.iter().any(|violation| violation.kind.is_damage());
    let hint = if builds.iter().any(is_damage) {
        "the next `kernelhub get` of it, while online, fetches damaged files again"
    } else {
        "choose another build or version of the kernel, and tell its publisher"
    };
    Err(Failure::new(format!("{faulty} of {} builds of {repo}@{revision} are refused", builds.len()), Some(hint)))
}

fn print(build: &VerifiedBuild) {
    let state = if build.is_clean() { "verified" } else { "refused" };
    let variant = build.entry.variant.as_ref().map(ToString::to_string).unwrap_or_default();
    println!("{state:8}  {variant}  {} files, {} bytes", build.files, build.bytes);
    for violation in &build.violations {
        println!("          {violation}");
    }
    if let Some(fault) = &build.fault {
        println!("          {}", crate::cache::words(fault));
    }
    for warning in &build.warnings {
        println!("          warning: {warning}");
    }
    println!("          {}", build.entry.path.display());
}

fn build_json(build: &VerifiedBuild) -> Value {
    json!({
        "variant": build.entry.variant.as_ref().map(ToString::to_string),
        "revision": build.entry.revision,
        "path": build.entry.path,
        "files": build.files,
        "bytes": build.bytes,
        "clean": build.is_clean(),
        "fault": build.fault.as_ref().map(crate::cache::words),
        "warnings": build.warnings,
    })
}

/// A violation with the build that it is in.
fn of_build(build: &VerifiedBuild, violation: &Violation) -> Value {
    json!({
        "variant": build.entry.variant.as_ref().map(ToString::to_string),
        "kind": violation.kind,
        "path": violation.path,
        "expected": violation.expected,
        "actual": violation.actual,
    })
}
