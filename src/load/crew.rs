//! Threads that stay awake for the next loop.
//!
//! A decoded token is some hundred loops of 20 to 100 µs with a few µs between them. A general pool hands each of them
//! over through its queues, puts the caller to sleep and wakes it again, which costs as much as the smaller loops
//! themselves. Here the caller works along, and a helper that has nothing to do looks out for the next loop for a
//! moment before it sleeps, so that a loop that comes soon begins without the operating system. A helper that is late
//! is not waited for: whoever is there does its part.
//!
//! One loop at a time: a caller that finds the crew at work, be it from inside of a loop, takes another way.
//!
//! # Ends
//! - A body does not unwind, by the contract of the pack ABI: a pack catches its panics. One that does all the same
//!   reaches a C function that must not, and the process aborts, on whichever thread it was.
//! - The helpers live as long as the process, and end with it, asleep or at a loop: nobody joins them, and what they
//!   touch is never freed.
//! - A process that was forked off has no helpers, whatever they were at in its parent, so that its loops run on the
//!   caller alone.
#![expect(unsafe_code, reason = "runs a pack's loop body on several threads")]

mod board;
mod fork;
mod sync;

use std::ffi::c_void;
use std::thread;

use kernelhub_abi::ParallelBodyFn;

use board::{Board, HELPERS, Job};

/// Helpers, and the board that they look at.
pub(super) struct Crew {
    /// Threads beside the caller.
    helpers: usize,
    board: &'static Board,
}

impl Crew {
    /// A crew with `helpers` threads, which live as long as the process; with fewer where the system gives no more.
    pub(super) fn start(helpers: usize) -> Self {
        let board: &'static Board = Box::leak(Box::new(Board::new(helpers)));
        // Without word of a fork, a child would wait for threads that it has not.
        let most = if fork::is_told() { usize::try_from(HELPERS).unwrap_or(usize::MAX) } else { 0 };
        let spawned = (0..helpers.min(most)).map_while(|index| {
            thread::Builder::new().name(format!("kernelhub-{index}")).spawn(move || board.serve(index + 1)).ok()
        });
        Self { helpers: spawned.count(), board }
    }

    /// Runs `body(i, context)` once for each `i` below `count`, here and on the helpers, and returns when all have
    /// returned. `false`, and nothing was run: another caller has the crew.
    ///
    /// # Safety
    /// `body` may be called with `context` on any thread, once for each index below `count`, until this returns.
    pub(super) unsafe fn run(&self, count: usize, body: ParallelBodyFn, context: *mut c_void) -> bool {
        if self.helpers == 0 || fork::is_child() {
            // SAFETY: the caller's contract.
            (0..count).for_each(|index| unsafe { body(index, context) });
            return true;
        }
        // SAFETY: the caller's contract.
        unsafe { self.board.run(Job { count, body, context }) }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::{self, ThreadId};
    use std::time::Duration;

    use super::Crew;

    impl Drop for Crew {
        fn drop(&mut self) {
            self.board.dismiss();
        }
    }

    /// Counts how often each index was run.
    struct Counts(Vec<AtomicUsize>);

    impl Counts {
        fn new(count: usize) -> Self {
            Self((0..count).map(|_| AtomicUsize::new(0)).collect())
        }

        fn context(&self) -> *mut c_void {
            std::ptr::from_ref(self).cast_mut().cast()
        }

        fn all_are(&self, expected: usize) -> bool {
            self.0.iter().all(|count| count.load(Ordering::Relaxed) == expected)
        }
    }

    unsafe extern "C" fn count(index: usize, context: *mut c_void) {
        // SAFETY: the tests pass a `Counts` that outlives the loop.
        let counts = unsafe { &*context.cast::<Counts>() };
        counts.0[index].fetch_add(1, Ordering::Relaxed);
    }

    fn run(crew: &Crew, counts: &Counts) -> bool {
        // SAFETY: `count` may run on any thread, and `counts` lives until the loop has returned.
        unsafe { crew.run(counts.0.len(), count, counts.context()) }
    }

    #[test]
    fn each_index_runs_once_whatever_the_helpers_are_at() {
        for helpers in [0, 1, 3] {
            let crew = Crew::start(helpers);
            assert_eq!(crew.helpers, helpers);
            for round in 0..3_000_usize {
                let counts = Counts::new(round % 40);
                assert!(run(&crew, &counts));
                assert!(counts.all_are(1), "{helpers} helpers, round {round}");
                if round % 1_000 == 999 {
                    // They fall asleep, and are woken.
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        }
    }

    /// Sleeps until another thread is in the loop too.
    unsafe extern "C" fn meet(_: usize, context: *mut c_void) {
        // SAFETY: the test passes a counter that outlives the loop.
        let here = unsafe { &*context.cast::<AtomicUsize>() };
        here.fetch_add(1, Ordering::SeqCst);
        while here.load(Ordering::SeqCst) < 2 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn helpers_do_help_awake_and_asleep() {
        let crew = Crew::start(1);
        for round in 0..20 {
            let here = AtomicUsize::new(0);
            if round % 2 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            // Ends only where two threads are in it at once.
            // SAFETY: `meet` may run on any thread, and `here` lives until the loop has returned.
            assert!(unsafe { crew.run(2, meet, std::ptr::from_ref(&here).cast_mut().cast()) });
        }
    }

    /// Notes who ran an index; the first of each half wait for each other, so that nobody does both.
    unsafe extern "C" fn note(index: usize, context: *mut c_void) {
        // SAFETY: the test passes a pair that outlives the loop.
        let (begun, by) = unsafe { &*context.cast::<(AtomicUsize, [OnceLock<ThreadId>; 8])>() };
        by[index].set(thread::current().id()).expect("each index runs once");
        if index.is_multiple_of(4) {
            begun.fetch_add(1, Ordering::SeqCst);
            while begun.load(Ordering::SeqCst) < 2 {
                thread::yield_now();
            }
        }
    }

    #[test]
    fn a_thread_begins_with_its_own_indices_in_every_loop() {
        let crew = Crew::start(1);
        for _ in 0..50 {
            let noted = (AtomicUsize::new(0), <[OnceLock<ThreadId>; 8]>::default());
            // SAFETY: `note` may run on any thread, and the pair lives until the loop has returned.
            assert!(unsafe { crew.run(8, note, std::ptr::from_ref(&noted).cast_mut().cast()) });
            let own = thread::current().id();
            assert_eq!(noted.1[0].get(), Some(&own), "the caller's first");
            assert!(noted.1[4].get().is_some_and(|other| *other != own), "the helper's first");
        }
    }

    #[test]
    fn one_caller_has_the_crew_and_the_others_are_told() {
        let crew = Crew::start(2);
        let (ran, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let counts = Counts::new(7);
                        let is_run = run(&crew, &counts);
                        assert!(counts.all_are(usize::from(is_run)));
                        (if is_run { &ran } else { &refused }).fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(ran.into_inner() + refused.into_inner(), 8_000);
    }

    /// A loop inside of the loop: the crew is at work, and says so instead of waiting for itself.
    unsafe extern "C" fn nested(_: usize, context: *mut c_void) {
        // SAFETY: the test passes a pair that outlives the loop.
        let (crew, ran) = unsafe { &*context.cast::<(Crew, AtomicUsize)>() };
        let counts = Counts::new(3);
        assert!(!run(crew, &counts) && counts.all_are(0));
        ran.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn a_loop_inside_of_a_loop_does_not_wait_for_itself() {
        let pair = (Crew::start(1), AtomicUsize::new(0));
        // SAFETY: `nested` may run on any thread, and `pair` lives until the loop has returned.
        assert!(unsafe { pair.0.run(5, nested, std::ptr::from_ref(&pair).cast_mut().cast()) });
        assert_eq!(pair.1.into_inner(), 5);
    }

    /// Sleeps until the caller has seen that a fork came in the middle of the loop.
    unsafe extern "C" fn until_told(_: usize, context: *mut c_void) {
        // SAFETY: the test passes a pair that outlives the loop.
        let (begun, may_end) = unsafe { &*context.cast::<(AtomicUsize, AtomicUsize)>() };
        begun.fetch_add(1, Ordering::SeqCst);
        while may_end.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_forked_process_runs_its_loops_alone_whatever_the_helpers_were_at() {
        // SAFETY: functions of POSIX, by their signatures on Linux.
        unsafe extern "C" {
            fn fork() -> i32;
            fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
            safe fn alarm(seconds: u32) -> u32;
            safe fn _exit(status: i32) -> !;
        }
        let crew = Crew::start(1);
        let gate = (AtomicUsize::new(0), AtomicUsize::new(0));
        let counts = Counts::new(7);
        let status = std::thread::scope(|scope| {
            let context = std::ptr::from_ref(&gate).expose_provenance();
            let (crew, gate) = (&crew, &gate);
            scope.spawn(move || {
                // SAFETY: `until_told` may run on any thread, and the gate lives until the scope ends.
                unsafe { crew.run(2, until_told, std::ptr::with_exposed_provenance_mut(context)) }
            });
            // Both threads are in the loop, and the crew is taken.
            while gate.0.load(Ordering::SeqCst) < 2 {
                std::thread::yield_now();
            }
            // SAFETY: the child runs a loop over what it has, allocates nothing, and ends without a destructor.
            let child = unsafe { fork() };
            if child == 0 {
                // A child that waits for its parent's threads is ended by the signal.
                alarm(20);
                let is_run = run(crew, &counts);
                _exit(i32::from(!(is_run && counts.all_are(1))));
            }
            let mut status = -1;
            // SAFETY: the child of this process, and a place for its status.
            let waited = unsafe { waitpid(child, &raw mut status, 0) };
            gate.1.store(1, Ordering::SeqCst);
            assert_eq!(waited, child);
            status
        });
        assert_eq!(status, 0, "the child's status");
        assert!(run(&crew, &counts) && counts.all_are(1), "the parent's crew goes on");
    }
}
