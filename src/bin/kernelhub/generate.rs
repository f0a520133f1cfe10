//! `kernelhub generate`.

use std::path::PathBuf;

use clap::Args;
use kernelhub::swap::KernelConfig;

use crate::failure::Failure;
use crate::llama::options::GenerateOptions;
use crate::manifests::HubOptions;
use crate::plan::beside;

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    generate: GenerateOptions,
    /// Keep every layer on its reference code.
    #[arg(long, conflicts_with_all = ["config", "manifest"])]
    no_kernels: bool,
    /// Which kernel takes which layer, a .toml or .json file. Default: kernels.toml beside the weights, else the
    /// default mapping.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    hub: HubOptions,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let config = match &options.config {
        Some(path) => KernelConfig::open(path)?,
        None => match beside(&options.generate.model)? {
            Some((config, path)) => {
                eprintln!("kernels are those of {}", path.display());
                config
            }
            None => KernelConfig::standard()?,
        },
    };
    let (model, tokenizer) = options.generate.load().map_err(Failure::plain)?;
    let report = if options.no_kernels {
        eprintln!("kernels are off: --no-kernels");
        model.disable_kernels()
    } else {
        let (hub, _) = options.hub.hub()?;
        if let Some(why) = hub.switched_off() {
            eprintln!("kernels are off: {why}");
        }
        model.use_kernels(&hub, &config)?
    };
    eprintln!("{report}");
    let result = options.generate.answer(&model, &tokenizer).map_err(Failure::plain)?;
    eprintln!("{result}");
    Ok(())
}
