//! Tables for a terminal, and the one of this machine's devices.

use std::fmt;

use super::device::{DeviceInfo, Route};
use super::{LibraryFound, SystemInfo};
use crate::dtype::DType;
use crate::variant::{Arch, DeviceKey, Os};

/// Longest name that is shown whole, in characters. Names come from drivers and strangers.
const MAX_NAME_CHARS: usize = 120;

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

impl fmt::Display for SystemInfo {
    /// The devices as an aligned table, then the libraries, what nobody has looked for yet, and the notes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(&["DEVICE", "NAME", "MEMORY", "NATIVE DTYPES", "API", "NOTES"]);
        table.row(self.cpu_row());
        // A description by hand may have them in any order.
        let mut devices: Vec<&DeviceInfo> = self.devices.iter().collect();
        devices.sort_by_key(|device| (device.key, device.route, device.index));
        for device in devices {
            table.row(device_row(device));
        }
        write!(f, "{table}")?;
        writeln!(f)?;
        writeln!(f, "libtvm_ffi: {}", library(self.tvm_ffi.as_ref()))?;
        writeln!(f, "libtorch: {}", library(self.torch.as_ref()))?;
        if !self.unprobed.is_empty() {
            let keys: Vec<&str> = self.unprobed.iter().map(|key| key.as_str()).collect();
            writeln!(f, "not probed yet: {}", keys.join(", "))?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {}", printable(note)))
    }
}

impl SystemInfo {
    fn cpu_row(&self) -> [String; 6] {
        let cpu = &self.cpu;
        let word = |word: Option<&str>| word.unwrap_or("unknown").to_owned();
        let mut api = format!("{} {}", word(self.arch.map(Arch::as_str)), word(self.os.map(Os::as_str)));
        if let Some(version) = &self.os_version {
            api = format!("{api}, {}", printable(version));
        }
        if let Some(libc) = &self.libc {
            api = format!("{api}, {libc}");
        }
        let mut notes = Vec::new();
        match (cpu.physical_cores, cpu.logical_cores) {
            (Some(cores), Some(threads)) => notes.push(format!("{cores} cores, {threads} threads")),
            (None, Some(threads)) => notes.push(format!("{threads} threads")),
            (Some(cores), None) => notes.push(format!("{cores} cores")),
            (None, None) => {}
        }
        if let Some(usable) = cpu.usable_cores.filter(|usable| Some(*usable) != cpu.logical_cores) {
            notes.push(format!("{usable} usable here"));
        }
        if !cpu.features.is_empty() {
            notes.push(printable(&cpu.features.join(" ")));
        }
        let has = |names: &[&str]| cpu.features.iter().any(|feature| names.contains(&feature.as_str()));
        let mut dtypes = vec![DType::F64, DType::F32];
        if has(&["avx512bf16", "bf16"]) {
            dtypes.push(DType::Bf16);
        }
        if has(&["avx512fp16", "fp16"]) {
            dtypes.push(DType::F16);
        }
        [
            format!("{}:0", DeviceKey::Cpu),
            cpu.model.as_deref().map_or_else(|| "unknown".to_owned(), printable),
            memory(cpu.memory_bytes),
            join(Some(&dtypes)),
            api,
            notes.join("; "),
        ]
    }
}

fn device_row(device: &DeviceInfo) -> [String; 6] {
    let mut api = device.api.as_deref().map_or_else(|| "unknown".to_owned(), printable);
    if let Some(version) = device.backend_version {
        api = format!("{api} {version}");
    }
    if let Some(driver) = &device.driver {
        api = format!("{api} ({})", printable(driver));
    }
    let mut notes = Vec::new();
    if device.route == Route::Adapter {
        notes.push("shader packs only".to_owned());
    }
    if device.software {
        notes.push("software adapter: computes on the processor".to_owned());
    }
    if let Some(capability) = device.capability {
        notes.push(format!("capability {capability}"));
    }
    if let Some(arch) = &device.arch {
        notes.push(printable(arch));
    }
    if let Some(mask) = &device.masked_by {
        notes.push(format!("hidden by {}", printable(mask)));
    }
    [
        format!("{}:{}", device.key, device.index),
        printable(&device.name),
        memory(device.memory_bytes),
        join(device.dtypes.as_deref()),
        api,
        notes.join("; "),
    ]
}

fn library(found: Option<&LibraryFound>) -> String {
    found.map_or_else(
        || "not found".to_owned(),
        |library| {
            let version = library.version.as_deref().unwrap_or("unknown");
            format!("{} (version {})", printable(&library.path.display().to_string()), printable(version))
        },
    )
}

fn join(dtypes: Option<&[DType]>) -> String {
    match dtypes {
        None => "unknown".to_owned(),
        Some(dtypes) => dtypes.iter().map(|dtype| dtype.as_str()).collect::<Vec<_>>().join(" "),
    }
}

/// Binary units, one digit after the point.
fn memory(bytes: Option<u64>) -> String {
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    match bytes {
        None => "unknown".to_owned(),
        Some(bytes) if bytes >= GIB => format!("{:.1} GiB", bytes as f64 / GIB as f64),
        Some(bytes) => format!("{:.1} MiB", bytes as f64 / MIB as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::{Table, printable};

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
    }
}
