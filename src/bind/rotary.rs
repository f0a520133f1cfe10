//! The `rotary` contract's typed face.
#![expect(unsafe_code, reason = "calls a kernel with checked views")]

use kernelhub_abi::TVMFFIAny;

use super::contract::{ROTARY, index_of};
use super::kernel::Route;
use super::output::{collect_output, collect_outputs};
use super::tensor::View;
use super::{BindError, Element, LayerMeta, TensorMut, TensorRef};

const SECOND: usize = index_of(ROTARY, "y1");

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

    /// [`Self::forward`] of two tensors by the same tables, such as queries and keys: in one call, where the kernel's
    /// function takes two tensors, else in two.
    ///
    /// # Shapes
    /// As [`Self::forward`], for each; `batch`, `seq` and `head_dim` are the same, and the dtype.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_pair(
        &self,
        (out, y_out): (&mut TensorMut<'_>, &mut TensorMut<'_>),
        [x, y]: [&TensorRef<'_>; 2],
        cos: &TensorRef<'_>,
        sin: &TensorRef<'_>,
        style: RotaryStyle,
    ) -> Result<(), BindError> {
        let meta = &self.meta;
        let native = self.route.native(meta)?;
        let interleaved = style == RotaryStyle::Interleaved;
        {
            let tables = [&cos.view(), &sin.view()];
            let (x, y) = (&x.view(), &y.view());
            self.check(["x", "out"], [x, &out.view()], tables, interleaved)?;
            self.check(["y", "y_out"], [y, &y_out.view()], tables, interleaved)?;
            meta.check_dtype("y", y, x.dtype())?;
            if let (&[batch, ..], &[_, heads, seq, head_dim]) = (x.shape(), y.shape()) {
                meta.check_shape("y", y, &[batch, heads, seq, head_dim], "[batch, heads, seq, head_dim]")?;
            }
        }
        let is_empty = |tensor: &TensorRef<'_>| tensor.view().shape().contains(&0);
        if native.absent().has(SECOND) || is_empty(x) || is_empty(y) {
            self.turn(out, x, cos, sin, style, false)?;
            return self.turn(y_out, y, cos, sin, style, false);
        }
        let (cos, sin) = (&cos.view(), &sin.view());
        let (x, out, y, y_out) = (&x.view(), &out.view(), &y.view(), &y_out.view());
        let [mut x, mut out, mut y, mut y_out] = [x, out, y, y_out].map(|view| view.halves_of_heads(interleaved));
        let (mut x, mut out, mut y, mut y_out) = (x.dl_tensors(), out.dl_tensors(), y.dl_tensors(), y_out.dl_tensors());
        let (mut cos, mut sin) = (cos.dl_tensor(), sin.dl_tensor());
        let values = [
            TVMFFIAny::tensor(&raw mut x[0]),
            TVMFFIAny::tensor(&raw mut x[1]),
            cos.value(),
            sin.value(),
            TVMFFIAny::tensor(&raw mut out[0]),
            TVMFFIAny::tensor(&raw mut out[1]),
            TVMFFIAny::bool(false),
            TVMFFIAny::tensor(&raw mut y[0]),
            TVMFFIAny::tensor(&raw mut y[1]),
            TVMFFIAny::tensor(&raw mut y_out[0]),
            TVMFFIAny::tensor(&raw mut y_out[1]),
        ];
        // SAFETY: the views borrow live memory of the described extent, the outputs uniquely, and their halves share no
        // element; shapes, dtypes and strides were checked against the contract and the kernel's limits just above.
        unsafe { native.call(meta, values) }
    }

    /// Checks one tensor and its output, `[x, out]`, against the tables, `[cos, sin]`.
    fn check(
        &self,
        [argument, output]: [&'static str; 2],
        [x, out]: [&View<'_>; 2],
        tables: [&View<'_>; 2],
        interleaved: bool,
    ) -> Result<(), BindError> {
        let meta = &self.meta;
        let &[batch, heads, seq, head_dim] = x.shape() else {
            return Err(meta.shape_fault(argument, x, "[batch, heads, seq, head_dim]".to_owned()));
        };
        if head_dim % 2 != 0 {
            let expected = "[batch, heads, seq, head_dim] with an even head_dim".to_owned();
            return Err(meta.shape_fault(argument, x, expected));
        }
        meta.check_supported(argument, x)?;
        meta.check_shape(output, out, &[batch, heads, seq, head_dim], "[batch, heads, seq, head_dim]")?;
        meta.check_dtype(output, out, x.dtype())?;
        meta.check_dense(argument, x)?;
        meta.check_dense(output, out)?;
        meta.check_view_width(argument, x)?;
        for (argument, table) in ["cos", "sin"].into_iter().zip(tables) {
            meta.check_dtype(argument, table, x.dtype())?;
            meta.check_shape(argument, table, &[seq, head_dim / 2], "[seq, head_dim / 2]")?;
            meta.check_rows(argument, table)?;
        }
        if meta.limits.alignment_bytes as usize <= x.dtype().size_in_bytes() {
            return Ok(());
        }
        // The kernel is given the halves, so it is their rows that its alignment is about.
        for (argument, view) in [(argument, x), (output, out)] {
            for second in [false, true] {
                meta.check_alignment(argument, &view.half(interleaved, second))?;
            }
        }
        Ok(())
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
        let interleaved = style == RotaryStyle::Interleaved;
        self.check(["x", "out"], [x, out], [cos, sin], interleaved)?;
        let &[batch, heads, ..] = x.shape() else { return Ok(()) };
        if x.shape().contains(&0) {
            // Nothing to turn, and the halves of nothing have no memory apart from each other.
            return Ok(());
        }
        let broad;
        let [cos, sin] = if native.absent().has(SECOND) {
            // [seq, half] -> [batch, seq, heads, half], not varying over batch and heads.
            broad = [cos, sin].map(|table| table.broadcast(0, batch).broadcast(2, heads));
            [&broad[0], &broad[1]]
        } else {
            [cos, sin]
        };
        let [mut x, mut out] = [x, out].map(|view| view.halves_of_heads(interleaved));
        let (mut x, mut out) = (x.dl_tensors(), out.dl_tensors());
        let (mut cos, mut sin) = (cos.dl_tensor(), sin.dl_tensor());
        let none = TVMFFIAny::none();
        let values = [
            TVMFFIAny::tensor(&raw mut x[0]),
            TVMFFIAny::tensor(&raw mut x[1]),
            cos.value(),
            sin.value(),
            TVMFFIAny::tensor(&raw mut out[0]),
            TVMFFIAny::tensor(&raw mut out[1]),
            TVMFFIAny::bool(conj),
            none,
            none,
            none,
            none,
        ];
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

    /// [`Self::forward_pair`] into memory of its own, row-major with the shapes `shapes`.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_pair_to_vec<T: Element>(
        &self,
        tensors: [&TensorRef<'_>; 2],
        shapes: [&[usize]; 2],
        cos: &TensorRef<'_>,
        sin: &TensorRef<'_>,
        style: RotaryStyle,
    ) -> Result<(Vec<T>, Vec<T>), BindError> {
        collect_outputs(shapes[0], shapes[1], |out, y_out| {
            let mut out = TensorMut::uninit::<T>(out, shapes[0])?;
            let mut y_out = TensorMut::uninit::<T>(y_out, shapes[1])?;
            self.forward_pair((&mut out, &mut y_out), tensors, cos, sin, style)
        })
    }
}
