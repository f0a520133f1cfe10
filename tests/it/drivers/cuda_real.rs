//! The real NVIDIA driver, where there is one.
#![expect(unsafe_code, reason = "the CUDA driver is asked directly, to compare")]

use std::process::Command;

use kernelhub::system::{Environment, SystemInfo};
use kernelhub::variant::DeviceKey;

/// Set in a child: it prints what the CUDA driver lists and what the prober says, and nothing else.
const CHILD: &str = "KERNELHUB_TEST_CUDA_CHILD";

/// The UUIDs that the CUDA driver lists in this process; none when it does not start.
fn listed() -> Option<Vec<String>> {
    // SAFETY: the machine's own CUDA driver; `cuInit` and the calls below are declared as cuda.h has them.
    let library = unsafe { libloading::Library::new("libcuda.so.1") }.ok()?;
    // SAFETY: as above.
    let init = unsafe { library.get::<unsafe extern "C" fn(u32) -> i32>(c"cuInit") }.ok()?;
    // SAFETY: as above.
    let count = unsafe { library.get::<unsafe extern "C" fn(*mut i32) -> i32>(c"cuDeviceGetCount") }.ok()?;
    // SAFETY: as above.
    let uuid = unsafe { library.get::<unsafe extern "C" fn(*mut [u8; 16], i32) -> i32>(c"cuDeviceGetUuid_v2") }.ok()?;
    let mut devices = 0;
    // SAFETY: 0 is the only value it takes.
    if unsafe { init(0) } == 0 {
        // SAFETY: writes one int.
        assert_eq!(unsafe { count(&raw mut devices) }, 0);
    }
    let mut found = Vec::new();
    for device in 0..devices {
        let mut bytes = [0_u8; 16];
        // SAFETY: writes 16 bytes.
        assert_eq!(unsafe { uuid(&raw mut bytes, device) }, 0);
        found.push(u128::from_be_bytes(bytes).to_string());
    }
    // Closing it would take away the code of its threads.
    std::mem::forget(library);
    Some(found)
}

fn probed() -> SystemInfo {
    let mut system = SystemInfo::probe();
    system.probe_native(DeviceKey::Cuda, &Environment::read());
    system
}

fn number(uuid: &str) -> String {
    let digits: String = uuid.trim_start_matches("GPU-").trim_start_matches("MIG-").replace('-', "");
    u128::from_str_radix(&digits, 16).unwrap().to_string()
}

#[test]
fn the_prober_and_the_driver_agree_under_every_mask() {
    if std::env::var_os(CHILD).is_some() {
        let system = probed();
        let mut visible: Vec<_> = system.visible(DeviceKey::Cuda).collect();
        visible.sort_by_key(|gpu| gpu.index);
        let visible: Vec<String> = visible.iter().map(|gpu| number(gpu.uuid.as_deref().unwrap())).collect();
        println!("PROBED {visible:?}\nLISTED {:?}", listed().unwrap());
        return;
    }
    let clock = std::time::Instant::now();
    let system = probed();
    let took = clock.elapsed();
    let gpus: Vec<_> = system.devices.iter().filter(|device| device.key == DeviceKey::Cuda).collect();
    if gpus.is_empty() {
        println!("skipped: no NVIDIA GPU here; notes: {:?}", system.notes);
        return;
    }
    println!("probed in {took:?}\n{}", serde_json::to_string_pretty(&system).unwrap());
    let uuid = gpus[0].uuid.clone().unwrap();
    let masks = [
        "",
        "0",
        "0,0",
        "0,1",
        "1",
        "1,0",
        "7,0",
        "-1",
        "0,-1",
        "abc",
        "0abc",
        "0 ",
        " 0",
        "0 ,1",
        "0, 0",
        "+0",
        "-0",
        "0x0",
        "0x1",
        "00",
        "01",
        "0.0",
        ",0",
        "0,",
        "0;0",
        "4294967296",
        "-4294967296",
        "9223372036854775808",
        "18446744073709551616",
        "none",
        "GPU-",
        "GPU",
        "GPU-z",
        "MIG-",
        "0,-1,0",
        "0-1",
        "-2",
        "2,1,0",
        "1,0,1",
    ];
    let mut masks: Vec<String> = masks.iter().map(|mask| (*mask).to_owned()).collect();
    masks.extend([
        uuid.clone(),
        uuid[..12].to_owned(),
        uuid[..5].to_owned(),
        format!("{uuid},0"),
        format!("0,{uuid}"),
        uuid.to_lowercase(),
        format!("GPU-{}", uuid[4..].to_uppercase()),
        format!("{uuid},{uuid}"),
        format!("{uuid},{}", &uuid[..9]),
        format!("GPU-00000000,{uuid}"),
        format!(" {uuid}"),
        format!("{uuid} "),
        format!("{uuid}zz"),
        format!("{}zz", &uuid[..9]),
        uuid.replace('-', "").replace("GPU", "GPU-"),
        format!("MIG-{uuid}"),
        format!("MIG-{uuid}/1/0"),
    ]);
    let mut settings: Vec<(&str, String)> = masks.into_iter().map(|mask| ("CUDA_VISIBLE_DEVICES", mask)).collect();
    settings
        .extend(["PCI_BUS_ID", "pci_bus_id", "FASTEST_FIRST", "x", ""].map(|o| ("CUDA_DEVICE_ORDER", o.to_owned())));
    for (name, value) in settings {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "--nocapture", "drivers::cuda_real::the_prober_and_the_driver_agree_under_every_mask"]);
        child.env_remove("CUDA_VISIBLE_DEVICES").env_remove("CUDA_DEVICE_ORDER").env(CHILD, "1").env(name, &value);
        let output = child.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = |word: &str| {
            let line = text.lines().find_map(|line| line.split_once(word).map(|(_, rest)| rest.trim().to_owned()));
            line.unwrap_or_else(|| panic!("{name}={value:?}: {text} {}", String::from_utf8_lossy(&output.stderr)))
        };
        println!("{name}={value:?}: {}", line("LISTED"));
        assert_eq!(line("PROBED"), line("LISTED"), "{name}={value:?}");
    }
}
