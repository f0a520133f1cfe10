//! `kernelhub check-abi`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::elf::{Elf, tag};
use crate::support::native::{VARIANT, compile_c};

fn check(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_kernelhub")).arg("check-abi").args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

fn build(folder: &Path, name: &str, library: &[u8]) {
    let build = folder.join("build").join(VARIANT);
    fs::create_dir_all(&build).unwrap();
    fs::write(build.join(name), library).unwrap();
}

#[test]
fn a_build_within_the_limits_passes_and_each_step_beyond_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    build(folder.path(), "libgood.so", &compile_c("helper.c", "", &[]));
    let (code, stdout, stderr) = check(&[place]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    assert!(stdout.contains("ok        build/"), "{stdout}");

    let newer = compile_c("thread_local.cpp", "x", &[]);
    let at = newer.windows(12).position(|window| window == b"GLIBC_2.2.5\0").unwrap();
    let mut newer = newer;
    newer[at..at + 11].copy_from_slice(b"GLIBC_2.999");
    build(folder.path(), "libnewer.so", &newer);
    build(folder.path(), "libforeign.so", &Elf::default().name(tag::NEEDED, "libopenblas.so.0").build(b""));
    build(folder.path(), "libarm.so", &Elf { machine: 183, ..Elf::default() }.build(b""));
    build(folder.path(), "libtext.so.1", b"text");
    let (code, stdout, stderr) = check(&[place, "--json"]);
    assert_eq!(code, Some(1), "{stdout}");
    assert!(stderr.contains("4 violations of manylinux_2_28 in 5 libraries"), "{stderr}");
    let json: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(json["policy"], "manylinux_2_28");
    let found: Vec<_> = json["violations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|violation| {
            let name = violation["path"].as_str().unwrap().rsplit('/').next().unwrap();
            (name, violation["kind"].as_str().unwrap(), violation["actual"].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        found,
        [
            ("libarm.so", "machine-mismatch", "aarch64, 64 bits"),
            ("libforeign.so", "abi-library", "libopenblas.so.0"),
            ("libnewer.so", "abi-version", "GLIBC_2.999"),
            ("libtext.so.1", "library-malformed", "it is no ELF file"),
        ]
    );
    let (_, stdout, _) = check(&[place]);
    assert!(
        stdout.contains("it needs a newer symbol version than is allowed, expected GLIBC_2.28 at most"),
        "{stdout}"
    );
}

#[test]
fn a_folder_without_libraries_is_said_to_be_one() {
    let folder = tempfile::tempdir().unwrap();
    let (code, stdout, stderr) = check(&[folder.path().to_str().unwrap()]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("holds no library"), "{stderr}");
    assert_eq!(check(&["/nowhere/at/all"]).0, Some(1));
}
