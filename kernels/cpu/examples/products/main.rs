//! Times linear layers beside the machine's limits, measured in the same run: of reading memory for few rows, of
//! multiplying and adding for many.
//!
//! `cargo run --release -p kernelhub-cpu --example products [level] [threads] [filter]`: `portable`, `avx2`, `avx512`,
//! `avx512bf16` or `best` (default); as many threads of rayon's pool, 2 by default; only the lines that contain the
//! filter. A line tells the least and the median time of a call, and of the median the rate and its part of the limit.
//! Weights are taken in turn from as many as fill 160 MiB (`memory`), or one is used again and again (`cache`). Lines of
//! `gemm` are the crate of that name, with the same threads, on the same memory: what candle multiplies with.

#![expect(unsafe_code, reason = "builds the C structures of a call and plays the host's pool")]
#![expect(clippy::print_stdout, reason = "prints a table")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "small numbers of the file's own"
)]

mod ceiling;

use std::ffi::c_void;
use std::time::Instant;

use half::{bf16, f16};
use kernelhub_abi::{DLDataType, DLDevice, DLTensor, PackedFn, ParallelBodyFn, TVMFFIAny, device_type, dtype_code};
use kernelhub_cpu::{Level, force_level, kernelhub_set_parallel_for, linear, silu_gated_linear};
use rayon::iter::{IndexedParallelIterator as _, IntoParallelIterator as _, ParallelIterator as _};

/// Weights that are taken in turn fill this.
const BEYOND_CACHES: usize = 160 << 20;

/// An element type.
#[derive(Clone, Copy, PartialEq)]
struct Dt {
    name: &'static str,
    raw: DLDataType,
}

const DTYPES: [Dt; 3] = [
    Dt { name: "f32", raw: DLDataType { code: dtype_code::FLOAT, bits: 32, lanes: 1 } },
    Dt { name: "bf16", raw: DLDataType { code: dtype_code::BFLOAT, bits: 16, lanes: 1 } },
    Dt { name: "f16", raw: DLDataType { code: dtype_code::FLOAT, bits: 16, lanes: 1 } },
];

impl Dt {
    fn size(self) -> usize {
        usize::from(self.raw.bits) / 8
    }
}

/// A row-major matrix.
struct Matrix {
    memory: Vec<u32>,
    shape: [i64; 2],
    dtype: Dt,
}

impl Matrix {
    fn new(dtype: Dt, rows: usize, columns: usize) -> Self {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32 * 2.0 - 1.0
        };
        let mut word = || match dtype.name {
            "f32" => next().to_bits(),
            "bf16" => u32::from(bf16::from_f32(next()).to_bits()) | u32::from(bf16::from_f32(next()).to_bits()) << 16,
            _ => u32::from(f16::from_f32(next()).to_bits()) | u32::from(f16::from_f32(next()).to_bits()) << 16,
        };
        let memory = (0..(rows * columns * dtype.size()).div_ceil(4)).map(|_| word()).collect();
        Self { memory, shape: [rows as i64, columns as i64], dtype }
    }

    fn raw(&mut self) -> DLTensor {
        DLTensor {
            data: self.memory.as_mut_ptr().cast(),
            device: DLDevice { device_type: device_type::CPU, device_id: 0 },
            ndim: 2,
            dtype: self.dtype.raw,
            shape: self.shape.as_mut_ptr(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        }
    }
}

pub(crate) fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// The least and the median time of a call in microseconds; `call` is told the number of the call.
fn time(mut call: impl FnMut(usize)) -> [f64; 2] {
    let mut next = 0;
    let mut one = || {
        call(next);
        next += 1;
    };
    let start = Instant::now();
    one();
    let per_sample = (50e-6 / start.elapsed().as_secs_f64()).ceil().max(1.0) as usize;
    let (mut samples, start) = (Vec::new(), Instant::now());
    while samples.len() < 7 || (start.elapsed().as_secs_f64() < 0.2 && samples.len() < 2000) {
        let start = Instant::now();
        (0..per_sample).for_each(|_| one());
        samples.push(start.elapsed().as_secs_f64() * 1e6 / per_sample as f64);
    }
    samples.sort_by(f64::total_cmp);
    [samples[0], samples[samples.len() / 2]]
}

/// A kernel's call with each of the weights in turn.
fn call(function: PackedFn, out: &mut Matrix, x: &mut Matrix, weights: &mut [Matrix]) -> [f64; 2] {
    let (mut out, mut x) = (out.raw(), x.raw());
    let mut weights: Vec<DLTensor> = weights.iter_mut().map(Matrix::raw).collect();
    time(|at| {
        let at = at % weights.len();
        let args = [&mut out, &mut x, &mut weights[at]].map(|tensor| TVMFFIAny::tensor(tensor));
        let args = [args[0], args[1], args[2], TVMFFIAny::none()];
        let mut result = TVMFFIAny::none();
        // SAFETY: the arguments live through the call.
        let status = unsafe { function(std::ptr::null_mut(), args.as_ptr(), 4, &raw mut result) };
        assert_eq!(status, 0);
    })
}

/// The `gemm` crate's call with each of the weights in turn, for f32 and f16.
fn gemm_call<T: Copy + 'static>(
    [zero, one]: [T; 2],
    threads: usize,
    out: &mut Matrix,
    x: &Matrix,
    weights: &[Matrix],
) -> [f64; 2] {
    let [rows, depth] = x.shape.map(|extent| extent as usize);
    let columns = out.shape[1];
    let parallelism = if threads > 1 { gemm::Parallelism::Rayon(threads) } else { gemm::Parallelism::None };
    time(|at| {
        let weight = &weights[at % weights.len()];
        // SAFETY: matrices of those extents and strides, of the element type `T`.
        unsafe {
            gemm::gemm(
                rows,
                columns as usize,
                depth,
                out.memory.as_mut_ptr().cast::<T>(),
                1,
                columns as isize,
                false,
                x.memory.as_ptr().cast::<T>(),
                1,
                depth as isize,
                weight.memory.as_ptr().cast::<T>(),
                depth as isize,
                1,
                zero,
                one,
                false,
                false,
                false,
                parallelism,
            );
        }
    })
}

/// What was measured of the machine.
struct Limits {
    threads: usize,
    memory: f64,
    cache: f64,
    fma: f64,
    pairs: Option<f64>,
}

impl Limits {
    fn measure(threads: usize) -> Self {
        Self {
            threads,
            memory: ceiling::read(threads, BEYOND_CACHES),
            cache: ceiling::read(threads, 8 << 20),
            fma: ceiling::multiply_add(threads, false).unwrap_or_default(),
            pairs: ceiling::multiply_add(threads, true),
        }
    }

    fn print(&self) {
        let [fma, pairs] = [Some(self.fma), self.pairs].map(|rate| rate.map_or(0.0, |rate| 2.0 * rate));
        let Self { threads, memory, cache, .. } = self;
        println!(
            "{threads} threads: read {memory:.1} GB/s of memory, {cache:.1} of cache; {fma:.0} GFLOP/s f32, {pairs:.0} bf16"
        );
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let level = match args.next().as_deref() {
        Some("portable") => Some(Level::Portable),
        Some("avx2") => Some(Level::Avx2),
        Some("avx512") => Some(Level::Avx512),
        Some("avx512bf16") => Some(Level::Avx512Bf16),
        _ => None,
    };
    assert!(force_level(level), "this CPU lacks {level:?}");
    let threads: usize = args.next().and_then(|threads| threads.parse().ok()).unwrap_or(2);
    let filter = args.next().unwrap_or_default();
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().expect("the first pool");
    if threads > 1 {
        // SAFETY: the function lives as long as the process, and has no context.
        unsafe { kernelhub_set_parallel_for(Some(parallel_for), std::ptr::null_mut()) };
    }
    // As a host does: the calling thread is one of the pool's.
    let limits = Limits::measure(threads);
    limits.print();
    for dtype in DTYPES {
        for [rows, depth, columns] in SHAPES {
            for place in ["memory", "cache"] {
                lines(&limits, &filter, dtype, [rows, depth, columns], place);
            }
        }
    }
    Limits::measure(threads).print();
}

/// Rows, inputs and outputs.
const SHAPES: [[usize; 3]; 17] = [
    [1, 576, 576],
    [1, 576, 1536],
    [1, 1536, 576],
    [1, 576, 49152],
    [1, 4096, 4096],
    [1, 4096, 14336],
    [2, 576, 1536],
    [4, 4096, 4096],
    [8, 576, 1536],
    [8, 4096, 4096],
    [16, 576, 1536],
    [32, 576, 1536],
    [32, 4096, 4096],
    [512, 576, 576],
    [512, 576, 1536],
    [512, 1536, 576],
    [512, 4096, 4096],
];

fn lines(limits: &Limits, filter: &str, dtype: Dt, [rows, depth, columns]: [usize; 3], place: &str) {
    let bytes = depth * columns * dtype.size();
    if place == "cache" && (bytes > 16 << 20 || rows > 32) {
        return;
    }
    let name = |what: &str| format!("{what} {} {rows} x {depth} x {columns} {place}", dtype.name);
    let names = ["linear", "silu_gated_linear", "gemm"].map(name);
    if !names.iter().any(|name| name.contains(filter)) {
        return;
    }
    let count = if place == "cache" || rows > 32 { 1 } else { BEYOND_CACHES.div_ceil(bytes) };
    let mut weights: Vec<Matrix> = (0..count).map(|_| Matrix::new(dtype, columns, depth)).collect();
    let (mut out, mut x) = (Matrix::new(dtype, rows, columns), Matrix::new(dtype, rows, depth));
    let print = |name: &str, [least, median]: [f64; 2]| {
        let read = bytes as f64 / median / 1e3;
        // The memory is shared with whatever else runs on the host: measured again for each line.
        let reads = if place == "cache" { limits.cache } else { ceiling::read(limits.threads, BEYOND_CACHES) };
        let rate = 2.0 * (rows * depth * columns) as f64 / median / 1e3;
        let multiplies = 2.0 * limits.pairs.filter(|_| dtype.name == "bf16").unwrap_or(limits.fma);
        let parts = [read / reads, rate / multiplies].map(|part| 100.0 * part);
        println!(
            "{name:<46} {least:>9.1} {median:>9.1} us {read:>6.1} GB/s {:>4.0}% {rate:>6.1} GFLOP/s {:>4.0}%",
            parts[0], parts[1]
        );
    };
    if names[0].contains(filter) {
        print(&names[0], call(linear, &mut out, &mut x, &mut weights));
    }
    if names[1].contains(filter) && columns.is_multiple_of(2) && columns < 20_000 {
        let mut half = Matrix::new(dtype, rows, columns / 2);
        print(&names[1], call(silu_gated_linear, &mut half, &mut x, &mut weights));
    }
    if names[2].contains(filter) {
        match dtype.name {
            "f32" => print(&names[2], gemm_call([0.0_f32, 1.0], limits.threads, &mut out, &x, &weights)),
            "f16" => {
                print(&names[2], gemm_call([f16::ZERO, f16::ONE], limits.threads, &mut out, &x, &weights));
            }
            // The crate does not multiply bf16.
            _ => {}
        }
    }
}

/// The parallel loop of kernelhub's own loader.
unsafe extern "C" fn parallel_for(_ctx: *mut c_void, n: usize, body: ParallelBodyFn, body_ctx: *mut c_void) {
    let context = body_ctx.expose_provenance();
    (0..n).into_par_iter().with_max_len(1).for_each(|index| {
        // SAFETY: each index once; this returns after the last call.
        unsafe { body(index, std::ptr::with_exposed_provenance_mut(context)) };
    });
}
