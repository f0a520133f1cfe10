//! The `linear` contract's typed face.
#![expect(unsafe_code, reason = "calls a kernel with checked views")]

use super::contract::{LINEAR, index_of};
use super::kernel::Route;
use super::native::optional_tensor;
use super::output::collect_output;
use super::tensor::View;
use super::{BindError, Element, LayerMeta, TensorMut, TensorRef};

const BIAS: usize = index_of(LINEAR, "bias");

/// A kernel for [`super::Contract::Linear`].
#[derive(Debug)]
pub struct LinearKernel {
    pub(super) meta: LayerMeta,
    pub(super) route: Route,
}

impl LinearKernel {
    /// What the kernel is and demands.
    #[must_use]
    pub fn meta(&self) -> &LayerMeta {
        &self.meta
    }

    /// `out = x weight^T + bias`.
    ///
    /// # Shapes
    /// `out`: `[..., out_features]`; `x`: `[..., in_features]`; `weight`: `[out_features, in_features]`; `bias`:
    /// `[out_features]`; the rows of `x` and `weight` at any distance, their elements adjacent. One dtype for all, one
    /// of the kernel's.
    ///
    /// # Errors
    /// [`BindError`] naming the argument that breaks the contract or the kernel's limits, [`BindError::Option`] for a
    /// bias when the kernel takes none, or the kernel's own error.
    pub fn forward(
        &self,
        out: &mut TensorMut<'_>,
        x: &TensorRef<'_>,
        weight: &TensorRef<'_>,
        bias: Option<&TensorRef<'_>>,
    ) -> Result<(), BindError> {
        let meta = &self.meta;
        let native = self.route.native(meta)?;
        native.check_option(meta, BIAS, bias.is_none())?;
        let (out, x, weight, bias) = (&out.view(), &x.view(), &weight.view(), &bias.map(TensorRef::view));
        let bias = bias.as_ref();
        Features::Plain.check(meta, [out, x, weight], bias)?;
        let (mut out, mut x, mut weight) = (out.dl_tensor(), x.dl_tensor(), weight.dl_tensor());
        let mut bias = bias.map(View::dl_tensor);
        let values = [out.value(), x.value(), weight.value(), optional_tensor(&mut bias)];
        // SAFETY: the views borrow live memory of the described extent, `out` uniquely; shapes, dtypes and strides
        // were checked against the contract and the kernel's limits just above, and a bias is passed only to a function
        // that takes one.
        unsafe { native.call(meta, values) }
    }

    /// [`Self::forward`] into memory of its own, row-major with the shape `shape`: `[..., out_features]`.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_to_vec<T: Element>(
        &self,
        x: &TensorRef<'_>,
        weight: &TensorRef<'_>,
        bias: Option<&TensorRef<'_>>,
        shape: &[usize],
    ) -> Result<Vec<T>, BindError> {
        collect_output(shape, |data| self.forward(&mut TensorMut::uninit::<T>(data, shape)?, x, weight, bias))
    }
}

/// What the rows of a weight stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Features {
    /// One output each.
    Plain,
    /// Half of one output each: the gates of all, and then what they gate.
    OfPairs,
}

impl Features {
    /// Checks `[out, x, weight]` and the bias against the contract and the kernel's limits.
    pub(super) fn check(
        self,
        meta: &LayerMeta,
        [out, x, weight]: [&View<'_>; 3],
        bias: Option<&View<'_>>,
    ) -> Result<(), BindError> {
        let (of_weight, of_bias, of_out) = match self {
            Self::Plain => ("[out_features, in_features]", "[out_features]", "[..., out_features]"),
            Self::OfPairs => ("[2 * d, in_features]", "[2 * d]", "[..., d]"),
        };
        let Some((&in_features, rows)) = x.shape().split_last() else {
            return Err(meta.shape_fault("x", x, "[..., in_features]".to_owned()));
        };
        let &[weight_rows, weight_in] = weight.shape() else {
            return Err(meta.shape_fault("weight", weight, of_weight.to_owned()));
        };
        if weight_in != in_features {
            let expected = format!("{of_weight} with in_features = {in_features}, as x has");
            return Err(meta.shape_fault("weight", weight, expected));
        }
        let out_features = match self {
            Self::Plain => weight_rows,
            Self::OfPairs if weight_rows % 2 == 0 => weight_rows / 2,
            Self::OfPairs => return Err(meta.shape_fault("weight", weight, of_weight.to_owned())),
        };
        if out.shape().split_last() != Some((&out_features, rows)) {
            let expected = format!("{of_out} = {rows:?} and {out_features}");
            return Err(meta.shape_fault("out", out, expected));
        }
        meta.check_supported("x", x)?;
        for (argument, view) in [("out", out), ("weight", weight)] {
            meta.check_dtype(argument, view, x.dtype())?;
            meta.check_rows(argument, view)?;
        }
        if let Some(bias) = bias {
            meta.check_dtype("bias", bias, x.dtype())?;
            meta.check_shape("bias", bias, &[weight_rows], of_bias)?;
            meta.check_rows("bias", bias)?;
        }
        meta.check_view_width("x", x)?;
        meta.check_rows("x", x)
    }
}
