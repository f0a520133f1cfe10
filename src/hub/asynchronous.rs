//! The hub in asynchronous programs.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Hub, HubError, Kernel};
use crate::fetch::{Cancel, CancelOnDrop, FetchError, Revision};
use crate::names::RepoId;
use crate::variant::DeviceKey;

impl Hub {
    /// As [`Self::get`], as a future for any runtime: the same work, on a thread of its own.
    ///
    /// Dropping the future stops the work; what was downloaded by then is gone on with next time.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn get_async(
        self: &Arc<Self>,
        repo: &RepoId,
        revision: impl Into<Revision>,
        device: DeviceKey,
    ) -> impl Future<Output = Result<Arc<Kernel>, HubError>> + Send + 'static {
        let (repo, revision) = (repo.clone(), revision.into());
        self.run_async("kernelhub-get", move |hub, cancel| hub.get_cancellable(&repo, &revision, device, cancel))
    }

    fn run_async<T: Send + 'static>(
        self: &Arc<Self>,
        name: &'static str,
        work: impl FnOnce(&Self, &Cancel) -> Result<T, HubError> + Send + 'static,
    ) -> impl Future<Output = Result<T, HubError>> + Send + 'static {
        let hub = Arc::clone(self);
        async move {
            let cancel = Cancel::default();
            let guard = CancelOnDrop(cancel.clone());
            let (sender, receiver) = oneshot::channel();
            let run = move || {
                // Nobody waits for it any more when this fails.
                let _ = sender.send(work(&hub, &cancel));
            };
            let client = |source| HubError::Fetch(FetchError::Client { source });
            std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(client)?;
            let result = receiver.await;
            drop(guard);
            result.unwrap_or_else(|_| Err(client(std::io::Error::other("the thread that did the work ended"))))
        }
    }
}
