//! `kernelhub devices`.

use std::path::PathBuf;

use clap::Args;
use kernelhub::device::{Device, Devices, Emulation, Support};
use kernelhub::dtype::DType;
use kernelhub::resolve::Target;
use kernelhub::system::{Environment, SystemInfo};
use kernelhub::variant::DeviceKey;

use crate::failure::Failure;
use crate::input::described;

#[derive(Args)]
pub(crate) struct Options {
    /// Show one device: auto, a key such as cuda, or one by its number, such as xpu:1. It is an error when it can't be
    /// used.
    #[arg(long, value_name = "KEY[:N]", value_parser = crate::input::target)]
    device: Option<Target>,
    /// Hold that device (auto, when none is named) to an element type, such as bf16.
    #[arg(long)]
    dtype: Option<DType>,
    /// Take a type that the device only emulates.
    #[arg(long, requires = "dtype")]
    allow_emulation: bool,
    /// Show the machine that this JSON file describes, as --json prints it. Default: this machine.
    #[arg(long, value_name = "FILE")]
    system: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let asked = options.device.or(options.dtype.map(|_| Target::Any));
    let devices = match &options.system {
        Some(file) => Devices::of(described(file)?),
        None => asked.map_or_else(everything, |target| Devices::probe(target, &Environment::read())),
    };
    match asked {
        Some(target) => one(&devices.select(target)?, options),
        None => all(&devices, options.json),
    }
}

/// This machine, with every device that can be looked for.
fn everything() -> Devices {
    let environment = Environment::read();
    let mut system = SystemInfo::probe_in(&environment);
    for key in DeviceKey::all() {
        system.probe_native(key, &environment);
    }
    #[cfg(feature = "wgpu")]
    system.probe_adapters();
    Devices::of(system)
}

fn all(devices: &Devices, json: bool) -> Result<(), Failure> {
    if json {
        return crate::print_json(devices.system());
    }
    print!("{}", devices.system());
    println!("auto: {}", devices.best());
    Ok(())
}

fn one(device: &Device, options: &Options) -> Result<(), Failure> {
    let emulation = if options.allow_emulation { Emulation::Allow } else { Emulation::Refuse };
    let support = options.dtype.map(|dtype| device.require(dtype, emulation).map(|support| (dtype, support)));
    let support = support.transpose()?;
    if options.json {
        return crate::print_json(device.info());
    }
    print!("{}", device.info());
    if let Some((dtype, support)) = support {
        let word = match support {
            Support::Native => "native",
            Support::Emulated => "emulated",
            Support::None => "none",
            Support::Unknown => "unknown: the driver does not tell",
        };
        println!("{dtype}: {word}");
    }
    Ok(())
}
