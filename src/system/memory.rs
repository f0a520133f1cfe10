//! What the process does with memory that it frees.

use crate::hint::Hint;

/// Why freed memory cannot be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetainError {
    /// The C library's malloc has no such setting.
    #[error("freed memory cannot be kept: the memory allocator of this system has no setting for it")]
    Unsupported,
    /// Other threads may be allocating, and the setting is not made for that.
    #[error("freed memory cannot be kept: the process has {threads} threads, and the setting is for one with one")]
    Threads {
        /// Threads of the process.
        threads: usize,
    },
    /// The C library refused the number.
    #[error("freed memory cannot be kept: malloc does not take {bytes} bytes as its {setting}")]
    Refused {
        /// Which setting.
        setting: &'static str,
        /// What was asked for, in bytes.
        bytes: usize,
    },
}

impl Hint for RetainError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Unsupported => "link an allocator that keeps large blocks, such as mimalloc or jemalloc".to_owned(),
            Self::Threads { .. } => "call it first in main, or start the program with MALLOC_MMAP_THRESHOLD_ and \
                                     MALLOC_TRIM_THRESHOLD_ set"
                .to_owned(),
            Self::Refused { .. } => "glibc before 2.35 takes at most 32 MiB (33554432)".to_owned(),
        })
    }
}

/// Makes malloc keep what is freed, for the next allocation, instead of giving it back to the operating system: of
/// blocks up to `bytes` each, up to `bytes` at the end of the heap.
///
/// By default glibc gives a large block back when it is freed, and the next one is made of pages that the system has to
/// clear and map, one by one, as they are first written. A layer's output is such a block: what a norm of
/// `[2048, 4096]` in `f32` costs is then mostly pages. This sets malloc's thresholds (`M_MMAP_THRESHOLD` and
/// `M_TRIM_THRESHOLD`), for all of the process and until its end. So it is never done for a program, which has to ask:
/// the price is that the process holds on to the most that it ever used.
///
/// `bytes` is at least the size of the largest tensor that comes and goes; 1 GiB (`1 << 30`) serves as a rule.
///
/// # Errors
/// [`RetainError::Unsupported`] for an allocator other than glibc's, [`RetainError::Threads`] when the process has more
/// threads than the calling one, [`RetainError::Refused`] for a number that malloc does not take. Then nothing was
/// changed, except that after a refused trim threshold the other one stays.
///
/// Source: `mallopt(3)`.
pub fn retain_freed_memory(bytes: usize) -> Result<(), RetainError> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // A task for each thread; without a look at them there may be any number.
        let threads = std::fs::read_dir("/proc/self/task").map_or(usize::MAX, Iterator::count);
        if threads != 1 {
            return Err(RetainError::Threads { threads });
        }
        let set = |setting, set: fn(std::ffi::c_int) -> bool| {
            let is_set = std::ffi::c_int::try_from(bytes).is_ok_and(set);
            if is_set { Ok(()) } else { Err(RetainError::Refused { setting, bytes }) }
        };
        set("mmap threshold", super::ffi::set_mmap_threshold)?;
        set("trim threshold", super::ffi::set_trim_threshold)
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    {
        let _ = bytes;
        Err(RetainError::Unsupported)
    }
}

/// Moves memory into huge pages, where the system has them: a processor then looks up far fewer addresses while it reads
/// a large tensor from one end to the other. Returns how many bytes of `memory` lie in huge pages afterwards; 0 where
/// the system cannot do it, and less than all where some memory could not be moved. What is in the memory stays as it
/// is.
///
/// For weights, once, after they were loaded: the pages are copied, which takes some seconds for each GiB, and what lies
/// beside `memory` in the same 2 MiB moves along. On one machine, decoding by kernels that are bound by memory was a
/// third faster.
///
/// Source: `MADV_COLLAPSE` in `madvise(2)`, Linux 6.1.
#[must_use]
pub fn use_huge_pages<T>(memory: &[T]) -> usize {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const HUGE: usize = 2 << 20;
        let std::ops::Range { start, end } = memory.as_ptr_range();
        let (start, end) = (start.addr(), end.addr());
        let pages = (start / HUGE..end.div_ceil(HUGE)).map(|page| page * HUGE);
        let moved = pages.filter(|page| !memory.is_empty() && super::ffi::collapse(*page, HUGE));
        moved.map(|page| end.min(page + HUGE) - start.max(page)).sum()
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    {
        let _ = memory;
        0
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::{RetainError, retain_freed_memory, use_huge_pages};

    #[test]
    fn memory_in_huge_pages_holds_what_it_held() {
        let numbers: Vec<u8> = (0..7_000_001_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let (before, bytes) = (numbers.clone(), &numbers[3..]);
        let moved = use_huge_pages(bytes);
        // A kernel or a container without them has none; what there is, is told once.
        assert!(moved <= bytes.len(), "{moved}");
        assert!(use_huge_pages(bytes) >= moved.min(1), "what was moved once is there");
        assert!(numbers == before);
        assert_eq!(use_huge_pages::<u8>(&[]), 0);
    }

    /// Tests run on threads of their own. That it works in a program is shown in `tests/memory.rs`.
    #[test]
    fn beside_other_threads_nothing_is_set() {
        let error = retain_freed_memory(1 << 30).expect_err("the test's thread is not alone");
        assert!(matches!(error, RetainError::Threads { threads } if threads > 1), "{error}");
    }
}
