//! `kernelhub devices` on described machines and on this one.

use std::path::Path;
use std::process::Output;

use crate::commands::Machine;

fn described(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/machines").join(name).display().to_string()
}

fn text(output: &Output) -> String {
    String::from_utf8([output.stdout.as_slice(), &output.stderr].concat()).unwrap()
}

#[test]
fn the_json_of_a_machine_is_a_description_of_it() {
    let machine = Machine::new();
    let printed = machine.run(&["devices", "--json"]);
    assert!(printed.status.success(), "{}", text(&printed));
    let file = machine.project().join("machine.json");
    std::fs::write(&file, &printed.stdout).unwrap();
    let again = machine.run(&["devices", "--json", "--system", file.to_str().unwrap()]);
    assert_eq!(again.stdout, printed.stdout, "{}", text(&again));
}

/// Whatever the environment holds: what a terminal obeys is escaped as JSON has it, and a mask as long as an environment
/// is told in a sentence.
#[test]
fn the_json_of_a_hostile_environment_is_a_description_too() {
    let machine = Machine::new();
    let escapes = "\u{1b}[31m\u{7f}\u{9b}\u{202e}x\u{10ffff}";
    let long = "9,8,".repeat(30_000);
    for (name, value) in [("ZE_AFFINITY_MASK", escapes), ("HABANA_VISIBLE_DEVICES", &long), ("ZE_AFFINITY_MASK", &long)]
    {
        let printed = machine.command(&["devices", "--json"]).env(name, value).output().unwrap();
        assert!(printed.status.success(), "{}", text(&printed));
        let json = String::from_utf8(printed.stdout).unwrap();
        assert!(!json.contains(['\u{1b}', '\u{7f}', '\u{9b}', '\u{202e}']), "{json}");
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        let mask = read["masks"].as_array().unwrap().iter().find(|mask| mask["variable"] == name).unwrap();
        assert_eq!(mask["value"], value);
        let error = mask["error"].as_str().unwrap();
        assert!(error.len() < 1000 && !error.contains(r"\\u{"), "{error}");
        let file = machine.project().join("machine.json");
        std::fs::write(&file, &json).unwrap();
        let again = machine.run(&["devices", "--json", "--system", file.to_str().unwrap()]);
        assert_eq!(String::from_utf8(again.stdout).unwrap(), json);
    }
}

/// What a note advises stands at its end.
#[test]
fn notes_and_the_effects_of_masks_are_shown_whole() {
    let machine = Machine::new();
    let file = machine.project().join("machine.json");
    let advice = format!("{} install the driver", "a long sentence ".repeat(20));
    let masks =
        format!(r#"[{{"key": "xpu", "variable": "M", "value": "a", "effect": "no effect", "error": "{advice}"}}]"#);
    let system = format!(r#"{{"os": "linux", "arch": "x86_64", "notes": ["{advice}"], "masks": {masks}}}"#);
    std::fs::write(&file, system).unwrap();
    let shown = text(&machine.run(&["devices", "--system", file.to_str().unwrap()]));
    assert!(shown.contains(&format!("WRONG: {advice}; no effect\n")), "{shown}");
    assert!(shown.contains(&format!("note: {advice}\n")), "{shown}");
    let asked = text(&machine.run(&["devices", "--system", file.to_str().unwrap(), "--device", "xpu"]));
    assert!(asked.contains(&advice), "{asked}");
}

/// The machines of the documentation are as the probers print such machines.
#[test]
fn described_machines_have_the_words_of_the_probers() {
    let read = |path: &str| -> serde_json::Value {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures").join(path);
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    };
    for (described, probed) in [
        ("machines/15-xpu-2x2-tiles.json", "devices/xpu-2-cards-2-tiles.json"),
        ("machines/17-gaudi2-x8.json", "devices/gaudi2-8.json"),
    ] {
        let (described, probed) = (read(described), read(probed));
        let model = &probed["devices"][0];
        for device in described["devices"].as_array().unwrap() {
            for word in
                ["name", "api", "driver", "arch", "memory_bytes", "dtypes", "backend_version", "pci_id", "tiles"]
            {
                assert_eq!(device[word], model[word], "{word} of {device}");
            }
        }
        for mask in described["masks"].as_array().into_iter().flatten() {
            assert!(probed["masks"].as_array().unwrap().contains(mask), "{mask}");
        }
    }
}

#[test]
fn a_device_that_can_be_used_is_shown_and_another_is_an_error_that_lists_what_is() {
    let machine = Machine::new();
    let system = described("06-h200-cuda-13.0.json");
    let ask = |device: &str| machine.run(&["devices", "--system", &system, "--device", device]);
    for (device, shown) in [("cuda:3", "cuda:3  NVIDIA H200"), ("auto", "cuda:0  NVIDIA H200"), ("cpu", "cpu:0")] {
        let output = ask(device);
        assert!(output.status.success() && text(&output).contains(shown), "{device}: {}", text(&output));
    }
    let output = ask("cuda:4");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output);
    assert!(said.contains("there is no device cuda:4; there are: cuda:0 (NVIDIA H200), cuda:1"), "{said}");
    let output = ask("xpu");
    assert!(text(&output).contains("this machine has: cpu:0"), "{}", text(&output));
    for bad in ["gpu", "CUDA", "", "cuda:x"] {
        let output = ask(bad);
        assert_eq!(output.status.code(), Some(2), "a slip of the command line");
        assert!(text(&output).contains("auto takes the best"), "{}", text(&output));
    }
    let said = text(&ask("CUDA"));
    assert!(said.contains("known: cpu, cuda, rocm (hip)") && said.contains("did you mean \"cuda\"?"), "{said}");
}

#[test]
fn a_type_is_native_emulated_or_refused() {
    let machine = Machine::new();
    let file = machine.project().join("turing.json");
    let turing = r#"{"os": "linux", "arch": "x86_64", "devices": [{"key": "cuda", "index": 0, "name": "T4",
        "route": "native", "dtypes": ["f64", "f32", "f16"], "emulated": ["bf16"]}]}"#;
    std::fs::write(&file, turing).unwrap();
    let ask = |more: &[&str]| {
        let arguments = ["devices", "--system", file.to_str().unwrap()];
        machine.run(&[&arguments, more].concat())
    };
    let output = ask(&["--dtype", "bf16"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("cuda:0 (T4) only emulates bf16"), "{}", text(&output));
    let output = ask(&["--dtype", "bf16", "--allow-emulation"]);
    assert!(output.status.success() && text(&output).contains("bf16: emulated"), "{}", text(&output));
    let output = ask(&["--dtype", "f16", "--device", "cuda:0"]);
    assert!(text(&output).contains("f16: native"), "{}", text(&output));
    let output = ask(&["--dtype", "i8", "--allow-emulation"]);
    assert!(text(&output).contains("does not have i8"), "{}", text(&output));
    assert_eq!(ask(&["--allow-emulation"]).status.code(), Some(2), "it says nothing without a type");
}
