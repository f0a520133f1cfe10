//! A limit on how long a driver's library may take to answer.
//!
//! A call into a library cannot be ended from outside. So it is made in a thread of its own, and when the time is over
//! nobody waits for that thread any more: it stays until the library answers or the process ends. There is one such
//! thread for each library at most: whoever asks next waits for it first, and starts no second one while it hangs.

use std::sync::{Condvar, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// Who watches over the calls into one library.
#[derive(Debug)]
pub(super) struct Watch {
    busy: Mutex<bool>,
    done: Condvar,
}

/// Ends the call's turn, however the call ends.
struct Turn(&'static Watch);

impl Drop for Turn {
    fn drop(&mut self) {
        *self.0.busy.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.done.notify_all();
    }
}

impl Watch {
    pub(super) const fn new() -> Self {
        Self { busy: Mutex::new(false), done: Condvar::new() }
    }

    /// The answer to a question; `None` when there is none within the limit, or an earlier question still waits for its
    /// own.
    pub(super) fn within<T: Send + 'static>(
        &'static self,
        limit: Duration,
        question: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let deadline = Instant::now() + limit;
        let left = || deadline.saturating_duration_since(Instant::now());
        let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut busy, _) =
            self.done.wait_timeout_while(busy, left(), |busy| *busy).unwrap_or_else(PoisonError::into_inner);
        if *busy {
            return None;
        }
        *busy = true;
        drop(busy);
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let turn = Turn(self);
            let answer = question();
            drop(turn);
            // Nobody waits any more when this fails.
            let _ = sender.send(answer);
        });
        receiver.recv_timeout(left()).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::Watch;

    const LONG: Duration = Duration::from_mins(1);
    const SHORT: Duration = Duration::from_millis(50);

    #[test]
    fn a_library_that_hangs_is_left_behind_and_asked_again_when_it_has_answered() {
        static WATCH: Watch = Watch::new();
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let (release, wait) = mpsc::channel::<()>();
        let start = Instant::now();
        let hung = WATCH.within(SHORT, move || {
            ASKED.fetch_add(1, Ordering::SeqCst);
            let _ = wait.recv();
        });
        assert_eq!(hung, None);
        // No second one is started beside it.
        assert_eq!(WATCH.within(SHORT, || ASKED.fetch_add(1, Ordering::SeqCst)), None);
        assert!(start.elapsed() < LONG && ASKED.load(Ordering::SeqCst) <= 1);
        drop(release);
        assert_eq!(WATCH.within(LONG, || 7), Some(7));
    }

    #[test]
    fn a_question_that_panics_ends_its_turn() {
        static WATCH: Watch = Watch::new();
        assert_eq!(WATCH.within(LONG, || -> u32 { panic!("as a test") }), None);
        assert_eq!(WATCH.within(LONG, || 7), Some(7));
    }
}
