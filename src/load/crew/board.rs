//! The board that a loop is put up on, and what its caller and the helpers do by it.
//!
//! Who does what is agreed on in one word: which loop it is, whether it is open, how many helpers are at it or asleep,
//! and whether the caller sleeps. A step changes and reads the word at once, so that of any two threads the later one
//! knows what the earlier one did, and no pair of separate notes can be read in two orders.
#![expect(unsafe_code, reason = "runs a pack's loop body on several threads")]

use std::ffi::c_void;

use kernelhub_abi::ParallelBodyFn;

use super::sync::{
    AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, PoisonError, Shared, looked_out_for,
};

/// One helper that is at the loop.
const HELPER: u64 = 1;
/// The bits that count them, and the most that there may be.
pub(super) const HELPERS: u64 = 0xffff;
/// One helper that sleeps, or is about to.
const ASLEEP: u64 = 1 << 16;
/// The bits that count them.
const SLEEPERS: u64 = HELPERS << 16;
/// Helpers may still join the loop.
const OPEN: u64 = 1 << 32;
/// The caller sleeps, or is about to, until the last helper is done.
const WAITED_FOR: u64 = 1 << 33;
/// The helpers may go.
const DISMISSED: u64 = 1 << 34;
/// One loop. The bits above count them and begin anew when they are full: a helper that slept for just so many loops
/// would miss one more.
const TURN: u64 = 1 << 35;

/// The bits that count the loops.
fn turn_of(word: u64) -> u64 {
    word & !(TURN - 1)
}

/// One loop.
#[derive(Clone, Copy)]
pub(super) struct Job {
    pub(super) count: usize,
    pub(super) body: ParallelBodyFn,
    pub(super) context: *mut c_void,
}

// SAFETY: the pack ABI lets the host run the body on any of its threads, so the context is made for that by the pack.
unsafe impl Send for Job {}

/// The most hands that the indices of a loop are dealt into, each of which follow each other. A thread begins with the
/// same hand in every loop: what it read or wrote in the loop before lies in the caches of its core, and another core
/// gets it from there at the rate of memory or less. More threads share hands.
const HANDS: usize = 16;

/// Keeps a number that many threads change away from those that others look at.
#[repr(align(128))]
struct Apart<T>(T);

/// A loop, and who is at it.
pub(super) struct Board {
    /// Whether a caller has the board.
    is_taken: AtomicBool,
    word: Apart<AtomicU64>,
    /// Of each hand of indices, the next one that nobody has begun.
    hands: Box<[Apart<AtomicUsize>]>,
    /// Written by the caller that has taken the board, while no loop is open and no helper counted; read by helpers
    /// that are counted.
    job: Shared<Option<Job>>,
    /// Where helpers sleep.
    bed: Sleep,
    /// Where the caller sleeps.
    desk: Sleep,
}

impl Board {
    /// For a caller and so many helpers.
    pub(super) fn new(helpers: usize) -> Self {
        let hands = (helpers + 1).min(HANDS);
        Self {
            is_taken: AtomicBool::new(false),
            word: Apart(AtomicU64::new(0)),
            hands: (0..hands).map(|_| Apart(AtomicUsize::new(0))).collect(),
            job: Shared::new(None),
            bed: Sleep::new(),
            desk: Sleep::new(),
        }
    }

    /// Runs the body once for each index below `count`, here and on the helpers, and returns when all calls have
    /// returned. `false`, and nothing was run: another caller has the board.
    ///
    /// # Safety
    /// The body may be called with the context on any thread, once for each index below `count`, until this returns.
    pub(super) unsafe fn run(&self, job: Job) -> bool {
        let Apart(word) = &self.word;
        if self.is_taken.swap(true, Ordering::Acquire) {
            return false;
        }
        // SAFETY: no other caller has the board, the loop before was closed, and its last helper was counted out.
        self.job.with_mut(|place| unsafe { *place = Some(job) });
        for (hand, Apart(next)) in self.hands.iter().enumerate() {
            next.store(self.first_of(hand, job.count), Ordering::Relaxed);
        }
        // It was closed, so that the sum sets the bit.
        let before = word.fetch_add(TURN | OPEN, Ordering::AcqRel);
        if before & SLEEPERS != 0 {
            self.bed.wake();
        }
        // SAFETY: the caller's contract.
        unsafe { self.work(0, job) };
        let before = word.fetch_sub(OPEN, Ordering::AcqRel);
        if before & HELPERS != 0 {
            self.wait_for_helpers();
        }
        self.is_taken.store(false, Ordering::Release);
        true
    }

    #[cold]
    fn wait_for_helpers(&self) {
        let Apart(word) = &self.word;
        // Closed, so that the count only falls.
        let are_done = || word.load(Ordering::Acquire) & HELPERS == 0;
        if looked_out_for(are_done) {
            return;
        }
        let mut guard = self.desk.lock();
        // The last helper that was not done before this sees the bit, and then waits for the lock.
        word.fetch_or(WAITED_FOR, Ordering::AcqRel);
        while !are_done() {
            guard = self.desk.sleep(guard);
        }
        word.fetch_and(!WAITED_FOR, Ordering::AcqRel);
    }

    /// The first index of a hand; of the one after the last, the end.
    fn first_of(&self, hand: usize, count: usize) -> usize {
        let hands = self.hands.len();
        // Without a product that could be too large.
        count / hands * hand + (count % hands).min(hand)
    }

    /// Does what nobody has begun yet: first of the member's own hand, and then what the others have left.
    ///
    /// # Safety
    /// As [`run`](Self::run), until this returns.
    unsafe fn work(&self, member: usize, Job { count, body, context }: Job) {
        let hands = self.hands.len();
        for step in 0..hands {
            let hand = (member + step) % hands;
            let (Apart(next), end) = (&self.hands[hand], self.first_of(hand + 1, count));
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= end {
                    break;
                }
                // SAFETY: the caller's contract; hands have no index in common, and each is given out once.
                unsafe { body(index, context) };
            }
        }
    }

    /// The life of the helper that is the `member`th one at the board, the caller being the first, until
    /// `dismiss`, which the models call and the program does not.
    pub(super) fn serve(&self, member: usize) {
        let Apart(word) = &self.word;
        let mut seen = 0;
        loop {
            let now = self.await_turn_after(seen);
            if now & DISMISSED != 0 {
                return;
            }
            seen = turn_of(now);
            let Some(turn) = self.join(now) else { continue };
            seen = turn;
            // SAFETY: this helper was counted while the loop was open, and the caller that wrote this before it opened
            // the loop writes again only after the helper is counted out.
            if let Some(job) = self.job.with(|place| unsafe { *place }) {
                // SAFETY: `run` does not return before this helper is counted out.
                unsafe { self.work(member, job) };
            }
            let before = word.fetch_sub(HELPER, Ordering::AcqRel);
            if before & (HELPERS | WAITED_FOR) == HELPER | WAITED_FOR {
                self.desk.wake();
            }
        }
    }

    /// Waits for another loop than `seen`; returns the word.
    fn await_turn_after(&self, seen: u64) -> u64 {
        let Apart(word) = &self.word;
        let is_next = || {
            let now = word.load(Ordering::Acquire);
            now & DISMISSED != 0 || turn_of(now) != seen
        };
        if !looked_out_for(is_next) {
            let mut guard = self.bed.lock();
            // Who opens a loop after this sees the sleeper, and then waits for the lock.
            word.fetch_add(ASLEEP, Ordering::AcqRel);
            while !is_next() {
                guard = self.bed.sleep(guard);
            }
            word.fetch_sub(ASLEEP, Ordering::AcqRel);
        }
        word.load(Ordering::Acquire)
    }

    /// Counts this helper in, if the loop is open: then which loop it is.
    fn join(&self, mut now: u64) -> Option<u64> {
        let Apart(word) = &self.word;
        while now & OPEN != 0 {
            match word.compare_exchange(now, now + HELPER, Ordering::AcqRel, Ordering::Acquire) {
                Ok(joined) => return Some(turn_of(joined)),
                Err(changed) => now = changed,
            }
        }
        None
    }

    /// Lets the helpers go, for tests.
    #[cfg(test)]
    pub(super) fn dismiss(&self) {
        self.word.0.fetch_or(DISMISSED, Ordering::AcqRel);
        self.bed.wake();
    }
}

/// A place to sleep at. Whoever makes true what a sleeper waits for calls [`wake`](Self::wake) after that.
struct Sleep {
    lock: Mutex<()>,
    bell: Condvar,
}

impl Sleep {
    fn new() -> Self {
        Self { lock: Mutex::new(()), bell: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        // It guards nothing that could be left half done.
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleep<'a>(&self, guard: MutexGuard<'a, ()>) -> MutexGuard<'a, ()> {
        self.bell.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // Between a sleeper's look and its sleep it has the lock.
        drop(self.lock());
        self.bell.notify_all();
    }
}
