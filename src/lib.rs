//! The Kernel Hub for Rust: name a compute kernel, and this crate finds the build that fits the machine, downloads it,
//! verifies it, loads it with no Python in the process, and swaps a model's layers for it.
//!
//! The path of a kernel goes through these modules, and each stage's output type is the only key to the next:
//! [`policy`] decides whether its publisher is trusted, [`resolve`] chooses a build, [`fetch`] brings it, [`verify`]
//! checks every file, [`load`] brings its code into the process, [`bind`] holds it to a layer's contract, [`swap`]
//! plans which layer it takes. [`hub`] walks the whole path for a caller who names a kernel; [`host`] has the layers
//! that a model is built from.
//!
//! ```no_run
//! use kernelhub::hub::Hub;
//! use kernelhub::swap::{KernelConfig, Slots};
//! use kernelhub::variant::DeviceKey;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let slots = Slots::new(DeviceKey::Cpu);
//! // ... build the model's layers with `&slots` ...
//! let hub = Hub::builder().build()?;
//! let report = slots.use_kernels(&hub, &KernelConfig::standard()?)?;
//! println!("{report}");
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//! - `cli` (default): the `kernelhub` program and the examples.
//! - `candle`: layers for candle models, `host::candle`. Implied by `cli`.
//! - `sign`: making signatures with a key of one's own. Implied by `cli`.
//! - `wgpu` (default): shader kernels on any GPU that wgpu reaches, `gpu`.
//!
//! None of them changes what is verified, and none opens the network by itself.

pub mod bind;
pub mod device;
pub mod digest;
pub mod dtype;
pub mod elf;
pub mod fetch;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "wgpu")]
pub mod gpu;
pub mod hint;
pub mod host;
pub mod hub;
pub mod load;
pub mod manifest;
pub mod names;
pub mod oci;
pub mod pack;
pub mod policy;
pub mod probe;
pub mod regular;
pub mod resolve;
pub mod swap;
pub mod system;
pub mod variant;
pub mod verify;

/// The snippets of docs/policy.md, compiled and run as doctests.
#[cfg(doctest)]
#[doc = include_str!("../docs/policy.md")]
struct PolicyPage;

/// The README's snippets, compiled and run as doctests.
#[cfg(all(doctest, feature = "candle"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// The snippets about resolution, likewise; the commands that it shows are run by the integration tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/resolution.md")]
struct ResolutionPage;

/// The snippets of docs/devices.md.
#[cfg(doctest)]
#[doc = include_str!("../docs/devices.md")]
struct DevicesPage;

/// The snippets about configurations, likewise; its tables of TOML and JSON are read by the integration tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/kernel-config.md")]
struct KernelConfigPage;
