//! How errors reach the terminal.

use std::error::Error;
use std::fmt;

use kernelhub::hint::Hint;

/// An error with its advice.
#[derive(Debug)]
pub(crate) struct Failure {
    error: Box<dyn Error>,
    hint: Option<String>,
    code: u8,
}

/// The exit code of a command that failed.
const FAILED: u8 = 1;
/// The exit code of a choice in which nothing fits.
pub(crate) const NOTHING_FITS: u8 = 3;

impl Failure {
    /// An error that has no advice.
    pub(crate) fn plain(error: impl Into<Box<dyn Error>>) -> Self {
        Self { error: error.into(), hint: None, code: FAILED }
    }

    /// The same error, with advice.
    pub(crate) fn with_hint(self, hint: &str) -> Self {
        Self { hint: Some(hint.to_owned()), ..self }
    }

    /// The same error, with an exit code of its own.
    pub(crate) fn with_code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// The exit code that tells of it.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// Standard output takes no more, as on a full disk.
    pub(crate) fn output(source: std::io::Error) -> Self {
        Self::plain(OutputError { source })
    }

    /// An error of the command line's own.
    pub(crate) fn new(message: impl Into<String>, hint: Option<&str>) -> Self {
        Self { error: message.into().into(), hint: hint.map(str::to_owned), code: FAILED }
    }
}

/// A result that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output")]
struct OutputError {
    #[source]
    source: std::io::Error,
}

impl<E: Hint + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let hint = error.hint();
        Self { error: Box::new(error), hint, code: FAILED }
    }
}

/// The most of one line that is shown, in characters. Errors quote what they refuse, and that can be of any length.
const MAX_LINE: usize = 1000;

/// A text for the terminal: nothing in it is a command to it, and no line is endless.
pub(crate) fn shown(text: &str) -> String {
    let cut = |line: &str| match line.char_indices().nth(MAX_LINE) {
        Some((end, _)) => format!("{}... (cut; the whole line has {} bytes)", &line[..end], line.len()),
        None => line.to_owned(),
    };
    crate::output::plain(text).trim_end().split('\n').map(cut).collect::<Vec<_>>().join("\n")
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `{:#}` is for a terminal that takes colours.
        let label = |text: &str, colour: u8| {
            if f.alternate() { format!("\x1b[1;{colour}m{text}\x1b[0m") } else { text.to_owned() }
        };
        let (error, hint_label) = (label("error:", 31), label("hint:", 36));
        writeln!(f, "{error} {}", shown(&self.error.to_string()))?;
        let mut last = self.error.to_string();
        let mut cause = self.error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // A transparent wrapper repeats its cause's words.
            if text != last {
                writeln!(f, "  caused by: {}", shown(&text).replace('\n', "\n    "))?;
            }
            last = text;
            cause = error.source();
        }
        match &self.hint {
            Some(hint) => writeln!(f, "{hint_label} {}", shown(hint)),
            None => Ok(()),
        }
    }
}
