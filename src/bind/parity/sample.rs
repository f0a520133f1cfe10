//! The tensors of a check: random inputs among NaNs, and outputs that begin as NaN.

use super::number::Number;
use crate::bind::{BindError, LayerMeta, TensorMut, TensorRef};

/// NaNs before and after every tensor, in elements: more than a small case has, so that a kernel that takes one tensor
/// for another stays in memory of ours.
const GUARD: usize = 1024;

/// Numbers that look random and are the same in every run (splitmix64).
#[derive(Debug)]
pub(super) struct Noise(u64);

impl Noise {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In `[-2, 2)`, never close to 0.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
    pub(super) fn number(&mut self) -> f64 {
        let number = (self.bits() >> 11) as f64 / (1_u64 << 51) as f64 - 2.0;
        if number.abs() < 0.01 { 0.25 } else { number }
    }

    /// Below `bound`, which is above 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.bits() % bound as u64).unwrap_or_default()
    }
}

/// Extents and strides, in elements, with a name for messages.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) name: &'static str,
    pub(super) shape: Vec<usize>,
    pub(super) strides: Vec<usize>,
}

impl Layout {
    pub(super) fn contiguous(shape: &[usize]) -> Self {
        let mut strides = vec![1; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis] * shape[axis].max(1);
        }
        Self { name: "contiguous", shape: shape.to_vec(), strides }
    }

    fn strided(name: &'static str, shape: &[usize], strides: &[usize]) -> Self {
        Self { name, shape: shape.to_vec(), strides: strides.to_vec() }
    }

    /// Row layouts of tensors `[..., width]` whose rows start at multiples of `unit` elements. A shader takes row-major
    /// tensors alone.
    pub(super) fn of_rows(width: usize, unit: usize, is_shader: bool) -> Vec<Self> {
        let mut layouts = vec![
            Self::contiguous(&[3, width]),
            Self { name: "one row", ..Self::contiguous(&[width]) },
            Self { name: "axes of one element", ..Self::contiguous(&[1, 2, 1, width]) },
            Self { name: "no rows", ..Self::contiguous(&[0, width]) },
        ];
        if !is_shader {
            layouts.extend([
                Self::strided("rows apart", &[3, width], &[width + 3 * unit, 1]),
                Self::strided("transposed", &[2, 3, width], &[width, 2 * width, 1]),
                Self::strided("one row for all", &[3, width], &[0, 1]),
            ]);
            if width == 1 {
                layouts.push(Self::strided("an odd stride on one column", &[3, 1], &[unit, 7]));
            }
        }
        layouts
    }

    /// The same memory read with two axes exchanged.
    pub(super) fn with_axes_swapped(mut self, a: usize, b: usize) -> Self {
        self.shape.swap(a, b);
        self.strides.swap(a, b);
        Self { name: "transposed", ..self }
    }

    /// Positions of the elements in memory, in row-major order.
    fn positions(&self) -> Vec<usize> {
        self.shape.iter().zip(&self.strides).fold(vec![0], |starts, (extent, stride)| {
            starts.iter().flat_map(|start| (0..*extent).map(move |at| start + at * stride)).collect()
        })
    }
}

/// The least multiple of elements that widths and rows must have for the kernel.
pub(super) fn unit<T: Number>(meta: &LayerMeta) -> usize {
    let multiple = meta.limits.last_dim_multiple_of.max(1) as usize;
    let aligned = (meta.limits.alignment_bytes as usize).div_ceil(size_of::<T>()).max(1);
    let mut unit = multiple;
    while !unit.is_multiple_of(aligned) {
        unit += multiple;
    }
    unit
}

/// Widths that the kernel's limits allow: one element, odd numbers, and more than a vector register holds.
pub(super) fn widths<T: Number>(meta: &LayerMeta) -> Vec<usize> {
    let unit = unit::<T>(meta);
    let listed = meta.limits.head_sizes.iter().map(|size| *size as usize);
    let mut widths: Vec<usize> = [1, 7, 33, 64].map(|width: usize| width.next_multiple_of(unit)).into_iter().collect();
    widths.extend(listed);
    widths.retain(|width| meta.width_limit(*width).is_none() && width.is_multiple_of(unit));
    widths.sort_unstable();
    widths.dedup();
    widths
}

/// A buffer of NaNs that begins at the kernel's alignment.
fn buffer<T: Number>(meta: &LayerMeta, len: usize) -> (Vec<T>, usize) {
    let alignment = (meta.limits.alignment_bytes as usize).next_power_of_two();
    let data = vec![T::rounded(f64::NAN); len + 2 * GUARD + alignment];
    // An allocation of elements is aligned to them; what is left is less than the alignment.
    let start = GUARD + data[GUARD..].as_ptr().align_offset(alignment).min(alignment);
    (data, start)
}

/// An input.
#[derive(Debug)]
pub(super) struct Sample<T> {
    data: Vec<T>,
    start: usize,
    layout: Layout,
}

impl<T: Number> Sample<T> {
    /// Noise times `scale` in this layout, and NaN everywhere else.
    pub(super) fn new(meta: &LayerMeta, noise: &mut Noise, scale: f64, layout: &Layout) -> Self {
        let positions = layout.positions();
        let (mut data, start) = buffer::<T>(meta, positions.iter().max().map_or(0, |last| last + 1));
        for position in positions {
            data[start + position] = T::rounded(noise.number() * scale);
        }
        Self { data, start, layout: layout.clone() }
    }

    pub(super) fn tensor(&self) -> Result<TensorRef<'_>, BindError> {
        TensorRef::new(&self.data[self.start..], &self.layout.shape, &self.layout.strides)
    }

    /// The elements, exactly, in row-major order.
    pub(super) fn values(&self) -> Vec<f64> {
        self.layout.positions().into_iter().map(|position| self.data[self.start + position].wide()).collect()
    }

    pub(super) fn shape(&self) -> &[usize] {
        &self.layout.shape
    }
}

/// What a call left in an output: its elements, or `None` when something else was written, too.
pub(super) type Written<T> = Option<Vec<T>>;

/// Runs a call on a row-major output of NaNs.
pub(super) fn collect<T: Number>(
    meta: &LayerMeta,
    shape: &[usize],
    call: impl FnOnce(&mut TensorMut<'_>) -> Result<(), BindError>,
) -> Result<Written<T>, BindError> {
    let mut output = Output::<T>::new(meta, shape);
    call(&mut output.tensor()?)?;
    Ok(output.written())
}

/// An output.
#[derive(Debug)]
pub(super) struct Output<T> {
    data: Vec<T>,
    start: usize,
    shape: Vec<usize>,
}

impl<T: Number> Output<T> {
    pub(super) fn new(meta: &LayerMeta, shape: &[usize]) -> Self {
        let (data, start) = buffer(meta, shape.iter().product());
        Self { data, start, shape: shape.to_vec() }
    }

    fn end(&self) -> usize {
        self.start + self.shape.iter().product::<usize>()
    }

    pub(super) fn tensor(&mut self) -> Result<TensorMut<'_>, BindError> {
        let end = self.end();
        TensorMut::contiguous(&mut self.data[self.start..end], &self.shape)
    }

    pub(super) fn written(self) -> Written<T> {
        let end = self.end();
        let (before, after) = (&self.data[..self.start], &self.data[end..]);
        let is_whole = before.iter().chain(after).all(|value| value.wide().is_nan());
        is_whole.then(|| self.data[self.start..end].to_vec())
    }
}
