//! A host's threads: the same bits as without, and a panic stays inside.

#![expect(unsafe_code, reason = "plays the host of a pack")]

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use kernelhub_abi::ParallelBodyFn;
use kernelhub_cpu::{
    apply_rotary, flash_attn, kernelhub_abi_version, kernelhub_set_parallel_for, rms_norm, silu_and_mul,
};

use crate::support::{Arg, DTYPES, Tensor, call, exclusive};

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
        unsafe { kernelhub_set_parallel_for(Some(parallel_for), std::ptr::from_ref(host).cast_mut().cast()) };
        let before = host.loops.load(Ordering::Relaxed);
        let threaded = run();
        assert_eq!(host.loops.load(Ordering::Relaxed) - before, 5, "every call of this size is worth threads");
        // Small work stays on the caller's thread.
        let one = Tensor::random(dtype, &[1, 576], 7);
        call(rms_norm, &[Arg::T(&one), Arg::T(&one), Arg::T(&weight.view(&[576], &[1], 0)), Arg::F(0.0)]).expect("one");
        assert_eq!(host.loops.load(Ordering::Relaxed) - before, 5);
        // SAFETY: no pool.
        unsafe { kernelhub_set_parallel_for(None, std::ptr::null_mut()) };
        assert!(serial == threaded, "{dtype:?}");
    }
    assert!(host.indices.load(Ordering::Relaxed) > 12);
}

#[test]
fn the_handshake_answers_version_one() {
    assert_eq!(kernelhub_abi_version(), kernelhub_abi::PACK_ABI_VERSION);
}
