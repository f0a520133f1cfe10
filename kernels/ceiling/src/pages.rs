//! Pages of memory.
#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "advises the system on pages"))]

/// What pages some memory is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pages {
    /// Those that the allocator gives.
    Plain,
    /// Huge ones, where the system has them and grants them (Linux, transparent huge pages, which are 2 MiB on x86-64):
    /// an entry of the processor's table of pages covers more, and its prefetchers, which stop at the end of a page,
    /// reach further.
    Huge,
}

/// A vector for `count` elements, empty, whose memory is on `pages` as soon as it is written. A block at either end that
/// is no whole page is as the allocator gives it.
#[must_use]
pub fn with_capacity<T>(count: usize, pages: Pages) -> Vec<T> {
    let mut memory = Vec::with_capacity(count);
    if pages == Pages::Huge {
        prefer_huge(memory.spare_capacity_mut());
    }
    memory
}

#[cfg(target_os = "linux")]
fn prefer_huge<T>(memory: &mut [T]) {
    /// Advice is for whole pages; this is a multiple of every size of small ones.
    const PAGE: usize = 64 << 10;
    let bytes = size_of_val(memory);
    let start = memory.as_mut_ptr().cast::<u8>();
    let before = start.align_offset(PAGE);
    let whole = bytes.saturating_sub(before) / PAGE * PAGE;
    if whole > 0 {
        // SAFETY: `before` and `whole` bytes after it lie in `memory`, which is borrowed uniquely. The advice changes no
        // content. Where the system refuses it, the pages are plain.
        let _ = unsafe { libc::madvise(start.wrapping_add(before).cast(), whole, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn prefer_huge<T>(_memory: &mut [T]) {}

#[cfg(test)]
mod tests {
    use super::{Pages, with_capacity};

    #[test]
    fn memory_is_whole_on_either_pages() {
        for pages in [Pages::Plain, Pages::Huge] {
            for count in [0, 3, 100_000, 5_000_000] {
                let mut memory = with_capacity::<u64>(count, pages);
                assert!(memory.is_empty() && memory.capacity() >= count);
                memory.extend(0..count as u64);
                assert!(memory.iter().copied().eq(0..count as u64), "{count} on {pages:?}");
            }
        }
    }
}
