//! `kernelhub probe`, and the hidden command that its child runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use kernelhub::fetch::Revision;
use kernelhub::hub::HubError;
use kernelhub::manifest::{MAX_METADATA_BYTES, METADATA_FILE, Metadata};
use kernelhub::names::{NameError, RepoId};
use kernelhub::probe::{self, ProbeCommand, ProbeError, ProbeOptions};
use kernelhub::regular;
use kernelhub::variant::DeviceKey;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::kernel_name::KernelName;
use crate::manifests::HubOptions;

/// The command that the child runs.
pub(crate) const CHILD: &str = "probe-child";

#[derive(Args)]
pub(crate) struct Options {
    /// The kernel with its version, commit, branch or tag; or a folder with its builds, or with one.
    #[arg(value_name = "ORG/NAME@REVISION|DIR")]
    kernel: String,
    /// The device to load it for: cpu, cuda, rocm, xpu, hpu, mps, npu, neuron or tpu.
    #[arg(long, default_value = "cpu")]
    device: DeviceKey,
    #[command(flatten)]
    limit: Limit,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    hub: HubOptions,
}

/// How long a child may take.
#[derive(Args)]
pub(crate) struct Limit {
    /// How long the process that loads the kernel first may take, in seconds.
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS", value_parser = seconds)]
    probe_timeout: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    if number > 0.0 && number <= 86_400.0 { Ok(number) } else { Err("expected 0 to 86400 seconds".to_owned()) }
}

impl Limit {
    /// A probe by this program itself.
    pub(crate) fn options(&self) -> Result<ProbeOptions, Failure> {
        let command = ProbeCommand::own([CHILD]).map_err(Failure::plain)?;
        Ok(ProbeOptions::new(command).time_limit(Duration::from_secs_f64(self.probe_timeout)))
    }
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let folder = Path::new(&options.kernel);
    let (hub, repo, revision) = if folder.is_dir() {
        let metadata = metadata(folder)?;
        let repo: RepoId =
            format!("local/{}", metadata.name).parse().map_err(|error: NameError| Failure::plain(error))?;
        let (hub, _) = options.hub.hub_with(|builder| builder.local(repo.clone(), folder))?;
        (hub, repo, Revision::Version(metadata.version))
    } else {
        let KernelName { repo, revision } = options.kernel.parse().map_err(|error: String| {
            Failure::new(format!("{:?}: {error}; and there is no such folder", options.kernel), None)
        })?;
        let (hub, _) = options.hub.hub()?;
        let revision = match revision {
            Some(revision) => revision,
            None => hub.default_version(&repo)?.into(),
        };
        (hub, repo, revision)
    };
    let probed = hub.probe(&repo, revision.clone(), options.device, &options.limit.options()?);
    let (build, report) = match probed {
        Ok(probed) => probed,
        Err(error) => {
            if options.json {
                crate::print_json(&failed(&repo, &error))?;
            }
            return Err(error.into());
        }
    };
    let snapshot = &build.snapshot;
    if options.json {
        return crate::print_json(&json!({
            "repo": repo,
            "version": snapshot.version(),
            "variant": snapshot.variant(),
            "path": snapshot.root(),
            "outcome": "loaded",
            "handshake": report.handshake,
            "ms": report.ms,
        }));
    }
    println!("{repo}@{revision}  {}", snapshot.variant());
    println!("loaded    by a process of its own, in {:.0} ms; nothing of it ran in this one", report.ms);
    Ok(())
}

/// What became of the child, for programs.
fn failed(repo: &RepoId, error: &HubError) -> Value {
    let mut json = json!({
        "repo": repo,
        "outcome": "refused",
        "reason": error.to_string(),
        "violations": error.violations(),
    });
    let HubError::Probe(error) = error else { return json };
    match error {
        ProbeError::Crashed { signal, .. } => {
            json["outcome"] = "crashed".into();
            json["signal"] = probe::signal_name(*signal).into();
            json["signal_number"] = (*signal).into();
        }
        ProbeError::Hung { limit, .. } => {
            json["outcome"] = "hung".into();
            json["limit_s"] = limit.as_secs_f64().into();
        }
        ProbeError::Exited { code, .. } => {
            json["outcome"] = "exited".into();
            json["code"] = (*code).into();
        }
        _ => {}
    }
    json["output"] = error.output().into();
    json
}

/// The metadata of a folder's first build: which kernel it is.
fn metadata(folder: &Path) -> Result<Metadata, Failure> {
    let mut places = vec![folder.to_path_buf()];
    for above in [folder.join("build"), folder.to_path_buf()] {
        let entries = above.read_dir().into_iter().flatten().flatten();
        let mut below: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        below.sort();
        places.extend(below);
    }
    let file = places.iter().map(|place| place.join(METADATA_FILE)).find(|file| file.is_file()).ok_or_else(|| {
        Failure::new(format!("{} holds no build", folder.display()), Some("a build has a metadata.json"))
    })?;
    let unreadable = |error: std::io::Error| Failure::new(format!("cannot read {}: {error}", file.display()), None);
    let text = regular::open(&file).and_then(|open| regular::read_start(open, MAX_METADATA_BYTES + 1));
    let text = text.map_err(unreadable)?;
    Ok(Metadata::parse(&text, &file.display().to_string())?)
}
