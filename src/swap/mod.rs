//! Which kernel takes which layer.
//!
//! Owns: [`Mode`], [`KernelConfig`] (layer → device → mode → kernel), a model's [`Slots`], the pure planning of a
//! [`Plan`], its publication by one atomic store, and the [`Report`] that says for every layer which kernel took it or
//! why none did. Refuses: files and the network; kernels come from a [`KernelProvider`].
//!
//! A model's layers share one plan. A forward pins it once, so that no forward mixes two plans; a new plan is published
//! whole or not at all, and forwards in flight finish on theirs. The price is one atomic load per forward, the gain is
//! that swapping needs no lock on the hot path and no pause. Layers take the plan as an argument, or find it in the
//! scope that the forward runs in ([`Slots::scope`]).

mod acquire;
mod attn_implementation;
mod compile;
mod config;
mod error;
mod fusion;
mod group;
mod mode;
mod overrides;
mod plan;
mod preview;
mod provider;
mod reason;
mod reference;
mod report;
mod scope;
mod slot;
mod state;

pub use attn_implementation::{
    AttentionCapability, AttentionPath, AttentionReport, AttnImplementation, AttnImplementationError, AttnKind,
    FlashGeneration, PassedOver,
};
pub use compile::CompileBackend;
pub use config::{
    CapabilityRange, Choice, DeviceSelector, DeviceSelectorError, Entry, Fusion, FusionMember, KernelConfig,
    KernelConfigBuilder, MappedKernel, PathPattern, PathPatternError, Registered, Target,
};
pub(crate) use config::{default_revision, own_kernels};
pub use error::SwapError;
pub use group::GroupSpec;
pub use mode::{Mode, ModeError};
pub use overrides::KernelOverride;
pub use plan::Plan;
pub use preview::{LayerPreview, Preview, PreviewOutcome};
pub use provider::{KernelProvider, ProvideError};
pub use reason::Reason;
pub use reference::{KernelRef, KernelRefError, KernelSource};
pub use report::{GroupOutcome, GroupReport, LayerReport, Outcome, Report, RoundingDifference, Tried};
pub use slot::{PinnedPlan, Slot, SlotSpec, Slots};
