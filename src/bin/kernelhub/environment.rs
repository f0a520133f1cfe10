//! `kernelhub env`.

use clap::Args;
use kernelhub::fetch::Environment;
use serde_json::{Value, json};

use crate::failure::Failure;

#[derive(Args)]
pub(crate) struct Options {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Read by this program itself, with what their absence means.
const OWN: [(&str, &str); 2] = [("KERNELHUB_LOG", "warn"), ("NO_COLOR", "colours on a terminal")];
/// Read by whoever looks at the machine, with what their absence means.
const LIBRARIES: [(&str, &str); 2] = [("KERNELHUB_TVM_FFI", "searched for"), ("LIBTORCH", "searched for")];
/// Where libraries are searched for. Shown where they are set.
const PLACES: [&str; 3] = ["LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"];
/// Read by the HTTP client. Their values may hold passwords.
const PROXIES: [&str; 8] =
    ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"];

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let environment = Environment::read()?;
    let mut rows: Vec<(&str, Option<String>, String)> = environment
        .variables()
        .iter()
        .map(|variable| (variable.name, variable.set.clone(), variable.effective.clone()))
        .collect();
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    rows.extend(OWN.iter().chain(&LIBRARIES).map(|(name, default)| {
        let value = set(name);
        (*name, value.clone(), value.unwrap_or_else(|| (*default).to_owned()))
    }));
    rows.extend(PLACES.iter().filter_map(|name| set(name).map(|value| (*name, Some(value.clone()), value))));
    // Settings of drivers, where they are set: what they did is with `devices`.
    let drivers = kernelhub::system::Environment::read().settings;
    rows.extend(drivers.iter().filter(|(name, _)| *name != "PATH").map(|(name, value)| {
        let effective = if value.is_empty() { "(empty)" } else { value };
        (name.as_str(), Some(value.clone()), effective.to_owned())
    }));
    rows.extend(PROXIES.iter().filter(|name| set(name).is_some()).map(|name| {
        let hidden = "(set)".to_owned();
        (*name, Some(hidden.clone()), hidden)
    }));
    if options.json {
        let rows: Vec<Value> = rows
            .iter()
            .map(|(name, set, effective)| json!({ "name": name, "set": set, "effective": effective }))
            .collect();
        return crate::print_json(&rows);
    }
    for (name, set, effective) in rows {
        let origin = if set.is_some() { "set" } else { "-" };
        println!("{name:32}  {origin:3}  {}", effective.escape_debug());
    }
    Ok(())
}
