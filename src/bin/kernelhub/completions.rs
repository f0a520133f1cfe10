//! `kernelhub completions`.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::failure::Failure;

#[derive(Args)]
pub(crate) struct Options {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut crate::Cli::command(), "kernelhub", &mut script);
    print!("{}", String::from_utf8(script).map_err(Failure::plain)?);
    Ok(())
}
