//! Limits on one input: time, and the memory of the process.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// Since when an input runs, and the input.
type Run = (Instant, Vec<u8>);

/// Watches one target's runs from a thread of its own.
pub(crate) struct Watch {
    target: &'static str,
    artifacts: PathBuf,
    running: Arc<Mutex<Option<Run>>>,
}

impl Watch {
    pub(crate) fn start(target: &'static str, artifacts: &Path, timeout: u64, rss_limit_mb: u64) -> Self {
        let watch = Self { target, artifacts: artifacts.to_path_buf(), running: Arc::default() };
        let (running, artifacts) = (Arc::downgrade(&watch.running), watch.artifacts.clone());
        std::thread::spawn(move || {
            // The thread ends with its target.
            while let Some(running) = running.upgrade() {
                let now = running.lock().unwrap_or_else(PoisonError::into_inner).clone();
                drop(running);
                if let Some((since, input)) = now {
                    let what = if since.elapsed() > Duration::from_secs(timeout) {
                        Some("hang")
                    } else {
                        (resident_mb() > rss_limit_mb).then_some("memory")
                    };
                    if let Some(what) = what {
                        give_up(target, &artifacts, what, &input);
                    }
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        watch
    }

    pub(crate) fn begins(&self, input: &[u8]) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), input.to_vec()));
    }

    pub(crate) fn ends(&self) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Writes an input that failed into a file.
    pub(crate) fn keep(&self, input: &[u8], what: &str) -> anyhow::Result<PathBuf> {
        keep(self.target, &self.artifacts, what, input)
    }
}

fn keep(target: &str, artifacts: &Path, what: &str, input: &[u8]) -> anyhow::Result<PathBuf> {
    let folder = artifacts.join(target);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let file = folder.join(format!("{what}-{}", &kernelhub_digest(input)[..16]));
    std::fs::write(&file, input).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

fn kernelhub_digest(input: &[u8]) -> String {
    kernelhub::digest::Sha256Digest::of(input).to_string()
}

#[expect(clippy::exit, reason = "the thread that runs the input does not come back")]
fn give_up(target: &str, artifacts: &Path, what: &str, input: &[u8]) -> ! {
    match keep(target, artifacts, what, input) {
        Ok(file) => eprintln!("{target}: {what}; the input is in {}", file.display()),
        Err(error) => eprintln!("{target}: {what}; {error:#}"),
    }
    std::process::exit(1)
}

/// What the process holds in memory, in MiB. 0 where the system does not tell.
fn resident_mb() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096 / (1 << 20)
}
