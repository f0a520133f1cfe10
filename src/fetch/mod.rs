//! Kernels, from where they are published to the cache of this machine.
//!
//! Owns: the sources ([`Source`]: the Hub, archives by their manifests, local folders), the HTTP client, the archive
//! rules, the caches and their locks, and the environment ([`Environment`]). Refuses: trust. A file that arrives is
//! compared with the digest that its manifest or its commit's tree states; whether those are to be believed is decided
//! by [`crate::policy`], and nothing from here is loaded before [`crate::verify`] has read it again. Registries are
//! [`crate::oci`]'s: it brings the manifest and the bytes of a layer, and what becomes of them is decided here as for any
//! other archive.
//!
//! Leaves behind: a folder in the cache of archives either holds a whole archive, every file of which had its digest
//! when it was unpacked, or is not there; a blob in the cache of Hub repos had its digest when it got its name. A
//! download that fails or is killed leaves nothing but a lock file and its own start, which the next one goes on with;
//! one whose bytes are wrong leaves a lock file.
//!
//! # The caches
//! The Hub's repos stand in the layout of the Hugging Face tools, shared with them; see `hf_cache`. Archives have no
//! commit, so that they stand apart from the Hub's snapshots, under a root of ours:
//!
//! ```text
//! <root>/archives/<sha256 of the archive>/build/<variant>/...    the unpacked archive
//! <root>/manifests/<owner>--<name>/v<version>.toml               the manifest it came by, URLs made absolute
//! <root>/hub/kernels--<owner>--<name>/<commit>.json              what the Hub listed for a commit
//! <root>/publishers/<endpoint>/<owner>.json                      what the Hub said about a publisher, with an expiry
//! <root>/locks/<sha256>.lock                                     held while one process fetches that archive
//! <root>/tmp/<sha256>.incomplete                                a download to be resumed
//! <root>/tmp/<sha256>-<random>/                                  work in progress; swept by who next holds the lock
//! ```
//!
//! The root is `kernelhub` in the first of these folders whose variable is set and not empty: `$KERNELS_CACHE`,
//! `$HF_HUB_CACHE`, `$HF_HOME`, `$XDG_CACHE_HOME/huggingface`, `~/.cache/huggingface`. In the first two it stands among
//! the `kernels--...` folders of the Python tools, whose cache listing skips it with a warning.
//!
//! # The design choice
//! An archive is keyed by its own digest, not by repo and version: two publishers can never fill each other's place,
//! and a rebuilt archive is a new entry. The price is that old builds stay until they are pruned, and that a version
//! resolves offline only through its recorded manifest.
//!
//! A warm hit makes no runtime, opens no socket, takes no lock, and writes nothing unless its manifest has changed.
//!
//! # Examples
//! ```no_run
//! use kernelhub::fetch::{Cache, Environment, FetchOptions, Fetcher, Location, NoProgress, Reuse};
//! use kernelhub::policy::{Origin, Policy};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cache = Cache::from_env()?;
//! let fetcher = Fetcher::new(FetchOptions::from_env()?);
//! let base: Location = "https://example.org/kernels/rmsnorm.toml".parse()?;
//! let manifest = fetcher.fetch_manifest(&base)?;
//! // Only a policy lets a build be verified, by what it knows of the publisher.
//! let admission = Policy::read(&Environment::read()?.policy_files())?.admit(&manifest.kernel.repo, &Origin::Archive)?;
//! for artifact in &manifest.artifacts {
//!     let fetched = fetcher.fetch_artifact(&cache, &manifest, artifact, &base, &NoProgress, Reuse::IfPresent)?;
//!     let verified = kernelhub::verify::verify(&fetched.snapshot, &admission)?;
//!     assert_eq!(verified.version(), manifest.kernel.version);
//! }
//! # Ok(())
//! # }
//! ```

mod adopt;
mod archive;
mod archives;
mod cache;
mod cancel;
mod env;
mod error;
mod fetcher;
mod file;
mod hf_cache;
mod http;
mod hub;
mod limits;
mod local;
mod location;
mod lock;
mod options;
mod progress;
mod revision;
mod snapshot;
mod source;

pub(crate) use adopt::HubPlace;
pub use archive::ArchiveError;
#[cfg(feature = "fuzzing")]
pub(crate) use archive::fuzz_unpack;
pub(crate) use archive::{UnpackError, unpack_bundle};
pub use archives::ArchiveSource;
pub use cache::Cache;
pub use cancel::Cancel;
pub(crate) use cancel::CancelOnDrop;
pub use env::{DEFAULT_ENDPOINT, DEFAULT_TIMEOUT, Environment, Variable};
pub use error::FetchError;
pub use fetcher::{Fetched, Fetcher, Reuse};
pub use hf_cache::{
    CacheEntry, EntryKind, EntryState, HubCache, PruneItem, PruneOptions, PrunePlan, Publisher, TreeFile,
};
pub use http::{RetryPolicy, Token};
#[cfg(feature = "fuzzing")]
pub(crate) use hub::read_listing;
pub use hub::{HubOptions, HubSource};
pub use limits::{
    MAX_ARCHIVE_BYTES, MAX_BUNDLE_BYTES, MAX_ENTRIES, MAX_FILE_BYTES, MAX_RATIO, MAX_TOTAL_BYTES, MAX_WINDOW_BYTES,
    RATIO_SLACK_BYTES,
};
pub use local::LocalSource;
pub use location::Location;
pub use options::FetchOptions;
pub use progress::{NoProgress, Progress};
pub use revision::{CommitId, Revision};
pub(crate) use snapshot::SnapshotRecord;
pub use snapshot::{Anchor, RepoType, Snapshot};
pub use source::{Builds, Cost, PublishedVersion, Session, Source};
