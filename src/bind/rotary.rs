//! The `rotary` contract's typed face.
#![expect(unsafe_code, reason = "calls a kernel with checked views")]

use kernelhub_abi::TVMFFIAny;

use super::kernel::Route;
use super::output::collect_output;
use super::{BindError, Element, LayerMeta, TensorMut, TensorRef};

/// Which elements of a head turn together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RotaryStyle {
    /// Element `i` with element `i + head_dim / 2` (GPT-NeoX, Llama in the Hugging Face layout).
    HalfSplit,
    /// Element `2 i` with element `2 i + 1` (GPT-J, Llama in Meta's and llama.cpp's layout).
    Interleaved,
}

/// A kernel for [`super::Contract::Rotary`].
#[derive(Debug)]
pub struct RotaryKernel {
    pub(super) meta: LayerMeta,
    pub(super) route: Route,
}

impl RotaryKernel {
    /// What the kernel is and demands.
    #[must_use]
    pub fn meta(&self) -> &LayerMeta {
        &self.meta
    }

    /// Turns each head of `x` by the angles of its position.
    ///
    /// # Shapes
    /// `out`, `x`: `[batch, heads, seq, head_dim]`, `x` with any strides on the first three axes and adjacent elements
    /// on the last; `cos`, `sin`: `[seq, head_dim / 2]`, row `s` for position `s` of `x`. `head_dim` is even. One
    /// dtype for all, one of the kernel's.
    ///
    /// # Errors
    /// [`BindError`] naming the argument that breaks the contract or the kernel's limits, or the kernel's own error.
    pub fn forward(
        &self,
        out: &mut TensorMut<'_>,
        x: &TensorRef<'_>,
        cos: &TensorRef<'_>,
        sin: &TensorRef<'_>,
        style: RotaryStyle,
    ) -> Result<(), BindError> {
        self.turn(out, x, cos, sin, style, false)
    }

    /// Turns each head back by the angles of its position: what undoes [`Self::forward`] where `cos^2 + sin^2` is 1,
    /// and for any tables the gradient for `x`, from the gradient of the output. The tables get no gradient.
    ///
    /// # Shapes
    /// As [`Self::forward`], `x` being the output's gradient and `out` the gradient for the input.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn turn_back(
        &self,
        out: &mut TensorMut<'_>,
        x: &TensorRef<'_>,
        cos: &TensorRef<'_>,
        sin: &TensorRef<'_>,
        style: RotaryStyle,
    ) -> Result<(), BindError> {
        self.turn(out, x, cos, sin, style, true)
    }

    fn turn(
        &self,
        out: &mut TensorMut<'_>,
        x: &TensorRef<'_>,
        cos: &TensorRef<'_>,
        sin: &TensorRef<'_>,
        style: RotaryStyle,
        conj: bool,
    ) -> Result<(), BindError> {
        let meta = &self.meta;
        let native = self.route.native(meta)?;
        let (out, x, cos, sin) = (&out.view(), &x.view(), &cos.view(), &sin.view());
        let &[batch, heads, seq, head_dim] = x.shape() else {
            return Err(meta.shape_fault("x", x, "[batch, heads, seq, head_dim]".to_owned()));
        };
        if head_dim % 2 != 0 {
            return Err(meta.shape_fault("x", x, "[batch, heads, seq, head_dim] with an even head_dim".to_owned()));
        }
        meta.check_supported("x", x)?;
        meta.check_shape("out", out, &[batch, heads, seq, head_dim], "[batch, heads, seq, head_dim]")?;
        meta.check_dtype("out", out, x.dtype())?;
        meta.check_dense("x", x)?;
        meta.check_dense("out", out)?;
        meta.check_view_width("x", x)?;
        for (argument, table) in [("cos", &cos), ("sin", &sin)] {
            meta.check_dtype(argument, table, x.dtype())?;
            meta.check_shape(argument, table, &[seq, head_dim / 2], "[seq, head_dim / 2]")?;
            meta.check_rows(argument, table)?;
        }
        if x.shape().contains(&0) {
            // Nothing to turn, and the halves of nothing have no memory apart from each other.
            return Ok(());
        }
        let interleaved = style == RotaryStyle::Interleaved;
        let (x, out) = (x.with_heads_and_seq_swapped(), out.with_heads_and_seq_swapped());
        // [seq, half] -> [batch, seq, heads, half], not varying over batch and heads.
        let (cos, sin) = (cos.broadcast(0, batch).broadcast(2, heads), sin.broadcast(0, batch).broadcast(2, heads));
        let halves = [x.half(interleaved, false), x.half(interleaved, true)];
        let out_halves = [out.half(interleaved, false), out.half(interleaved, true)];
        // The kernel is given the halves, so it is their rows that its alignment is about.
        for (argument, halves) in [("x", &halves), ("out", &out_halves)] {
            halves.iter().try_for_each(|half| meta.check_alignment(argument, half))?;
        }
        let mut x1 = halves[0].dl_tensor();
        let mut x2 = halves[1].dl_tensor();
        let (mut cos, mut sin) = (cos.dl_tensor(), sin.dl_tensor());
        let mut out1 = out_halves[0].dl_tensor();
        let mut out2 = out_halves[1].dl_tensor();
        let values =
            [x1.value(), x2.value(), cos.value(), sin.value(), out1.value(), out2.value(), TVMFFIAny::bool(conj)];
        // SAFETY: the views borrow live memory of the described extent, `out` uniquely, and its halves share no
        // element; shapes, dtypes and strides were checked against the contract and the kernel's limits just above.
        unsafe { native.call(meta, values) }
    }

    /// [`Self::forward`] into memory of its own, row-major with the shape `shape`: `[batch, heads, seq, head_dim]`.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_to_vec<T: Element>(
        &self,
        x: &TensorRef<'_>,
        shape: &[usize],
        cos: &TensorRef<'_>,
        sin: &TensorRef<'_>,
        style: RotaryStyle,
    ) -> Result<Vec<T>, BindError> {
        collect_output(shape, |data| self.forward(&mut TensorMut::uninit::<T>(data, shape)?, x, cos, sin, style))
    }

    /// [`Self::turn_back`] into memory of its own, row-major with the shape `shape`: `[batch, heads, seq, head_dim]`.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn turn_back_to_vec<T: Element>(
        &self,
        x: &TensorRef<'_>,
        shape: &[usize],
        cos: &TensorRef<'_>,
        sin: &TensorRef<'_>,
        style: RotaryStyle,
    ) -> Result<Vec<T>, BindError> {
        collect_output(shape, |data| self.turn_back(&mut TensorMut::uninit::<T>(data, shape)?, x, cos, sin, style))
    }
}
