//! Threads that stand ready before the clock starts.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Looks at a barrier before a thread lets others have its core: there may be fewer cores than threads.
const LOOKS: u32 = 20_000;

/// Where threads meet.
struct Barrier {
    threads: usize,
    arrived: AtomicUsize,
}

impl Barrier {
    fn wait(&self) {
        let arrived = self.arrived.fetch_add(1, Ordering::AcqRel) + 1;
        let goal = arrived.next_multiple_of(self.threads);
        let mut looks = 0;
        while self.arrived.load(Ordering::Acquire) < goal {
            if looks < LOOKS {
                looks += 1;
                std::hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }
}

/// Gives `lead` a function that does a task by all threads at once, each with a part of its own, and returns how long
/// that took: from when this thread stood ready, a moment before the last, until the last was done. The first part is the calling thread's.
///
/// # Panics
/// When the system gives no more threads.
pub(crate) fn with<P: Send, T: Copy + Send, R>(
    parts: Vec<P>,
    work: impl Fn(&mut P, T) + Sync,
    lead: impl FnOnce(&mut dyn FnMut(T) -> Duration) -> R,
) -> R {
    let barrier = Barrier { threads: parts.len(), arrived: AtomicUsize::new(0) };
    // `None` ends the threads.
    let task = Mutex::new(None);
    let set = |next: Option<T>| *task.lock().unwrap_or_else(PoisonError::into_inner) = next;
    let get = || *task.lock().unwrap_or_else(PoisonError::into_inner);
    let mut parts = parts.into_iter();
    let Some(mut own) = parts.next() else { return lead(&mut |_| Duration::ZERO) };
    thread::scope(|scope| {
        for mut part in parts {
            let (barrier, work, get) = (&barrier, &work, &get);
            scope.spawn(move || {
                loop {
                    barrier.wait();
                    let Some(task) = get() else { return };
                    barrier.wait();
                    work(&mut part, task);
                    barrier.wait();
                }
            });
        }
        let result = lead(&mut |task| {
            set(Some(task));
            barrier.wait();
            // Before the last of them stands ready, since this thread may be late when it does.
            let clock = Instant::now();
            // The others have the task after this one.
            barrier.wait();
            work(&mut own, task);
            barrier.wait();
            clock.elapsed()
        });
        set(None);
        barrier.wait();
        result
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::with;

    #[test]
    fn every_thread_does_its_part_and_the_time_is_that_of_the_slowest() {
        for threads in [1_u64, 2, 5] {
            let mut done = vec![0; usize::try_from(threads).unwrap()];
            let parts: Vec<_> = (1..=threads).zip(&mut done).collect();
            let slowest = Duration::from_millis(threads * 2);
            let work = |(millis, done): &mut (u64, &mut u64), times: u64| {
                std::thread::sleep(Duration::from_millis(*millis * 2));
                **done += times;
            };
            let times = with(parts, work, |run| [run(3), run(4)]);
            assert!(times.iter().all(|time| *time >= slowest), "{times:?} by {threads}");
            assert!(done.iter().all(|done| *done == 7), "{done:?}");
        }
        assert_eq!(with(Vec::<()>::new(), |(), ()| (), |run| run(())), Duration::ZERO);
    }
}
