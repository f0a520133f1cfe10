//! Threads that stay awake for the next loop.
//!
//! A decoded token is some hundred loops of 20 to 100 µs with a few µs between them. A general pool hands each of them
//! over through its queues, puts the caller to sleep and wakes it again, which costs as much as the smaller loops
//! themselves. Here the caller works along, and a helper that has nothing to do looks out for the next loop for a
//! moment before it sleeps, so that a loop that comes soon begins without the operating system. A helper that is late
//! is not waited for: whoever is there does its part.
//!
//! One loop at a time: a caller that finds the crew at work takes another way.
#![expect(unsafe_code, reason = "runs a pack's loop body on several threads")]

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use kernelhub_abi::ParallelBodyFn;

/// How long a thread that waits looks out before it sleeps: longer than what stands between two loops of a forward.
const LOOK_OUT: Duration = Duration::from_micros(50);
/// Looks between two looks at the clock.
const LOOKS: u32 = 64;

/// One loop.
#[derive(Clone, Copy)]
struct Job {
    count: usize,
    body: ParallelBodyFn,
    context: *mut c_void,
}

/// Helpers, and the loop that they are at.
pub(super) struct Crew {
    /// Threads beside the caller.
    helpers: usize,
    /// Whether a caller has the crew.
    is_taken: AtomicBool,
    /// Counts the loops.
    turn: AtomicU32,
    /// Whether helpers may still join the loop.
    is_open: AtomicBool,
    /// Helpers that may be at the loop.
    active: AtomicUsize,
    /// The next index that nobody has begun.
    next: AtomicUsize,
    job: UnsafeCell<Option<Job>>,
    /// Where helpers sleep, and how many do.
    bed: Sleep,
    /// Where the caller sleeps, and whether it does.
    desk: Sleep,
}

// SAFETY: all fields but `job` are made for threads. `job` is written by the one caller that has taken the crew, while
// the loop is closed and no helper is counted as active. A helper reads it only while it is counted and after it saw the
// loop open, and a caller closes the loop and waits for the count to be 0 before it leaves: each step of this is
// sequentially consistent. The context in it may be used on any thread, by the contract of the pack ABI.
unsafe impl Sync for Crew {}
// SAFETY: as above; nothing in it belongs to a thread.
unsafe impl Send for Crew {}

impl Crew {
    /// A crew with `helpers` threads, which live as long as the process; with fewer where the system gives no more.
    pub(super) fn start(helpers: usize) -> &'static Self {
        let crew = Box::leak(Box::new(Self {
            helpers: 0,
            is_taken: AtomicBool::new(false),
            turn: AtomicU32::new(0),
            is_open: AtomicBool::new(false),
            active: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            bed: Sleep::default(),
            desk: Sleep::default(),
        }));
        // The helpers begin when all are there, so that their number is known before the crew is shared.
        let start = Arc::new(OnceLock::<&'static Self>::new());
        let spawned = (0..helpers).map_while(|index| {
            let start = Arc::clone(&start);
            let builder = thread::Builder::new().name(format!("kernelhub-{index}"));
            builder.spawn(move || start.wait().help()).ok()
        });
        crew.helpers = spawned.count();
        let crew: &'static Self = crew;
        let _ = start.set(crew);
        crew
    }

    /// Runs `body(i, context)` once for each `i` below `count`, here and on the helpers, and returns when all have
    /// returned. `false`, and nothing was run: another caller has the crew.
    ///
    /// # Safety
    /// `body` may be called with `context` on any thread, once for each index below `count`, until this returns.
    pub(super) unsafe fn run(&self, count: usize, body: ParallelBodyFn, context: *mut c_void) -> bool {
        let job = Job { count, body, context };
        if self.helpers == 0 {
            // SAFETY: the caller's contract.
            (0..count).for_each(|index| unsafe { body(index, context) });
            return true;
        }
        if self.is_taken.swap(true, Ordering::Acquire) {
            return false;
        }
        // SAFETY: no other caller has the crew, and none of the last loop's helpers is at it: see `Sync`.
        unsafe { *self.job.get() = Some(job) };
        self.next.store(0, Ordering::SeqCst);
        self.is_open.store(true, Ordering::SeqCst);
        self.turn.fetch_add(1, Ordering::SeqCst);
        self.bed.wake();
        // SAFETY: the caller's contract.
        unsafe { self.work(job) };
        self.is_open.store(false, Ordering::SeqCst);
        let is_done = || self.active.load(Ordering::SeqCst) == 0;
        if !looked_out_for(is_done) {
            self.desk.until(is_done);
        }
        self.is_taken.store(false, Ordering::Release);
        true
    }

    /// Does what nobody has begun yet.
    ///
    /// # Safety
    /// As [`run`](Self::run), until this returns.
    unsafe fn work(&self, Job { count, body, context }: Job) {
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            // SAFETY: the caller's contract; each index is given out once.
            unsafe { body(index, context) };
        }
    }

    /// A helper's life.
    fn help(&self) {
        let mut seen = 0;
        loop {
            let is_next = || self.turn.load(Ordering::SeqCst) != seen;
            if !looked_out_for(is_next) {
                self.bed.until(is_next);
            }
            seen = self.turn.load(Ordering::SeqCst);
            self.active.fetch_add(1, Ordering::SeqCst);
            if self.is_open.load(Ordering::SeqCst) {
                // SAFETY: the loop is open and this helper counted, so that nobody writes it: see `Sync`.
                let job = unsafe { *self.job.get() };
                if let Some(job) = job {
                    // SAFETY: the caller in `run` does not return before this helper is counted out.
                    unsafe { self.work(job) };
                }
            }
            if self.active.fetch_sub(1, Ordering::SeqCst) == 1 {
                self.desk.wake();
            }
        }
    }
}

/// Waits a moment for `is_so` to be true; returns whether it became so.
fn looked_out_for(is_so: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if is_so() {
                return true;
            }
            spin_loop();
        }
        if start.elapsed() > LOOK_OUT {
            return false;
        }
    }
}

/// A place to sleep at until something is so.
#[derive(Default)]
struct Sleep {
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    bell: Condvar,
}

impl Sleep {
    fn lock(&self) -> MutexGuard<'_, ()> {
        // It guards nothing that could be left half done.
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until `is_so`. Whoever makes it so calls [`wake`](Self::wake) after that.
    fn until(&self, is_so: impl Fn() -> bool) {
        let mut guard = self.lock();
        // Counted before it looks, so that who makes it so afterwards sees the count.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while !is_so() {
            guard = self.bell.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Takes no lock where nobody sleeps.
    fn wake(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // Between a sleeper's look and its sleep it has the lock.
            drop(self.lock());
            self.bell.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::Crew;

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
                assert!(run(crew, &counts));
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

    #[test]
    fn one_caller_has_the_crew_and_the_others_are_told() {
        let crew = Crew::start(2);
        let (ran, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let counts = Counts::new(7);
                        let is_run = run(crew, &counts);
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
        let (crew, ran) = unsafe { &*context.cast::<(&Crew, AtomicUsize)>() };
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
}
