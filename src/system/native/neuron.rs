//! AWS Inferentia and Trainium: the kernel's `/dev/neuron<N>`, what the driver tells in sysfs, and `neuron-ls` for cores
//! and memory. A device is a chip; the settings speak of its cores. Tested on fixtures only.
//!
//! Sources: "Neuron Runtime configuration" and "Neuron Sysfs User Guide" of the AWS Neuron documentation;
//! `neuron-ls --json-output` as aws-neuronx-tools 2.28 prints it.

use serde::Deserialize;

use super::pci::{self, ACCELERATOR};
use super::{Found, files};
use crate::dtype::DType;
use crate::system::command;
use crate::system::device::{DeviceInfo, Route};
use crate::system::environment::Environment;
use crate::system::mask::Mask;
use crate::variant::DeviceKey;

const VISIBLE: &str = "NEURON_RT_VISIBLE_CORES";
const COUNT: &str = "NEURON_RT_NUM_CORES";
/// Amazon's vendor id, and the device ids of its accelerators: other devices of its own are network and disk.
const VENDOR: u64 = 0x1d0f;
/// The most cores that there can be: more are a mistake.
const MAX_CORES: u32 = 4096;

pub(super) fn probe(environment: &Environment) -> Option<Found> {
    if !cfg!(target_os = "linux") && environment.root.is_none() {
        return None;
    }
    let mut found = Found::default();
    let numbers: Vec<u32> =
        files::numbered(&environment.path("dev"), "neuron").into_iter().map(|(number, _)| number).collect();
    if numbers.is_empty() {
        let chips = pci::of_vendor(environment, VENDOR);
        let chips = chips.iter().filter(|device| device.base_class() == ACCELERATOR);
        let chips: Vec<String> = chips.map(|device| format!("{} {}", device.address, device.id())).collect();
        if !chips.is_empty() {
            found.notes.push(format!(
                "{} and cannot be used: there is no /dev/neuron0; install aws-neuronx-dkms, and give a container the \
                 devices",
                pci::counted("AWS Neuron device", &chips)
            ));
        }
        return Some(found);
    }
    let tools = super::with_commands_of(environment, &["opt/aws/neuron/bin"]);
    let listed = match command::run(&tools, "neuron-ls", &["--json-output"], command::TIME_LIMIT) {
        Ok(output) => parse(&output).map_err(|error| format!("neuron-ls: {error}")),
        Err(error) => Err(error.to_string()),
    };
    if let Err(error) = &listed {
        found.notes.push(format!("memory and places of the Neuron devices are not known: {error}"));
    }
    let listed = listed.unwrap_or_default();
    let version = files::text(&environment.path("sys/module/neuron/version"));
    let mut cores = Vec::new();
    for (index, number) in (0..).zip(numbers) {
        let row = listed.iter().find(|row| row.neuron_device == number);
        let sysfs = environment.path(&format!("sys/class/neuron_device/neuron{number}"));
        let of_sysfs = files::number(&sysfs.join("core_count")).and_then(|count| u32::try_from(count).ok());
        let count = row.map(|row| row.nc_count).or(of_sysfs).filter(|count| (1..=MAX_CORES).contains(count));
        let name =
            files::text(&sysfs.join("info/architecture/device_name")).unwrap_or_else(|| "Neuron device".to_owned());
        let mut device = DeviceInfo::new(DeviceKey::Neuron, index, name, Route::Native);
        if let Some(count) = count {
            device.name = format!("{} ({count} cores)", device.name);
        }
        cores.push(count);
        device.api = Some("Neuron".to_owned());
        device.physical_index = Some(index);
        device.driver = version.as_ref().map(|version| format!("neuron {version}"));
        let instance = files::text(&sysfs.join("info/architecture/instance_type"));
        device.arch = instance.map(|word| word.to_ascii_lowercase());
        device.memory_bytes = row.and_then(|row| row.memory_size);
        device.pci_address = row.and_then(|row| row.bdf.clone());
        device.dtypes = device.arch.as_deref().and_then(dtypes);
        found.devices.push(device);
    }
    masks(&mut found, &cores, environment);
    Some(found)
}

/// A row of `neuron-ls --json-output`. It has more than is read here.
#[derive(Debug, Deserialize)]
struct Row {
    neuron_device: u32,
    #[serde(default)]
    bdf: Option<String>,
    nc_count: u32,
    #[serde(default)]
    memory_size: Option<u64>,
}

fn parse(output: &str) -> Result<Vec<Row>, serde_json::Error> {
    /// Newer versions put the list into an object.
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Output {
        List(Vec<Row>),
        Object { neuron_devices: Vec<Row> },
    }
    serde_json::from_str(output).map(|output| match output {
        Output::List(rows) | Output::Object { neuron_devices: rows } => rows,
    })
}

/// What the `NeuronCores` of a generation compute with: "Data types" of the `NeuronCore` architecture pages.
fn dtypes(arch: &str) -> Option<Vec<DType>> {
    let known = ["inf1", "inf2", "trn1", "trn2", "trn3"].iter().any(|generation| arch.starts_with(generation));
    known.then(|| vec![DType::F32, DType::Bf16, DType::F16, DType::I32, DType::U32, DType::I8, DType::U8])
}

fn masks(found: &mut Found, cores: &[Option<u32>], environment: &Environment) {
    let (visible, count) = (environment.setting(VISIBLE), environment.setting(COUNT));
    if let Some(value) = visible {
        found.masks.push(hide(value, &mut found.devices, cores));
    }
    if let Some(value) = count {
        let number = value.parse::<u32>();
        let effect = match &number {
            _ if visible.is_some() => format!("nothing: {VISIBLE} goes before it"),
            Ok(0) => "takes every core".to_owned(),
            Ok(count) => format!("takes {count} cores, whichever are free: it hides none"),
            Err(_) => "nothing that is known".to_owned(),
        };
        let mask = Mask::new(DeviceKey::Neuron, COUNT, value, effect);
        let error = number.is_err().then(|| "is no number of cores".to_owned());
        found.masks.push(Mask { error, ..mask });
    }
}

/// Hides the devices of which no core is left.
fn hide(value: &str, devices: &mut [DeviceInfo], cores: &[Option<u32>]) -> Mask {
    let mask = Mask::new(DeviceKey::Neuron, VISIBLE, value, "");
    let Some(counts) = cores.iter().copied().collect::<Option<Vec<u32>>>() else {
        return Mask { effect: "is not known: how many cores the devices have is not known".to_owned(), ..mask };
    };
    let total: u32 = counts.iter().sum();
    let (wanted, error) = match numbers(value, total) {
        Ok(wanted) => (wanted, None),
        Err(error) => (Vec::new(), Some(format!("{error}: the runtime refuses to start"))),
    };
    let (mut first, mut next) = (0, 0);
    for (device, count) in devices.iter_mut().zip(&counts) {
        if wanted.iter().any(|core| (first..first + count).contains(core)) {
            device.index = next;
            next += 1;
        } else {
            device.masked_by = Some(format!("{VISIBLE}={value}"));
        }
        first += count;
    }
    let effect = format!(
        "leaves {} of {total} cores; hides {} of {} devices",
        wanted.len(),
        counts.len() - next as usize,
        counts.len()
    );
    Mask { effect, error, ..mask }
}

/// `4`, `0-3`, or several of them with commas: the cores, each once.
fn numbers(value: &str, total: u32) -> Result<Vec<u32>, String> {
    let mut cores = std::collections::BTreeSet::new();
    for entry in value.split(',') {
        let (low, high) = entry.split_once('-').unwrap_or((entry, entry));
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u32>().ok())?;
        let (Some(low), Some(high)) = (number(low), number(high)) else {
            return Err(format!("{} is neither a core nor a range of cores", super::list::quoted(entry)));
        };
        if low > high || high >= total {
            return Err(format!("{} names no cores: there are {total}", super::list::quoted(entry)));
        }
        cores.extend(low..=high);
    }
    Ok(cores.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::{numbers, parse};

    #[test]
    fn the_list_of_the_tool_is_read_in_both_forms() {
        let row = r#"{"neuron_device": 0, "bdf": "0000:00:1e.0", "cpu_affinity": "0-7", "numa_node": "-1",
            "connected_to": null, "nc_count": 2, "memory_size": 34359738368, "neuroncore_ids": [0, 1],
            "neuron_processes": []}"#;
        for text in [format!("[{row}]"), format!(r#"{{"instance_type": "trn1.2xlarge", "neuron_devices": [{row}]}}"#)] {
            let rows = parse(&text).unwrap();
            assert_eq!((rows[0].nc_count, rows[0].memory_size), (2, Some(32 << 30)), "{text}");
        }
        for bad in ["", "[", "{}", "[{}]", r#"[{"neuron_device": -1, "nc_count": 2}]"#] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn cores_are_numbers_and_ranges() {
        for (value, cores) in [("3", &[3][..]), ("0-3", &[0, 1, 2, 3]), ("0,2-3,2", &[0, 2, 3]), ("7-7", &[7])] {
            assert_eq!(numbers(value, 8).unwrap(), cores, "{value:?}");
        }
        for bad in ["", "a", "3-1", "8", "0-8", "-1", "1-", "0,", " 1", "4294967296", "0-4294967295"] {
            assert!(numbers(bad, 8).is_err(), "{bad:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_list_of_cores_is_read(value in "[0-9, é-]{0,30}") {
            let cores = numbers(&value, 16).unwrap_or_default();
            proptest::prop_assert!(cores.iter().all(|core| *core < 16));
        }
    }
}
