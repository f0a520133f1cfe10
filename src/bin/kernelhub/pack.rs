//! `kernelhub pack`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use kernelhub::manifest::BackendInfo;
use kernelhub::names::RepoId;
use kernelhub::pack::{PackSpec, SigningKey, manifest, pack_variant, pack_variant_signed, write_manifest};
use kernelhub::variant::{Variant, VariantError};

use crate::failure::Failure;

#[derive(Args)]
pub(crate) struct Options {
    /// The builds: a variant and the folder of its files, such as tvm-ffi01-cpu-x86_64-linux=build/cpu.
    #[arg(required = true, value_name = "VARIANT=DIR")]
    builds: Vec<Build>,
    /// The kernel repo to publish as, owner/name.
    #[arg(long)]
    repo: RepoId,
    /// The kernel's version.
    #[arg(long)]
    version: u32,
    /// The licence, as an SPDX expression.
    #[arg(long)]
    license: String,
    /// One line about the kernel.
    #[arg(long)]
    description: Option<String>,
    /// Sign the metadata of each build with this secret key; `kernelhub sign --new` makes one.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The folder for the archives and the manifest `<name>.toml`.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// A variant and the folder of its files.
#[derive(Debug, Clone)]
struct Build {
    variant: Variant,
    folder: PathBuf,
}

impl FromStr for Build {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (variant, folder) = text.split_once('=').ok_or("expected VARIANT=DIR")?;
        let variant = variant.parse().map_err(|error: VariantError| error.to_string())?;
        Ok(Self { variant, folder: folder.into() })
    }
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    // Once, so that an encrypted key's password is asked for once.
    let key = options.key.as_deref().map(|key| SigningKey::read(key, None)).transpose()?;
    let mut packs = Vec::new();
    let mut last = None;
    for Build { variant, folder } in &options.builds {
        let variant = *variant;
        let spec = PackSpec {
            repo: options.repo.clone(),
            version: options.version,
            license: options.license.clone(),
            description: options.description.clone(),
            variant,
            backend: BackendInfo::of(&variant),
            provenance: None,
        };
        let packed = match &key {
            Some(key) => pack_variant_signed(folder, &spec, &options.out, key)?,
            None => pack_variant(folder, &spec, &options.out)?,
        };
        println!("packed {} ({} bytes, sha256 {})", packed.archive.display(), packed.size, packed.sha256);
        packs.push(packed);
        last = Some(spec);
    }
    let spec = last.ok_or_else(|| Failure::new("no build was given", None))?;
    let path = write_manifest(&manifest(&spec, &packs, &options.out)?, &options.out)?;
    println!("wrote {}", path.display());
    Ok(())
}
