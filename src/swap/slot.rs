//! A model's slots and the plan that fills them.

use std::sync::{Arc, Mutex};

use arc_swap::{ArcSwap, Guard};

use super::Mode;
use crate::dtype::DType;
use crate::variant::DeviceKey;

/// What a layer tells the planner about itself when it is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotSpec {
    /// Where the layer stands in the model, such as `model.layers.0.input_layernorm`.
    pub path: String,
    /// The layer's name in a kernel mapping, such as `RMSNorm`.
    pub layer: String,
    /// Element type of the layer's weights and activations.
    pub dtype: DType,
    /// Extent of the last axis that the kernel's width rules apply to, in elements.
    pub last_dim: usize,
    /// Whether a weight of the layer is a variable that an optimizer trains.
    pub trainable: bool,
}

/// One model's slots, and the plan that all of its layers read.
#[derive(Debug, Clone)]
pub struct Slots {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    device: DeviceKey,
    specs: Mutex<Vec<SlotSpec>>,
    plan: ArcSwap<Plan>,
}

/// A layer's place in the plan.
#[derive(Debug, Clone)]
pub struct Slot {
    index: usize,
    shared: Arc<Shared>,
}

/// What fills each slot. Immutable once published.
#[derive(Debug, Default)]
pub struct Plan {
    mode: Mode,
}

/// A plan held for the length of one forward.
pub type PinnedPlan = Guard<Arc<Plan>>;

impl Slots {
    /// No slots yet, on one kind of device; every layer runs its reference code.
    #[must_use]
    pub fn new(device: DeviceKey) -> Self {
        let shared = Shared { device, specs: Mutex::default(), plan: ArcSwap::default() };
        Self { shared: Arc::new(shared) }
    }

    /// The device that the model's tensors live on.
    #[must_use]
    pub fn device(&self) -> DeviceKey {
        self.shared.device
    }

    /// Adds a slot; called once by each layer as it is built.
    #[must_use]
    pub fn slot(&self, spec: SlotSpec) -> Slot {
        let mut specs = self.shared.specs.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        specs.push(spec);
        Slot { index: specs.len() - 1, shared: Arc::clone(&self.shared) }
    }

    /// Pins the current plan. A model does so once per forward and hands it to every layer.
    #[must_use]
    pub fn pin(&self) -> PinnedPlan {
        self.shared.plan.load()
    }
}

impl Slot {
    /// Pins the current plan, for a layer that is called alone.
    #[must_use]
    pub fn pin(&self) -> PinnedPlan {
        self.shared.plan.load()
    }

    /// The slot's index into its model's plan.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }
}

impl Plan {
    /// What the plan was made for.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }
}
