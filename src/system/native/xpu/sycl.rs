//! The SYCL runtime, which compiled XPU builds link, and its own setting.
//!
//! A build for `xpu20260` was made with oneAPI 2026.0. The number in `libsycl.so.<N>` tells the year alone (8: 2025, 9:
//! 2026, up to 2026.2 at least), so the version is taken from what the library was installed by: the wheel
//! `intel-sycl-rt`, conda's package of the same name, or the folder of a oneAPI toolkit (`compiler/2026.0/lib`). Where
//! none of them is beside it, the version is unknown.

use std::path::{Path, PathBuf};

use crate::system::environment::Environment;
use crate::system::mask::Mask;
use crate::variant::{DeviceKey, Version};

/// The versions of the library that are looked for, newest first.
const SONAMES: std::ops::RangeInclusive<u32> = 5..=31;

/// A SYCL runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Runtime {
    pub(super) library: PathBuf,
    /// Of oneAPI.
    pub(super) version: Option<Version>,
}

/// The runtime that this environment leads to: the library path, Python's environments, then installed toolkits, the
/// newest first.
pub(super) fn runtime(environment: &Environment) -> Option<Runtime> {
    let compilers = environment.path("opt/intel/oneapi/compiler");
    let mut toolkits: Vec<(Version, PathBuf)> = std::fs::read_dir(&compilers)
        .into_iter()
        .flat_map(|entries| entries.take(64).flatten())
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("lib"))))
        .collect();
    toolkits.sort();
    let prefixes = environment.python_prefixes.iter().map(|prefix| prefix.join("lib"));
    let folders = environment.library_path.iter().filter(|folder| folder.is_absolute()).cloned();
    folders.chain(prefixes).chain(toolkits.into_iter().rev().map(|(_, folder)| folder)).find_map(|folder| {
        let library =
            SONAMES.rev().map(|number| folder.join(format!("libsycl.so.{number}"))).find(|file| file.is_file())?;
        Some(Runtime { version: version(&library), library })
    })
}

fn version(library: &Path) -> Option<Version> {
    let folder = library.parent()?;
    of_toolkit(folder).or_else(|| {
        let prefix = folder.parent()?;
        let names = |folder: PathBuf| {
            let entries = std::fs::read_dir(folder).into_iter().flat_map(|entries| entries.take(4096).flatten());
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect::<Vec<_>>()
        };
        let of = |names: Vec<String>, start: &str, end: &str| {
            names.iter().find_map(|name| Version::leading(name.strip_prefix(start)?.strip_suffix(end)?))
        };
        let pythons = names(folder.to_path_buf()).into_iter().filter(|name| name.starts_with("python3"));
        let mut packages = pythons.take(16).map(|python| names(folder.join(python).join("site-packages")));
        packages
            .find_map(|names| of(names, "intel_sycl_rt-", ".dist-info"))
            .or_else(|| of(names(prefix.join("conda-meta")), "intel-sycl-rt-", ".json"))
    })
}

/// `.../compiler/2026.0/lib`, with `latest` followed.
fn of_toolkit(folder: &Path) -> Option<Version> {
    let folder = folder.canonicalize().ok()?;
    let version = folder.parent()?;
    let compiler = version.parent()?;
    (compiler.file_name()? == "compiler" && folder.file_name()? == "lib")
        .then(|| version.file_name()?.to_str()?.parse().ok())?
}

/// What `ONEAPI_DEVICE_SELECTOR` does. It is SYCL's own: it hides nothing from Level Zero, and so from nobody who does
/// not go through SYCL. PyTorch does.
///
/// Source: `EnvironmentVariables.md` of Intel's SYCL compiler. Terms `backend:devices`, with `;` between them; those with
/// a `!` before them discard, and stand behind the others; with none but these, everything else is taken.
pub(super) fn selector(value: &str) -> Mask {
    let mut mask = Mask::new(DeviceKey::Xpu, "ONEAPI_DEVICE_SELECTOR", value, String::new());
    let (mut accepts, mut discards) = (Vec::new(), Vec::new());
    for term in value.split(';').map(str::trim) {
        let (list, term) = match term.strip_prefix('!') {
            Some(term) => (&mut discards, term),
            None => (&mut accepts, term),
        };
        let parts =
            term.split_once(':').map(|(backend, devices)| (backend.trim().to_ascii_lowercase(), devices.trim()));
        match parts {
            Some((backend, devices)) if BACKENDS.contains(&backend.as_str()) && devices.split(',').all(is_device) => {
                list.push((backend, devices));
            }
            _ => {
                mask.error = Some(format!(
                    "{} is no term: expected backend:devices, with a backend of {}, and devices of *, cpu, gpu, fpga or numbers",
                    crate::system::native::list::quoted(term),
                    BACKENDS.join(", ")
                ));
                "not read here; SYCL throws on it when it looks for devices".clone_into(&mut mask.effect);
                return mask;
            }
        }
    }
    let level_zero = |terms: &[(String, &str)]| -> Vec<String> {
        let terms = terms.iter().filter(|(backend, _)| backend == "level_zero" || backend == "*");
        terms.flat_map(|(_, devices)| devices.split(',')).map(|device| device.trim().to_ascii_lowercase()).collect()
    };
    let (taken, dropped) = (level_zero(&accepts), level_zero(&discards));
    let all = |devices: &[String]| devices.iter().any(|device| device == "*" || device == "gpu");
    let gpus = |devices: &[String]| {
        devices.iter().filter(|device| *device != "cpu" && *device != "fpga").cloned().collect::<Vec<_>>()
    };
    let part = gpus(&dropped);
    let rest = if part.is_empty() { String::new() } else { format!(" without {}", part.join(", ")) };
    let what = if all(&dropped) || !accepts.is_empty() && gpus(&taken).is_empty() {
        "no Level Zero device is left to SYCL and PyTorch".to_owned()
    } else if accepts.is_empty() || all(&taken) {
        format!("Level Zero devices stay with SYCL and PyTorch{rest}")
    } else {
        format!("SYCL and PyTorch see the Level Zero devices {}{rest}", gpus(&taken).join(", "))
    };
    mask.effect = format!("{what}; read by SYCL alone, it hides nothing here");
    mask
}

const BACKENDS: [&str; 6] = ["*", "level_zero", "opencl", "cuda", "hip", "native_cpu"];

/// `*`, a kind, a number, or a number of a tile or of its part: `0.1`, `0.*`, `*.*`.
fn is_device(device: &str) -> bool {
    let part = |part: &str| part == "*" || !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let device = device.trim().to_ascii_lowercase();
    let parts: Vec<&str> = device.split('.').collect();
    ["cpu", "gpu", "fpga"].contains(&device.as_str()) || parts.len() <= 3 && parts.into_iter().all(part)
}

/// The note for a machine with an Intel GPU whose runtime's version nobody tells.
pub(super) fn unknown_version(runtime: &Runtime) -> String {
    let library = runtime.library.display();
    format!(
        "{library} was found, and nothing beside it tells its oneAPI version: builds for one version of oneAPI cannot be matched"
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{Environment, Version, runtime, selector};

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn the_version_is_that_of_what_installed_the_library() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        touch(&at("venv/lib/libsycl.so.9"));
        touch(&at("venv/lib/python3.12/site-packages/intel_sycl_rt-2026.0.0.dist-info/METADATA"));
        touch(&at("conda/lib/libsycl.so.8"));
        touch(&at("conda/conda-meta/intel-sycl-rt-2025.3.2-intel_832.json"));
        touch(&at("plain/libsycl.so.9"));
        touch(&at("opt/intel/oneapi/compiler/2025.3/lib/libsycl.so.8"));
        touch(&at("opt/intel/oneapi/compiler/2026.1/lib/libsycl.so.9"));
        touch(&at("opt/intel/oneapi/compiler/2027.0/lib/something"));
        std::os::unix::fs::symlink("2025.3", at("opt/intel/oneapi/compiler/latest")).unwrap();

        let mut environment = Environment { root: Some(at("")), ..Environment::default() };
        let version = |environment: &Environment| runtime(environment).unwrap().version;
        assert_eq!(version(&environment), Some(Version::new(2026, 1)), "the newest toolkit that has the library");
        environment.python_prefixes = vec![at("conda"), at("venv")];
        assert_eq!(version(&environment), Some(Version::new(2025, 3)));
        environment.python_prefixes = vec![at("venv")];
        assert_eq!(version(&environment), Some(Version::new(2026, 0)));
        environment.library_path = vec![at("opt/intel/oneapi/compiler/latest/lib")];
        assert_eq!(version(&environment), Some(Version::new(2025, 3)), "a link is followed");
        environment.library_path = vec!["relative".into(), at("plain")];
        assert_eq!(version(&environment), None, "the number in the name is no version");
        assert_eq!(runtime(&Environment { root: Some(at("plain")), ..Environment::default() }), None);
    }

    #[test]
    fn selectors_are_read_as_sycl_does() {
        for (value, effect) in [
            ("level_zero:gpu", "Level Zero devices stay with SYCL and PyTorch"),
            ("LEVEL_ZERO:*", "Level Zero devices stay with SYCL and PyTorch"),
            ("*:gpu", "Level Zero devices stay with SYCL and PyTorch"),
            ("!opencl:*", "Level Zero devices stay with SYCL and PyTorch"),
            ("opencl:gpu;level_zero:0,2", "SYCL and PyTorch see the Level Zero devices 0, 2"),
            ("level_zero:*.*", "SYCL and PyTorch see the Level Zero devices *.*"),
            ("*:*;!level_zero:1", "Level Zero devices stay with SYCL and PyTorch without 1"),
            ("opencl:*", "no Level Zero device is left to SYCL and PyTorch"),
            ("level_zero:cpu", "no Level Zero device is left to SYCL and PyTorch"),
            ("!level_zero:gpu", "no Level Zero device is left to SYCL and PyTorch"),
        ] {
            let mask = selector(value);
            assert_eq!(mask.effect, format!("{effect}; read by SYCL alone, it hides nothing here"), "{value}");
            assert_eq!(mask.error, None, "{value}");
        }
        for bad in ["", "level_zero", "level_zero:gpu:0", "metal:*", "level_zero:x", "level_zero:", "level_zero:gpu;"] {
            let mask = selector(bad);
            assert!(mask.error.unwrap().contains("is no term"), "{bad}");
            assert!(mask.effect.contains("SYCL throws"), "{bad}");
        }
    }
}
