//! `kernelhub generate`.

use std::path::{Path, PathBuf};

use clap::Args;
use kernelhub::swap::KernelConfig;

use crate::failure::Failure;
use crate::llama::options::GenerateOptions;
use crate::manifests::HubOptions;

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    generate: GenerateOptions,
    /// Keep every layer on its reference code.
    #[arg(long, conflicts_with = "config")]
    no_kernels: bool,
    /// Which kernel takes which layer, a .toml or .json file. Default: the standard mapping.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    hub: HubOptions,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let config = match &options.config {
        Some(path) => read_config(path)?,
        None => KernelConfig::standard()?,
    };
    let (model, tokenizer) = options.generate.load().map_err(Failure::plain)?;
    let report = if options.no_kernels {
        model.disable_kernels()
    } else {
        let (hub, _) = options.hub.hub()?;
        model.use_kernels(&hub, &config)?
    };
    eprintln!("{report}");
    let result = options.generate.answer(&model, &tokenizer).map_err(Failure::plain)?;
    eprintln!("{result}");
    Ok(())
}

fn read_config(path: &Path) -> Result<KernelConfig, Failure> {
    let origin = path.display().to_string();
    let text =
        std::fs::read_to_string(path).map_err(|error| Failure::new(format!("cannot read {origin}: {error}"), None))?;
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => Ok(KernelConfig::from_toml(&text, &origin)?),
        Some("json") => Ok(KernelConfig::from_json(&text, &origin)?),
        _ => Err(Failure::new(format!("{origin} is neither a .toml nor a .json file"), None)),
    }
}
