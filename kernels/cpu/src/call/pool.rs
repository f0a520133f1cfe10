//! The host's threads.

#![expect(unsafe_code, reason = "calls the host's parallel loop, and is called back by it")]

use core::ffi::c_void;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};

use kernelhub_abi::ParallelForFn;

use super::error::{Failed, Kind, fail};
use crate::simd::{Kernel, Level, Simd, current, dispatch};

/// Work below this stays on the caller's thread: to wake another one and to wait for it takes as long.
const MIN_PARALLEL_NS: u64 = 20_000;
/// The least work of one piece of a parallel loop. A piece is read from one end to the other, and where it ends the
/// processor begins anew to guess what comes next.
const MIN_PIECE_NS: u64 = 20_000;
/// The most pieces of a parallel loop: enough to even out many threads, few enough to cost nothing.
const MAX_PIECES: u64 = 256;

/// How many pieces a loop is cut into. A power of two, so that as many threads, as a rule, are given as many each and
/// end together. On two threads a 135M model in bf16 decoded 160 tokens/s with pieces of 20 µs in even numbers, 152 with
/// either alone, and 148 with pieces of 10 µs in any number.
fn pieces(cost_ns: u64, items: usize) -> usize {
    let most = (cost_ns / MIN_PIECE_NS).clamp(2, MAX_PIECES);
    // At most MAX_PIECES, so it fits.
    (1_usize << most.ilog2()).min(items)
}

struct Pool {
    run: ParallelForFn,
    ctx: *mut c_void,
}

/// The pool in use, or null. One pointer for both fields, so that no call sees one host's function with another's
/// context. Replaced pools are leaked: a call on another thread may still read them, and hosts set one per process.
static POOL: AtomicPtr<Pool> = AtomicPtr::new(core::ptr::null_mut());

/// `void kernelhub_set_parallel_for(ParallelForFn run, void* ctx)`, see [`kernelhub_abi::SetParallelForFn`].
///
/// # Safety
/// `run` may be called with `ctx` from any thread until the process ends or another pool is set and all calls under
/// way have returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kernelhub_set_parallel_for(run: Option<ParallelForFn>, ctx: *mut c_void) {
    let pool = match run {
        Some(run) => Box::into_raw(Box::new(Pool { run, ctx })),
        None => core::ptr::null_mut(),
    };
    POOL.store(pool, Ordering::Release);
}

/// Work that falls into independent items.
///
/// # Safety
/// Implementors promise that disjoint ranges of items may run on several threads at once.
pub(crate) unsafe trait Job {
    /// Runs some items. Implementations are `#[inline(always)]`, and the result of an item does not depend on the
    /// range that it comes in.
    fn run<S: Simd>(&self, simd: S, items: Range<usize>);
}

struct Piece<'a, J> {
    job: &'a J,
    items: Range<usize>,
}

impl<J: Job> Kernel for Piece<'_, J> {
    #[expect(clippy::inline_always, reason = "must be inlined into the function compiled for its level")]
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        self.job.run(simd, self.items);
    }
}

struct Loop<'a, J> {
    job: &'a J,
    level: Level,
    items: usize,
    per_piece: usize,
    panicked: AtomicBool,
}

unsafe extern "C" fn body<J: Job>(index: usize, ctx: *mut c_void) {
    // SAFETY: the host passes on the pointer that `launch` gave it, which outlives the loop.
    let shared = unsafe { &*ctx.cast::<Loop<'_, J>>() };
    let Some(start) = index.checked_mul(shared.per_piece).filter(|&start| start < shared.items) else { return };
    let end = start.saturating_add(shared.per_piece).min(shared.items);
    // Unwind safe: what a panic leaves behind is an incomplete output, which the error tells.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        dispatch(shared.level, Piece { job: shared.job, items: start..end });
    }));
    if let Err(payload) = outcome {
        core::mem::forget(payload);
        shared.panicked.store(true, Ordering::Relaxed);
    }
}

/// Runs all items of `job`, on the host's threads where `cost_ns`, the estimated time on one thread, is worth it.
pub(crate) fn launch<J: Job>(function: &'static str, job: &J, items: usize, cost_ns: u64) -> Result<(), Failed> {
    let level = current();
    let pool = POOL.load(Ordering::Acquire);
    if pool.is_null() || items < 2 || cost_ns < MIN_PARALLEL_NS {
        dispatch(level, Piece { job, items: 0..items });
        return Ok(());
    }
    // SAFETY: pools are never freed.
    let pool = unsafe { &*pool };
    let per_piece = items.div_ceil(pieces(cost_ns, items));
    let shared = Loop { job, level, items, per_piece, panicked: AtomicBool::new(false) };
    let ctx = (&raw const shared).cast_mut().cast::<c_void>();
    // SAFETY: the setter's contract; `body` reads `shared`, which lives until the loop has returned.
    unsafe { (pool.run)(pool.ctx, items.div_ceil(per_piece), body::<J>, ctx) };
    if shared.panicked.load(Ordering::Relaxed) {
        return Err(fail(
            Kind::Runtime,
            format_args!("{function}: internal error (a panic on a pool's thread); the output is incomplete"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Job, MIN_PARALLEL_NS, MIN_PIECE_NS, Range, Simd, c_void, kernelhub_set_parallel_for, launch, pieces};
    use crate::call::guard;

    #[test]
    fn as_many_threads_get_as_many_pieces() {
        let of = |least: u64| pieces(least * MIN_PIECE_NS, 1000);
        assert_eq!([0, 1, 2, 3, 4, 7, 8, 300, u64::MAX / MIN_PIECE_NS].map(of), [2, 2, 2, 2, 4, 4, 8, 256, 256]);
        assert_eq!(pieces(u64::MAX, 5), 5, "no piece without an item");
    }

    struct Panics;

    // SAFETY: touches nothing.
    unsafe impl Job for Panics {
        fn run<S: Simd>(&self, _simd: S, items: Range<usize>) {
            assert!(!items.contains(&3), "on purpose");
        }
    }

    unsafe extern "C" fn in_order(
        _ctx: *mut c_void,
        n: usize,
        body: kernelhub_abi::ParallelBodyFn,
        body_ctx: *mut c_void,
    ) {
        // One index too many, as a careless host might: it must do nothing.
        for index in 0..=n {
            // SAFETY: the context is the loop's.
            unsafe { body(index, body_ctx) };
        }
    }

    #[test]
    fn a_panic_in_a_body_stays_inside_the_pack() {
        let call = || guard("f", || launch("f", &Panics, 8, MIN_PARALLEL_NS));
        assert_eq!(call(), -1, "without a pool");
        // SAFETY: a function that lives as long as the process.
        unsafe { kernelhub_set_parallel_for(Some(in_order), core::ptr::null_mut()) };
        assert_eq!(call(), -1, "on a pool");
        // SAFETY: no pool.
        unsafe { kernelhub_set_parallel_for(None, core::ptr::null_mut()) };
    }
}
