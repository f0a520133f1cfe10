//! Swapping a model's layers for kernels.
//!
//! (Stub: the shapes that hosts build on; the plan's content follows.)

mod mode;
mod slot;

pub use mode::Mode;
pub use slot::{PinnedPlan, Plan, Slot, SlotSpec, Slots};
