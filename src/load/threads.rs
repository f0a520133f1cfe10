//! The host's thread pool, as packs see it.
//!
//! One pool per process: packs run their loops on rayon's global pool, which candle uses too, so that a kernel and the
//! framework around it never compete with two pools for the same cores.
#![expect(unsafe_code, reason = "calls back into a pack with the context that it passed")]

use std::ffi::c_void;

use kernelhub_abi::ParallelBodyFn;
use rayon::iter::{IndexedParallelIterator as _, IntoParallelIterator as _, ParallelIterator as _};

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

/// [`kernelhub_abi::ParallelForFn`] on rayon's global pool.
///
/// # Safety
/// `body` may be called with `body_ctx` on any thread, once for each index below `n`, until this returns.
pub(super) unsafe extern "C" fn parallel_for(_ctx: *mut c_void, n: usize, body: ParallelBodyFn, body_ctx: *mut c_void) {
    let context = BodyContext(body_ctx);
    // One index per task: a pack has already cut its work into pieces worth a thread.
    (0..n).into_par_iter().with_max_len(1).for_each(|index| {
        // SAFETY: the caller's contract; `index` is below `n` and this function returns after the last call.
        unsafe { body(index, context.get()) }
    });
}
