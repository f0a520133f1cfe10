//! The host's threads, as packs see them.
//!
//! Packs run their loops on a crew of their own: as many threads as rayon's global pool has, the caller among them,
//! which look out for the next loop for a moment before they sleep. So a kernel and the framework around it never
//! compete for the cores for long, and `RAYON_NUM_THREADS` holds for both. A loop that finds the crew at work, because
//! another thread is in one, goes to rayon's pool.
#![expect(unsafe_code, reason = "calls back into a pack with the context that it passed")]

use std::ffi::c_void;
use std::sync::OnceLock;

use kernelhub_abi::ParallelBodyFn;
use rayon::iter::{IndexedParallelIterator as _, IntoParallelIterator as _, ParallelIterator as _};

use super::crew::Crew;

/// A context pointer that may cross threads.
#[derive(Clone, Copy)]
struct BodyContext(*mut c_void);

// SAFETY: the pack ABI lets the host run the body on any of its threads, so the pointee is made for that by the pack.
unsafe impl Send for BodyContext {}
// SAFETY: as above; several threads run the body with the same context at once.
unsafe impl Sync for BodyContext {}

impl BodyContext {
    /// The pointer; a method, so that closures capture the whole wrapper.
    fn get(self) -> *mut c_void {
        self.0
    }
}

/// The crew of the process, started by the first loop.
fn crew() -> &'static Crew {
    static CREW: OnceLock<Crew> = OnceLock::new();
    CREW.get_or_init(|| Crew::start(rayon::current_num_threads().saturating_sub(1)))
}

/// Runs `body` once for each index below `count`, on the threads that run the loops of packs and as those are run, and
/// returns when all calls have returned. The caller is one of the threads, and there are as many as rayon's global pool
/// has. For programs that measure what a kernel could reach on them.
///
/// # Aborts
/// The process, when `body` panics: the loop's callers are packs, which no panic may cross.
pub fn on_threads<F: Fn(usize) + Sync>(count: usize, body: &F) {
    /// # Safety
    /// `context` is an `F`.
    unsafe extern "C" fn call<F: Fn(usize) + Sync>(index: usize, context: *mut c_void) {
        // SAFETY: this function's contract; it is borrowed until the loop has returned, and may be used on any thread.
        let body = unsafe { &*context.cast::<F>() };
        body(index);
    }
    let context = std::ptr::from_ref(body).cast_mut().cast::<c_void>();
    // SAFETY: `call` makes of the context what it is, `F` is `Sync`, and nothing is called after the loop has returned.
    unsafe { parallel_for(std::ptr::null_mut(), count, call::<F>, context) };
}

/// [`kernelhub_abi::ParallelForFn`] on the host's threads.
///
/// # Safety
/// `body` may be called with `body_ctx` on any thread, once for each index below `n`, until this returns.
pub(super) unsafe extern "C" fn parallel_for(_ctx: *mut c_void, n: usize, body: ParallelBodyFn, body_ctx: *mut c_void) {
    // SAFETY: the caller's contract.
    if unsafe { crew().run(n, body, body_ctx) } {
        return;
    }
    let context = BodyContext(body_ctx);
    // One index per task: a pack has already cut its work into pieces worth a thread.
    (0..n).into_par_iter().with_max_len(1).for_each(|index| {
        // SAFETY: the caller's contract; `index` is below `n` and this function returns after the last call.
        unsafe { body(index, context.get()) }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::on_threads;

    #[test]
    fn every_index_is_called_once() {
        for count in [0, 1, 7, 100] {
            let calls: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            on_threads(count, &|index: usize| {
                calls[index].fetch_add(1, Ordering::Relaxed);
            });
            assert!(calls.iter().all(|calls| calls.load(Ordering::Relaxed) == 1), "{count}");
        }
    }
}
