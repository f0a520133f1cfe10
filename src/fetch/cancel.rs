//! Stopping work from another thread.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{Either, select};
use tokio::sync::Notify;

use super::FetchError;

/// A wish to stop, shared between who wishes and who works. What was downloaded by then stays, to be resumed.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_cancelled: AtomicBool,
    notify: Notify,
}

impl Cancel {
    /// Stops the work that holds a clone of this.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::SeqCst);
        self.0.notify.notify_waiters();
    }

    /// Whether somebody wished to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::SeqCst)
    }

    /// # Errors
    /// [`FetchError::Cancelled`] once somebody wished to stop.
    pub(super) fn check(&self) -> Result<(), FetchError> {
        if self.is_cancelled() { Err(FetchError::Cancelled) } else { Ok(()) }
    }

    /// Runs the work until it is done or to be stopped, which drops it.
    pub(super) async fn run<T>(&self, work: impl Future<Output = Result<T, FetchError>>) -> Result<T, FetchError> {
        let mut cancelled = pin!(self.0.notify.notified());
        // Registered before the look at the flag, so that no wish falls between the two.
        cancelled.as_mut().enable();
        self.check()?;
        match select(pin!(work), cancelled).await {
            Either::Left((result, _)) => result,
            Either::Right(_) => Err(FetchError::Cancelled),
        }
    }
}

/// Cancels when it is dropped: for a future, whose end nobody announces.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(pub(crate) Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
