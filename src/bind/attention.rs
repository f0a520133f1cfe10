//! The `attention` contract's typed face.
#![expect(unsafe_code, reason = "calls a kernel with checked views")]

use kernelhub_abi::TVMFFIAny;

use super::contract::{ATTENTION, index_of};
use super::kernel::Route;
use super::native::NativeBinding;
use super::output::collect_output;
use super::tensor::View;
use super::{BindError, Element, LayerMeta, Parameter, TensorMut, TensorRef};

const OPTIONS: OptionPlaces = OptionPlaces::of(ATTENTION);

/// How far from its own position a query sees, both ends included; see [`super::Contract::Attention`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Window {
    /// Keys before the query's position; `None`: all.
    pub left: Option<u32>,
    /// Keys after the query's position; `None`: all, unless the attention is causal.
    pub right: Option<u32>,
}

/// What attention computes, beside its tensors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionOptions {
    /// What multiplies the scores, as a rule `1 / sqrt(head_dim)`.
    pub softmax_scale: f64,
    /// Whether a query sees no key after its own position.
    pub causal: bool,
    /// How far a query sees.
    pub window: Window,
    /// Above 0: the scaled scores become `softcap * tanh(score / softcap)`. 0: they stay.
    pub softcap: f64,
}

impl AttentionOptions {
    /// Attention to all keys, or causal attention, without a window and a softcap.
    #[must_use]
    pub fn new(softmax_scale: f64, causal: bool) -> Self {
        Self { softmax_scale, causal, window: Window::default(), softcap: 0.0 }
    }

    /// The values of `softmax_scale`, `causal`, `window_left`, `window_right` and `softcap`, where `native` takes them.
    pub(super) fn values(
        &self,
        meta: &LayerMeta,
        native: &NativeBinding,
        places: OptionPlaces,
    ) -> Result<[TVMFFIAny; 5], BindError> {
        let (scale, window, softcap) = (self.softmax_scale, self.window, self.softcap);
        native.check_option(meta, places.window_left, window.left.is_none())?;
        native.check_option(meta, places.window_right, window.right.is_none())?;
        native.check_option(meta, places.softcap, softcap == 0.0)?;
        if !scale.is_finite() {
            return Err(meta.scalar_fault("softmax_scale", format!("is {scale}; expected a finite number")));
        }
        if !(softcap >= 0.0 && softcap.is_finite()) {
            return Err(meta.scalar_fault("softcap", format!("is {softcap}; expected 0 or a number above it")));
        }
        Ok([
            TVMFFIAny::float(scale),
            TVMFFIAny::bool(self.causal),
            TVMFFIAny::int(window.left.map_or(-1, i64::from)),
            TVMFFIAny::int(window.right.map_or(-1, i64::from)),
            TVMFFIAny::float(softcap),
        ])
    }
}

/// Where a contract's table has the options of attention.
#[derive(Debug, Clone, Copy)]
pub(super) struct OptionPlaces {
    window_left: usize,
    window_right: usize,
    softcap: usize,
}

impl OptionPlaces {
    pub(super) const fn of(table: &[Parameter]) -> Self {
        Self {
            window_left: index_of(table, "window_left"),
            window_right: index_of(table, "window_right"),
            softcap: index_of(table, "softcap"),
        }
    }
}

/// Whether each key-value head serves as many query heads.
pub(super) fn is_grouped(heads: i64, kv_heads: i64) -> bool {
    if kv_heads == 0 { heads == 0 } else { heads % kv_heads == 0 }
}

/// A kernel for [`super::Contract::Attention`].
#[derive(Debug)]
pub struct AttentionKernel {
    pub(super) meta: LayerMeta,
    pub(super) route: Route,
}

impl AttentionKernel {
    /// What the kernel is and demands.
    #[must_use]
    pub fn meta(&self) -> &LayerMeta {
        &self.meta
    }

    /// `out = softmax(q k^T * softmax_scale) v`.
    ///
    /// # Shapes
    /// `q`: `[batch, heads, q_len, head_dim]`; `k`, `v`: `[batch, kv_heads, kv_len, head_dim]`, all with any strides
    /// on the first three axes and adjacent elements on the last; `out`: `[batch, q_len, heads, head_dim]`, row-major.
    /// `heads` is a multiple of `kv_heads`. One dtype for all, one of the kernel's. Which keys a query sees is
    /// told at [`super::Contract::Attention`].
    ///
    /// # Errors
    /// [`BindError`] naming the argument that breaks the contract or the kernel's limits, [`BindError::Option`] for a
    /// window or a softcap when the kernel takes none, or the kernel's own error.
    #[inline]
    pub fn forward(
        &self,
        out: &mut TensorMut<'_>,
        q: &TensorRef<'_>,
        k: &TensorRef<'_>,
        v: &TensorRef<'_>,
        options: &AttentionOptions,
    ) -> Result<(), BindError> {
        // SAFETY: `out` is a unique borrow.
        unsafe { self.forward_views(&out.view(), &q.view(), &k.view(), &v.view(), options) }
    }

    /// # Safety
    /// Nothing else reads or writes what `out` is a view of.
    unsafe fn forward_views(
        &self,
        out: &View<'_>,
        q: &View<'_>,
        k: &View<'_>,
        v: &View<'_>,
        options: &AttentionOptions,
    ) -> Result<(), BindError> {
        let meta = &self.meta;
        let native = self.route.native(meta)?;
        let [scale, causal, left, right, softcap] = options.values(meta, native, OPTIONS)?;
        let &[batch, heads, q_len, head_dim] = q.shape() else {
            return Err(meta.shape_fault("q", q, "[batch, heads, q_len, head_dim]".to_owned()));
        };
        let &[_, kv_heads, kv_len, _] = k.shape() else {
            return Err(meta.shape_fault("k", k, "[batch, kv_heads, kv_len, head_dim]".to_owned()));
        };
        if !is_grouped(heads, kv_heads) {
            let expected = format!("[batch, kv_heads, kv_len, head_dim] with kv_heads a divisor of {heads} heads");
            return Err(meta.shape_fault("k", k, expected));
        }
        meta.check_supported("q", q)?;
        meta.check_shape("out", out, &[batch, q_len, heads, head_dim], "[batch, q_len, heads, head_dim]")?;
        meta.check_dtype("out", out, q.dtype())?;
        for (argument, view) in [("k", &k), ("v", &v)] {
            meta.check_dtype(argument, view, q.dtype())?;
            let expected = [batch, kv_heads, kv_len, head_dim];
            meta.check_shape(argument, view, &expected, "[batch, kv_heads, kv_len, head_dim]")?;
            meta.check_rows(argument, view)?;
        }
        meta.check_rows("q", q)?;
        meta.check_rows("out", out)?;
        meta.check_view_width("q", q)?;
        let (q, k, v) =
            (q.with_heads_and_seq_swapped(), k.with_heads_and_seq_swapped(), v.with_heads_and_seq_swapped());
        let (mut out, mut q, mut k, mut v) = (out.dl_tensor(), q.dl_tensor(), k.dl_tensor(), v.dl_tensor());
        let values = [out.value(), q.value(), k.value(), v.value(), scale, causal, left, right, softcap];
        // SAFETY: the views borrow live memory of the described extent, `out` uniquely, by this function's contract;
        // shapes, dtypes and strides were checked against the contract and the kernel's limits just above.
        unsafe { native.call(meta, values) }
    }

    /// [`Self::forward`] into memory of its own, row-major with the shape `shape`: `[batch, q_len, heads, head_dim]`.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_to_vec<T: Element>(
        &self,
        q: &TensorRef<'_>,
        k: &TensorRef<'_>,
        v: &TensorRef<'_>,
        shape: &[usize],
        options: &AttentionOptions,
    ) -> Result<Vec<T>, BindError> {
        collect_output(shape, |data| self.forward(&mut TensorMut::uninit::<T>(data, shape)?, q, k, v, options))
    }
}
