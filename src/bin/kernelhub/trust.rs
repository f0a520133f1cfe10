//! `kernelhub trust`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use kernelhub::fetch::Environment;
use kernelhub::names::RepoId;
use kernelhub::policy::{Edit, MACHINE_FILE, OriginKind, Policy, PolicyFiles, add};
use serde_json::json;

use crate::failure::Failure;
use crate::sign::public_key;

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Trust what a publisher publishes, signed or not. Its kernels run with all your rights.
    Publisher {
        /// The owner part of its repos.
        name: String,
        #[command(flatten)]
        place: Place,
    },
    /// Trust one kernel repo, signed or not.
    Repo {
        /// The repo.
        #[arg(value_name = "ORG/NAME")]
        name: RepoId,
        #[command(flatten)]
        place: Place,
    },
    /// Trust what a publisher has signed with a key, wherever it comes from.
    Key {
        /// The owner part of its repos.
        publisher: String,
        /// The public key, or its .pub file.
        #[arg(value_name = "KEY|FILE")]
        key: String,
        #[command(flatten)]
        file: File,
    },
    /// Believe the names of publishers at another Hub.
    Endpoint {
        /// The Hub, as `HF_ENDPOINT` names it.
        url: String,
        /// Trust every publisher that it calls trusted, too.
        #[arg(long)]
        accept_publisher_flags: bool,
        #[command(flatten)]
        file: File,
    },
    /// Trust the kernels in a folder of this machine and below it, under whatever name they bear.
    Folder {
        /// The folder.
        #[arg(value_name = "DIR")]
        path: PathBuf,
        #[command(flatten)]
        file: File,
    },
    /// Refuse what a publisher publishes, whatever else is said about it.
    Refuse {
        /// The owner part of its repos.
        publisher: String,
        #[command(flatten)]
        file: File,
    },
    /// Show the policies that are read here, and what they say.
    Show {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
struct Place {
    /// Where its name counts: hub (the Hub), archive (mirrors, registries, bundles, files), local (folders). An archive
    /// or a folder can bear any name.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "hub")]
    from: Vec<From>,
    #[command(flatten)]
    file: File,
}

#[derive(Args)]
struct File {
    /// Write to the machine's policy instead of the user's.
    #[arg(long)]
    machine: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum From {
    Hub,
    Archive,
    Local,
}

impl Place {
    fn kinds(&self) -> Vec<OriginKind> {
        let kind = |from: &From| match from {
            From::Hub => OriginKind::Hub,
            From::Archive => OriginKind::Archive,
            From::Local => OriginKind::Local,
        };
        self.from.iter().map(kind).collect()
    }
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let (edit, file) = match &options.command {
        Command::Publisher { name, place } => {
            (Edit::Publisher { name: name.clone(), from: place.kinds() }, &place.file)
        }
        Command::Repo { name, place } => (Edit::Repo { repo: name.clone(), from: place.kinds() }, &place.file),
        Command::Key { publisher, key, file } => {
            (Edit::Key { publisher: publisher.clone(), key: public_key(key)? }, file)
        }
        Command::Endpoint { url, accept_publisher_flags, file } => {
            let parsed = Edit::endpoint(url, *accept_publisher_flags);
            (parsed.map_err(|reason| Failure::new(format!("{url} is no endpoint: {reason}"), None))?, file)
        }
        Command::Folder { path, file } => {
            let absolute = path.canonicalize();
            let failed = |error| Failure::new(format!("cannot find the folder {}: {error}", path.display()), None);
            (Edit::Folder { path: absolute.map_err(failed)? }, file)
        }
        Command::Refuse { publisher, file } => (Edit::Refusal { publisher: publisher.clone() }, file),
        Command::Show { json } => return show(*json),
    };
    let path = file.path()?;
    let is_new = add(&path, &edit)?;
    println!("{} {}:", if is_new { "added to" } else { "stands already in" }, path.display());
    print!("{}", edit.to_toml());
    Ok(())
}

impl File {
    fn path(&self) -> Result<PathBuf, Failure> {
        if self.machine {
            return Ok(PathBuf::from(MACHINE_FILE));
        }
        Environment::read()?.policy.ok_or_else(|| {
            Failure::new("there is no home folder for a policy", Some("name the file with KERNELHUB_POLICY"))
        })
    }
}

/// What every policy starts with, as far as no file says otherwise.
const BUILT_IN: [&str; 2] =
    ["publisher kernels-community, on the Hub", "publishers that https://huggingface.co calls trusted, on the Hub"];

fn show(as_json: bool) -> Result<(), Failure> {
    let files: PolicyFiles = Environment::read()?.policy_files().with_project(std::path::Path::new("."));
    let policy = Policy::read(&files)?;
    if as_json {
        return crate::print_json(&json!({
            "files": policy.files(),
            "built_in": BUILT_IN,
            "signature": policy.signature_mode(),
            "elf": policy.elf(),
            "statements": policy.statements(),
        }));
    }
    for file in policy.files() {
        println!("policy     {file}");
    }
    println!("signature  {}", policy.signature_mode());
    for line in &BUILT_IN {
        println!("built in   {line}");
    }
    policy.statements().iter().for_each(|line| println!("stated     {line}"));
    Ok(())
}
