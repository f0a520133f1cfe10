//! A progress bar per download.

use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressStyle};
use kernelhub::fetch::Progress;

/// Downloads come one after the other, so one bar is enough.
#[derive(Default)]
pub struct Bar(Mutex<Option<ProgressBar>>);

impl Progress for Bar {
    fn started(&self, name: &str, total: Option<u64>) {
        let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
        if let Ok(style) = ProgressStyle::with_template("{msg:44} [{bar:24}] {bytes}/{total_bytes}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(name.to_owned());
        if bar.is_hidden() {
            println!("downloading {name}");
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar);
    }

    fn advanced(&self, _name: &str, bytes: u64) {
        if let Some(bar) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            bar.inc(bytes);
        }
    }

    fn finished(&self, _name: &str) {
        if let Some(bar) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            bar.finish();
        }
    }

    fn note(&self, message: &str) {
        println!("{message}");
    }
}
