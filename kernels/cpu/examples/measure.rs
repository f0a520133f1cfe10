//! Times the kernels on one thread, at the shapes of a small and a large decoder, outputs reused.
//!
//! `cargo run --release -p kernelhub-cpu --example measure [level] [threads] [filter]`: `portable`, `avx2`, `avx512`,
//! `avx512bf16` or `best` (default); only functions whose name contains the filter. Prints the least and the median time of a call (the
//! least is what a busy machine disturbs least), and of the least GB/s of bytes read plus written, or GFLOP/s of
//! products and sums over the visible keys.

#![expect(unsafe_code, reason = "builds the C structures of a call and plays the host's pool")]
#![expect(clippy::print_stdout, reason = "prints a table")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "small numbers of the file's own"
)]

use std::ffi::c_void;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use half::{bf16, f16};
use kernelhub_abi::{DLDataType, DLDevice, DLTensor, PackedFn, ParallelBodyFn, TVMFFIAny, device_type, dtype_code};
use kernelhub_cpu::{
    Level, add_rms_norm, apply_rotary, apply_rotary_pair, cross_entropy, cross_entropy_backward, embedding,
    fatrelu_and_mul, flash_attn, force_level, gelu, gelu_and_mul, gelu_quick, gelu_tanh, gelu_tanh_and_mul,
    kernelhub_set_parallel_for, layer_norm, linear, rms_norm, rms_norm_backward, rms_norm_with_offset, silu,
    silu_and_mul, silu_and_mul_backward, softmax,
};

struct Tensor {
    memory: Vec<u32>,
    dtype: DLDataType,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

const DTYPES: [(&str, u8, u8); 3] =
    [("f32", dtype_code::FLOAT, 32), ("bf16", dtype_code::BFLOAT, 16), ("f16", dtype_code::FLOAT, 16)];

impl Tensor {
    fn new(dtype: usize, shape: &[i64]) -> Self {
        let (name, code, bits) = DTYPES[dtype];
        let count = shape.iter().product::<i64>() as usize;
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32 * 2.0 - 1.0
        };
        let memory = match name {
            "f32" => (0..count).map(|_| next().to_bits()).collect(),
            "bf16" => pairs(count, || bf16::from_f32(next()).to_bits()),
            _ => pairs(count, || f16::from_f32(next()).to_bits()),
        };
        let mut strides = vec![1; shape.len()];
        for axis in (0..shape.len() - 1).rev() {
            strides[axis] = strides[axis + 1] * shape[axis + 1];
        }
        Self { memory, dtype: DLDataType { code, bits, lanes: 1 }, shape: shape.to_vec(), strides }
    }

    fn swap(mut self, a: usize, b: usize) -> Self {
        self.shape.swap(a, b);
        self.strides.swap(a, b);
        self
    }

    fn raw(&mut self, offset: usize, last: i64) -> DLTensor {
        if let Some(extent) = self.shape.last_mut() {
            *extent = last;
        }
        DLTensor {
            data: self.memory.as_mut_ptr().cast(),
            device: DLDevice { device_type: device_type::CPU, device_id: 0 },
            ndim: self.shape.len() as i32,
            dtype: self.dtype,
            shape: self.shape.as_mut_ptr(),
            strides: self.strides.as_mut_ptr(),
            byte_offset: (offset * usize::from(self.dtype.bits / 8)) as u64,
        }
    }

    fn whole(&mut self) -> DLTensor {
        let last = self.shape.last().copied().unwrap_or(1);
        self.raw(0, last)
    }
}

fn pairs(count: usize, mut next: impl FnMut() -> u16) -> Vec<u32> {
    (0..count.div_ceil(2)).map(|_| u32::from(next()) | u32::from(next()) << 16).collect()
}

/// Least and median time of a call in microseconds.
fn time(function: PackedFn, tensors: &mut [DLTensor], tail: &[TVMFFIAny]) -> [f64; 2] {
    let mut args: Vec<TVMFFIAny> = tensors.iter_mut().map(|tensor| TVMFFIAny::tensor(tensor)).collect();
    args.extend_from_slice(tail);
    let call = || {
        let mut result = TVMFFIAny::none();
        // SAFETY: the arguments live through the call.
        let status = unsafe { function(std::ptr::null_mut(), args.as_ptr(), args.len() as i32, &raw mut result) };
        assert_eq!(status, 0);
    };
    let start = Instant::now();
    call();
    let per_sample = (20e-6 / start.elapsed().as_secs_f64()).ceil().max(1.0) as usize;
    let mut samples = Vec::new();
    let start = Instant::now();
    while samples.len() < 9 || (start.elapsed().as_secs_f64() < 0.15 && samples.len() < 2000) {
        let start = Instant::now();
        (0..per_sample).for_each(|_| call());
        samples.push(start.elapsed().as_secs_f64() * 1e6 / per_sample as f64);
    }
    samples.sort_by(f64::total_cmp);
    [samples[0], samples[samples.len() / 2]]
}

fn print(name: &str, dtype: usize, [least, median]: [f64; 2], amount: f64, unit: &str) {
    println!("{name:<36} {:<5} {least:>10.2} {median:>10.2} us {:>8.1} {unit}", DTYPES[dtype].0, amount / least / 1e3);
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
    let threads: usize = args.next().and_then(|threads| threads.parse().ok()).unwrap_or(1);
    if threads > 1 {
        pool::start(threads);
    }
    let filter = args.next().unwrap_or_default();
    let wanted = |name: &str| name.contains(&filter);
    println!("level {level:?}, {threads} threads, outputs reused: least and median time, rate of the least");
    for (dtype, (_, _, bits)) in DTYPES.into_iter().enumerate() {
        let bytes = f64::from(bits) / 8.0;
        norms(dtype, bytes, &wanted);
        elementwise(dtype, bytes, &wanted);
        products(dtype, &wanted);
        for [rows, width] in [[2048, 8192]] {
            if !wanted("silu_and_mul") {
                break;
            }
            let (mut out, mut x) = (Tensor::new(dtype, &[rows, width]), Tensor::new(dtype, &[rows, 2 * width]));
            let micros = time(silu_and_mul, &mut [out.whole(), x.whole()], &[]);
            let amount = 3.0 * bytes * (rows * width) as f64;
            print(&format!("silu_and_mul [{rows}, {width}]"), dtype, micros, amount, "GB/s");
        }
        rotary(dtype, bytes, &wanted);
        for [heads, kv_heads, dim, q_len, kv_len] in [
            [9, 3, 64, 1, 512],
            [9, 3, 64, 1, 4096],
            [32, 8, 128, 1, 4096],
            [9, 3, 64, 32, 32],
            [9, 3, 64, 512, 512],
            [9, 3, 64, 2048, 2048],
            [32, 8, 128, 512, 512],
        ] {
            if !wanted("flash_attn") {
                break;
            }
            let make = |heads, len| Tensor::new(dtype, &[1, heads, len, dim]).swap(1, 2);
            let (mut out, mut q) = (make(heads, q_len), make(heads, q_len));
            let (mut k, mut v) = (make(kv_heads, kv_len), make(kv_heads, kv_len));
            let tail = [TVMFFIAny::float(1.0 / (dim as f64).sqrt()), TVMFFIAny::bool(true)];
            let micros = time(flash_attn, &mut [out.whole(), q.whole(), k.whole(), v.whole()], &tail);
            let pairs = (q_len * (kv_len - q_len) + q_len * (q_len + 1) / 2) * heads * dim;
            let name = format!("flash_attn {heads}/{kv_heads} x {dim}, {q_len} over {kv_len}");
            print(&name, dtype, micros, 4.0 * pairs as f64, "GFLOP/s");
        }
    }
}

fn norms(dtype: usize, bytes: f64, wanted: &dyn Fn(&str) -> bool) {
    let (eps, offset) = (TVMFFIAny::float(1e-5), TVMFFIAny::float(1.0));
    for [rows, hidden] in [[1, 576], [32, 576], [512, 2048], [2048, 4096]] {
        let make = || Tensor::new(dtype, &[rows, hidden]);
        let (mut a, mut b, mut c, mut d) = (make(), make(), make(), make());
        let (mut weight, mut bias) = (Tensor::new(dtype, &[hidden]), Tensor::new(dtype, &[hidden]));
        let amount = bytes * (rows * hidden) as f64;
        let shape = format!("[{rows}, {hidden}]");
        let (a, b, c, d) = (a.whole(), b.whole(), c.whole(), d.whole());
        let (w, v) = (weight.whole(), bias.whole());
        let run = |name: &str, function: PackedFn, tensors: &mut [DLTensor], tail: &[TVMFFIAny], passes: f64| {
            if wanted(name) {
                print(&format!("{name} {shape}"), dtype, time(function, tensors, tail), passes * amount, "GB/s");
            }
        };
        run("rms_norm", rms_norm, &mut [a, b, w], &[eps], 2.0);
        run("rms_norm_with_offset 0", rms_norm_with_offset, &mut [a, b, w], &[eps, TVMFFIAny::float(0.0)], 2.0);
        run("rms_norm_with_offset 1", rms_norm_with_offset, &mut [a, b, w], &[eps, offset], 2.0);
        run("add_rms_norm", add_rms_norm, &mut [a, b, c, d, w], &[eps, offset], 4.0);
        run("rms_norm_backward", rms_norm_backward, &mut [a, v, b, c, w], &[eps, offset], 3.0);
        run("layer_norm", layer_norm, &mut [a, b, w, v], &[eps], 2.0);
        run("softmax", softmax, &mut [a, b], &[], 2.0);
    }
}

/// Queries and keys, in two calls and in one.
fn rotary(dtype: usize, bytes: f64, wanted: &dyn Fn(&str) -> bool) {
    for [heads, kv_heads, seq, dim] in [[9, 3, 1, 64], [9, 3, 32, 64], [32, 8, 512, 64], [32, 8, 2048, 128]] {
        if !wanted("apply_rotary") {
            break;
        }
        let half = dim / 2;
        // The second half of a tensor begins `half` elements behind the first.
        let halves = |tensor: &mut Tensor| {
            let (first, mut second) = (tensor.raw(0, half), tensor.raw(half as usize, half));
            second.data = first.data;
            [first, second]
        };
        let make = |heads| Tensor::new(dtype, &[1, heads, seq, dim]).swap(1, 2);
        let (mut q, mut k, mut q_out, mut k_out) = (make(heads), make(kv_heads), make(heads), make(kv_heads));
        let (mut cos, mut sin) = (Tensor::new(dtype, &[seq, half]), Tensor::new(dtype, &[seq, half]));
        let (cos, sin) = (cos.whole(), sin.whole());
        let [[q1, q2], [k1, k2]] = [halves(&mut q), halves(&mut k)];
        let [[q3, q4], [k3, k4]] = [halves(&mut q_out), halves(&mut k_out)];
        let flag = [TVMFFIAny::bool(false)];
        let of_q = time(apply_rotary, &mut [q1, q2, cos, sin, q3, q4], &flag);
        let of_k = time(apply_rotary, &mut [k1, k2, cos, sin, k3, k4], &flag);
        let mut others = [k1, k2, k3, k4];
        let [a, b, c, d] = &mut others;
        let tail = [flag[0], TVMFFIAny::tensor(a), TVMFFIAny::tensor(b), TVMFFIAny::tensor(c), TVMFFIAny::tensor(d)];
        let both = time(apply_rotary_pair, &mut [q1, q2, cos, sin, q3, q4], &tail);
        let amount = 2.0 * bytes * ((heads + kv_heads) * seq * dim) as f64;
        let name = |what: &str| format!("apply_rotary{what} {heads}/{kv_heads} x {seq} x {dim}");
        print(&name(" twice"), dtype, [of_q[0] + of_k[0], of_q[1] + of_k[1]], amount, "GB/s");
        print(&name("_pair"), dtype, both, amount, "GB/s");
    }
}

fn elementwise(dtype: usize, bytes: f64, wanted: &dyn Fn(&str) -> bool) {
    for [rows, width] in [[1, 1536], [32, 288], [32, 576], [512, 1024], [512, 2048], [512, 5632]] {
        let (mut out, mut dx) = (Tensor::new(dtype, &[rows, width]), Tensor::new(dtype, &[rows, 2 * width]));
        let (mut dy, mut x) = (Tensor::new(dtype, &[rows, width]), Tensor::new(dtype, &[rows, 2 * width]));
        let amount = bytes * (rows * width) as f64;
        let (out, dx, dy, x) = (out.whole(), dx.whole(), dy.whole(), x.whole());
        let run = |name: &str, function: PackedFn, tensors: &mut [DLTensor], passes: f64| {
            if wanted(name) {
                let name = format!("{name} [{rows}, {width}]");
                print(&name, dtype, time(function, tensors, &[]), passes * amount, "GB/s");
            }
        };
        run("silu", silu, &mut [out, dy], 2.0);
        run("silu_and_mul", silu_and_mul, &mut [out, x], 3.0);
        run("gelu", gelu, &mut [out, dy], 2.0);
        run("gelu_quick", gelu_quick, &mut [out, dy], 2.0);
        run("gelu_tanh", gelu_tanh, &mut [out, dy], 2.0);
        run("gelu_and_mul", gelu_and_mul, &mut [out, x], 3.0);
        run("gelu_tanh_and_mul", gelu_tanh_and_mul, &mut [out, x], 3.0);
        if wanted("fatrelu_and_mul") {
            let micros = time(fatrelu_and_mul, &mut [out, x], &[TVMFFIAny::float(0.1)]);
            print(&format!("fatrelu_and_mul [{rows}, {width}]"), dtype, micros, 3.0 * amount, "GB/s");
        }
        run("silu_and_mul_backward", silu_and_mul_backward, &mut [dx, dy, x], 5.0);
    }
}

fn products(dtype: usize, wanted: &dyn Fn(&str) -> bool) {
    for [rows, depth, columns] in [
        [1, 576, 1536],
        [1, 1536, 576],
        [1, 4096, 4096],
        [4, 576, 1536],
        [8, 576, 1536],
        [16, 576, 1536],
        [32, 576, 1536],
        [128, 576, 1536],
        [512, 576, 1536],
        [512, 2048, 2048],
    ] {
        if !wanted("linear") {
            break;
        }
        let (mut out, mut x) = (Tensor::new(dtype, &[rows, columns]), Tensor::new(dtype, &[rows, depth]));
        let mut weight = Tensor::new(dtype, &[columns, depth]);
        let micros = time(linear, &mut [out.whole(), x.whole(), weight.whole()], &[TVMFFIAny::none()]);
        let amount = 2.0 * (rows * depth * columns) as f64;
        print(&format!("linear {rows} x {depth} x {columns}"), dtype, micros, amount, "GFLOP/s");
    }
    for [rows, vocab, hidden] in [[1, 49152, 576], [64, 49152, 576]] {
        let (mut logits, mut dlogits) = (Tensor::new(dtype, &[rows, vocab]), Tensor::new(dtype, &[rows, vocab]));
        let (mut out, mut table) = (Tensor::new(dtype, &[rows, hidden]), Tensor::new(dtype, &[vocab, hidden]));
        let (mut loss, mut ids) = (Tensor::new(0, &[rows]), Tensor::new(0, &[rows]));
        ids.dtype.code = dtype_code::UINT;
        ids.memory.iter_mut().enumerate().for_each(|(row, id)| *id = row as u32 * 997 % 49152);
        let tail = [TVMFFIAny::int(-100)];
        let elements = (rows * vocab) as f64;
        if wanted("cross_entropy") {
            let micros = time(cross_entropy, &mut [loss.whole(), logits.whole(), ids.whole()], &tail);
            print(&format!("cross_entropy [{rows}, {vocab}]"), dtype, micros, elements, "G/s");
            let tensors = &mut [dlogits.whole(), loss.whole(), logits.whole(), ids.whole()];
            let micros = time(cross_entropy_backward, tensors, &tail);
            print(&format!("cross_entropy_backward [{rows}, {vocab}]"), dtype, micros, elements, "G/s");
        }
        if wanted("embedding") {
            let micros = time(embedding, &mut [out.whole(), ids.whole(), table.whole()], &[]);
            let bytes = f64::from(DTYPES[dtype].2) / 8.0 * 2.0 * (rows * hidden) as f64;
            print(&format!("embedding {rows} of [{vocab}, {hidden}]"), dtype, micros, bytes, "GB/s");
        }
    }
}

/// A spinning pool: the least that a host's pool can cost.
mod pool {
    use super::{AtomicUsize, Ordering, ParallelBodyFn, c_void, kernelhub_set_parallel_for, spin_loop};
    use std::sync::atomic::AtomicPtr;

    struct Work {
        n: usize,
        body: ParallelBodyFn,
        body_ctx: *mut c_void,
        next: AtomicUsize,
        done: AtomicUsize,
    }

    static WORK: AtomicPtr<Work> = AtomicPtr::new(std::ptr::null_mut());
    static USERS: AtomicUsize = AtomicUsize::new(0);

    fn drain(work: &Work) {
        loop {
            let index = work.next.fetch_add(1, Ordering::Relaxed);
            if index >= work.n {
                return;
            }
            // SAFETY: each index once; the caller waits for all.
            unsafe { (work.body)(index, work.body_ctx) };
            work.done.fetch_add(1, Ordering::Release);
        }
    }

    unsafe extern "C" fn run(_ctx: *mut c_void, n: usize, body: ParallelBodyFn, body_ctx: *mut c_void) {
        let work = Work { n, body, body_ctx, next: AtomicUsize::new(0), done: AtomicUsize::new(0) };
        WORK.store((&raw const work).cast_mut(), Ordering::SeqCst);
        drain(&work);
        while work.done.load(Ordering::Acquire) < n {
            spin_loop();
        }
        WORK.store(std::ptr::null_mut(), Ordering::SeqCst);
        while USERS.load(Ordering::SeqCst) > 0 {
            spin_loop();
        }
    }

    pub(super) fn start(threads: usize) {
        for _ in 1..threads {
            std::thread::spawn(|| {
                loop {
                    USERS.fetch_add(1, Ordering::SeqCst);
                    let work = WORK.load(Ordering::SeqCst);
                    if !work.is_null() {
                        // SAFETY: the owner waits until no user is left.
                        drain(unsafe { &*work });
                    }
                    USERS.fetch_sub(1, Ordering::SeqCst);
                    spin_loop();
                }
            });
        }
        // SAFETY: the pool lives as long as the process.
        unsafe { kernelhub_set_parallel_for(Some(run), std::ptr::null_mut()) };
    }
}
