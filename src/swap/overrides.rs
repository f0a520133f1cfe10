//! Kernels for a while: what was in force before comes back.

use super::slot::Active;
use super::{KernelConfig, KernelProvider, Report, Slots, SwapError};

/// Kernels that a model's layers have until this is dropped. What was in force before then comes back, in the mode that
/// the model has by then.
///
/// Scopes may be nested: the one that was begun last and has not ended is in force, in whatever order they end.
#[derive(Debug)]
#[must_use = "the scope ends when this is dropped"]
pub struct Scope {
    slots: Slots,
    number: u64,
    report: Report,
}

impl Scope {
    /// What became of every layer when the scope began.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        let shared = &self.slots.shared;
        let mut state = shared.state();
        state.scopes.retain(|(number, _)| *number != self.number);
        // Planning is pure and everything is loaded, so that nothing can fail here.
        shared.publish(state.plan(state.active(), shared.device));
    }
}

impl Slots {
    /// Gives the model's layers the kernels of `config` until the scope is dropped. What `config` does not name stays as
    /// it is, unless it says `inherit = false`: then only its own entries count.
    ///
    /// # Errors
    /// As [`Self::use_kernels`]; the model then keeps what it had.
    pub fn scoped(&self, provider: &dyn KernelProvider, config: &KernelConfig) -> Result<Scope, SwapError> {
        let mut state = self.shared.state();
        let base = match state.active() {
            Active::On(kernels) => Some(std::sync::Arc::clone(kernels.config())),
            Active::Off(_) => None,
        };
        let (active, plan) = state.acquire(provider, config.over(base), self.shared.device)?;
        let number = state.next_scope;
        state.next_scope += 1;
        state.scopes.push((number, active));
        Ok(Scope { slots: self.clone(), number, report: self.shared.publish(plan) })
    }

    /// Runs `run` with the kernels of `config`, as [`Self::scoped`]; what was in force before comes back even when `run`
    /// panics.
    ///
    /// # Errors
    /// As [`Self::scoped`]; `run` is then not run.
    pub fn with<T>(
        &self,
        provider: &dyn KernelProvider,
        config: &KernelConfig,
        run: impl FnOnce(&Report) -> T,
    ) -> Result<T, SwapError> {
        let scope = self.scoped(provider, config)?;
        Ok(run(scope.report()))
    }
}
