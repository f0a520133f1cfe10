//! A machine, for people.

use std::fmt;

use super::device::{DeviceInfo, Route};
use super::table::{Table, printable, printable_sentence};
use super::{LibraryFound, SystemInfo};
use crate::dtype::DType;
use crate::variant::{Arch, DeviceKey, Os};

const HEAD: [&str; 7] = ["DEVICE", "NAME", "MEMORY", "CAPABILITY", "DTYPES", "API", "NOTES"];

impl fmt::Display for DeviceInfo {
    /// A table of one row, with its head.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(&HEAD);
        table.row(device_row(self));
        table.fmt(f)
    }
}

impl fmt::Display for SystemInfo {
    /// The devices as an aligned table, then the settings that hide or order them, the libraries and how to get those
    /// that are absent, what nobody has looked for yet, and the notes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(&HEAD);
        table.row(self.cpu_row());
        // A description by hand may have them in any order.
        let mut devices: Vec<&DeviceInfo> = self.devices.iter().collect();
        devices.sort_by_key(|device| (device.key, device.route, device.masked_by.is_some(), device.index));
        for device in devices {
            table.row(device_row(device));
        }
        write!(f, "{table}")?;
        if !self.masks.is_empty() {
            writeln!(f)?;
            let mut table = Table::new(&["MASK", "VALUE", "DEVICES", "WHAT IT DOES"]);
            for mask in &self.masks {
                let effect = match &mask.error {
                    Some(error) => format!("WRONG: {error}; {}", mask.effect),
                    None => mask.effect.clone(),
                };
                let value = if mask.value.is_empty() { "(empty)".to_owned() } else { printable(&mask.value) };
                table.row([printable(&mask.variable), value, mask.key.to_string(), printable_sentence(&effect)]);
            }
            write!(f, "{table}")?;
        }
        writeln!(f)?;
        let (tvm_ffi, torch) = (self.tvm_ffi.as_ref(), self.torch.as_ref());
        writeln!(f, "libtvm_ffi: {}", library(tvm_ffi, "pip install apache-tvm-ffi, or KERNELHUB_TVM_FFI=FILE"))?;
        writeln!(f, "libtorch: {}", library(torch, "pip install torch, or LIBTORCH=DIR of a libtorch distribution"))?;
        if !self.unprobed.is_empty() {
            let keys: Vec<&str> = self.unprobed.iter().map(|key| key.as_str()).collect();
            writeln!(f, "not looked for: {}", keys.join(", "))?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {}", printable_sentence(note)))
    }
}

impl SystemInfo {
    fn cpu_row(&self) -> [String; 7] {
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
            (Some(cores), Some(threads)) => {
                notes.push(format!("{}, {}", counted(cores, "core"), counted(threads, "thread")));
            }
            (None, Some(threads)) => notes.push(counted(threads, "thread")),
            (Some(cores), None) => notes.push(counted(cores, "core")),
            (None, None) => {}
        }
        if let Some(usable) = cpu.usable_cores.filter(|usable| Some(*usable) != cpu.logical_cores) {
            notes.push(format!("{usable} usable here"));
        }
        if !cpu.features.is_empty() {
            notes.push(printable(&cpu.features.join(" ")));
        }
        let (native, emulated) = cpu.dtypes();
        [
            format!("{}:0", DeviceKey::Cpu),
            cpu.model.as_deref().map_or_else(|| "unknown".to_owned(), printable),
            memory(cpu.memory_bytes),
            "-".to_owned(),
            dtypes(Some(&native), &emulated),
            api,
            notes.join("; "),
        ]
    }
}

fn counted(count: u32, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn device_row(device: &DeviceInfo) -> [String; 7] {
    let mut api = device.api.as_deref().map_or_else(|| "unknown".to_owned(), printable);
    if let Some(version) = device.backend_version {
        api = format!("{api} {version}");
    }
    if let Some(driver) = &device.driver {
        api = format!("{api} ({})", printable(driver));
    }
    let mut capability: Vec<String> = device.capability.iter().map(ToString::to_string).collect();
    capability.extend(device.arch.as_deref().map(printable));
    let capability = if capability.is_empty() { "-".to_owned() } else { capability.join(" ") };
    // Of a hidden device, the number is the one that it has without the mask: it is none to ask for.
    let name = match &device.masked_by {
        Some(_) => format!("{}(-)", device.key),
        None => format!("{}:{}", device.key, device.index),
    };
    [
        name,
        printable(&device.name),
        memory(device.memory_bytes),
        capability,
        dtypes(device.dtypes.as_deref(), &device.emulated),
        api,
        device_notes(device).join("; "),
    ]
}

fn device_notes(device: &DeviceInfo) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(mask) = &device.masked_by {
        notes.push(format!("number {} without the mask, hidden by {}", device.index, printable(mask)));
    } else if let Some(physical) = device.physical_index.filter(|physical| *physical != device.index) {
        notes.push(format!("number {physical} without the mask"));
    }
    if device.route == Route::Adapter {
        notes.push("shader packs only".to_owned());
    }
    if device.software {
        notes.push("software adapter: computes on the processor".to_owned());
    }
    match (device.tile_of, device.tiles) {
        (Some((card, tile)), _) => notes.push(format!("tile {tile} of card {card}")),
        (None, Some(1)) => notes.push("1 tile".to_owned()),
        (None, Some(tiles)) => notes.push(format!("{tiles} tiles")),
        (None, None) => {}
    }
    if let Some(module) = device.module {
        notes.push(format!("module {module}"));
    }
    if let Some(address) = &device.pci_address {
        notes.push(format!("PCI {}", printable(address)));
    }
    notes
}

fn library(found: Option<&LibraryFound>, how_to_get: &str) -> String {
    found.map_or_else(
        || format!("not found ({how_to_get})"),
        |library| {
            let version = library.version.as_deref().unwrap_or("unknown");
            format!("{} (version {})", printable(&library.path.display().to_string()), printable(version))
        },
    )
}

/// Those that the device computes in, then those that it emulates, in brackets.
fn dtypes(native: Option<&[DType]>, emulated: &[DType]) -> String {
    // Every device has the integers; what differs is what people ask for.
    let told = |dtypes: &[DType]| {
        let shown = [DType::F64, DType::F32, DType::Bf16, DType::F16, DType::I8];
        let names = shown.into_iter().filter(|dtype| dtypes.contains(dtype)).map(DType::as_str);
        names.collect::<Vec<_>>().join(" ")
    };
    let native = native.map_or_else(|| "unknown".to_owned(), told);
    match told(emulated) {
        emulated if emulated.is_empty() => native,
        emulated => format!("{native} (emulated: {emulated})"),
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
