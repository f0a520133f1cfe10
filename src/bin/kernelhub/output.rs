//! Standard output and standard error, of a program whose reader may be gone and whose texts may be somebody else's.
//!
//! `println!` of the standard library panics where it cannot write, as after `| head -1` or on a full disk. `main.rs`
//! puts the macros below in its place for the whole program. A closed pipe is the reader's choice: nothing more is
//! written, and the work goes on, so that what was asked for is there and whole. Any other failure is remembered, and
//! is the program's outcome unless the work itself fails.
//!
//! Names, notes and lines of files come from servers, archives and caches: what a terminal would take for a command is
//! written as an escape, such as `\u{1b}`.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write as _};
use std::sync::Mutex;
use std::sync::PoisonError;

use crate::failure::Failure;

/// The first failure to write to standard output. Nothing is written after it.
static BROKEN: Mutex<Option<io::Error>> = Mutex::new(None);

/// Writes to standard output.
pub(crate) fn out(text: fmt::Arguments<'_>) {
    let mut broken = BROKEN.lock().unwrap_or_else(PoisonError::into_inner);
    if broken.is_none() {
        let mut stdout = io::stdout().lock();
        *broken = stdout.write_all(plain(&text.to_string()).as_bytes()).and_then(|()| stdout.flush()).err();
    }
}

/// Writes to standard error. Where that fails there is nobody to tell.
pub(crate) fn err(text: fmt::Arguments<'_>) {
    err_as_it_is(&plain(&text.to_string()));
}

/// As [`err`], for a text that has colours of this program's own and is [`plain`] otherwise.
pub(crate) fn err_as_it_is(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// JSON with the same characters escaped as JSON has it, so that what is printed can be read again. Outside of its
/// strings there are none.
pub(crate) fn plain_json(text: &str) -> String {
    let mut units = [0; 2];
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_command(c) {
            out.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            out.push(c);
        }
    }
    out
}

/// Whether a terminal takes a character for a command: it moves the cursor or the reading direction.
fn is_command(c: char) -> bool {
    (c.is_control() && !['\n', '\t'].contains(&c))
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with every character escaped that moves the cursor or the reading direction, but for line ends and tabs.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(is_command) {
        return Cow::Borrowed(text);
    }
    let escape = |c: char| if is_command(c) { c.escape_unicode().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(escape).collect())
}

/// Whether everything reached its reader, or the reader went away.
pub(crate) fn outcome() -> Result<(), Failure> {
    match BROKEN.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::output(error)),
        _ => Ok(()),
    }
}

/// As the standard library's, without its panic.
macro_rules! print {
    ($($text:tt)*) => { crate::output::out(format_args!($($text)*)) };
}
/// As the standard library's, without its panic.
macro_rules! println {
    ($text:literal $($values:tt)*) => { crate::output::out(format_args!("{}\n", format_args!($text $($values)*))) };
}
/// As the standard library's, without its panic.
macro_rules! eprintln {
    ($text:literal $($values:tt)*) => { crate::output::err(format_args!("{}\n", format_args!($text $($values)*))) };
}
