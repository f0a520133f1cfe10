//! Which kernel takes which layer.
//!
//! Owns: [`Mode`], [`KernelConfig`] (layer → device → mode → kernel), a model's [`Slots`], the pure planning of a
//! [`Plan`], its publication by one atomic store, and the [`Report`] that says for every layer which kernel took it or
//! why none did. Refuses: files and the network; kernels come from a [`KernelProvider`].
//!
//! A model's layers share one plan. A forward pins it once, so that no forward mixes two plans; a new plan is published
//! whole or not at all, and forwards in flight finish on theirs. The price is one atomic load per forward, the gain is
//! that swapping needs no lock on the hot path and no pause.

mod acquire;
mod compile;
mod config;
mod error;
mod mode;
mod plan;
mod preview;
mod provider;
mod reference;
mod report;
mod scope;
mod slot;

pub use compile::CompileBackend;
pub use config::{
    CapabilityRange, Choice, DeviceSelector, DeviceSelectorError, Entry, Fusion, FusionMember, KernelConfig,
    KernelConfigBuilder, PathPattern, PathPatternError, Registered, Target,
};
pub(crate) use config::{default_revision, own_kernels};
pub use error::SwapError;
pub use mode::{Mode, ModeError};
pub use plan::Plan;
pub use preview::{LayerPreview, Preview, PreviewOutcome};
pub use provider::{KernelProvider, ProvideError};
pub use reference::{KernelRef, KernelRefError, KernelSource};
pub use report::{LayerReport, Outcome, Reason, Report, Tried};
pub use scope::Scope;
pub use slot::{PinnedPlan, Slot, SlotSpec, Slots};
