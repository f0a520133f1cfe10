//! OCI registries, by Debian's `docker-registry`. Without it these tests print that they skip.

mod hostile;
mod login;
mod misled;
mod registry;
mod round_trip;

use kernelhub::fetch::{Cache, FetchError, FetchOptions, Fetched, Fetcher, Location, NoProgress, Reuse};
use kernelhub::manifest::KernelManifest;
use kernelhub::oci::{self, OciError, PushOptions, Pushed};
use kernelhub::pack::Publication;

use crate::support::packs::Published;

fn fetcher() -> Fetcher {
    Fetcher::new(FetchOptions { timeout: std::time::Duration::from_secs(5), ..FetchOptions::default() })
}

fn publication(published: &Published) -> Publication {
    Publication::open(&published.manifest_path()).unwrap()
}

fn push(published: &Published, target: &str, replace: bool) -> Result<Pushed, OciError> {
    oci::push(&publication(published), &target.parse().unwrap(), &PushOptions { replace, ..PushOptions::default() })
}

/// The manifest and its first artifact, as a program would fetch them.
fn pull(cache: &Cache, reference: &str) -> Result<(KernelManifest, Fetched), FetchError> {
    let base: Location = reference.parse()?;
    let manifest = fetcher().fetch_manifest(&base)?;
    let fetched =
        fetcher().fetch_artifact(cache, &manifest, &manifest.artifacts[0], &base, &NoProgress, Reuse::IfPresent)?;
    Ok((manifest, fetched))
}
