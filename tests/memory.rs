//! Freed memory comes back after `retain_freed_memory`. A program of its own: the setting is for a process with one
//! thread, and a test harness has more.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

fn main() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    kept::check();
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    {
        let error = kernelhub::system::retain_freed_memory(1 << 30).unwrap_err();
        assert!(matches!(error, kernelhub::system::RetainError::Unsupported), "{error}");
    }
    println!("test memory ... ok");
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod kept {
    use std::hint::black_box;

    use kernelhub::hint::Hint as _;
    use kernelhub::system::{RetainError, retain_freed_memory};

    /// Larger than what glibc can be brought to keep by itself, 32 MiB.
    const BYTES: usize = 40 << 20;
    const PAGE: usize = 4096;

    /// Pages that the system gave the process so far (`minflt` of `proc(5)`).
    fn pages() -> usize {
        let text = std::fs::read_to_string("/proc/self/stat").unwrap();
        // After the program's name, which may hold spaces, and seven fields.
        text.rsplit_once(')').unwrap().1.split_whitespace().nth(7).unwrap().parse().unwrap()
    }

    /// Pages for a block that is written once and freed.
    fn of_one_block() -> usize {
        let before = pages();
        let mut block = Vec::<u8>::with_capacity(BYTES);
        block.spare_capacity_mut().iter_mut().step_by(PAGE).for_each(|byte| {
            byte.write(1);
        });
        black_box(&block);
        drop(block);
        pages() - before
    }

    pub(super) fn check() {
        let error = retain_freed_memory(usize::MAX).unwrap_err();
        assert!(matches!(error, RetainError::Refused { .. }) && error.hint().is_some(), "{error}");
        for _ in 0..2 {
            let fresh = of_one_block();
            // With huge pages switched on for all of the system there are fewer of them, and less to gain.
            assert!(fresh >= BYTES / PAGE / 512, "{fresh} pages for a new block");
        }
        retain_freed_memory(1 << 30).unwrap();
        of_one_block();
        let again = of_one_block();
        assert!(again < 8, "{again} pages for a block that was there");
    }
}
