//! `kernelhub generate`.

use std::path::{Path, PathBuf};

use clap::Args;
use kernelhub::fetch::Environment;
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
    let report = if let Some(why) = why_off(options.no_kernels, &Environment::read()?) {
        eprintln!("kernels are off: {why}");
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

/// Who switched kernels off. The variables mean what they mean to the Python tools.
fn why_off(no_kernels: bool, environment: &Environment) -> Option<&'static str> {
    match environment {
        _ if no_kernels => Some("--no-kernels"),
        Environment { use_hub_kernels: false, .. } => Some("USE_HUB_KERNELS says no"),
        Environment { disable_kernel_mapping: true, .. } => Some("DISABLE_KERNEL_MAPPING says yes"),
        _ => None,
    }
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

#[cfg(test)]
mod tests {
    use kernelhub::fetch::Environment;

    use super::why_off;

    #[test]
    fn the_switches_of_the_environment_are_obeyed_and_named() {
        let off = |no_kernels, name: &str, value: &str| {
            let environment = Environment::read_with(&|asked| (asked == name).then(|| value.into())).unwrap();
            why_off(no_kernels, &environment)
        };
        assert_eq!(off(false, "", ""), None);
        assert_eq!(off(true, "", ""), Some("--no-kernels"));
        assert_eq!(off(false, "USE_HUB_KERNELS", "1"), None);
        assert_eq!(off(false, "USE_HUB_KERNELS", "0"), Some("USE_HUB_KERNELS says no"));
        assert_eq!(off(false, "DISABLE_KERNEL_MAPPING", "1"), Some("DISABLE_KERNEL_MAPPING says yes"));
    }
}
