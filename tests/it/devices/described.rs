//! Machines kept as JSON, for whoever describes one: held to what a look at such a machine brings up.

use std::path::Path;

use kernelhub::system::SystemInfo;
use kernelhub::variant::DeviceKey;

use super::level_zero::{ask, has_loader};
use super::{hpu, xpu};

/// The description in `fixtures/devices`.
fn description(name: &str) -> SystemInfo {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/devices").join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Fails with the JSON that would be right.
fn assert_same(name: &str, looked: &SystemInfo) {
    let kept = description(name);
    let same = (&kept.devices, &kept.masks, &kept.notes) == (&looked.devices, &looked.masks, &looked.notes);
    assert!(same, "{name} should hold:\n{}", serde_json::to_string(looked).unwrap());
}

#[test]
fn two_cards_of_two_tiles_with_a_mask() {
    if !has_loader() {
        return;
    }
    let root = xpu::cards(&[("4d", 2), ("9a", 2)]);
    root.file("opt/intel/oneapi/compiler/2026.0/lib/libsycl.so.9", "");
    let machine = [("FAKE_ZE_CARDS", "2,2"), ("FAKE_ZE_BUSES", "4d,9a")];
    let settings = [("ZE_FLAT_DEVICE_HIERARCHY", "FLAT"), ("ZE_AFFINITY_MASK", "0,2")];
    assert_same("xpu-2-cards-2-tiles.json", &ask(&root, &[&machine[..], &settings].concat()));
}

#[test]
fn eight_gaudi_2_of_which_four_are_visible() {
    let root = hpu::server("0x1020", true);
    assert_same("gaudi2-8.json", &root.probe(DeviceKey::Hpu, &[("HABANA_VISIBLE_MODULES", "0,1,2,3")]));
}
