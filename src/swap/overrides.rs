//! Kernels for a while: what was in force before comes back.

use super::state::Active;
use super::{KernelConfig, KernelProvider, Report, Slots, SwapError};

/// Kernels that a model's layers have until this is dropped. What was in force before then comes back, in the mode that
/// the model has by then.
///
/// Overrides may be nested: the one that was begun last and has not ended is in force, in whatever order they end.
#[derive(Debug)]
#[must_use = "the override ends when this is dropped"]
pub struct KernelOverride {
    slots: Slots,
    number: u64,
    report: Report,
}

impl KernelOverride {
    /// What became of every layer when the override began.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }
}

impl Drop for KernelOverride {
    fn drop(&mut self) {
        let shared = &self.slots.shared;
        let mut state = shared.state();
        state.overrides.retain(|(number, _)| *number != self.number);
        // Planning is pure and everything is loaded, so that nothing can fail here.
        shared.publish(state.plan(state.in_force(), shared.device));
    }
}

impl Slots {
    /// Gives the model's layers the kernels of `config` until the override is dropped. What `config` does not name stays as
    /// it is, unless it says `inherit = false`: then only its own entries count. Over kernels that are off there is nothing
    /// to keep, and what it inherits is the default table. What [`Self::use_attention`] and the like do before the override
    /// ends, ends with it.
    ///
    /// # Errors
    /// As [`Self::use_kernels`]; the model then keeps what it had.
    pub fn override_kernels(
        &self,
        provider: &dyn KernelProvider,
        config: &KernelConfig,
    ) -> Result<KernelOverride, SwapError> {
        let mut state = self.shared.state();
        let base = match &state.in_force().kernels {
            Active::On(kernels) => Some(std::sync::Arc::clone(kernels.config())),
            Active::Off(_) => None,
        };
        let (in_force, plan) = state.acquire(provider, config.over(base), self.shared.device)?;
        let number = state.next_override;
        state.next_override += 1;
        state.overrides.push((number, in_force));
        Ok(KernelOverride { slots: self.clone(), number, report: self.shared.publish(plan) })
    }

    /// Runs `run` with the kernels of `config`, as [`Self::override_kernels`]; what was in force before comes back even
    /// when `run` panics.
    ///
    /// # Errors
    /// As [`Self::override_kernels`]; `run` is then not run.
    pub fn with_kernels<T>(
        &self,
        provider: &dyn KernelProvider,
        config: &KernelConfig,
        run: impl FnOnce(&Report) -> T,
    ) -> Result<T, SwapError> {
        let over = self.override_kernels(provider, config)?;
        Ok(run(over.report()))
    }
}
