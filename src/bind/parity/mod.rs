//! Whether a kernel computes what its contract says: it is run on small random inputs, and its results are held to the
//! contract's formula in `f64`.
//!
//! Every dtype, option and flag that the kernel declares is tried, on odd widths, on rows that lie apart or on top of
//! each other, and on nothing at all, forward and backward. Between and around the rows of the inputs stand NaNs, and
//! outputs begin as NaN, so that what reads or writes elsewhere than it should shows. Each case differs from the one
//! without its option by far more than the tolerance: an option that a kernel ignores is found.
//!
//! This is a check of an honest kernel's numbers, not a defence against a hostile one: the code that it calls runs.

mod activations;
mod attention;
mod compare;
mod error;
mod gated_linear;
mod indexed;
mod linear;
mod norms;
mod number;
mod rotary;
mod sample;
mod sequences;
mod softmax;

use std::sync::{Arc, OnceLock};

use half::{bf16, f16};
use serde::Serialize;

use self::compare::Checker;
use self::number::Number;
use super::{LayerKernel, LayerMeta};
use crate::dtype::DType;

pub use error::ParityError;

/// What a check found of a kernel that passed it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ParityReport {
    /// Number of calls whose results were compared.
    pub calls: usize,
    /// The largest error, as a part of what its tolerance allows: 0 is exact, 1 the limit.
    pub worst: f64,
    /// The element types that were tried.
    pub dtypes: Vec<DType>,
    /// What the kernel declares and the check could not try, with the reason.
    pub skipped: Vec<String>,
}

/// The outcome of a check, made once.
#[derive(Debug, Clone, Default)]
pub(super) struct Parity(Arc<OnceLock<Result<ParityReport, Arc<ParityError>>>>);

impl LayerKernel {
    /// Checks the kernel against its contract's formula. The first call runs the kernel some hundred times on small
    /// inputs, which takes milliseconds; later ones answer what it found.
    ///
    /// # Errors
    /// [`ParityError`] with the first case that differs, or that the kernel refused.
    pub fn parity(&self) -> Result<&ParityReport, Arc<ParityError>> {
        self.meta().parity.0.get_or_init(|| self.check().map_err(Arc::new)).as_ref().map_err(Arc::clone)
    }

    fn check(&self) -> Result<ParityReport, ParityError> {
        let meta = self.meta();
        let mut checker = Checker::new(meta);
        for dtype in &meta.dtypes {
            match dtype {
                DType::F32 => self.check_dtype::<f32>(&mut checker)?,
                DType::Bf16 => self.check_dtype::<bf16>(&mut checker)?,
                DType::F16 => self.check_dtype::<f16>(&mut checker)?,
                other => {
                    checker.skip(format!("{other}: no host of this version passes it"));
                    continue;
                }
            }
            checker.tried(*dtype);
        }
        checker.finish()
    }

    fn check_dtype<T: Number>(&self, checker: &mut Checker<'_>) -> Result<(), ParityError> {
        match self {
            Self::RmsNorm(kernel) => norms::rms_norm::<T>(kernel, checker),
            Self::AddRmsNorm(kernel) => norms::add_rms_norm::<T>(kernel, checker),
            Self::LayerNorm(kernel) => norms::layer_norm::<T>(kernel, checker),
            Self::Rotary(kernel) => rotary::rotary::<T>(kernel, checker),
            Self::Activation(kernel) => activations::activation::<T>(kernel, checker),
            Self::GatedActivation(kernel) => activations::gated::<T>(kernel, checker),
            Self::Softmax(kernel) => softmax::softmax::<T>(kernel, checker),
            Self::Attention(kernel) => attention::dense::<T>(kernel, checker),
            Self::AttentionVarlen(kernel) => sequences::varlen::<T>(kernel, checker),
            Self::AttentionPaged(kernel) => sequences::paged::<T>(kernel, checker),
            Self::Linear(kernel) => linear::linear::<T>(kernel, checker),
            Self::GatedLinear(kernel) => gated_linear::gated_linear::<T>(kernel, checker),
            Self::Embedding(kernel) => indexed::embedding::<T>(kernel, checker),
            Self::CrossEntropy(kernel) => indexed::cross_entropy::<T>(kernel, checker),
        }
    }
}

/// Whether the kernel's forward takes an optional parameter.
fn takes(meta: &LayerMeta, option: &'static str) -> bool {
    meta.lacks(&[option]).is_none()
}
