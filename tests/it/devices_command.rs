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
    assert_eq!(ask("gpu").status.code(), Some(2), "a slip of the command line");
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
