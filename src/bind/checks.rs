//! What is checked in front of every call. Nothing here allocates unless it fails.

use super::tensor::View;
use super::{BindError, LayerMeta, Parameter, ParameterKind};
use crate::dtype::DType;
use crate::manifest::Limits;

/// Whether two shapes are one. For a few numbers a loop is shorter than a call of C's `memcmp`, which `==` makes.
#[inline]
fn is_same(left: &[i64], right: &[i64]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(left, right)| left == right)
}

impl LayerMeta {
    /// `view` has one of the kernel's dtypes.
    #[inline]
    pub(super) fn check_supported(&self, argument: &'static str, view: &View) -> Result<(), BindError> {
        if self.dtypes.contains(&view.dtype()) {
            return Ok(());
        }
        Err(self.unsupported_fault(argument, view.dtype()))
    }

    #[cold]
    fn unsupported_fault(&self, argument: &'static str, actual: DType) -> BindError {
        let names: Vec<_> = self.dtypes.iter().map(|dtype| dtype.as_str()).collect();
        self.dtype_fault(argument, names.join(", "), actual)
    }

    /// `view` has the dtype of the call's first tensor.
    #[inline]
    pub(super) fn check_dtype(&self, argument: &'static str, view: &View, expected: DType) -> Result<(), BindError> {
        if view.dtype() == expected {
            return Ok(());
        }
        Err(self.other_dtype_fault(argument, expected, view.dtype()))
    }

    #[cold]
    fn other_dtype_fault(&self, argument: &'static str, expected: DType, actual: DType) -> BindError {
        self.dtype_fault(argument, expected.to_string(), actual)
    }

    #[cold]
    fn dtype_fault(&self, argument: &'static str, expected: String, actual: DType) -> BindError {
        BindError::Dtype { kernel: self.identity.to_string(), argument, expected, actual }
    }

    /// `view` has exactly this shape; `axes` names them for the message.
    #[inline]
    pub(super) fn check_shape(
        &self,
        argument: &'static str,
        view: &View,
        expected: &[i64],
        axes: &str,
    ) -> Result<(), BindError> {
        if is_same(view.shape(), expected) {
            return Ok(());
        }
        Err(self.other_shape_fault(argument, view, expected, axes))
    }

    #[cold]
    fn other_shape_fault(&self, argument: &'static str, view: &View, expected: &[i64], axes: &str) -> BindError {
        let expected = if axes.is_empty() { format!("{expected:?}") } else { format!("{axes} = {expected:?}") };
        self.shape_fault(argument, view, expected)
    }

    #[cold]
    pub(super) fn shape_fault(&self, argument: &'static str, view: &View, expected: String) -> BindError {
        let kernel = self.identity.to_string();
        BindError::Shape { kernel, argument, expected, actual: view.shape().to_vec() }
    }

    /// The elements of a row are neighbours, and the row starts where the kernel's alignment asks.
    #[inline]
    pub(super) fn check_rows(&self, argument: &'static str, view: &View) -> Result<(), BindError> {
        self.check_dense(argument, view)?;
        self.check_alignment(argument, view)
    }

    /// The elements of a row are neighbours.
    #[inline]
    pub(super) fn check_dense(&self, argument: &'static str, view: &View) -> Result<(), BindError> {
        // What nearly every tensor is; the rest is looked at apart, so that this is short enough to be inlined.
        if view.last_stride() == 1 { Ok(()) } else { self.check_last_stride(argument, view) }
    }

    fn check_last_stride(&self, argument: &'static str, view: &View) -> Result<(), BindError> {
        let extent = view.shape().last().copied().unwrap_or(1);
        let stride = view.last_stride();
        if extent > 1 && stride != 1 && !view.shape().contains(&0) {
            return Err(self.stride_fault(argument, stride));
        }
        Ok(())
    }

    #[cold]
    fn stride_fault(&self, argument: &'static str, stride: i64) -> BindError {
        self.layout_fault(argument, format!("has stride {stride} on its last axis; expected 1"))
    }

    /// Every row starts at a multiple of the kernel's alignment.
    #[inline]
    pub(super) fn check_alignment(&self, argument: &'static str, view: &View) -> Result<(), BindError> {
        // Elements are aligned to their size by their type.
        if self.limits.alignment_bytes as usize <= view.dtype().size_in_bytes() {
            return Ok(());
        }
        self.check_row_alignment(argument, view)
    }

    fn check_row_alignment(&self, argument: &'static str, view: &View) -> Result<(), BindError> {
        let (alignment, size) = (self.limits.alignment_bytes as usize, view.dtype().size_in_bytes() as u64);
        // An empty view has no address to speak of.
        if view.shape().contains(&0) {
            return Ok(());
        }
        let strides = view.strides();
        let leading = strides.len().saturating_sub(1);
        // The stride of an axis of one element is never taken.
        let aligned = |(extent, stride): (&i64, &i64)| {
            *extent == 1 || (stride.unsigned_abs() * size).is_multiple_of(u64::from(self.limits.alignment_bytes))
        };
        let mut axes = view.shape().iter().zip(&*strides).take(leading);
        if view.address().is_multiple_of(alignment) && axes.all(aligned) {
            return Ok(());
        }
        let reason = format!("has rows that don't start at multiples of {alignment} bytes, as the kernel asks");
        Err(self.layout_fault(argument, reason))
    }

    #[cold]
    pub(super) fn layout_fault(&self, argument: &'static str, reason: String) -> BindError {
        BindError::Layout { kernel: self.identity.to_string(), argument, reason }
    }

    /// `view` has the shape and dtype of `like`, and rows that the kernel takes. `like` was checked before.
    #[inline]
    pub(super) fn check_like(&self, argument: &'static str, view: &View, like: &View) -> Result<(), BindError> {
        self.check_dtype(argument, view, like.dtype())?;
        self.check_shape(argument, view, like.shape(), "")?;
        self.check_rows(argument, view)
    }

    #[cold]
    pub(super) fn option_fault(&self, parameter: &Parameter) -> BindError {
        let default = match parameter.kind {
            ParameterKind::Float { default: Some(default) } => format!("{} = {default:?}", parameter.name),
            ParameterKind::Int { default: Some(default) } => format!("{} = {default}", parameter.name),
            _ => format!("no {}", parameter.name),
        };
        BindError::Option { kernel: self.identity.to_string(), option: parameter.name, default }
    }

    #[cold]
    pub(super) fn scalar_fault(&self, argument: &'static str, reason: String) -> BindError {
        BindError::Scalar { kernel: self.identity.to_string(), argument, reason }
    }

    /// Every element of an index tensor is below `bound`, or is `ignored`. One pass over the indices, which are few
    /// beside the rows that they choose; a kernel is then never sent outside its memory.
    pub(super) fn check_indices(
        &self,
        argument: &'static str,
        view: &View,
        bound: i64,
        ignored: Option<i64>,
    ) -> Result<(), BindError> {
        let outside = view.indices(|position, index| {
            let fits = (0..bound).contains(&index) || ignored == Some(index);
            (!fits).then_some((position, index))
        });
        let Some((position, actual)) = outside else { return Ok(()) };
        let expected = match ignored {
            Some(ignored) => format!("0 <= index < {bound}, or {ignored}"),
            None => format!("0 <= index < {bound}"),
        };
        Err(BindError::Index { kernel: self.identity.to_string(), argument, position, actual, expected })
    }

    /// `view` has one of the element types that index: `u32` or `i64`, row-major.
    pub(super) fn check_index_tensor(&self, argument: &'static str, view: &View) -> Result<(), BindError> {
        if !matches!(view.dtype(), DType::U32 | DType::I64) {
            return Err(self.dtype_fault(argument, "u32, i64".to_owned(), view.dtype()));
        }
        if !view.is_row_major() {
            let reason = format!("has strides {:?}; expected a row-major tensor", &*view.strides());
            return Err(self.layout_fault(argument, reason));
        }
        Ok(())
    }

    /// The last axis of `view` meets the kernel's width rule.
    #[inline]
    pub(super) fn check_view_width(&self, argument: &'static str, view: &View) -> Result<(), BindError> {
        let width = view.shape().last().copied().unwrap_or(0);
        self.check_width(argument, usize::try_from(width).unwrap_or(usize::MAX))
    }

    /// The width meets the kernel's width rule.
    #[inline]
    pub(super) fn check_width(&self, argument: &'static str, width: usize) -> Result<(), BindError> {
        // Most kernels have no such rule.
        let Limits { last_dim_multiple_of: 0..=1, max_head_size: None, head_sizes, .. } = &self.limits else {
            return self.check_limited_width(argument, width);
        };
        if head_sizes.is_empty() { Ok(()) } else { self.check_limited_width(argument, width) }
    }

    fn check_limited_width(&self, argument: &'static str, width: usize) -> Result<(), BindError> {
        match self.width_limit(width) {
            None => Ok(()),
            Some(limit) => Err(BindError::Limit { kernel: self.identity.to_string(), argument, limit }),
        }
    }

    /// The rule that a last axis of `width` elements breaks, or `None`. The planner asks this before a layer is
    /// swapped, the call again for the tensor that really came.
    #[must_use]
    pub fn width_limit(&self, width: usize) -> Option<String> {
        let limits = &self.limits;
        if !width.is_multiple_of(limits.last_dim_multiple_of as usize) {
            let multiple = limits.last_dim_multiple_of;
            return Some(format!("a width of {width} elements is no multiple of {multiple}, as the kernel asks"));
        }
        if limits.max_head_size.is_some_and(|max| width > max as usize) {
            let maximum = limits.max_head_size.unwrap_or_default();
            return Some(format!("a head size of {width} elements is above the kernel's maximum of {maximum}"));
        }
        if !limits.head_sizes.is_empty() && !limits.head_sizes.iter().any(|size| *size as usize == width) {
            let sizes = &limits.head_sizes;
            return Some(format!("a head size of {width} elements is none of the kernel's sizes {sizes:?}"));
        }
        None
    }
}
