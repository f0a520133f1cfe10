//! `kernelhub sign` and `kernelhub verify-signature`.

use std::path::{Path, PathBuf};

use clap::Args;
use kernelhub::manifest::{MAX_METADATA_BYTES, METADATA_FILE, MINISIGN_FILE, Metadata, SIGNATURE_FILE};
use kernelhub::names::RepoId;
use kernelhub::pack::SigningKey;
use kernelhub::policy::{Identity, PublicKey};
use kernelhub::regular;
use kernelhub::verify::{MAX_BUNDLE_BYTES, MAX_MINISIGN_BYTES, Signer, check_minisign, check_sigstore};
use serde_json::json;

use crate::failure::Failure;

#[derive(Args)]
pub(crate) struct Options {
    /// The folders of the builds, each with a metadata.json. The signature is written beside it.
    #[arg(value_name = "DIR", required_unless_present = "new")]
    builds: Vec<PathBuf>,
    /// The secret key, in minisign's form.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Make the key first, unencrypted; its public key is written beside it as .pub, and printed. A file that is there
    /// is not replaced. For an encrypted key use `minisign -G`.
    #[arg(long)]
    new: bool,
    /// Bind each signature to the kernel with this publisher: a signature of one build then is none of another one. The
    /// name, version and variant are those of the build.
    #[arg(long, value_name = "ORG/NAME")]
    repo: Option<RepoId>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let key = if options.new { make(options)? } else { SigningKey::read(&options.key, None)? };
    for folder in &options.builds {
        let bytes = read(&folder.join(METADATA_FILE), MAX_METADATA_BYTES)?;
        let metadata = Metadata::parse(&bytes, &folder.join(METADATA_FILE).display().to_string())?;
        let kernel = options.repo.as_ref().map(|repo| bound_name(repo, &metadata, folder)).transpose()?;
        let signature = key.sign(&bytes, kernel.as_deref())?;
        let path = folder.join(MINISIGN_FILE);
        std::fs::write(&path, signature).map_err(|error| io("write", &path, &error))?;
        println!("signed {} as {}", path.display(), key.public().id());
    }
    Ok(())
}

fn make(options: &Options) -> Result<SigningKey, Failure> {
    let key = SigningKey::generate(&options.key)?;
    println!("made {}; its public key is", options.key.display());
    println!("{}", key.public());
    Ok(key)
}

/// What a signature is bound to: `owner/name@v1 <variant>`, the variant being the folder's name.
fn bound_name(repo: &RepoId, metadata: &Metadata, folder: &Path) -> Result<String, Failure> {
    let folder = folder.canonicalize().map_err(|error| io("find", folder, &error))?;
    let variant = folder.file_name().unwrap_or_default().to_string_lossy();
    let variant: kernelhub::variant::Variant = variant.parse().map_err(|error: kernelhub::variant::VariantError| {
        Failure::new(
            format!("the folder {} does not bear its variant's name: {error}", folder.display()),
            Some("leave out --repo, or name the folder by its variant"),
        )
    })?;
    let violations = metadata.identity_violations(repo, metadata.version, &variant);
    if let Some(violation) = violations.first() {
        return Err(Failure::new(format!("{} is not of {repo}: {violation}", folder.display()), None));
    }
    Ok(format!("{repo}@v{} {variant}", metadata.version))
}

#[derive(Args)]
pub(crate) struct VerifyOptions {
    /// The folder of a build, with metadata.json and its signature.
    #[arg(value_name = "DIR")]
    build: PathBuf,
    /// A public key that may have signed: the key itself, or its .pub file. May be given more than once.
    #[arg(long, value_name = "KEY|FILE", required_unless_present = "issuer")]
    key: Vec<String>,
    /// Check the Sigstore bundle: the issuer of the signer's certificate.
    #[arg(long, value_name = "URL", requires = "source_repository")]
    issuer: Option<String>,
    /// The repository that the signing workflow ran for.
    #[arg(long, value_name = "URL", requires = "issuer")]
    source_repository: Option<String>,
    /// The workflow that signed, with its ref. May be given more than once: any of them.
    #[arg(long, value_name = "URL", requires = "issuer")]
    build_signer: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run_verify(options: &VerifyOptions) -> Result<(), Failure> {
    let metadata = read(&options.build.join(METADATA_FILE), MAX_METADATA_BYTES)?;
    let mut signers: Vec<Signer> = Vec::new();
    if !options.key.is_empty() {
        let keys = options.key.iter().map(|key| public_key(key)).collect::<Result<Vec<_>, _>>()?;
        let signature = text(&options.build.join(MINISIGN_FILE), MAX_MINISIGN_BYTES)?;
        signers.push(check_minisign(&metadata, &signature, &keys)?);
    }
    if let (Some(issuer), Some(repository)) = (&options.issuer, &options.source_repository) {
        let mut all = vec![Identity::Issuer(issuer.clone()), Identity::SourceRepository(repository.clone())];
        if !options.build_signer.is_empty() {
            all.push(Identity::Any(options.build_signer.iter().cloned().map(Identity::BuildSigner).collect()));
        }
        let bundle = text(&options.build.join(SIGNATURE_FILE), MAX_BUNDLE_BYTES)?;
        signers.push(check_sigstore(&metadata, &bundle, &[Identity::All(all)], None)?);
    }
    let sha256 = kernelhub::digest::Sha256Digest::of(&metadata);
    if options.json {
        return crate::print_json(&json!({ "metadata_sha256": sha256, "signers": signers }));
    }
    for signer in &signers {
        println!("signed by {signer}");
    }
    println!("metadata  sha256 {sha256}");
    println!("note: a signature is over the metadata, which holds the digests of the other files; those were not read");
    Ok(())
}

/// A key, or the file that holds it.
pub(crate) fn public_key(argument: &str) -> Result<PublicKey, Failure> {
    let refuse = |reason: String| {
        let hint = "give the key itself, or a .pub file that is there; `kernelhub sign --new` makes a pair";
        Failure::new(format!("{argument} is no public key: {reason}"), Some(hint))
    };
    let wrong = match argument.parse() {
        Ok(key) => return Ok(key),
        Err(wrong) => wrong,
    };
    if !Path::new(argument).is_file() {
        return Err(refuse(wrong));
    }
    text(Path::new(argument), MAX_MINISIGN_BYTES)?.parse().map_err(refuse)
}

fn text(path: &Path, maximum: u64) -> Result<String, Failure> {
    String::from_utf8(read(path, maximum)?).map_err(|_| Failure::new(format!("{} is not UTF-8", path.display()), None))
}

fn read(path: &Path, maximum: u64) -> Result<Vec<u8>, Failure> {
    regular::read(path, maximum).map_err(|error| match error.kind() {
        std::io::ErrorKind::FileTooLarge => {
            Failure::new(format!("{} has more than {maximum} bytes", path.display()), None)
        }
        _ => io("read", path, &error),
    })
}

fn io(action: &str, path: &Path, error: &std::io::Error) -> Failure {
    let is_missing = error.kind() == std::io::ErrorKind::NotFound;
    let hint = match path.file_name().and_then(|name| name.to_str()).filter(|_| is_missing) {
        Some(METADATA_FILE) => Some("name the folder of a build, as `kernelhub pack` or kernel-builder makes it"),
        Some(MINISIGN_FILE) => Some(
            "the build is not signed by a key; `kernelhub sign` does so, or check its Sigstore bundle with --issuer",
        ),
        Some(SIGNATURE_FILE) => Some("the build has no Sigstore bundle; check its minisign signature with --key"),
        _ => None,
    };
    Failure::new(format!("cannot {action} {}: {error}", path.display()), hint)
}
