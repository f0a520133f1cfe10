//! `kernelhub doctor`.

use clap::Args;
use kernelhub::fetch::Environment;
use kernelhub::hub::{Area, Check, ConfigFileError, Finding};
use kernelhub::swap::KernelConfig;
use serde_json::json;

use crate::failure::Failure;
use crate::manifests::HubOptions;

#[derive(Args)]
pub(crate) struct Options {
    /// Check the kernels of this configuration, a .toml or .json file, instead of the standard mapping.
    #[arg(long, value_name = "FILE")]
    config: Option<std::path::PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    hub: HubOptions,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let config = config(options.config.as_deref())?;
    let mut checks = vec![environment()];
    // With an environment that cannot be read there is no cache to look into and no source to ask.
    if !checks[0].has_failed() {
        let (hub, _) = options.hub.hub()?;
        checks.extend(hub.diagnose(&config));
    }
    let count = |wanted: fn(&Finding) -> bool| checks.iter().filter(|check| wanted(&check.finding)).count();
    let ok = count(|finding| matches!(finding, Finding::Ok { .. }));
    let failed = count(|finding| matches!(finding, Finding::Failed { .. }));
    let skipped = count(|finding| matches!(finding, Finding::Skipped { .. }));
    if options.json {
        crate::print_json(
            &json!({ "healthy": failed == 0, "ok": ok, "failed": failed, "skipped": skipped, "checks": checks }),
        )?;
    } else {
        checks.iter().for_each(print);
        println!("{ok} ok, {failed} failed, {skipped} skipped");
    }
    if failed == 0 {
        return Ok(());
    }
    let what = if failed == 1 { "1 check failed".to_owned() } else { format!("{failed} checks failed") };
    Err(Failure::new(what, None))
}

fn config(file: Option<&std::path::Path>) -> Result<KernelConfig, Failure> {
    Ok(file.map_or_else(|| KernelConfig::standard().map_err(ConfigFileError::Config), KernelConfig::open)?)
}

fn environment() -> Check {
    let finding = match Environment::read() {
        Ok(environment) => {
            let set = environment.variables().iter().filter(|variable| variable.set.is_some());
            let names: Vec<&str> = set.map(|variable| variable.name).collect();
            let detail = match names.len() {
                0 => "no variable is set".to_owned(),
                count => format!("{count} variables are set and can be read: {}", names.join(", ")),
            };
            Finding::Ok { detail }
        }
        Err(error) => Finding::failed(None, &error),
    };
    Check::new(Area::Environment, "variables", finding)
}

fn print(check: &Check) {
    let (state, text) = match &check.finding {
        Finding::Ok { detail } => ("ok", detail.clone()),
        Finding::Skipped { reason } => ("skipped", reason.clone()),
        Finding::Failed { stage, error, .. } => {
            ("failed", stage.map_or_else(|| error.clone(), |stage| format!("{stage}: {error}")))
        }
    };
    println!("{state:7}  {:11}  {}", check.area.as_str(), check.subject.escape_debug());
    println!("         {}", text.replace('\n', "\n         "));
    if let Finding::Failed { hint: Some(hint), .. } = &check.finding {
        println!("         hint: {hint}");
    }
}
