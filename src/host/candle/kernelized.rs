//! A model with its slots.

use candle_core::{Module, Result, Tensor};

use super::nn::VarBuilder;
use crate::swap::{KernelConfig, KernelProvider, Report, Slots, SwapError};

/// A model built from layers of [`nn`](super::nn), and the slots that they claimed.
///
/// [`run`](Self::run) pins the plan once for everything inside, so that no forward mixes two plans. A model that is
/// called past it still works: each of its layers then pins for itself.
///
/// # Examples
/// ```
/// use candle_core::{DType, Device, Module, Tensor};
/// use kernelhub::host::candle::{Kernelized, nn};
///
/// # fn main() -> candle_core::Result<()> {
/// let weights = candle_nn::VarBuilder::zeros(DType::F32, &Device::Cpu);
/// let model = Kernelized::build(weights, |vb| nn::linear(4, 2, vb.pp("head")))?;
/// assert_eq!(model.forward(&Tensor::ones((1, 4), DType::F32, &Device::Cpu)?)?.dims(), [1, 2]);
/// println!("{}", model.report());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Kernelized<M> {
    model: M,
    slots: Slots,
}

impl<M> Kernelized<M> {
    /// Builds a model from candle's builder.
    ///
    /// # Errors
    /// Those of `build`.
    pub fn build<'a>(
        weights: candle_nn::VarBuilder<'a>,
        build: impl FnOnce(VarBuilder<'a>) -> Result<M>,
    ) -> Result<Self> {
        let builder = VarBuilder::wrap(weights);
        let slots = builder.slots().clone();
        Ok(Self { model: build(builder)?, slots })
    }

    /// A model that is built already, and the slots that its layers claimed.
    #[must_use]
    pub fn new(model: M, slots: Slots) -> Self {
        Self { model, slots }
    }

    /// Runs `forward` on the model under one plan: each of its layers that the thread calls inside runs under it.
    pub fn run<R>(&self, forward: impl FnOnce(&M) -> R) -> R {
        self.slots.scope(|_| forward(&self.model))
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &M {
        &self.model
    }

    /// The layers that kernels can take over.
    #[must_use]
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Gives the layers the kernels of `config`; all or nothing. See [`Slots::use_kernels`].
    ///
    /// # Errors
    /// As [`Slots::use_kernels`].
    pub fn use_kernels(
        &self,
        provider: &dyn KernelProvider,
        config: &KernelConfig,
    ) -> std::result::Result<Report, SwapError> {
        self.slots.use_kernels(provider, config)
    }

    /// Returns every layer to its reference code.
    pub fn disable_kernels(&self) -> Report {
        self.slots.disable_kernels()
    }

    /// Readies the layers for training: only kernels with a backward stay.
    pub fn train(&self) -> Report {
        self.slots.train()
    }

    /// Readies the layers for inference.
    pub fn eval(&self) -> Report {
        self.slots.eval()
    }

    /// What runs every layer now.
    #[must_use]
    pub fn report(&self) -> Report {
        self.slots.report()
    }
}

impl<M: Module> Module for Kernelized<M> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.run(|model| model.forward(x))
    }
}
