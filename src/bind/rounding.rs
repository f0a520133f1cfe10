//! Where a kernel rounds to the dtype of its tensors, and how far it may be from its formula.

use std::fmt;

use serde::Serialize;

use super::{BindError, Contract};
use crate::dtype::DType;
use crate::hint::nearest;

/// Where values are rounded to the dtype of the call's tensors. In `f32` all orders are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Rounding {
    /// Nothing is computed, so that nothing is rounded.
    Exact,
    /// All is computed in `f32` and rounded once, at the end.
    F32,
    /// Of norms: normalised and multiplied by the weight in `f32`, rounded once, at the end.
    #[serde(rename = "f32-weight-f32")]
    F32WeightF32,
    /// Of norms: normalised in `f32`, rounded, and multiplied by the weight in the dtype, which rounds again.
    #[serde(rename = "f32-weight-dtype")]
    F32WeightDtype,
    /// Every step rounds: what a framework's unfused operations do one after another.
    Dtype,
}

impl Rounding {
    const ALL: [Self; 5] = [Self::Exact, Self::F32, Self::F32WeightF32, Self::F32WeightDtype, Self::Dtype];

    /// The word in `layers.toml` and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::F32 => "f32",
            Self::F32WeightF32 => "f32-weight-f32",
            Self::F32WeightDtype => "f32-weight-dtype",
            Self::Dtype => "dtype",
        }
    }

    /// The order that a layer declares; the contract's first when it declares none.
    pub(super) fn of_layer(declared: Option<&str>, contract: Contract, kernel: &str) -> Result<Self, BindError> {
        let allowed = contract.roundings();
        let Some(declared) = declared else { return Ok(allowed[0]) };
        let found = allowed.iter().copied().find(|rounding| rounding.as_str() == declared);
        found.ok_or_else(|| {
            let near = nearest(declared, allowed.iter().map(|rounding| rounding.as_str()));
            BindError::Rounding {
                kernel: kernel.to_owned(),
                contract: contract.as_str(),
                rounding: declared.to_owned(),
                allowed: allowed.iter().map(|rounding| rounding.as_str()).collect(),
                suggestion: Self::ALL.into_iter().map(Self::as_str).find(|word| near == Some(*word)),
            }
        })
    }

    /// Whether two orders may give other numbers in this dtype.
    #[must_use]
    pub fn differs_from(self, other: Self, dtype: DType) -> bool {
        self != other && !matches!(dtype, DType::F32 | DType::F64)
    }
}

impl fmt::Display for Rounding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Contract {
    /// The rounding orders that a kernel of the contract may declare, the default first.
    #[must_use]
    pub const fn roundings(self) -> &'static [Rounding] {
        match self {
            Self::RmsNorm | Self::AddRmsNorm | Self::LayerNorm => {
                &[Rounding::F32WeightF32, Rounding::F32WeightDtype, Rounding::Dtype]
            }
            Self::Embedding => &[Rounding::Exact],
            _ => &[Rounding::F32, Rounding::Dtype],
        }
    }
}

/// How far a result may be from the value that its formula gives in `f64` for the same rounded inputs, in its rounding
/// order: at most `ulps` units in the last place of the expected value in the result's dtype, plus `absolute`, plus
/// `relative` times the expected value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Tolerance {
    /// Units in the last place of the dtype. A correct rounding is within 0.5.
    pub ulps: f64,
    /// For the work in `f32` before the rounding, where terms cancel out.
    pub absolute: f64,
    /// For the work in `f32` before the rounding.
    pub relative: f64,
}

impl Tolerance {
    /// The table, for values of about 1.
    ///
    /// All work is in `f32`, whose own error is allowed for by `relative` and `absolute`: a few operations after
    /// another in the elementwise contracts, sums of some dozen terms in the others. The half unit is the rounding
    /// itself: for `bf16` and `f16` it is by far the largest part, and small enough that a kernel that rounds in
    /// another order than it declares is found. Gradients add one more unit where intermediate values may be rounded as
    /// the forward rounds them.
    #[must_use]
    pub fn of(contract: Contract, dtype: DType, rounding: Rounding, is_backward: bool) -> Self {
        let (absolute, relative) = match contract {
            Contract::Embedding => return Self { ulps: 0.0, absolute: 0.0, relative: 0.0 },
            Contract::RmsNorm | Contract::AddRmsNorm if !is_backward => (1e-7, 1e-6),
            Contract::Rotary => (1e-6, 1e-6),
            // Differences from the mean; curves that pass through zero, where `1 + tanh` and the error function cancel
            // out.
            Contract::LayerNorm | Contract::Activation(_) | Contract::GatedActivation(_) => (2e-6, 2e-6),
            Contract::Linear | Contract::GatedLinear(_) => (1e-5, 2e-6),
            _ => (1e-5, 4e-6),
        };
        let is_narrow = !matches!(dtype, DType::F32 | DType::F64);
        let is_unmodelled = rounding == Rounding::Dtype
            && !matches!(contract, Contract::RmsNorm | Contract::AddRmsNorm | Contract::GatedActivation(_));
        let ulps = match (is_narrow && rounding != Rounding::F32 && is_backward, is_narrow && is_unmodelled) {
            (_, true) => 4.0,
            (true, false) => 1.5,
            (false, false) => 0.5,
        };
        // Steps that round are those of values up to about 2, whatever becomes of them.
        let absolute = if is_narrow && is_unmodelled { absolute + 4.0 * ulp(dtype, 1.0) } else { absolute };
        Self { ulps, absolute, relative }
    }

    /// What is allowed around an expected value of `dtype`.
    #[must_use]
    pub fn allowed(&self, dtype: DType, expected: f64) -> f64 {
        self.ulps * ulp(dtype, expected) + self.absolute + self.relative * expected.abs()
    }
}

/// One unit in the last place of a value in a dtype: the distance to the next number.
fn ulp(dtype: DType, value: f64) -> f64 {
    // Bits of the fraction, and the exponent of the smallest normal number.
    let (fraction, smallest) = match dtype {
        DType::Bf16 => (7, -126),
        DType::F16 => (10, -14),
        DType::F32 => (23, -126),
        _ => (52, -1022),
    };
    let exponent = if value == 0.0 { smallest } else { exponent_of(value).max(smallest) };
    2.0_f64.powi(exponent - fraction)
}

/// The exponent `e` of `value = m * 2^e` with `1 <= |m| < 2`, exactly; very small ones count as the smallest.
fn exponent_of(value: f64) -> i32 {
    let bits = (value.to_bits() >> 52) & 0x7ff;
    // Eleven bits.
    i32::try_from(bits).unwrap_or_default() - 1023
}

#[cfg(test)]
mod tests {
    use super::{Contract, DType, Rounding, Tolerance, ulp};

    #[test]
    fn a_unit_in_the_last_place_is_the_distance_to_the_next_number() {
        for value in [1.0_f32, 1.5, -3.999, 4.0, 0.1, 1e-30] {
            let next = f32::from_bits(value.abs().to_bits() + 1);
            let expected = f64::from(next) - f64::from(value.abs());
            assert_eq!(ulp(DType::F32, value.into()).to_bits(), expected.to_bits(), "{value}");
        }
        assert_eq!(ulp(DType::Bf16, 16.0).to_bits(), 0.125_f64.to_bits());
        assert_eq!(ulp(DType::F16, 0.0).to_bits(), 2.0_f64.powi(-24).to_bits());
    }

    #[test]
    fn a_correct_rounding_is_allowed_and_the_next_number_is_not() {
        let tolerance = Tolerance::of(Contract::RmsNorm, DType::Bf16, Rounding::F32WeightF32, false);
        assert!(tolerance.allowed(DType::Bf16, 16.05) < 0.0626, "half a unit of 0.125, and the work in f32");
        assert!(tolerance.allowed(DType::Bf16, 16.05) >= 0.0625);
    }

    #[test]
    fn every_contract_has_its_default_order_among_its_own() {
        for contract in Contract::all() {
            let default = Rounding::of_layer(None, *contract, "k").unwrap();
            for rounding in contract.roundings() {
                assert_eq!(Rounding::of_layer(Some(rounding.as_str()), *contract, "k").unwrap(), *rounding);
            }
            assert_eq!(default, contract.roundings()[0]);
        }
    }
}
