//! Progress bars for downloads.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use kernelhub::fetch::{Environment, Progress};

/// One bar per download, on standard error; plain lines where that is no terminal.
#[derive(Default)]
pub(crate) struct Bars {
    all: MultiProgress,
    /// Neither bars nor lines about downloads; notes still come.
    quiet: bool,
    running: Mutex<HashMap<String, ProgressBar>>,
}

const TEMPLATE: &str = "{msg:40} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";

impl Bars {
    /// Draws as `HF_HUB_DISABLE_PROGRESS_BARS` says.
    pub(crate) fn of(environment: &Environment) -> Self {
        Self { quiet: environment.disable_progress_bars, ..Self::default() }
    }

    fn bar(&self, name: &str) -> Option<ProgressBar> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn is_terminal(&self) -> bool {
        !self.all.is_hidden()
    }
}

impl Progress for Bars {
    fn started(&self, name: &str, total: Option<u64>) {
        if self.quiet {
            return;
        }
        if !self.is_terminal() {
            eprintln!("downloading {name}{}", total.map_or_else(String::new, |total| format!(" ({total} bytes)")));
        }
        let bar = self.all.add(total.map_or_else(ProgressBar::no_length, ProgressBar::new));
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(name.to_owned());
        self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), bar);
    }

    fn advanced(&self, name: &str, bytes: u64) {
        if let Some(bar) = self.bar(name) {
            bar.inc(bytes);
        }
    }

    fn finished(&self, name: &str) {
        if let Some(bar) = self.bar(name) {
            bar.finish();
        }
    }

    fn note(&self, message: &str) {
        if self.is_terminal() {
            // A terminal that went away takes only the note with it.
            let _ = self.all.println(message);
        } else {
            eprintln!("{message}");
        }
    }
}
