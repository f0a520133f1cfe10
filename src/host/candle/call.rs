//! A slot's kernel, called on candle tensors.
//!
//! One function for each contract. Each gives `None` where the layer must run its reference code: the plan has no
//! kernel for the slot, or a tensor tracks a gradient and the kernel has no backward. So a layer of your own is a call
//! and a reference, and cannot lose a gradient:
//!
//! - Where nothing tracks a gradient, the kernel runs as an operation without a backward. Nothing is allocated but the
//!   output.
//! - Where something does, the kernel runs as an operation whose backward is the kernel's own.
//! - Where something does and the kernel has no backward, it is not called, whatever the mode.
//!
//! A gradient's own gradient is no kernel's to give: with `CANDLE_GRAD_DO_NOT_DETACH`, by which candle keeps the graph
//! of a backward, everything that tracks a gradient runs reference code.
//!
//! What the plan cannot know stays an error of the call: a dtype that the kernel does not compute, a width outside of
//! its limits, an option that it lacks. A layer refuses inputs that are not of the dtype and the width in its slot
//! before it calls.

mod activation;
mod loss;
mod norm;
mod product;
mod rotary;
mod table;

use std::sync::{Arc, LazyLock};

use candle_core::{Error, Result, Tensor};

use super::LayerError;
use super::spec::check_plan;
use crate::bind::LayerKernel;
use crate::swap::{Plan, Slot};

pub use activation::{activation, gated_activation, softmax};
pub use loss::cross_entropy;
pub use norm::{add_rms_norm, layer_norm, rms_norm};
pub use product::{gated_linear, linear};
pub use rotary::{rotary, rotary_pair};
pub use table::embedding;

/// How a call reaches its kernel.
enum Route<'a, K> {
    /// Nothing tracks a gradient.
    Free(&'a K),
    /// Something does, and the kernel has a backward. The operation outlives the forward, so it shares the kernel.
    Tracked(&'a Arc<LayerKernel>),
}

/// The slot's kernel and how to call it; `None`: run the reference code. `called` is the function, for errors.
#[inline]
fn route<'a, K>(
    plan: &'a Plan,
    slot: &Slot,
    face: impl FnOnce(&'a LayerKernel) -> Option<&'a K>,
    called: &'static str,
    tensors: &[&Tensor],
) -> Result<Option<Route<'a, K>>> {
    check_plan(plan, slot)?;
    let Some(kernel) = plan.shared_kernel(slot) else { return Ok(None) };
    let Some(face) = face(kernel) else {
        let (kernel, actual) = (kernel.meta().identity.to_string(), kernel.meta().contract);
        return Err(LayerError::Contract { called, kernel, actual }.into());
    };
    if !tensors.iter().any(|tensor| tensor.track_op()) {
        return Ok(Some(Route::Free(face)));
    }
    Ok(is_differentiable(kernel).then_some(Route::Tracked(kernel)))
}

/// Whether a call with these tensors would reach a kernel, for a layer that prepares its input for one.
pub(super) fn takes(plan: &Plan, slot: &Slot, tensors: &[&Tensor]) -> bool {
    let tracks = || tensors.iter().any(|tensor| tensor.track_op());
    plan.kernel(slot).is_some_and(|kernel| !tracks() || is_differentiable(kernel))
}

fn is_differentiable(kernel: &LayerKernel) -> bool {
    kernel.meta().has_backward && !keeps_graph_of_backward()
}

/// Whether candle differentiates through what a backward computes, as it decides itself.
fn keeps_graph_of_backward() -> bool {
    static KEEPS: LazyLock<bool> = LazyLock::new(|| {
        std::env::var("CANDLE_GRAD_DO_NOT_DETACH").is_ok_and(|value| !value.is_empty() && value != "0")
    });
    *KEEPS
}

/// An operation was handed to candle with a kernel of another contract: a broken invariant of this module.
fn broken() -> Error {
    Error::Msg("internal: the operation's kernel has another contract".to_owned())
}

/// The gradient of an operand that needs one.
fn wanted(operand: &Tensor, gradient: Tensor) -> Option<Tensor> {
    operand.track_op().then_some(gradient)
}
