//! Reads of the kernel's small files, with bounds: a file below a described root may be anything.

use crate::regular;
use std::path::{Path, PathBuf};

/// The most bytes of a file that are read.
const MAX_BYTES: u64 = 4 << 10;
/// The most entries of a folder that are looked at.
const MAX_ENTRIES: usize = 4 << 10;

/// A file's text without the blanks around it; `None` when it cannot be read, is no text or is empty.
pub(super) fn text(path: &Path) -> Option<String> {
    let bytes = regular::read_start(regular::open(path).ok()?, MAX_BYTES).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// A number as sysfs writes it: hexadecimal with `0x`, else decimal.
pub(super) fn number(path: &Path) -> Option<u64> {
    let text = text(path)?;
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The names in a folder that are `prefix` and a number, with that number, by its order. Anything else in the folder,
/// such as the connector `card1-DP-1`, is passed by.
pub(super) fn numbered(folder: &Path, prefix: &str) -> Vec<(u32, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<(u32, PathBuf)> = entries
        .take(MAX_ENTRIES)
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let digits = name.to_str()?.strip_prefix(prefix)?;
            let number = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())??;
            Some((number, entry.path()))
        })
        .collect();
    found.sort();
    found
}

/// The last part of what a link points to.
pub(super) fn link_name(path: &Path) -> Option<String> {
    std::fs::read_link(path).ok()?.file_name()?.to_str().map(str::to_owned)
}

/// The PCI devices of a vendor, by their addresses in order: `(address, folder)`.
pub(super) fn pci_devices(folder: &Path, vendor: u64) -> Vec<(String, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<(String, PathBuf)> = entries
        .take(MAX_ENTRIES)
        .flatten()
        .filter(|entry| number(&entry.path().join("vendor")) == Some(vendor))
        .filter_map(|entry| Some((entry.file_name().to_str()?.to_owned(), entry.path())))
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{number, numbered, pci_devices, text};

    #[test]
    fn only_whole_small_texts_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, content).unwrap();
            path
        };
        assert_eq!(text(&file("a", b" 0x8086\n")), Some("0x8086".to_owned()));
        assert_eq!(number(&file("b", b"0x8086\n")), Some(0x8086));
        assert_eq!(number(&file("c", b"48\n")), Some(48));
        assert_eq!(text(&file("d", &[b'x'; 10_000])).map(|text| text.len()), Some(4096));
        for bad in [&b""[..], b"\n", b"\xff"] {
            assert_eq!(text(&file("e", bad)), None);
        }
        assert_eq!(text(folder.path()), None);
        assert_eq!(number(&file("f", b"0xzz")), None);
    }

    #[test]
    fn entries_are_those_with_a_number_alone() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["card10", "card2", "card1-DP-1", "renderD128", "card", "card+3", "card99999999999"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let numbers: Vec<u32> = numbered(folder.path(), "card").into_iter().map(|(number, _)| number).collect();
        assert_eq!(numbers, [2, 10]);
        assert_eq!(numbered(&folder.path().join("absent"), "card"), []);
        assert_eq!(pci_devices(folder.path(), 0x8086), []);
    }
}
