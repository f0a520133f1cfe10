//! Huawei Ascend NPUs: the kernel's `/dev/davinci<N>`, names and memory by `npu-smi info`, the version of CANN by the
//! file that its toolkit leaves. Tested on fixtures only.
//!
//! Sources: `npu-smi info` as its versions 23 to 25 print it, for Atlas 300 (310P, "Memory-Usage") and Atlas A2 (910B,
//! "HBM-Usage"); "`ASCEND_RT_VISIBLE_DEVICES`" of the CANN 8.5 environment variable reference; "Environment
//! Verification" of the CANN operator guides, for `ascend_toolkit_install.info`.

use super::list::{self, Chosen, Repeat};
use super::pci::{self, ACCELERATOR};
use super::{Found, files};
use crate::dtype::DType;
use crate::system::command;
use crate::system::device::{DeviceInfo, Route};
use crate::system::environment::Environment;
use crate::system::mask::Mask;
use crate::variant::{DeviceKey, Version};

const VISIBLE: &str = "ASCEND_RT_VISIBLE_DEVICES";
const HOME: &str = "ASCEND_HOME_PATH";
const VENDOR: u64 = 0x19e5;

pub(super) fn probe(environment: &Environment) -> Option<Found> {
    if !cfg!(target_os = "linux") && environment.root.is_none() {
        return None;
    }
    let mut found = Found::default();
    let count = files::numbered(&environment.path("dev"), "davinci").len();
    if count == 0 {
        let cards = pci::of_vendor(environment, VENDOR);
        let cards = cards.iter().filter(|device| device.base_class() == ACCELERATOR);
        let cards: Vec<String> = cards.map(|device| format!("{} {}", device.address, device.id())).collect();
        if !cards.is_empty() {
            found.notes.push(format!(
                "{} and cannot be used: there is no /dev/davinci0; install Ascend's driver and firmware, and give a \
                 container the devices",
                pci::counted("Ascend NPU", &cards)
            ));
        }
        return Some(found);
    }
    let cann = cann(environment);
    let driver = files::text(&environment.path("usr/local/Ascend/driver/version.info"));
    let driver = driver.as_deref().and_then(|text| value(text, "Version")).map(|version| format!("Ascend {version}"));
    let tools =
        super::with_commands_of(environment, &["usr/local/bin", "usr/local/sbin", "usr/local/Ascend/driver/tools"]);
    let chips = match command::run(&tools, "npu-smi", &["info"], command::TIME_LIMIT) {
        Ok(output) => chips(&output),
        Err(error) => {
            found.notes.push(format!("names and memory of the Ascend NPUs are not known: {error}"));
            Vec::new()
        }
    };
    // A container has the files of its own devices only, and npu-smi may list others.
    let fits = chips.len() == count;
    if !chips.is_empty() && !fits {
        found
            .notes
            .push(format!("npu-smi lists {} NPUs, /dev/davinci* {count}: which is which is not known", chips.len()));
    }
    for (index, place) in (0..).zip(0..count) {
        let mut device = DeviceInfo::new(DeviceKey::Npu, index, "Ascend NPU", Route::Native);
        device.api = Some("CANN".to_owned());
        device.physical_index = Some(index);
        device.driver.clone_from(&driver);
        device.backend_version = cann;
        if let Some(chip) = chips.get(place).filter(|_| fits) {
            device.name = format!("Ascend {}", chip.name);
            device.arch = Some(format!("ascend{}", chip.name.to_ascii_lowercase()));
            device.memory_bytes = chip.memory_bytes;
            device.pci_address.clone_from(&chip.pci_address);
            device.dtypes = dtypes(&chip.name);
        }
        found.devices.push(device);
    }
    if cann.is_none() {
        found.notes.push(format!("Ascend NPUs are here and CANN is not found: install its toolkit, or set {HOME}"));
    }
    if let Some(setting) = environment.setting(VISIBLE) {
        let left = list::visible(&found.devices);
        let chosen = visible(setting, left.len());
        let mask = Mask::new(DeviceKey::Npu, VISIBLE, setting, "");
        found.masks.push(list::apply(mask, &mut found.devices, &left, chosen));
    }
    Some(found)
}

/// The version of the toolkit: `version=8.3.RC1`.
fn cann(environment: &Environment) -> Option<Version> {
    let arch = format!("{}-linux", std::env::consts::ARCH);
    let home = environment.setting(HOME).filter(|home| !home.is_empty()).map(|home| home.trim_start_matches('/'));
    let folders = ["usr/local/Ascend/cann", "usr/local/Ascend/ascend-toolkit/latest"];
    // A home that is set is the one that is used.
    let folders = home.map_or_else(|| folders.to_vec(), |home| vec![home]);
    folders.iter().find_map(|folder| {
        let folder = environment.path(folder);
        let text = files::text(&folder.join(&arch).join("ascend_toolkit_install.info"))
            .or_else(|| files::text(&folder.join("ascend_toolkit_install.info")))?;
        Version::leading(value(&text, "version")?)
    })
}

/// `name=value` lines.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?.trim();
    (!value.is_empty()).then_some(value)
}

/// A chip as `npu-smi info` shows it.
#[derive(Debug, PartialEq, Eq)]
struct Chip {
    name: String,
    pci_address: Option<String>,
    memory_bytes: Option<u64>,
}

/// Two lines for each chip: `| 0  910B3 | OK | ... |`, then `| 0 | 0000:C1:00.0 | 0  0 / 0  3404 / 65536 |`. The memory
/// is the last of the second, in MB of 2^20. The tables of processes behind it have four columns.
fn chips(output: &str) -> Vec<Chip> {
    let mut chips = Vec::new();
    let mut name: Option<&str> = None;
    for line in output.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", first, second, third, ""] = cells[..] else { continue };
        let mut words = first.split_whitespace();
        let number = words.next().is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
        if !number {
            continue;
        }
        if second.contains(':') {
            let Some(name) = name.take() else { continue };
            let megabytes = third.rsplit_once('/').and_then(|(_, total)| total.trim().parse::<u64>().ok());
            chips.push(Chip {
                name: name.to_owned(),
                pci_address: Some(second.to_ascii_lowercase()),
                memory_bytes: megabytes.filter(|total| *total > 0).and_then(|total| total.checked_mul(1 << 20)),
            });
        } else {
            name = words.next();
        }
    }
    chips
}

/// The 910 and the 310P compute in `f16`; `bf16` came with the 910B. "Supported data types" of the CANN operator lists.
fn dtypes(name: &str) -> Option<Vec<DType>> {
    let mut dtypes = vec![DType::F32];
    match name {
        _ if ["910B1", "910B2", "910B3", "910B4", "910C", "910_93"].iter().any(|new| name.starts_with(new)) => {
            dtypes.push(DType::Bf16);
        }
        _ if name.starts_with("310") || name.starts_with("910") => {}
        _ => return None,
    }
    dtypes.extend([DType::F16, DType::I64, DType::I32, DType::I8, DType::U8]);
    Some(dtypes)
}

/// Numbers, ascending, split at commas and nothing else: at the first other character, blanks included, and at the first
/// number that names no device, the list ends.
fn visible(setting: &str, count: usize) -> Chosen {
    let end = setting.find(|c: char| c != ',' && !c.is_ascii_digit()).unwrap_or(setting.len());
    let (readable, rest) = setting.split_at(end);
    let readable = if rest.is_empty() { readable } else { readable.trim_end_matches(',') };
    let mut chosen = list::read(readable, Repeat::Ends, |entry| list::number(entry, count));
    if chosen.error.is_none() && !rest.is_empty() {
        chosen.error =
            Some(format!("{} is neither a number nor a comma: it and what follows it are ignored", list::quoted(rest)));
    }
    if chosen.error.is_none() && !chosen.order.is_sorted() {
        chosen.error = Some("the numbers have to ascend: what CANN makes of others is not documented".to_owned());
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::{chips, dtypes, visible};
    use crate::dtype::DType;

    const A2: &str = "\
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.0                   Version: 24.1.0                                               |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B3               | OK            | 70.0        34                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          3404 / 65536         |
+===========================+===============+====================================================+
| 1     910B3               | OK            | 66.9        34                0    / 0             |
| 0                         | 0000:81:00.0  | 0           0    / 0          3402 / 65536         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 0       0                 | 12345         | python                   | 1000                    |
+===========================+===============+====================================================+
";
    const P310: &str = "\
| npu-smi 25.3.rc1                                 Version: 25.3.rc1                                     |
| NPU     Name                  | Health          | Power(W)     Temp(C)           Hugepages-Usage(page) |
| Chip    Device                | Bus-Id          | AICore(%)    Memory-Usage(MB)                        |
| 6       310P3                 | OK              | NA           50                0     / 0             |
| 0       0                     | 0000:84:00.0    | 0            1839 / 21525                            |
";

    #[test]
    fn both_forms_of_the_table_are_read() {
        let shown = |text| {
            let chips = chips(text);
            chips.iter().map(|c| (c.name.clone(), c.pci_address.clone().unwrap(), c.memory_bytes)).collect::<Vec<_>>()
        };
        let a2 = |address: &str| ("910B3".to_owned(), address.to_owned(), Some(65_536 << 20));
        assert_eq!(shown(A2), [a2("0000:c1:00.0"), a2("0000:81:00.0")]);
        assert_eq!(shown(P310), [("310P3".to_owned(), "0000:84:00.0".to_owned(), Some(21_525 << 20))]);
        for nonsense in
            ["", "|", "|||||", "| 0 | a:b | 1 / 2 |", "| 0 910B3 | OK | x |", "dcmi module initialize failed"]
        {
            assert!(chips(nonsense).is_empty(), "{nonsense:?}");
        }
        let odd = "| 0 910B3 | OK | x |\n| 0 | 0000:C1:00.0 | 18446744073709551615 / 18446744073709551615 |";
        assert_eq!(chips(odd)[0].memory_bytes, None);
    }

    #[test]
    fn a_mask_ends_where_the_reference_says() {
        for (setting, order, error) in [
            ("1", &[1][..], false),
            ("1,2,3", &[1, 2, 3], false),
            ("1, 2,3", &[1], true),
            ("1,3,8", &[1, 3], true),
            ("1x,2", &[1], true),
            ("-1", &[], true),
            ("", &[], false),
            ("2,1", &[2, 1], true),
            ("1,1", &[1], true),
            ("a", &[], true),
        ] {
            let chosen = visible(setting, 8);
            assert_eq!((chosen.order.as_slice(), chosen.error.is_some()), (order, error), "{setting:?}");
        }
    }

    #[test]
    fn bfloat16_came_with_the_910b() {
        let has = |name| dtypes(name).map(|dtypes| dtypes.contains(&DType::Bf16));
        assert_eq!(
            [has("910B3"), has("910_9362"), has("310P3"), has("910B"), has("910A")],
            [Some(true), Some(true), Some(false), Some(false), Some(false)]
        );
        assert_eq!(has("950"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_table_and_any_mask_are_read(table in "[|0-9A-C: /\né]{0,120}", mask in "[0-9, aé]{0,20}") {
            chips(&table);
            proptest::prop_assert!(visible(&mask, 3).order.iter().all(|place| *place < 3));
        }
    }
}
