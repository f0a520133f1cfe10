//! Work on a thread beside the steps of a command.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::anyhow;

/// Work that runs until it is waited for. Dropped before that, because another step has failed, it ends after the part
/// that it is at: no program is left behind.
pub(crate) struct Beside {
    thread: Option<JoinHandle<anyhow::Result<()>>>,
    stop: Arc<AtomicBool>,
}

impl Beside {
    /// Does the parts one after another.
    pub(crate) fn start<T: Send + 'static>(
        parts: impl IntoIterator<Item = T> + Send + 'static,
        part: impl Fn(T) -> anyhow::Result<()> + Send + 'static,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let work = move || {
            let mut unstopped = parts.into_iter().take_while(|_| !stopped.load(Ordering::Relaxed));
            unstopped.try_for_each(part)
        };
        Self { thread: Some(thread::spawn(work)), stop }
    }

    /// Waits for all parts.
    pub(crate) fn wait(mut self) -> anyhow::Result<()> {
        self.thread.take().map_or(Ok(()), join)
    }
}

fn join(thread: JoinHandle<anyhow::Result<()>>) -> anyhow::Result<()> {
    thread.join().unwrap_or_else(|_| Err(anyhow!("the work beside the other steps panicked")))
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(Err(error)) = self.thread.take().map(join) {
            println!("beside the step that failed: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    #[test]
    fn an_error_ends_the_work_and_is_told() {
        let (done, parts): (Sender<u32>, Receiver<u32>) = channel();
        let work = Beside::start(0..3, move |part| {
            done.send(part).unwrap();
            if part == 1 { Err(anyhow!("part {part}")) } else { Ok(()) }
        });
        assert_eq!(work.wait().unwrap_err().to_string(), "part 1");
        assert_eq!(parts.iter().collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn dropped_work_ends_after_its_part() {
        let (begun, parts) = channel();
        let (go, wait) = channel::<()>();
        let work = Beside::start(0..3, move |part| {
            begun.send(part).unwrap();
            // Ends when `go` is dropped, which is after the work was told to stop.
            let _ = wait.recv();
            Ok(())
        });
        assert_eq!(parts.recv(), Ok(0));
        work.stop.store(true, Ordering::Relaxed);
        drop(go);
        drop(work);
        assert_eq!(parts.recv().ok(), None);
    }
}
