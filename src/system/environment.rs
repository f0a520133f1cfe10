//! The environment variables that probing reads, and the root of the files that it reads.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// Settings of drivers that hide, order or split devices, and what their probers need besides. Read as they are: to many
/// of them, an empty value is a setting.
const SETTINGS: [&str; 25] = [
    "ASCEND_HOME_PATH",
    "ASCEND_RT_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "HABANA_VISIBLE_DEVICES",
    "HABANA_VISIBLE_MODULES",
    "HIP_VISIBLE_DEVICES",
    GFX_OVERRIDE,
    "NEURON_RT_NUM_CORES",
    "NEURON_RT_VISIBLE_CORES",
    "NVIDIA_VISIBLE_DEVICES",
    "ONEAPI_DEVICE_SELECTOR",
    "PATH",
    "PT_ENABLE_INT64_SUPPORT",
    "PT_HPU_LAZY_MODE",
    "ROCM_PATH",
    "ROCR_VISIBLE_DEVICES",
    "TPU_CHIPS_PER_HOST_BOUNDS",
    "TPU_VISIBLE_CHIPS",
    "TPU_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "ZE_ENABLE_ALT_DRIVERS",
    "ZE_ENABLE_PCI_ID_DEVICE_ORDER",
    "ZE_FLAT_DEVICE_HIERARCHY",
];

/// Has `ROCm` load code of another architecture; for one GPU where `_` and a number stand behind.
pub(super) const GFX_OVERRIDE: &str = "HSA_OVERRIDE_GFX_VERSION";

/// Whether a variable is [`GFX_OVERRIDE`] for one GPU.
fn is_of_one_gpu(name: &str) -> bool {
    let node = name.strip_prefix(GFX_OVERRIDE).and_then(|rest| rest.strip_prefix('_'));
    node.is_some_and(|node| node.parse::<u32>().is_ok())
}

/// Environment variables as probing sees them, read once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Environment {
    /// `KERNELHUB_TVM_FFI`: the file of `libtvm_ffi`. When it is set, no other place is searched.
    pub tvm_ffi: Option<PathBuf>,
    /// `LIBTORCH`: the folder of a libtorch distribution, whose `lib/` holds the library. When it is set, no other
    /// place is searched.
    pub libtorch: Option<PathBuf>,
    /// `LD_LIBRARY_PATH` (`DYLD_LIBRARY_PATH` on macOS, `PATH` on Windows), split.
    pub library_path: Vec<PathBuf>,
    /// `VIRTUAL_ENV` and `CONDA_PREFIX`: Python environments, whose packages may hold libraries.
    pub python_prefixes: Vec<PathBuf>,
    /// The folder that stands for `/` where devices are looked for below `/sys`, `/proc` and `/dev`; `None` is `/`.
    pub root: Option<PathBuf>,
    /// Settings of drivers, by their names: [`Environment::setting`].
    pub settings: BTreeMap<String, String>,
}

impl Environment {
    /// Reads the process's environment. The only function of this room that does.
    #[must_use]
    pub fn read() -> Self {
        // An empty variable is an unset one, as in a shell's ${NAME:-default}.
        let of_one_gpu =
            std::env::vars_os().filter_map(|(name, _)| name.into_string().ok().filter(|name| is_of_one_gpu(name)));
        let settings = SETTINGS
            .map(str::to_owned)
            .into_iter()
            .chain(of_one_gpu)
            .filter_map(|name| Some((std::env::var_os(&name)?.to_string_lossy().into_owned(), name)))
            .map(|(value, name)| (name, value));
        let get = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let list = |value: OsString| std::env::split_paths(&value).collect();
        let library_path = match std::env::consts::OS {
            "macos" => "DYLD_LIBRARY_PATH",
            "windows" => "PATH",
            _ => "LD_LIBRARY_PATH",
        };
        Self {
            tvm_ffi: get("KERNELHUB_TVM_FFI").map(PathBuf::from),
            libtorch: get("LIBTORCH").map(PathBuf::from),
            library_path: get(library_path).map(list).unwrap_or_default(),
            python_prefixes: ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(get).map(PathBuf::from).collect(),
            root: None,
            settings: settings.collect(),
        }
    }

    /// The value of a driver's setting. An empty one is `Some("")`: to most drivers it hides every device.
    #[must_use]
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// A path of the machine below [`Environment::root`]: `path` has no leading slash.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.as_deref().unwrap_or(std::path::Path::new("/")).join(path)
    }
}
