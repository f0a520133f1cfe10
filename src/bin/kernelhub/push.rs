//! `kernelhub push`.

use std::path::{Path, PathBuf};

use clap::Args;
use kernelhub::oci::{self, OciReference, PushOptions};
use kernelhub::pack::Publication;
use serde_json::{Value, json};

use crate::failure::Failure;

#[derive(Args)]
pub(crate) struct Options {
    /// What `kernelhub pack` made: a manifest, or a folder of manifests.
    #[arg(value_name = "DIR|MANIFEST")]
    source: PathBuf,
    /// Where to publish: a repository of an OCI registry, or a folder. The version becomes the tag.
    #[arg(value_name = "oci://HOST[:PORT]/PATH|FOLDER")]
    target: String,
    /// Replace a version that is there already with another content.
    #[arg(long)]
    replace: bool,
    /// How long to wait for a connection and for each answer, in seconds.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    timeout: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let manifests = manifests(&options.source)?;
    let target = Target::parse(&options.target)?;
    if matches!(target, Target::Registry(_)) && manifests.len() > 1 {
        return Err(Failure::new(
            format!(
                "{} holds {} manifests, and a repository takes one kernel",
                options.source.display(),
                manifests.len()
            ),
            Some("name one manifest, and push each to a repository of its own"),
        ));
    }
    // All are checked before the first is published.
    let publications = manifests.iter().map(|path| Publication::open(path)).collect::<Result<Vec<_>, _>>()?;
    let mut rows = Vec::new();
    for publication in &publications {
        let row = target.push(publication, options)?;
        if !options.json {
            println!("{}", line(&row));
        }
        rows.push(row);
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&rows).map_err(Failure::plain)?);
    }
    Ok(())
}

enum Target {
    Registry(OciReference),
    Folder(PathBuf),
}

impl Target {
    fn parse(text: &str) -> Result<Self, Failure> {
        if text.starts_with(OciReference::SCHEME) {
            return Ok(Self::Registry(text.parse()?));
        }
        if text.is_empty() || text.contains("://") {
            return Err(Failure::new(
                format!("cannot push to {text:?}"),
                Some("expected oci://host/path or a folder; a folder can be served by any web server"),
            ));
        }
        Ok(Self::Folder(PathBuf::from(text)))
    }

    fn push(&self, publication: &Publication, options: &Options) -> Result<Value, Failure> {
        let kernel = &publication.manifest().kernel;
        let (place, uploaded, bytes, unchanged, replaced) = match self {
            Self::Registry(reference) => {
                let timeout = std::time::Duration::from_secs(options.timeout);
                let push = PushOptions { replace: options.replace, timeout };
                let pushed = oci::push(publication, reference, &push)?;
                let place = pushed.reference.to_string();
                (place, pushed.blobs_uploaded, pushed.bytes_uploaded, pushed.unchanged, pushed.replaced)
            }
            Self::Folder(folder) => {
                let mirrored = publication.mirror(folder, options.replace)?;
                let place = mirrored.manifest.display().to_string();
                (place, mirrored.copied, mirrored.bytes_copied, mirrored.unchanged, mirrored.replaced)
            }
        };
        Ok(json!({
            "repo": kernel.repo,
            "version": kernel.version,
            "place": place,
            "uploaded": uploaded,
            "bytes_uploaded": bytes,
            "unchanged": unchanged,
            "replaced": replaced,
        }))
    }
}

fn line(row: &Value) -> String {
    let how = match (row["unchanged"] == true, row["replaced"] == true) {
        (true, _) => "unchanged",
        (false, true) => "replaced",
        (false, false) => "published",
    };
    let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
    format!(
        "{how:9}  {}@v{}  {}  {} files, {} bytes sent",
        text("repo"),
        row["version"],
        text("place"),
        row["uploaded"],
        row["bytes_uploaded"]
    )
}

/// The manifests that an argument names: itself, or the `*.toml` files of a folder, by name.
fn manifests(source: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !source.is_dir() {
        return Ok(vec![source.to_path_buf()]);
    }
    let unreadable = |error: std::io::Error| Failure::new(format!("cannot list {}: {error}", source.display()), None);
    let mut files = Vec::new();
    for entry in source.read_dir().map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.is_file() && path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(Failure::new(
            format!("{} holds no manifest", source.display()),
            Some("make one with `kernelhub pack`"),
        ));
    }
    Ok(files)
}
