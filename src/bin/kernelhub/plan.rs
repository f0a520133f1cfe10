//! `kernelhub plan`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use kernelhub::fetch::Revision;
use kernelhub::hint::Hint as _;
use kernelhub::hub::{Hub, HubError};
use kernelhub::regular;
use kernelhub::swap::{KernelConfig, KernelRef, KernelSource, Mode, Report, Slots, Target};
use kernelhub::variant::DeviceKey;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::llama::config::Config;
use crate::llama::error::ModelError;
use crate::llama::model::Llama;
use crate::llama::options::Precision;
use crate::manifests::HubOptions;

#[derive(Args)]
pub(crate) struct Options {
    /// A model's folder, of which config.json is read and no weights.
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Which kernel takes which layer, a .toml or .json file. Default: kernels.toml in the model's folder, else the
    /// default mapping.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The device to plan for.
    #[arg(long, value_name = "KEY", default_value = "cpu")]
    device: DeviceKey,
    /// The device's compute capability, such as 90 for CUDA's 9.0. Default: that of this machine's device.
    #[arg(long, value_name = "NUMBER")]
    capability: Option<u32>,
    /// inference, inference+compile, training or training+compile.
    #[arg(long, value_name = "MODE", default_value_t)]
    mode: Mode,
    /// Element type that the model is to run in.
    #[arg(long, value_enum, default_value_t = Precision::F32)]
    dtype: Precision,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    hub: HubOptions,
}

const NO_MODEL: &str = "name the folder of a model that has a config.json";
/// Largest `config.json` of a model, in bytes; those that there are have a few thousand.
const MAX_MODEL_CONFIG_BYTES: u64 = 4 << 20;
const OTHER_MODEL: &str =
    "plan knows the layers of Llama-family models alone; a program plans any model by the slots of its layers";

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    if options.capability.is_some() && !matches!(options.device, DeviceKey::Cuda | DeviceKey::Rocm) {
        return Err(Failure::new(
            format!("--capability is given, and {} devices have none", options.device),
            Some("leave it out, or plan for cuda or rocm"),
        ));
    }
    let (config, origin) = config(options)?;
    let path = options.model.join("config.json");
    let text = regular::read_text(&path, MAX_MODEL_CONFIG_BYTES)
        .map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display()), Some(NO_MODEL)))?;
    let model = Config::from_json(&text, &path.display().to_string()).map_err(|error| match error {
        ModelError::Unsupported { .. } => Failure::plain(error).with_hint(OTHER_MODEL),
        error => Failure::plain(error),
    })?;
    let slots = Llama::outline(model, options.dtype.dtype(), options.device).map_err(Failure::plain)?;
    let (hub, _) = options.hub.hub()?;
    // A stated capability is a machine that is described, whatever this one has.
    if options.capability.is_none() && hub.has_device(options.device) {
        slots.set_mode(options.mode);
        let report = slots.use_kernels(&hub, &config)?;
        return show_report(options, &origin, &report);
    }
    show_preview(options, &origin, &hub, &slots, &config)
}

/// The configuration, and where it came from.
fn config(options: &Options) -> Result<(KernelConfig, String), Failure> {
    if let Some(path) = &options.config {
        return Ok((KernelConfig::open(path)?, path.display().to_string()));
    }
    Ok(match beside(&options.model)? {
        Some((config, path)) => (config, path.display().to_string()),
        None => (KernelConfig::standard()?, "the default mapping".to_owned()),
    })
}

/// The configuration in a model's folder, or in the folder of its file.
pub(crate) fn beside(model: &Path) -> Result<Option<(KernelConfig, PathBuf)>, Failure> {
    let folder = if model.is_dir() { Some(model) } else { model.parent() };
    let Some(folder) = folder else { return Ok(None) };
    Ok(KernelConfig::load(folder)?.map(|config| (config, folder.join(kernelhub::hub::CONFIG_FILE))))
}

fn show_report(options: &Options, origin: &str, report: &Report) -> Result<(), Failure> {
    if options.json {
        let plan = json!({
            "model": options.model,
            "config": origin,
            "resolve_only": false,
            "swapped": report.swapped(),
            "total": report.total(),
            "report": report,
        });
        return crate::print_json(&plan);
    }
    eprintln!("planned by {origin}");
    println!("{report}");
    Ok(())
}

fn show_preview(
    options: &Options,
    origin: &str,
    hub: &Hub,
    slots: &Slots,
    config: &KernelConfig,
) -> Result<(), Failure> {
    let device = options.device;
    let capability = options.capability.or_else(|| hub.capability(device));
    let preview = slots.preview(config, Target { device, capability }, options.mode)?;
    let builds: BTreeMap<String, Found> =
        preview.kernels.iter().map(|kernel| (kernel.to_string(), find(hub, kernel))).collect();
    let switched_off = hub.switched_off();
    if options.json {
        let builds: BTreeMap<_, Value> = builds.iter().map(|(kernel, found)| (kernel, found.as_json())).collect();
        let plan = json!({
            "model": options.model,
            "config": origin,
            "resolve_only": true,
            "switched_off": switched_off,
            "swapped": preview.picked(),
            "total": preview.layers.len(),
            "report": preview,
            "kernels": builds,
        });
        return crate::print_json(&plan);
    }
    eprintln!("planned by {origin}");
    println!("Resolve only: no kernel for {device} can be brought up here. This is what the configuration picks.");
    println!("{preview}");
    if let Some(switch) = switched_off {
        println!("note: here, kernels are off: {switch}");
    }
    for (kernel, found) in &builds {
        println!("{kernel}: {}", found.text());
    }
    Ok(())
}

/// What is known of a picked kernel's builds.
enum Found {
    /// The names of all of its builds.
    Builds(Vec<String>),
    /// It could not be asked for, or there is no such kernel.
    Unknown { fault: String, hint: Option<String> },
}

impl Found {
    fn text(&self) -> String {
        match self {
            Self::Builds(builds) => format!("its builds are {}", builds.join(", ")),
            Self::Unknown { fault, hint: Some(hint) } => format!("its builds are not known: {fault} ({hint})"),
            Self::Unknown { fault, hint: None } => format!("its builds are not known: {fault}"),
        }
    }

    fn as_json(&self) -> Value {
        match self {
            Self::Builds(builds) => json!({ "builds": builds }),
            Self::Unknown { fault, hint } => json!({ "fault": fault, "hint": hint }),
        }
    }
}

/// The builds of a kernel, by their names, as far as sources can be asked.
fn find(hub: &Hub, kernel: &KernelRef) -> Found {
    let asked = || -> Result<Vec<String>, HubError> {
        let (repo, revision): (_, Revision) = match &kernel.source {
            KernelSource::Repo { repo, revision: Some(revision) } => (repo, revision.clone()),
            KernelSource::Repo { repo, revision: None } => (repo, hub.default_revision(repo)?),
            KernelSource::Folder(_) => return Ok(vec!["those in the folder".to_owned()]),
        };
        let decisions = hub.describe(repo, &revision)?.resolution.decisions;
        Ok(decisions.iter().map(|decision| decision.variant.to_string()).collect())
    };
    match asked() {
        Ok(builds) => Found::Builds(builds),
        Err(error) => Found::Unknown { fault: error.to_string(), hint: error.hint() },
    }
}
