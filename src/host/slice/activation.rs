//! Activations, alone and with a gate.

use super::array::check_same;
use super::error::check_plan;
use super::norm::spec;
use super::{Array, ArrayMut, Number, SliceError};
use crate::bind;
use crate::bind::Contract;
use crate::swap::{Plan, Slot, Slots};

/// An activation of every element.
///
/// # Shapes
/// Input and output `[..., width]`.
#[derive(Debug, Clone)]
pub struct Activation {
    kind: bind::Activation,
    slot: Slot,
}

impl Activation {
    /// An activation of rows of `width` elements of `T`, in the slot `path` of the model.
    pub fn new<T: Number>(kind: bind::Activation, width: usize, slots: &Slots, path: impl Into<String>) -> Self {
        let slot = slots.slot(spec::<T>(path, name(kind), Contract::Activation(kind), width, Vec::new()));
        Self { kind, slot }
    }

    /// Writes `activation(x)` to `out`, under the plan of the scope that the thread is in, or else the current one.
    ///
    /// # Errors
    /// [`SliceError::Shape`], or [`SliceError::Kernel`] from the kernel.
    pub fn forward<T: Number>(&self, out: &mut ArrayMut<'_, T>, x: &Array<'_, T>) -> Result<(), SliceError> {
        self.slot.with_plan(|plan| self.forward_in(plan, out, x))
    }

    /// Writes `activation(x)` to `out`, under the plan that the model pinned.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_in<T: Number>(
        &self,
        plan: &Plan,
        out: &mut ArrayMut<'_, T>,
        x: &Array<'_, T>,
    ) -> Result<(), SliceError> {
        check_plan(plan, &self.slot, name(self.kind))?;
        let Some(kernel) = plan.activation(&self.slot) else { return self.forward_reference(out, x) };
        let result = out.tensor().and_then(|mut out| kernel.forward(&mut out, &x.tensor()?));
        result.map_err(|source| SliceError::kernel(name(self.kind), source))
    }

    /// Writes `activation(x)` to `out` in plain Rust.
    ///
    /// # Errors
    /// [`SliceError::Shape`].
    pub fn forward_reference<T: Number>(&self, out: &mut ArrayMut<'_, T>, x: &Array<'_, T>) -> Result<(), SliceError> {
        check_same(name(self.kind), out, x)?;
        for (out, x) in out.data.iter_mut().zip(x.data) {
            *out = T::from_f32(activate(self.kind, x.to_f32()));
        }
        Ok(())
    }
}

/// An activation of one half of each row, times the other half.
///
/// # Shapes
/// Input `[..., 2 * width]`, output `[..., width]`.
#[derive(Debug, Clone)]
pub struct GatedActivation {
    kind: bind::GatedActivation,
    /// For [`bind::GatedActivation::Fatrelu`].
    threshold: f32,
    slot: Slot,
}

impl GatedActivation {
    /// A gated activation to rows of `width` elements of `T`, in the slot `path` of the model. `threshold` is what
    /// [`bind::GatedActivation::Fatrelu`] compares with; the others have none.
    pub fn new<T: Number>(
        kind: bind::GatedActivation,
        threshold: f32,
        width: usize,
        slots: &Slots,
        path: impl Into<String>,
    ) -> Self {
        let contract = Contract::GatedActivation(kind);
        let slot = slots.slot(spec::<T>(path, gated_name(kind), contract, width, Vec::new()));
        Self { kind, threshold, slot }
    }

    /// Writes the gated activation of `x` to `out`, under the plan of the scope that the thread is in, or else the
    /// current one.
    ///
    /// # Errors
    /// [`SliceError::Shape`], or [`SliceError::Kernel`] from the kernel.
    pub fn forward<T: Number>(&self, out: &mut ArrayMut<'_, T>, x: &Array<'_, T>) -> Result<(), SliceError> {
        self.slot.with_plan(|plan| self.forward_in(plan, out, x))
    }

    /// Writes the gated activation of `x` to `out`, under the plan that the model pinned.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_in<T: Number>(
        &self,
        plan: &Plan,
        out: &mut ArrayMut<'_, T>,
        x: &Array<'_, T>,
    ) -> Result<(), SliceError> {
        check_plan(plan, &self.slot, gated_name(self.kind))?;
        let Some(kernel) = plan.gated_activation(&self.slot) else { return self.forward_reference(out, x) };
        let result = out.tensor().and_then(|mut out| {
            let x = x.tensor()?;
            match self.kind {
                bind::GatedActivation::Fatrelu => {
                    kernel.forward_with_threshold(&mut out, &x, f64::from(self.threshold))
                }
                _ => kernel.forward(&mut out, &x),
            }
        });
        result.map_err(|source| SliceError::kernel(gated_name(self.kind), source))
    }

    /// Writes the gated activation of `x` to `out` in plain Rust.
    ///
    /// # Errors
    /// [`SliceError::Shape`].
    pub fn forward_reference<T: Number>(&self, out: &mut ArrayMut<'_, T>, x: &Array<'_, T>) -> Result<(), SliceError> {
        let layer = gated_name(self.kind);
        let width = match (out.shape.split_last(), x.shape.split_last()) {
            (Some((width, out)), Some((double, x))) if out == x && width.checked_mul(2) == Some(*double) => *width,
            _ => return Err(SliceError::shape(layer, "x", format!("[..., 2 * d] for out {:?}", out.shape), x.shape)),
        };
        if width == 0 {
            return Ok(());
        }
        for (out, x) in out.data.chunks_exact_mut(width).zip(x.data.chunks_exact(2 * width)) {
            let (first, second) = x.split_at(width);
            for ((out, a), b) in out.iter_mut().zip(first).zip(second) {
                *out = T::from_f32(gate(self.kind, self.threshold, a.to_f32(), b.to_f32()));
            }
        }
        Ok(())
    }
}

/// The layer's name in a kernel mapping.
fn name(kind: bind::Activation) -> &'static str {
    match kind {
        bind::Activation::Silu => "Silu",
        bind::Activation::Gelu => "Gelu",
        bind::Activation::GeluTanh => "GeluTanh",
        bind::Activation::GeluFast => "FastGELU",
        bind::Activation::GeluNew => "NewGELU",
        bind::Activation::GeluQuick => "QuickGELU",
    }
}

/// The layer's name in a kernel mapping.
fn gated_name(kind: bind::GatedActivation) -> &'static str {
    match kind {
        bind::GatedActivation::Silu => "SiluAndMul",
        bind::GatedActivation::MulAndSilu => "MulAndSilu",
        bind::GatedActivation::Gelu => "GeluAndMul",
        bind::GatedActivation::GeluTanh => "GeluTanhAndMul",
        bind::GatedActivation::Fatrelu => "FatreluAndMul",
    }
}

fn activate(kind: bind::Activation, x: f32) -> f32 {
    let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
    match kind {
        bind::Activation::Silu => x * sigmoid(x),
        bind::Activation::Gelu => {
            let x = f64::from(x);
            #[expect(clippy::cast_possible_truncation, reason = "rounds to the host's accuracy")]
            let value = (0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2))) as f32;
            value
        }
        bind::Activation::GeluTanh | bind::Activation::GeluNew => {
            let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
        bind::Activation::GeluFast => 0.5 * x * (1.0 + (x * 0.797_884_6 * (1.0 + 0.044_715 * x * x)).tanh()),
        bind::Activation::GeluQuick => x * sigmoid(1.702 * x),
    }
}

fn gate(kind: bind::GatedActivation, threshold: f32, a: f32, b: f32) -> f32 {
    match kind {
        bind::GatedActivation::Silu => activate(bind::Activation::Silu, a) * b,
        bind::GatedActivation::MulAndSilu => a * activate(bind::Activation::Silu, b),
        bind::GatedActivation::Gelu => activate(bind::Activation::Gelu, a) * b,
        bind::GatedActivation::GeluTanh => activate(bind::Activation::GeluTanh, a) * b,
        // A number that is none is above nothing, and is kept: it must not vanish.
        bind::GatedActivation::Fatrelu if a > threshold || a.is_nan() => a * b,
        bind::GatedActivation::Fatrelu => 0.0 * b,
    }
}

/// The error function, by the series whose terms all have one sign:
/// `2 / sqrt(pi) exp(-x^2) sum(2^n x^(2n+1) / (2n+1)!!)`. Source: DLMF 7.6.2.
fn erf(x: f64) -> f64 {
    if x.is_nan() || x.abs() >= 6.0 {
        // 1 - erf(6) is below 3e-17.
        return if x.is_nan() { x } else { x.signum() };
    }
    let (mut term, mut sum, mut odd) = (x, x, 1.0);
    while term.abs() > sum.abs() * 1e-17 {
        odd += 2.0;
        term *= 2.0 * x * x / odd;
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::erf;

    /// Values of DLMF's tables (7.23), to ten digits.
    #[test]
    fn the_error_function_is_the_tables() {
        for (x, expected) in [
            (0.0, 0.0),
            (0.5, 0.520_499_877_8),
            (1.0, 0.842_700_792_9),
            (2.0, 0.995_322_265_0),
            (-1.0, -0.842_700_792_9),
        ] {
            assert!((erf(x) - expected).abs() < 1e-10, "{x}: {}", erf(x));
        }
        assert!((erf(9.0) - 1.0).abs() < 1e-15 && erf(f64::NAN).is_nan());
    }
}
