//! Why a candidate does not fit, and what is not known about one that does.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::hint::Hint;
use crate::system::{Capability, Libc};
use crate::variant::{Arch, DeviceKey, FrameworkKind, Os, ShaderTarget, VariantFault, Version};

/// The rule that a candidate breaks, with the data behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// The grammar of variants does not know the name.
    #[error("unknown form: {fault}")]
    UnknownForm {
        /// The rule that the name breaks.
        fault: VariantFault,
    },
    /// Its `metadata.json` cannot be used.
    #[error("its metadata cannot be used: {fault}")]
    Metadata {
        /// What is wrong with it.
        fault: String,
    },
    /// Python code for Torch, with nothing that a Rust process could load.
    #[error("Python code for Torch: nothing in it can be loaded without Python")]
    NeedsPython,
    /// Built for another operating system.
    #[error("built for {expected}; this system is {}", or_unpublished(.actual.map(Os::as_str)))]
    Os {
        /// The system that it is built for.
        expected: Os,
        /// This machine's; absent when no build is published for it.
        actual: Option<Os>,
    },
    /// Built for another processor architecture.
    #[error("built for {expected} processors; this one is {}", or_unpublished(.actual.map(Arch::as_str)))]
    CpuArch {
        /// The architecture that it is built for.
        expected: Arch,
        /// This machine's; absent when no build is published for it.
        actual: Option<Arch>,
    },
    /// Built against glibc, and this process runs on another C library.
    #[error("built against glibc; this process runs on {actual}")]
    Libc {
        /// This process's C library.
        actual: Libc,
    },
    /// Needs a newer glibc.
    #[error("needs glibc {required}; this one is {actual}")]
    GlibcTooOld {
        /// The lowest version that will do.
        required: Version,
        /// This machine's.
        actual: Version,
    },
    /// Needs a library of a framework that is not on this machine.
    #[error("needs the library of {framework} {version}, which was not found")]
    FrameworkMissing {
        /// The framework.
        framework: FrameworkKind,
        /// The version that the build was made for.
        version: Version,
    },
    /// Made for another version of a framework.
    #[error("made for {framework} {expected}; here it is {}", or_unknown(.actual.as_ref()))]
    FrameworkVersion {
        /// The framework.
        framework: FrameworkKind,
        /// The version that the build was made for.
        expected: Version,
        /// The version that is here; absent when the library does not tell.
        actual: Option<Version>,
    },
    /// The framework is there, and this process has no loader for its interface.
    #[error("made for {framework} {version}, whose interface this program cannot load")]
    FrameworkUnsupported {
        /// The framework.
        framework: FrameworkKind,
        /// The version that the build was made for.
        version: Version,
    },
    /// The framework's library is built for another backend, or for another version of it.
    #[error("built for {}; the library of {framework} here is built for {actual}", backend_text(.backend, .expected.as_ref()))]
    FrameworkBackend {
        /// The framework.
        framework: FrameworkKind,
        /// The name of the backend that the build is for.
        backend: Cow<'static, str>,
        /// The backend's version, where builds carry one.
        expected: Option<Version>,
        /// What the library is built for, as its version says: `cpu`, `cu126`, `rocm7.2`.
        actual: String,
    },
    /// Made for the C++ ABI that Torch has given up.
    #[error("made for Torch's former C++ ABI (cxx98), which cannot be loaded here")]
    CxxAbi,
    /// Runs on other devices than the one asked for.
    #[error("runs on {actual}; {requested} was asked for")]
    Backend {
        /// The key that was asked for.
        requested: DeviceKey,
        /// The key of the devices that it runs on.
        actual: DeviceKey,
    },
    /// No device of its key is visible.
    #[error("needs device {}; {}", device_text(*.key, *.index), absent(*.unprobed, .masked_by.as_deref()))]
    NoDevice {
        /// The key.
        key: DeviceKey,
        /// The number that was asked for, when one was.
        index: Option<u32>,
        /// Whether nobody has looked for such devices yet.
        unprobed: bool,
        /// The setting that hides the devices there are, when one does.
        masked_by: Option<String>,
    },
    /// The device's driver serves another version of the backend.
    #[error("built for {backend} {expected}; this machine has {}{}", or_unknown(.actual.as_ref()), version_rule(.backend))]
    BackendVersion {
        /// The backend's name.
        backend: Cow<'static, str>,
        /// The version that it is built for.
        expected: Version,
        /// The version that the driver serves; absent when it does not tell.
        actual: Option<Version>,
    },
    /// Has no code for the device's compute capability.
    #[error("has code for capability {}; the device has {actual}", .archs.join(", "))]
    Capability {
        /// `backend.archs` of the build.
        archs: Vec<String>,
        /// The device's.
        actual: Capability,
    },
    /// Has no code for the device's architecture.
    #[error("has code for {}; the device is {actual}", .archs.join(", "))]
    DeviceArch {
        /// `backend.archs` of the build.
        archs: Vec<String>,
        /// The device's.
        actual: String,
    },
    /// Needs a newer macOS: published Metal builds use its shading language 4.
    #[error("Metal builds need macOS {required}; this is {}", or_unknown(.actual.as_ref()))]
    MacosTooOld {
        /// The lowest version that will do.
        required: Version,
        /// This machine's; absent when it is unknown.
        actual: Option<Version>,
    },
    /// A shader pack, and no adapter that it serves.
    #[error("a shader pack for {} adapters; {}", served(*.target), present(.adapters, *.unprobed))]
    ShaderNeedsAdapter {
        /// What it is for: `universal` or a device key.
        #[serde(with = "target_text")]
        target: ShaderTarget,
        /// The keys of the adapters there are, among those asked for.
        adapters: Vec<DeviceKey>,
        /// Whether nobody has looked for adapters yet.
        unprobed: bool,
    },
}

impl Reason {
    /// Whether it speaks of Torch or Python: of what this process would need besides the build.
    #[must_use]
    pub const fn is_about_torch(&self) -> bool {
        match self {
            Self::FrameworkMissing { framework, .. } | Self::FrameworkUnsupported { framework, .. } => {
                !matches!(framework, FrameworkKind::TvmFfi)
            }
            Self::NeedsPython | Self::CxxAbi | Self::FrameworkBackend { .. } => true,
            _ => false,
        }
    }
}

impl Hint for Reason {
    /// How to provide what the build needs, where a user can.
    fn hint(&self) -> Option<String> {
        match self {
            Self::FrameworkMissing { framework: FrameworkKind::TvmFfi, .. } => Some(
                "install libtvm_ffi (in the Python wheel apache-tvm-ffi) or set KERNELHUB_TVM_FFI to its file"
                    .to_owned(),
            ),
            Self::FrameworkMissing { .. } | Self::FrameworkUnsupported { .. } => Some(
                "builds for Torch need libtorch (LIBTORCH names its folder) and a program that can load them"
                    .to_owned(),
            ),
            Self::FrameworkBackend { backend, expected, .. } => Some(format!(
                "LIBTORCH names the folder of another libtorch, such as one for {}",
                backend_text(backend, expected.as_ref())
            )),
            Self::NoDevice { masked_by: Some(mask), .. } => Some(format!("{mask} hides devices: change or unset it")),
            Self::BackendVersion { backend, expected, actual: Some(actual) }
                if *backend == "cuda" && expected.major >= actual.major =>
            {
                Some(format!("a newer driver serves CUDA {expected}"))
            }
            Self::MacosTooOld { required, .. } => Some(format!("update to macOS {required} or later")),
            _ => None,
        }
    }
}

/// Something about an accepted candidate that a report has to say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "snake_case")]
#[non_exhaustive]
pub enum Note {
    /// No `libtvm_ffi` of its version was found, and whether the build needs one shows only after the download.
    #[error(
        "accepted by its tag: no libtvm_ffi of that version was found, and only the download shows if it needs one"
    )]
    TvmFfiUnknown,
    /// Neither `metadata.json` nor the device tells enough to compare architectures.
    #[error("unknown whether it has code for this device")]
    ArchUnknown,
    /// The C library of this process is unknown.
    #[error("unknown whether this system's C library will do")]
    LibcUnknown,
    /// The system is older than what publishers build for, and what this build asks for is not known yet.
    #[error("unknown whether it runs here: builds are made for {system} {usual} and later, this is {actual}")]
    BelowUsualFloor {
        /// `glibc` or `macOS`.
        system: Cow<'static, str>,
        /// The version that publishers build for.
        usual: Version,
        /// This machine's.
        actual: Version,
    },
    /// The adapter computes on the processor.
    #[error("{device} is a software adapter: it computes on the processor")]
    Software {
        /// The adapter's name.
        device: String,
    },
}

/// `"universal"` or a device key, as in the variant.
mod target_text {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    use crate::variant::{ShaderTarget, Variant};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
    pub(super) fn serialize<S: Serializer>(target: &ShaderTarget, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(target)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ShaderTarget, D::Error> {
        let text = String::deserialize(deserializer)?;
        match format!("wgsl-{text}").parse().map_err(D::Error::custom)? {
            Variant::Shader(target) => Ok(target),
            _ => Err(D::Error::custom("not the target of a shader pack")),
        }
    }
}

fn or_unknown(value: Option<&Version>) -> String {
    value.map_or_else(|| "an unknown version".to_owned(), Version::to_string)
}

fn or_unpublished(word: Option<&'static str>) -> &'static str {
    word.unwrap_or("one that no build is published for")
}

fn backend_text(backend: &str, version: Option<&Version>) -> String {
    version.map_or_else(|| backend.to_owned(), |version| format!("{backend} {version}"))
}

fn version_rule(backend: &str) -> &'static str {
    match backend {
        "cuda" => " (same major and at most its minor will do)",
        _ => " (only the same will do)",
    }
}

fn device_text(key: DeviceKey, index: Option<u32>) -> String {
    index.map_or_else(|| key.to_string(), |index| format!("{key}:{index}"))
}

fn absent(unprobed: bool, masked_by: Option<&str>) -> String {
    match (masked_by, unprobed) {
        (Some(mask), _) => format!("it is hidden by {mask}"),
        (None, true) => "such devices were not looked for".to_owned(),
        (None, false) => "there is none here".to_owned(),
    }
}

fn served(target: ShaderTarget) -> &'static str {
    target.key().map_or("all", DeviceKey::as_str)
}

fn present(keys: &[DeviceKey], unprobed: bool) -> String {
    match (keys, unprobed) {
        ([], true) => "adapters were not looked for".to_owned(),
        ([], false) => "there is no adapter for the device asked for".to_owned(),
        (keys, _) => {
            let keys: Vec<&str> = keys.iter().map(|key| key.as_str()).collect();
            format!("here there are: {}", keys.join(", "))
        }
    }
}
