//! `kernelhub devices`.

use clap::Args;
use kernelhub::system::SystemInfo;

use crate::failure::Failure;

#[derive(Args)]
pub(crate) struct Options {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut system = SystemInfo::probe();
    #[cfg(feature = "wgpu")]
    system.probe_adapters();
    if options.json {
        println!("{}", serde_json::to_string_pretty(&system).map_err(Failure::plain)?);
    } else {
        println!("{system}");
    }
    Ok(())
}
