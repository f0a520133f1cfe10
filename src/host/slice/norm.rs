//! Normalisations of rows.

use super::array::check_same;
use super::error::check_plan;
use super::{Array, ArrayMut, Number, SliceError};
use crate::bind::{BindError, Contract, LayerNormKernel, RmsNormKernel, TensorRef};
use crate::swap::{Plan, Slot, SlotSpec, Slots};

const RMS_NORM: &str = "RMSNorm";
const LAYER_NORM: &str = "LayerNorm";

/// `x / sqrt(mean(x²) + eps) * weight` over the last axis.
///
/// # Shapes
/// Input and output `[..., hidden]`, weight `[hidden]`.
#[derive(Debug, Clone)]
pub struct RmsNorm<T> {
    weight: Vec<T>,
    hidden: [usize; 1],
    eps: f32,
    slot: Slot,
}

impl<T: Number> RmsNorm<T> {
    /// A norm with its weight, in the slot `path` of the model.
    pub fn new(weight: Vec<T>, eps: f32, slots: &Slots, path: impl Into<String>) -> Self {
        let hidden = [weight.len()];
        let slot = slots.slot(spec::<T>(path, RMS_NORM, Contract::RmsNorm, weight.len(), Vec::new()));
        Self { weight, hidden, eps, slot }
    }

    /// Normalises `x` into `out`, under the plan of the scope that the thread is in, or else the current one.
    ///
    /// # Errors
    /// [`SliceError::Shape`], or [`SliceError::Kernel`] from the kernel.
    pub fn forward(&self, out: &mut ArrayMut<'_, T>, x: &Array<'_, T>) -> Result<(), SliceError> {
        self.slot.with_plan(|plan| self.forward_in(plan, out, x))
    }

    /// Normalises `x` into `out`, under the plan that the model pinned.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_in(&self, plan: &Plan, out: &mut ArrayMut<'_, T>, x: &Array<'_, T>) -> Result<(), SliceError> {
        check_plan(plan, &self.slot, RMS_NORM)?;
        match plan.rms_norm(&self.slot) {
            Some(kernel) => self.by_kernel(kernel, out, x).map_err(|source| SliceError::kernel(RMS_NORM, source)),
            None => self.forward_reference(out, x),
        }
    }

    #[inline]
    fn by_kernel(&self, kernel: &RmsNormKernel, out: &mut ArrayMut<'_, T>, x: &Array<'_, T>) -> Result<(), BindError> {
        let weight = TensorRef::contiguous(&self.weight, &self.hidden)?;
        kernel.forward(&mut out.tensor()?, &x.tensor()?, &weight, f64::from(self.eps), 0.0)
    }

    /// Normalises `x` into `out` in plain Rust.
    ///
    /// # Errors
    /// [`SliceError::Shape`].
    pub fn forward_reference(&self, out: &mut ArrayMut<'_, T>, x: &Array<'_, T>) -> Result<(), SliceError> {
        check_rows(RMS_NORM, out, x, self.weight.len())?;
        for (out, x) in rows(out, x, self.weight.len()) {
            let squares: f32 = x.iter().map(|x| x.to_f32().powi(2)).sum();
            let scale = (squares / x.len() as f32 + self.eps).sqrt().recip();
            for ((out, x), weight) in out.iter_mut().zip(x).zip(&self.weight) {
                *out = T::from_f32(x.to_f32() * scale * weight.to_f32());
            }
        }
        Ok(())
    }
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias` over the last axis.
///
/// # Shapes
/// Input and output `[..., hidden]`, weight and bias `[hidden]`.
#[derive(Debug, Clone)]
pub struct LayerNorm<T> {
    weight: Vec<T>,
    bias: Option<Vec<T>>,
    hidden: [usize; 1],
    eps: f32,
    slot: Slot,
}

impl<T: Number> LayerNorm<T> {
    /// A norm with its weights, in the slot `path` of the model.
    ///
    /// # Errors
    /// [`SliceError::Shape`] for a bias of another length than the weight.
    pub fn new(
        weight: Vec<T>,
        bias: Option<Vec<T>>,
        eps: f32,
        slots: &Slots,
        path: impl Into<String>,
    ) -> Result<Self, SliceError> {
        let hidden = weight.len();
        if let Some(bias) = bias.as_ref().filter(|bias| bias.len() != hidden) {
            return Err(SliceError::shape(LAYER_NORM, "bias", format!("[{hidden}] like the weight"), &[bias.len()]));
        }
        let options = if bias.is_some() { vec!["bias"] } else { Vec::new() };
        let slot = slots.slot(spec::<T>(path, LAYER_NORM, Contract::LayerNorm, hidden, options));
        Ok(Self { weight, bias, hidden: [hidden], eps, slot })
    }

    /// Normalises `x` into `out`, under the plan of the scope that the thread is in, or else the current one.
    ///
    /// # Errors
    /// [`SliceError::Shape`], or [`SliceError::Kernel`] from the kernel.
    pub fn forward(&self, out: &mut ArrayMut<'_, T>, x: &Array<'_, T>) -> Result<(), SliceError> {
        self.slot.with_plan(|plan| self.forward_in(plan, out, x))
    }

    /// Normalises `x` into `out`, under the plan that the model pinned.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_in(&self, plan: &Plan, out: &mut ArrayMut<'_, T>, x: &Array<'_, T>) -> Result<(), SliceError> {
        check_plan(plan, &self.slot, LAYER_NORM)?;
        match plan.layer_norm(&self.slot) {
            Some(kernel) => self.by_kernel(kernel, out, x).map_err(|source| SliceError::kernel(LAYER_NORM, source)),
            None => self.forward_reference(out, x),
        }
    }

    fn by_kernel(
        &self,
        kernel: &LayerNormKernel,
        out: &mut ArrayMut<'_, T>,
        x: &Array<'_, T>,
    ) -> Result<(), BindError> {
        let tensor = |data| TensorRef::contiguous(data, &self.hidden);
        let (weight, bias) = (tensor(&self.weight)?, self.bias.as_deref().map(tensor).transpose()?);
        kernel.forward(&mut out.tensor()?, &x.tensor()?, &weight, bias.as_ref(), f64::from(self.eps))
    }

    /// Normalises `x` into `out` in plain Rust.
    ///
    /// # Errors
    /// [`SliceError::Shape`].
    pub fn forward_reference(&self, out: &mut ArrayMut<'_, T>, x: &Array<'_, T>) -> Result<(), SliceError> {
        check_rows(LAYER_NORM, out, x, self.weight.len())?;
        for (out, x) in rows(out, x, self.weight.len()) {
            let mean = x.iter().map(|x| x.to_f32()).sum::<f32>() / x.len() as f32;
            let variance = x.iter().map(|x| (x.to_f32() - mean).powi(2)).sum::<f32>() / x.len() as f32;
            let scale = (variance + self.eps).sqrt().recip();
            for (index, (out, x)) in out.iter_mut().zip(x).enumerate() {
                let bias = self.bias.as_ref().map_or(0.0, |bias| bias[index].to_f32());
                *out = T::from_f32((x.to_f32() - mean) * scale * self.weight[index].to_f32() + bias);
            }
        }
        Ok(())
    }
}

/// What a layer of this host tells the planner.
pub(super) fn spec<T: Number>(
    path: impl Into<String>,
    layer: &str,
    contract: Contract,
    last_dim: usize,
    options: Vec<&'static str>,
) -> SlotSpec {
    let (path, layer) = (path.into(), layer.to_owned());
    // All reference code here is computed in f32 and rounded once, which is every contract's first order.
    let rounding = contract.roundings()[0];
    SlotSpec { path, layer, contract, dtype: T::DTYPE, last_dim, trainable: false, options, rounding }
}

fn check_rows<T>(
    layer: &'static str,
    out: &ArrayMut<'_, T>,
    x: &Array<'_, T>,
    hidden: usize,
) -> Result<(), SliceError> {
    if x.shape.last() != Some(&hidden) {
        return Err(SliceError::shape(layer, "x", format!("[..., {hidden}]"), x.shape));
    }
    check_same(layer, out, x)
}

/// The rows of an output and its input.
fn rows<'a, T>(
    out: &'a mut ArrayMut<'_, T>,
    x: &'a Array<'_, T>,
    width: usize,
) -> impl Iterator<Item = (&'a mut [T], &'a [T])> {
    // Without elements there are no rows, and a width of 0 cuts nothing.
    out.data.chunks_exact_mut(width.max(1)).zip(x.data.chunks_exact(width.max(1)))
}
