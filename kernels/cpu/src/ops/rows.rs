//! What kernels of rows share: how memory beyond the nearer caches is read and written.

#![cfg_attr(
    any(feature = "activation", feature = "softmax", feature = "cross-entropy"),
    expect(unsafe_code, reason = "reads and writes vectors by pointer")
)]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]

use core::sync::atomic::{AtomicUsize, Ordering};

#[cfg(any(feature = "rmsnorm", feature = "layer-norm"))]
use crate::simd::prefetch;
use crate::simd::{Element, Simd};

/// The last cache's size where the CPU does not tell it.
const USUAL_CACHE: usize = 32 << 20;
/// The last cache's size in bytes, or 0 before the first call.
static CACHE: AtomicUsize = AtomicUsize::new(0);

/// Vectors that go through a formula side by side.
#[cfg(any(feature = "activation", feature = "cross-entropy", feature = "softmax"))]
pub(super) const TOGETHER: usize = 4;

/// Whether the outputs of a call that moves so many bytes bypass the cache: where inputs and outputs don't fit it
/// together, outputs push the inputs out, and each of their lines is read before it is overwritten.
pub(super) fn streams(bytes: usize) -> bool {
    let mut cache = CACHE.load(Ordering::Relaxed);
    if cache == 0 {
        cache = last_cache().unwrap_or(USUAL_CACHE);
        CACHE.store(cache, Ordering::Relaxed);
    }
    bytes >= cache
}

/// The size of the largest cache that the CPU describes, in bytes.
#[cfg(target_arch = "x86_64")]
fn last_cache() -> Option<usize> {
    use core::arch::x86_64::{__cpuid, __cpuid_count};

    // Intel describes its caches in leaf 4, AMD in one of the same form, where the extended features say so.
    let intel = __cpuid(0).eax >= 4 && __cpuid_count(4, 0).eax & 0x1f != 0;
    let amd = __cpuid(0x8000_0000).eax >= 0x8000_001d && __cpuid(0x8000_0001).ecx & 1 << 22 != 0;
    let leaf = match (intel, amd) {
        (true, _) => 4,
        (false, true) => 0x8000_001d,
        (false, false) => return None,
    };
    let mut largest = None;
    for index in 0..16 {
        let cache = __cpuid_count(leaf, index);
        let kind = cache.eax & 0x1f;
        if kind == 0 {
            break;
        }
        let [ways, partitions, line] = [cache.ebx >> 22, cache.ebx >> 12 & 0x3ff, cache.ebx & 0xfff].map(u64::from);
        let size = (ways + 1) * (partitions + 1) * (line + 1) * (u64::from(cache.ecx) + 1);
        largest = largest.max(usize::try_from(size).ok());
    }
    largest
}

#[cfg(not(target_arch = "x86_64"))]
fn last_cache() -> Option<usize> {
    None
}

/// The elements of `row`, which has `count`, before the first one from which on whole vectors can stream; none where it
/// doesn't `stream`.
#[inline(always)]
pub(super) fn head<S: Simd, E>(stream: bool, row: *const E, count: usize) -> usize {
    let vector = S::LANES * size_of::<f32>();
    if stream { (row.addr().wrapping_neg() % vector / size_of::<E>()).min(count) } else { 0 }
}

/// Asks for the lines of a pair of vectors at element `at` of `row`.
#[cfg(any(feature = "rmsnorm", feature = "layer-norm"))]
#[inline(always)]
pub(super) fn prefetch_pair<S: Simd, E>(row: *const E, at: usize) {
    let bytes = 2 * S::LANES * size_of::<E>();
    for line in 0..bytes.div_ceil(64) {
        prefetch(row.wrapping_add(at).wrapping_byte_add(64 * line));
    }
}

/// [`TOGETHER`] vectors, in an order that [`store_wide`] undoes.
///
/// # Safety
/// `TOGETHER * LANES` elements are readable at `p`.
#[cfg(any(feature = "activation", feature = "cross-entropy", feature = "softmax"))]
#[inline(always)]
pub(super) unsafe fn load_wide<S: Simd, E: Element>(s: S, p: *const E) -> [S::V; TOGETHER] {
    let mut all = [s.splat(0.0); TOGETHER];
    for (j, pair) in all.chunks_exact_mut(2).enumerate() {
        // SAFETY: pair `j` of the vectors.
        pair.copy_from_slice(&unsafe { E::load2(s, p.add(2 * j * S::LANES)) });
    }
    all
}

/// Writes [`TOGETHER`] vectors in the order of [`load_wide`]; `zeros` says that results often are 0.
///
/// # Safety
/// `TOGETHER * LANES` elements are writable at `p`, a multiple of the bytes of a vector of f32 where `stream`.
#[cfg(any(feature = "activation", feature = "cross-entropy", feature = "softmax"))]
#[inline(always)]
pub(super) unsafe fn store_wide<S: Simd, E: Element>(
    s: S,
    p: *mut E,
    all: [S::V; TOGETHER],
    stream: bool,
    zeros: bool,
) {
    for (j, pair) in all.chunks_exact(2).enumerate() {
        // SAFETY: pair `j` of the vectors.
        let to = unsafe { p.add(2 * j * S::LANES) };
        let pair = [pair[0], pair[1]];
        match (stream, zeros) {
            // SAFETY: likewise, aligned.
            (true, _) => unsafe { E::stream2(s, to, pair) },
            // SAFETY: likewise.
            (false, true) => unsafe { E::store2(s, to, pair) },
            // SAFETY: likewise.
            (false, false) => unsafe { E::store2_nonzero(s, to, pair) },
        }
    }
}
