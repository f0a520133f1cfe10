//! Tensors, calls, levels and the tolerance table.

#![expect(unsafe_code, reason = "builds the C structures of a call")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "one access per dtype")]

use std::alloc::{Layout, alloc, handle_alloc_error};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::sync::{Mutex, MutexGuard, PoisonError};

use half::{bf16, f16};
use kernelhub_abi::{DLDataType, DLDevice, DLTensor, LastErrorFn, PackedFn, TVMFFIAny, device_type, dtype_code};
use kernelhub_cpu::{Level, available_levels, force_level, kernelhub_last_error};

use crate::packs::{self, export};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dt {
    F32,
    Bf16,
    F16,
    U32,
    I64,
    I32,
}

/// Those that kernels compute in.
pub(crate) const DTYPES: [Dt; 3] = [Dt::F32, Dt::Bf16, Dt::F16];

impl Dt {
    pub(crate) fn size(self) -> usize {
        match self {
            Dt::F32 | Dt::U32 | Dt::I32 => 4,
            Dt::Bf16 | Dt::F16 => 2,
            Dt::I64 => 8,
        }
    }

    /// The one tolerance table: relative and absolute error against the f64 reference on the same rounded inputs. Half
    /// precision allows its own rounding (half a unit in the last place) and as much again for f32 arithmetic.
    pub(crate) fn tolerance(self) -> (f64, f64) {
        match self {
            Dt::F32 => (1e-5, 3e-6),
            Dt::Bf16 => (4.0e-3, 3e-6),
            Dt::F16 => (1.0e-3, 3e-6),
            Dt::U32 | Dt::I64 | Dt::I32 => (0.0, 0.0),
        }
    }

    fn dl(self) -> DLDataType {
        let (code, bits) = match self {
            Dt::F32 => (dtype_code::FLOAT, 32),
            Dt::Bf16 => (dtype_code::BFLOAT, 16),
            Dt::F16 => (dtype_code::FLOAT, 16),
            Dt::U32 => (dtype_code::UINT, 32),
            Dt::I64 => (dtype_code::INT, 64),
            Dt::I32 => (dtype_code::INT, 32),
        };
        DLDataType { code, bits, lanes: 1 }
    }
}

/// A view of leaked memory: tests are short, and views may alias on purpose.
#[derive(Debug, Clone)]
pub(crate) struct Tensor {
    pub(crate) data: *mut u8,
    pub(crate) dtype: Dt,
    pub(crate) shape: Vec<i64>,
    pub(crate) strides: Vec<i64>,
    /// Elements.
    pub(crate) offset: i64,
    pub(crate) raw_dtype: Option<DLDataType>,
    pub(crate) device_type: i32,
    pub(crate) null_strides: bool,
}

// SAFETY: tests touch a tensor's memory from one thread at a time, except through the kernels under test.
unsafe impl Sync for Tensor {}

pub(crate) fn row_major(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for axis in (0..shape.len().saturating_sub(1)).rev() {
        strides[axis] = strides[axis + 1] * shape[axis + 1].max(1);
    }
    strides
}

impl Tensor {
    /// Room for `elements` elements and not a byte more, so that memcheck finds every access behind them, filled with a
    /// pattern that no kernel writes; 64-byte aligned, so that tests choose the misalignment.
    pub(crate) fn room(dtype: Dt, elements: usize) -> Self {
        let bytes = elements * dtype.size();
        let layout = Layout::from_size_align(bytes, 64).expect("a size of tests");
        let data = if bytes == 0 {
            // An address that nobody may touch.
            std::ptr::without_provenance_mut(layout.align())
        } else {
            // SAFETY: the size is not 0.
            let data = unsafe { alloc(layout) };
            if data.is_null() {
                handle_alloc_error(layout);
            }
            // SAFETY: that many bytes were allocated.
            unsafe { std::slice::from_raw_parts_mut(data.cast::<MaybeUninit<[u8; 2]>>(), bytes / 2) }
                .fill(MaybeUninit::new([0xad, 0x7b]));
            data
        };
        Self {
            data,
            dtype,
            shape: vec![elements as i64],
            strides: vec![1],
            offset: 0,
            raw_dtype: None,
            device_type: device_type::CPU,
            null_strides: false,
        }
    }

    pub(crate) fn new(dtype: Dt, shape: &[i64]) -> Self {
        let elements = shape.iter().product::<i64>() as usize;
        Self { shape: shape.to_vec(), strides: row_major(shape), ..Self::room(dtype, elements) }
    }

    pub(crate) fn random(dtype: Dt, shape: &[i64], seed: u64) -> Self {
        let tensor = Self::new(dtype, shape);
        tensor.randomize(seed);
        tensor
    }

    pub(crate) fn randomize(&self, seed: u64) {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        self.fill(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1_u64 << 53) as f64 * 4.0 - 2.0
        });
    }

    /// One axis of integers.
    pub(crate) fn ints(values: &[i32]) -> Self {
        let tensor = Self::new(Dt::I32, &[values.len() as i64]);
        tensor.fill(|index| f64::from(values[index[0] as usize]));
        tensor
    }

    /// Another view of the same memory; `offset` counts from this view's first element.
    pub(crate) fn view(&self, shape: &[i64], strides: &[i64], offset: i64) -> Self {
        Self { shape: shape.to_vec(), strides: strides.to_vec(), offset: self.offset + offset, ..self.clone() }
    }

    fn at(&self, index: &[i64]) -> *mut u8 {
        let offset = self.offset + index.iter().zip(&self.strides).map(|(i, s)| i * s).sum::<i64>();
        self.data.wrapping_offset(offset as isize * self.dtype.size() as isize)
    }

    pub(crate) fn get(&self, index: &[i64]) -> f64 {
        let p = self.at(index);
        // SAFETY: tests index inside their tensors.
        unsafe {
            match self.dtype {
                Dt::F32 => f64::from(p.cast::<f32>().read_unaligned()),
                Dt::Bf16 => f64::from(p.cast::<bf16>().read_unaligned()),
                Dt::F16 => f64::from(p.cast::<f16>().read_unaligned()),
                Dt::U32 => f64::from(p.cast::<u32>().read_unaligned()),
                Dt::I64 => p.cast::<i64>().read_unaligned() as f64,
                Dt::I32 => f64::from(p.cast::<i32>().read_unaligned()),
            }
        }
    }

    pub(crate) fn set(&self, index: &[i64], value: f64) {
        let p = self.at(index);
        // SAFETY: tests index inside their tensors.
        unsafe {
            match self.dtype {
                Dt::F32 => p.cast::<f32>().write_unaligned(value as f32),
                Dt::Bf16 => p.cast::<bf16>().write_unaligned(bf16::from_f64(value)),
                Dt::F16 => p.cast::<f16>().write_unaligned(f16::from_f64(value)),
                Dt::U32 => p.cast::<u32>().write_unaligned(value as u32),
                Dt::I64 => p.cast::<i64>().write_unaligned(value as i64),
                Dt::I32 => p.cast::<i32>().write_unaligned(value as i32),
            }
        }
    }

    /// Sets an element of a 16-bit type.
    pub(crate) fn set_bits(&self, index: &[i64], bits: u16) {
        assert_eq!(self.dtype.size(), 2);
        // SAFETY: tests index inside their tensors.
        unsafe { self.at(index).cast::<u16>().write_unaligned(bits) };
    }

    pub(crate) fn indices(&self) -> Vec<Vec<i64>> {
        let count = self.shape.iter().product::<i64>();
        (0..count)
            .map(|mut flat| {
                let mut index = vec![0; self.shape.len()];
                for axis in (0..self.shape.len()).rev() {
                    index[axis] = flat % self.shape[axis];
                    flat /= self.shape[axis];
                }
                index
            })
            .collect()
    }

    pub(crate) fn fill(&self, mut value: impl FnMut(&[i64]) -> f64) {
        for index in self.indices() {
            self.set(&index, value(&index));
        }
    }

    pub(crate) fn values(&self) -> Vec<f64> {
        self.indices().iter().map(|index| self.get(index)).collect()
    }

    fn raw(&self) -> DLTensor {
        DLTensor {
            data: self.data.cast(),
            device: DLDevice { device_type: self.device_type, device_id: 0 },
            ndim: self.shape.len() as i32,
            dtype: self.raw_dtype.unwrap_or(self.dtype.dl()),
            shape: self.shape.as_ptr().cast_mut(),
            strides: if self.null_strides { std::ptr::null_mut() } else { self.strides.as_ptr().cast_mut() },
            byte_offset: self.offset as u64 * self.dtype.size() as u64,
        }
    }

    /// Compares with a reference by the tolerance table.
    pub(crate) fn expect(&self, reference: impl Fn(&[i64]) -> f64, what: &str) {
        let (relative, absolute) = self.dtype.tolerance();
        for index in self.indices() {
            let (actual, expected) = (self.get(&index), reference(&index));
            let same = if expected.is_nan() || expected.is_infinite() {
                (actual.is_nan() && expected.is_nan()) || actual == expected
            } else {
                (actual - expected).abs() <= relative * expected.abs() + absolute
            };
            assert!(same, "{what}, {:?}: at {index:?} expected {expected}, got {actual}", self.dtype);
        }
    }

    /// Compares sums with a reference, which answers a sum and the sum of its terms' absolute values: arithmetic in f32
    /// is wrong by a part of the latter, beside the rounding of the tolerance table.
    pub(crate) fn expect_sums(&self, reference: impl Fn(&[i64]) -> [f64; 2], what: &str) {
        let (relative, _) = self.dtype.tolerance();
        for index in self.indices() {
            let (actual, [expected, terms]) = (self.get(&index), reference(&index));
            let bound = relative * expected.abs() + 1e-6 * terms + 1e-7;
            assert!(
                (actual - expected).abs() <= bound,
                "{what}, {:?}: at {index:?} expected {expected}, got {actual}, bound {bound}",
                self.dtype
            );
        }
    }

    /// The values, row by row of the last axis.
    pub(crate) fn rows(&self) -> Vec<Vec<f64>> {
        let width = *self.shape.last().expect("rank 1 or more") as usize;
        self.values().chunks(width.max(1)).map(<[f64]>::to_vec).collect()
    }
}

/// The flat place of an index in a dense tensor of `shape`.
pub(crate) fn flat(shape: &[i64], index: &[i64]) -> usize {
    index.iter().zip(row_major(shape)).map(|(i, stride)| i * stride).sum::<i64>() as usize
}

/// The derivative of `f` with respect to the value at `at`, by central differences.
pub(crate) fn slope(values: &[f64], at: usize, f: impl Fn(&[f64]) -> f64) -> f64 {
    let step = 1e-5;
    let mut values = values.to_vec();
    values[at] += step;
    let above = f(&values);
    values[at] -= 2.0 * step;
    (above - f(&values)) / (2.0 * step)
}

/// `1 - erf(x)` in f64, within 1e-12 of itself.
pub(crate) fn erfc(x: f64) -> f64 {
    if x < 0.0 {
        return 2.0 - erfc(-x);
    }
    let scale = (-x * x).exp() / std::f64::consts::PI.sqrt();
    if x < 2.5 {
        // erf(x) = 2 / sqrt(pi) e^(-x^2) (x + 2 x^3 / 3 + 4 x^5 / 15 + ..), all terms of one sign.
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= 2.0 * x * x / f64::from(2 * n + 1);
            sum += term;
        }
        return 1.0 - 2.0 * scale * sum;
    }
    // erfc(x) = e^(-x^2) / sqrt(pi) / (x + (1/2) / (x + (2/2) / (x + ..))).
    let fraction = (1..400).rev().fold(x, |rest, n| x + f64::from(n) / 2.0 / rest);
    scale / fraction
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Arg<'a> {
    T(&'a Tensor),
    /// As tvm-ffi's own tensor object.
    Object(&'a Tensor),
    F(f64),
    I(i64),
    B(bool),
    None,
    NullTensor,
}

/// The layout of tvm-ffi's tensor object.
#[repr(C)]
struct Object {
    header: [u64; 3],
    tensor: DLTensor,
}

/// Calls an exported function, and answers its error's text.
pub(crate) fn call(function: PackedFn, args: &[Arg<'_>]) -> Result<(), String> {
    let mut tensors: Vec<Object> = args
        .iter()
        .map(|arg| {
            let spare = Tensor::new(Dt::F32, &[]);
            let tensor = if let Arg::T(tensor) | Arg::Object(tensor) = arg { tensor } else { &spare };
            Object { header: [7; 3], tensor: tensor.raw() }
        })
        .collect();
    let values: Vec<TVMFFIAny> = args
        .iter()
        .zip(&mut tensors)
        .map(|(arg, object)| match *arg {
            Arg::T(_) => TVMFFIAny::tensor(&raw mut object.tensor),
            Arg::Object(_) => {
                let pointer = std::ptr::from_mut(object).cast();
                TVMFFIAny { type_index: 70, ..TVMFFIAny::tensor(pointer) }
            }
            Arg::F(value) => TVMFFIAny::float(value),
            Arg::I(value) => TVMFFIAny::int(value),
            Arg::B(value) => TVMFFIAny::bool(value),
            Arg::None => TVMFFIAny::none(),
            Arg::NullTensor => TVMFFIAny::tensor(std::ptr::null_mut()),
        })
        .collect();
    let mut result = TVMFFIAny::int(7);
    let export = export(function);
    LAST_ERROR.set(export.last_error);
    // SAFETY: the arguments live through the call.
    let status =
        unsafe { (export.function)(std::ptr::null_mut(), values.as_ptr(), values.len() as i32, &raw mut result) };
    if status == 0 {
        assert_eq!(result.type_index, kernelhub_abi::type_index::NONE);
        return Ok(());
    }
    Err(last_error())
}

thread_local! {
    /// That of the library which this thread called last.
    static LAST_ERROR: Cell<LastErrorFn> = const { Cell::new(kernelhub_last_error) };
}

pub(crate) fn last_error() -> String {
    let last_error = LAST_ERROR.get();
    // SAFETY: asks for the length alone.
    let length = unsafe { last_error(std::ptr::null_mut(), 0) };
    let mut text = vec![0_u8; length];
    // SAFETY: `length` bytes are writable.
    let written = unsafe { last_error(text.as_mut_ptr().cast(), length) };
    assert_eq!(written, length);
    String::from_utf8(text).expect("UTF-8")
}

static GLOBAL: Mutex<()> = Mutex::new(());

/// Held by tests that set what is global in the process: the level, the pool.
pub(crate) fn exclusive() -> MutexGuard<'static, ()> {
    GLOBAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a test at every level that this CPU has.
pub(crate) fn at_every_level(test: impl Fn(Level)) {
    let _guard = exclusive();
    if packs::shipped() {
        return test(*available_levels().last().expect("portable code"));
    }
    for &level in available_levels() {
        assert!(force_level(Some(level)));
        test(level);
    }
    assert!(force_level(None));
}
