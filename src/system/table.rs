//! Tables for a terminal.

use std::fmt;

/// Longest name that is shown whole, in characters. Names come from drivers and strangers.
const MAX_NAME_CHARS: usize = 120;

/// Longest sentence that is shown whole. Those of this crate are shorter; what they tell may come from strangers.
const MAX_SENTENCE_CHARS: usize = 600;

/// A sentence for a terminal: as [`printable`], and long enough for what it advises at its end.
pub(crate) fn printable_sentence(text: &str) -> String {
    printable_up_to(text, MAX_SENTENCE_CHARS)
}

/// A name for a terminal: control and direction characters escaped, at most [`MAX_NAME_CHARS`] characters.
pub(crate) fn printable(text: &str) -> String {
    printable_up_to(text, MAX_NAME_CHARS)
}

/// Text for a terminal: control and direction characters escaped, and cut after so many characters.
pub(crate) fn printable_up_to(text: &str, characters: usize) -> String {
    let mut out = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == characters {
            out.push_str("...");
            break;
        }
        if is_obeyed(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// Whether a terminal obeys a character or shows it as nothing: controls, marks of direction, zero widths. Letters of
/// any script are none of these.
fn is_obeyed(c: char) -> bool {
    const INVISIBLE: [std::ops::RangeInclusive<char>; 5] = [
        '\u{61c}'..='\u{61c}',
        '\u{200b}'..='\u{200f}',
        '\u{2028}'..='\u{202e}',
        '\u{2060}'..='\u{206f}',
        '\u{feff}'..='\u{feff}',
    ];
    c.is_control() || INVISIBLE.iter().any(|range| range.contains(&c))
}

/// Rows of cells, printed with aligned columns. The last column is as long as its text.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|&cell| cell.to_owned()).collect()] }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let line: Vec<String> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
            writeln!(f, "{}", line.join("  ").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Table, printable, printable_sentence};

    #[test]
    fn columns_align_by_characters_and_lines_end_clean() {
        let mut table = Table::new(&["A", "B", "C"]);
        table.row(["é".repeat(4), "x".to_owned(), String::new()]);
        assert_eq!(table.to_string(), "A     B  C\néééé  x\n");
    }

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        assert_eq!(printable("a\x1b[31m\u{202e}é"), "a\\u{1b}[31m\\u{202e}é");
        assert_eq!(printable(&"x".repeat(500)).chars().count(), 123);
        assert_eq!(printable_sentence(&"x".repeat(500)).len(), 500);
        assert_eq!(printable_sentence(&"x".repeat(5000)).len(), 603);
    }
}
