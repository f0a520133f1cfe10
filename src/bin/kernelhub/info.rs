//! `kernelhub versions` and `kernelhub info`.

use clap::Args;
use kernelhub::fetch::Revision;
use kernelhub::hub::{KernelDescription, VersionBuilds};
use kernelhub::names::RepoId;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::kernel_name::KernelName;
use crate::manifests::HubOptions;

#[derive(Args)]
pub(crate) struct VersionsOptions {
    /// The kernel.
    #[arg(value_name = "ORG/NAME")]
    repo: RepoId,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    hub: HubOptions,
}

pub(crate) fn run_versions(options: &VersionsOptions) -> Result<(), Failure> {
    let (hub, _) = options.hub.hub()?;
    let (source, versions) = hub.version_builds(&options.repo)?;
    if options.json {
        let rows: Vec<Value> = versions.iter().map(version_json).collect();
        return crate::print_json(&json!({ "repo": options.repo, "source": source, "versions": rows }));
    }
    println!("{} ({source})", options.repo);
    for version in &versions {
        let at = version.commit.as_ref().map_or_else(String::new, |commit| format!(" at {commit}"));
        let fits = match version.resolution.chosen_decision() {
            Some(decision) => format!("{} fits this machine", decision.variant),
            None => "no build fits this machine".to_owned(),
        };
        println!("\nv{}{at}: {} builds, {fits}", version.version, version.resolution.decisions.len());
        println!("{}", version.resolution);
    }
    Ok(())
}

fn version_json(version: &VersionBuilds) -> Value {
    let names: Vec<_> = version.resolution.decisions.iter().map(|decision| &decision.variant).collect();
    json!({
        "version": version.version,
        "commit": version.commit,
        "variants": names,
        "fits": version.resolution.chosen_decision().map(|decision| &decision.variant),
        "resolution": version.resolution,
    })
}

#[derive(Args)]
pub(crate) struct InfoOptions {
    /// The kernel with its version, commit, branch or tag, such as kernels-community/activation@v1.
    #[arg(value_name = "ORG/NAME[@REVISION]")]
    kernel: KernelName,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    hub: HubOptions,
}

pub(crate) fn run_info(options: &InfoOptions) -> Result<(), Failure> {
    let KernelName { repo, revision } = &options.kernel;
    let (hub, _) = options.hub.hub()?;
    let revision = match revision {
        Some(revision) => revision.clone(),
        // The newest there is, as the Python tool has it.
        None => match hub.versions(repo)?.1.last() {
            Some(newest) => Revision::Version(newest.version),
            None => hub.default_revision(repo)?,
        },
    };
    let kernel = hub.describe(repo, &revision)?;
    let metadata = kernel.metadata.as_ref();
    if options.json {
        return crate::print_json(&json!({
            "repo": kernel.repo,
            "revision": kernel.revision,
            "commit": kernel.commit,
            "source": kernel.source,
            "trust": trust_json(&kernel),
            "license": kernel.license,
            "description": kernel.description,
            "metadata": metadata.map(|metadata| json!({
                "name": metadata.name,
                "id": metadata.id,
                "version": metadata.version,
                "python_depends": metadata.python_depends,
                "kernel_depends": metadata.kernel_depends,
                "backend": metadata.backend.kind,
                "archs": metadata.backend.archs,
                "has_digest": metadata.digest.is_some(),
                "provenance": metadata.provenance,
            })),
            "layers": kernel.layers,
            "variants": kernel.resolution.decisions.iter().map(|decision| &decision.variant).collect::<Vec<_>>(),
            "resolution": kernel.resolution,
            "notes": kernel.notes,
        }));
    }
    let or_dash = |text: Option<&str>| text.unwrap_or("-").escape_debug().to_string();
    println!("{}@{}", kernel.repo, kernel.revision);
    println!("source       {}", kernel.source);
    println!("trusted      {}", trust_line(&kernel));
    println!("commit       {}", or_dash(kernel.commit.as_deref()));
    println!("licence      {}", or_dash(kernel.license.as_deref()));
    println!("description  {}", or_dash(kernel.description.as_deref()));
    if let Some(metadata) = metadata {
        println!("build id     {}", metadata.id.escape_debug());
        println!(
            "backend      {} {}",
            metadata.backend.kind.escape_debug(),
            metadata.backend.archs.join(", ").escape_debug()
        );
        let needs: Vec<String> = metadata.kernel_depends.iter().map(ToString::to_string).collect();
        println!("needs        {}", or_dash((!needs.is_empty()).then(|| needs.join(", ")).as_deref()));
    } else {
        println!("metadata     comes with a build, and none is fetched yet");
    }
    let layers: Vec<&str> = kernel.layers.iter().map(|layer| layer.name.as_str()).collect();
    println!("layers       {}", or_dash((!layers.is_empty()).then(|| layers.join(", ")).as_deref()));
    println!("\n{}", kernel.resolution);
    kernel.notes.iter().for_each(|note| eprintln!("note: {note}"));
    Ok(())
}

/// Whether its publisher is admitted, for people.
fn trust_line(kernel: &KernelDescription) -> String {
    match &kernel.trust {
        Ok(admission) => admission.to_string(),
        Err(error) => format!("NO: {error}"),
    }
}

/// The same for programs.
fn trust_json(kernel: &KernelDescription) -> Value {
    match &kernel.trust {
        Ok(admission) => json!({
            "admitted": true,
            "publisher": admission.repo().owner(),
            "from": admission.origin().kind(),
            "basis": admission.basis().to_string(),
        }),
        Err(error) => json!({ "admitted": false, "publisher": kernel.repo.owner(), "reason": error.to_string() }),
    }
}
