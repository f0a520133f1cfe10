//! What is brought up once for each key, however many threads ask for it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::fetch::{Cancel, FetchError};

/// How often a thread that waits for another one's work looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(20);

/// Values by their keys. Threads that ask for different keys work at the same time; of those that ask for one, the first
/// works and the others wait for it, and one of them tries again where it failed.
#[derive(Debug)]
pub(super) struct Interned<K, V> {
    places: Mutex<HashMap<K, Arc<Place<V>>>>,
}

#[derive(Debug)]
struct Place<V> {
    value: OnceLock<Arc<V>>,
    is_busy: Mutex<bool>,
    freed: Condvar,
}

/// A thread's turn at a place. It ends with the value, whatever became of the work.
struct Turn<'a, V>(&'a Place<V>);

impl<V> Drop for Turn<'_, V> {
    fn drop(&mut self) {
        *lock(&self.0.is_busy) = false;
        self.0.freed.notify_all();
    }
}

impl<V> Place<V> {
    fn turn(&self, cancel: &Cancel) -> Result<Turn<'_, V>, FetchError> {
        let mut is_busy = lock(&self.is_busy);
        while *is_busy {
            if cancel.is_cancelled() {
                return Err(FetchError::Cancelled);
            }
            is_busy = self.freed.wait_timeout(is_busy, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        *is_busy = true;
        Ok(Turn(self))
    }
}

impl<K, V> Default for Interned<K, V> {
    fn default() -> Self {
        Self { places: Mutex::default() }
    }
}

impl<K: Eq + Hash + Clone, V> Interned<K, V> {
    /// The value of a key, brought by `bring` where nobody has brought it before. A wait for another thread's work ends
    /// when `cancel` says so.
    pub(super) fn get<E: From<FetchError>>(
        &self,
        key: &K,
        cancel: &Cancel,
        bring: impl FnOnce() -> Result<V, E>,
    ) -> Result<Arc<V>, E> {
        let place = Arc::clone(lock(&self.places).entry(key.clone()).or_insert_with(|| Arc::new(Place::new())));
        let known = || place.value.get().map(Arc::clone);
        if let Some(value) = known() {
            return Ok(value);
        }
        let turn = place.turn(cancel);
        // Another thread may have brought it meanwhile.
        let outcome = match (known(), &turn) {
            (Some(value), _) => Ok(value),
            (None, Ok(_)) => bring().map(|value| Arc::clone(place.value.get_or_init(|| Arc::new(value)))),
            (None, Err(_)) => Err(FetchError::Cancelled.into()),
        };
        drop(turn);
        if outcome.is_err() {
            let mut places = lock(&self.places);
            // The map's and this thread's: nobody else is here, and nobody can come while the map is locked.
            if Arc::strong_count(&place) == 2 && place.value.get().is_none() {
                places.remove(key);
            }
        }
        outcome
    }
}

impl<V> Place<V> {
    fn new() -> Self {
        Self { value: OnceLock::new(), is_busy: Mutex::new(false), freed: Condvar::new() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No lock here is held while anything that can panic runs.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::Interned;
    use crate::fetch::{Cancel, FetchError};

    #[test]
    fn one_key_is_brought_once_and_two_at_the_same_time() {
        let (interned, cancel) = (Interned::<u32, u32>::default(), Cancel::default());
        let (met, brought) = (Barrier::new(2), AtomicUsize::new(0));
        let bring = |key: u32| {
            // Each waits for the other one's work to begin: in turn, neither would end.
            met.wait();
            brought.fetch_add(1, Ordering::SeqCst);
            Ok::<u32, FetchError>(key)
        };
        std::thread::scope(|scope| {
            for key in [1, 1, 1, 2, 2, 2] {
                let (interned, cancel, bring) = (&interned, &cancel, &bring);
                scope.spawn(move || assert_eq!(*interned.get(&key, cancel, || bring(key)).unwrap(), key));
            }
        });
        assert_eq!(brought.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_failure_is_tried_again_and_leaves_nothing() {
        let (interned, cancel) = (Interned::<u32, u32>::default(), Cancel::default());
        let failed = interned.get(&1, &cancel, || Err(FetchError::NoCacheRoot));
        assert!(matches!(failed, Err(FetchError::NoCacheRoot)));
        assert!(interned.places.lock().unwrap().is_empty());
        assert_eq!(*interned.get(&1, &cancel, || Ok::<_, FetchError>(7)).unwrap(), 7);
        let panicked = std::panic::catch_unwind(|| {
            let _ = interned.get(&2, &cancel, || -> Result<u32, FetchError> { panic!("as a kernel might") });
        });
        assert!(panicked.is_err());
        assert_eq!(*interned.get(&2, &cancel, || Ok::<_, FetchError>(8)).unwrap(), 8, "the turn ended");
    }

    #[test]
    fn who_waits_for_another_ones_work_can_be_cancelled() {
        let (interned, working) = (Interned::<u32, u32>::default(), Cancel::default());
        let (begun, ended) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let bring = || {
                    begun.wait();
                    ended.wait();
                    Ok::<_, FetchError>(1)
                };
                interned.get(&1, &working, bring).unwrap();
            });
            begun.wait();
            let waiting = Cancel::default();
            waiting.cancel();
            let outcome = interned.get(&1, &waiting, || Ok::<_, FetchError>(2));
            assert!(matches!(outcome, Err(FetchError::Cancelled)));
            ended.wait();
        });
    }
}
