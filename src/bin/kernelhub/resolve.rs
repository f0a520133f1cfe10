//! `kernelhub resolve`.

use std::path::{Path, PathBuf};

use clap::Args;
use kernelhub::fetch::LocalSource;
use kernelhub::hub::OtherVersions;
use kernelhub::resolve::{
    BackendBuilds, BackendTable, Candidate, MAX_LIST_BYTES, Request, Resolution, ResolveError, Target, choose, resolve,
};
use kernelhub::system::{Environment, SystemInfo};
#[cfg(feature = "wgpu")]
use kernelhub::variant::DeviceKey;
use serde_json::json;

use crate::failure::{Failure, NOTHING_FITS, shown};
use crate::input::{bounded, described};
use crate::kernel_name::KernelName;
use crate::manifests::HubOptions;

#[derive(Args)]
pub(crate) struct Options {
    /// The kernel with its version, commit, branch or tag; or a folder with builds in it or in its build/; or a file
    /// with the name of one build a line, or a JSON list of names or of {"variant": ..., "archs": [...]}.
    #[arg(value_name = "ORG/NAME@REVISION|FOLDER|FILE")]
    kernel: String,
    /// Decide for the machine that this JSON file describes, as `devices --json` prints it. Default: this machine, of
    /// which only the devices are looked for that decide on a build.
    #[arg(long, value_name = "FILE")]
    system: Option<PathBuf>,
    /// The devices to serve: a key such as cuda, one device such as cuda:1, or auto for the best of the machine.
    #[arg(long, value_name = "KEY[:N]", value_parser = crate::input::target, default_value = "auto")]
    device: Target,
    /// Decide as for a program that can load builds for Torch's own interfaces. This one cannot.
    #[arg(long)]
    torch_loader: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    hub: HubOptions,
}

/// What was decided, wherever the builds were listed.
struct Decided {
    /// What was resolved, for people: the kernel with where it was found, or the file.
    title: String,
    /// What says the same to programs.
    place: serde_json::Value,
    resolution: Resolution,
    backends: Vec<BackendBuilds>,
    refusal: Option<ResolveError>,
    others: Option<OtherVersions>,
    notes: Vec<String>,
    hint: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let request = Request::to(options.device).with_torch_loader(options.torch_loader);
    let described = options.system.as_deref().map(described).transpose()?;
    let machine = |candidates: &[Candidate]| described.unwrap_or_else(|| probed(candidates, &request));
    let path = Path::new(&options.kernel);
    let is_named = !path.exists();
    if let Some(option) = options.hub.only_for_names().filter(|_| !is_named) {
        return Err(Failure::new(
            format!("{option} has no effect: {} is a file or a folder", path.display()),
            Some("leave it out, or name a kernel as ORG/NAME@v1"),
        ));
    }
    let decided = if is_named {
        named(options, &request, machine)?
    } else if path.is_dir() {
        listed("folder", path, &LocalSource::candidates(path)?, &request, machine)
    } else {
        let candidates = Candidate::read_list(&bounded(path, MAX_LIST_BYTES)?, &path.display().to_string())?;
        listed("list", path, &candidates, &request, machine)
    };
    report(options, &decided)
}

/// A kernel of a source.
fn named(
    options: &Options,
    request: &Request,
    machine: impl FnOnce(&[Candidate]) -> SystemInfo,
) -> Result<Decided, Failure> {
    let KernelName { repo, revision } = options.kernel.parse().map_err(|error: String| {
        Failure::new(format!("{:?}: {error}; and there is no such file or folder", options.kernel), None)
    })?;
    let (hub, _) = options.hub.hub()?;
    let revision = match revision {
        Some(revision) => revision,
        None => hub.default_revision(&repo)?,
    };
    let found = hub.resolve(&repo, &revision, request, machine)?;
    let hint = found.hint();
    let at = found.commit.as_ref().map_or_else(String::new, |commit| format!(" at {commit}"));
    Ok(Decided {
        title: format!("{repo}@{revision}{at} ({})", found.source),
        place: json!({
            "repo": found.repo,
            "revision": found.revision,
            "commit": found.commit,
            "source": found.source,
        }),
        resolution: found.resolution,
        backends: found.backends,
        refusal: found.refusal,
        others: found.others,
        notes: found.notes,
        hint,
    })
}

/// Builds of a folder or of a list.
fn listed(
    kind: &str,
    path: &Path,
    candidates: &[Candidate],
    request: &Request,
    machine: impl FnOnce(&[Candidate]) -> SystemInfo,
) -> Decided {
    let system = machine(candidates);
    let refusal = choose(candidates, &system, request).err();
    let source = format!("{kind} {}", path.display());
    Decided {
        title: source.clone(),
        place: json!({ "repo": null, "revision": null, "commit": null, "source": source }),
        resolution: resolve(candidates, &system, request),
        backends: BackendBuilds::of(candidates),
        hint: refusal.as_ref().and_then(kernelhub::hint::Hint::hint),
        refusal,
        others: None,
        notes: system.notes,
    }
}

fn report(options: &Options, decided: &Decided) -> Result<(), Failure> {
    let Decided { resolution, backends, refusal, others, notes, .. } = decided;
    if options.json {
        let (alternatives, unprobed) = match refusal {
            Some(ResolveError::NothingFits { alternatives, unprobed, .. }) => {
                (alternatives.as_slice(), unprobed.as_slice())
            }
            _ => (&[][..], &[][..]),
        };
        let mut whole = decided.place.clone();
        whole["device"] = options.device.to_string().into();
        whole["torch_loader"] = options.torch_loader.into();
        let decision = serde_json::to_value(resolution).map_err(Failure::plain)?;
        for key in ["chosen", "decisions"] {
            whole[key] = decision[key].clone();
        }
        whole["backends"] = json!(backends);
        whole["alternatives"] = json!(alternatives);
        whole["unprobed"] = json!(unprobed);
        whole["other_versions"] = json!(others);
        whole["hint"] = json!(decided.hint);
        whole["notes"] = json!(notes);
        crate::print_json(&whole)?;
    } else {
        println!("{}, for device {}\n", decided.title, options.device);
        print!("{resolution}");
        if refusal.is_some() {
            if !backends.is_empty() {
                print!("\n{}", BackendTable(backends));
            }
            if let Some(others) = others.as_ref().filter(|others| **others != OtherVersions::default()) {
                print!("\n{others}");
            }
        }
        for note in notes {
            eprintln!("note: {}", shown(note));
        }
    }
    if refusal.is_none() {
        return Ok(());
    }
    let text = format!("{}{}", resolution.nothing_fits(), decided.elsewhere());
    Err(Failure::new(text, decided.hint.as_deref()).with_code(NOTHING_FITS))
}

impl Decided {
    /// Which other versions fit, for the error.
    fn elsewhere(&self) -> String {
        self.others.as_ref().and_then(OtherVersions::spoken_fits).map_or_else(String::new, |fits| format!("; {fits}"))
    }
}

/// This machine, with the devices that decide on a build: what no build of these is for is not looked for.
fn probed(candidates: &[Candidate], request: &Request) -> SystemInfo {
    let mut system = SystemInfo::probe();
    let environment = Environment::read();
    for key in resolve(candidates, &system, request).unprobed() {
        match key {
            #[cfg(feature = "wgpu")]
            DeviceKey::Wgpu => system.probe_adapters(),
            key => system.probe_native(key, &environment),
        }
    }
    system
}
