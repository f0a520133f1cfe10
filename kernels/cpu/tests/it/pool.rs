//! A host's threads: the same bits as without, and a panic stays inside.

#![expect(unsafe_code, reason = "plays the host of a pack")]

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use kernelhub_abi::ParallelBodyFn;
use kernelhub_cpu::{
    add_rms_norm, apply_rotary, cross_entropy, cross_entropy_backward, embedding, flash_attn, gelu,
    kernelhub_abi_version, layer_norm, linear, rms_norm, rms_norm_backward, rms_norm_with_offset, silu_and_mul,
    silu_and_mul_backward, silu_gated_linear,
};

use crate::packs::set_parallel_for;
use crate::support::{Arg, DTYPES, Dt, Tensor, at_every_level, call, exclusive};

const THREADS: usize = 4;

#[derive(Default)]
struct Host {
    loops: AtomicUsize,
    indices: AtomicUsize,
}

struct Shared {
    next: AtomicUsize,
    n: usize,
    body: ParallelBodyFn,
    body_ctx: usize,
}

unsafe extern "C" fn parallel_for(ctx: *mut c_void, n: usize, body: ParallelBodyFn, body_ctx: *mut c_void) {
    // SAFETY: the host of these tests is a leaked box.
    let host = unsafe { &*ctx.cast::<Host>() };
    host.loops.fetch_add(1, Ordering::Relaxed);
    let shared = Shared { next: AtomicUsize::new(0), n, body, body_ctx: body_ctx.expose_provenance() };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let index = shared.next.fetch_add(1, Ordering::Relaxed);
                    if index >= shared.n {
                        return;
                    }
                    host.indices.fetch_add(1, Ordering::Relaxed);
                    // SAFETY: each index once, the context lives until this loop returns.
                    unsafe { (shared.body)(index, std::ptr::with_exposed_provenance_mut(shared.body_ctx)) };
                }
            });
        }
    });
}

#[test]
fn the_hosts_threads_give_the_same_bits() {
    let _guard = exclusive();
    let host: &'static Host = Box::leak(Box::default());
    for dtype in DTYPES {
        let x = Tensor::random(dtype, &[700, 1030], 1);
        let weight = Tensor::random(dtype, &[1030], 2);
        let norm = Tensor::new(dtype, &[700, 1030]);
        let gated = Tensor::new(dtype, &[700, 515]);
        let q = Tensor::random(dtype, &[2, 130, 6, 40], 3);
        let k = Tensor::random(dtype, &[2, 150, 2, 40], 4);
        let attended = Tensor::new(dtype, &[2, 130, 6, 40]);
        let (one, many) = (Tensor::random(dtype, &[1, 1, 6, 40], 8), Tensor::random(dtype, &[1, 5000, 2, 40], 9));
        let decoded = Tensor::new(dtype, &[1, 1, 6, 40]);
        let tables = [5, 6].map(|seed| Tensor::random(dtype, &[700, 32], seed));
        let rows = x.view(&[700, 16, 32], &[1030, 64, 1], 0);
        let other = x.view(&[700, 16, 32], &[1030, 64, 1], 2);
        let turned = [Tensor::new(dtype, &[700, 16, 32]), Tensor::new(dtype, &[700, 16, 32])];
        let run = || {
            call(rms_norm, &[Arg::T(&norm), Arg::T(&x), Arg::T(&weight), Arg::F(1e-5)]).expect("rms_norm");
            call(silu_and_mul, &[Arg::T(&gated), Arg::T(&x)]).expect("silu_and_mul");
            let [q, k] = [&q, &k].map(Arg::T);
            call(flash_attn, &[Arg::T(&attended), q, k, k, Arg::F(0.15), Arg::B(true)]).expect("flash_attn");
            let args = [Arg::T(&decoded), Arg::T(&one), Arg::T(&many), Arg::T(&many), Arg::F(0.15), Arg::B(true)];
            call(flash_attn, &args).expect("flash_attn, split");
            let [x1, x2, cos, sin, out1, out2] =
                [&rows, &other, &tables[0], &tables[1], &turned[0], &turned[1]].map(Arg::T);
            call(apply_rotary, &[x1, x2, cos, sin, out1, out2, Arg::B(false)]).expect("apply_rotary");
            let bits = |t: &Tensor| t.values().into_iter().map(f64::to_bits).collect::<Vec<_>>();
            [bits(&norm), bits(&gated), bits(&attended), bits(&decoded), bits(&turned[0]), bits(&turned[1])]
        };
        let serial = run();
        // SAFETY: the host is leaked.
        unsafe { set_parallel_for(Some(parallel_for), std::ptr::from_ref(host).cast_mut().cast()) };
        let before = host.loops.load(Ordering::Relaxed);
        let threaded = run();
        assert_eq!(host.loops.load(Ordering::Relaxed) - before, 5, "every call of this size is worth threads");
        // Small work stays on the caller's thread.
        let one = Tensor::random(dtype, &[1, 576], 7);
        call(rms_norm, &[Arg::T(&one), Arg::T(&one), Arg::T(&weight.view(&[576], &[1], 0)), Arg::F(0.0)]).expect("one");
        assert_eq!(host.loops.load(Ordering::Relaxed) - before, 5);
        // SAFETY: no pool.
        unsafe { set_parallel_for(None, std::ptr::null_mut()) };
        assert!(serial == threaded, "{dtype:?}");
    }
    assert!(host.indices.load(Ordering::Relaxed) > 12);
}

/// Everything that came after the first four kernels: forward, backward, and sums over rows.
#[test]
fn the_hosts_threads_give_the_same_bits_everywhere() {
    let host: &'static Host = Box::leak(Box::default());
    at_every_level(|level| {
        for dtype in DTYPES {
            let [x, y] = [1, 2].map(|seed| Tensor::random(dtype, &[300, 2060], seed));
            let half = x.view(&[300, 1030], &[2060, 1], 0);
            let [weight, bias] = [3, 4].map(|seed| Tensor::random(dtype, &[2060], seed));
            let like = |t: &Tensor| Tensor::new(dtype, &t.shape);
            let [a, b, c, d, e, f, g, h] = [&x; 8].map(like);
            let (narrow, dweight) = (like(&half), like(&weight));
            let (matrix, product) = (Tensor::random(dtype, &[150, 2060], 5), Tensor::new(dtype, &[300, 150]));
            let joined = Tensor::new(dtype, &[300, 75]);
            let (one, vector) = (x.view(&[1, 2060], &[2060, 1], 0), Tensor::new(dtype, &[1, 150]));
            let targets = Tensor::new(Dt::U32, &[300]);
            targets.fill(|index| (index[0] * 7 % 300) as f64);
            let [loss, dloss] = [6, 7].map(|seed| Tensor::random(Dt::F32, &[300], seed));
            let run = || {
                let [x, y, w, t] = [&x, &y, &weight, &targets].map(Arg::T);
                let (eps, offset) = (Arg::F(1e-5), Arg::F(1.0));
                call(rms_norm_with_offset, &[Arg::T(&a), x, w, eps, offset]).expect("offset");
                call(add_rms_norm, &[Arg::T(&b), Arg::T(&c), x, y, w, eps, offset]).expect("add");
                call(rms_norm_backward, &[Arg::T(&d), Arg::T(&dweight), y, x, w, eps, offset]).expect("backward");
                call(layer_norm, &[Arg::T(&e), x, w, Arg::T(&bias), eps]).expect("layer norm");
                call(gelu, &[Arg::T(&narrow), Arg::T(&half)]).expect("gelu");
                call(silu_and_mul_backward, &[Arg::T(&f), Arg::T(&half), y]).expect("silu, backward");
                call(linear, &[Arg::T(&product), x, Arg::T(&matrix), Arg::None]).expect("linear");
                call(linear, &[Arg::T(&vector), Arg::T(&one), Arg::T(&matrix), Arg::None]).expect("linear, one row");
                call(silu_gated_linear, &[Arg::T(&joined), x, Arg::T(&matrix), Arg::None]).expect("gated linear");
                call(embedding, &[Arg::T(&g), t, x]).expect("embedding");
                call(cross_entropy, &[Arg::T(&loss), x, t, Arg::I(7)]).expect("cross entropy");
                call(cross_entropy_backward, &[Arg::T(&h), Arg::T(&dloss), x, t, Arg::I(7)]).expect("its backward");
                let bits = |t: &Tensor| t.values().into_iter().map(f64::to_bits).collect::<Vec<_>>();
                [&a, &b, &c, &d, &dweight, &e, &narrow, &f, &product, &vector, &joined, &g, &loss, &h].map(bits)
            };
            let serial = run();
            // SAFETY: the host is leaked.
            unsafe { set_parallel_for(Some(parallel_for), std::ptr::from_ref(host).cast_mut().cast()) };
            let before = host.loops.load(Ordering::Relaxed);
            let threaded = run();
            let loops = host.loops.load(Ordering::Relaxed) - before;
            // SAFETY: no pool.
            unsafe { set_parallel_for(None, std::ptr::null_mut()) };
            // The sums of the weight's gradient may be too little work for threads.
            assert!(loops >= 11, "{level:?} {dtype:?}: {loops} loops, but every call is worth threads");
            assert!(serial == threaded, "{level:?} {dtype:?}");
        }
    });
}

#[test]
fn calls_fit_the_documented_stack() {
    at_every_level(|level| {
        let run = move || {
            for dtype in DTYPES {
                let [x, y] = [1, 2].map(|seed| Tensor::random(dtype, &[160, 300], seed));
                let [w, dweight] = [3, 4].map(|seed| Tensor::random(dtype, &[300], seed));
                let out = Tensor::new(dtype, &x.shape);
                let [o, dw, x, y, w] = [&out, &dweight, &x, &y, &w].map(Arg::T);
                call(rms_norm_backward, &[o, dw, y, x, w, Arg::F(1e-5), Arg::F(0.0)]).expect("backward");
                let product = Tensor::new(dtype, &[160, 160]);
                call(linear, &[Arg::T(&product), x, y, Arg::None]).expect("linear");
            }
        };
        // The documented 512 KiB, and a little for this closure and its vectors.
        let thread = std::thread::Builder::new().stack_size((512 + 32) << 10).spawn(run).expect("thread");
        thread.join().unwrap_or_else(|_| panic!("{level:?}"));
    });
}

#[test]
fn the_handshake_answers_version_one() {
    assert_eq!(kernelhub_abi_version(), kernelhub_abi::PACK_ABI_VERSION);
}
