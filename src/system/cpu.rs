//! The processor.

use serde::{Deserialize, Serialize};

use crate::dtype::DType;

/// The processor, as far as is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct CpuInfo {
    /// Its name, as it tells it.
    pub model: Option<String>,
    /// Cores of the machine; `None` where the system does not tell.
    pub physical_cores: Option<u32>,
    /// Hardware threads of the machine that are online.
    pub logical_cores: Option<u32>,
    /// Hardware threads that this process may use, by its affinity and its share of the machine.
    pub usable_cores: Option<u32>,
    /// Memory of the machine, in bytes.
    pub memory_bytes: Option<u64>,
    /// Instruction sets that kernels make use of, by the compiler's names.
    pub features: Vec<String>,
}

impl CpuInfo {
    /// The element types that its instructions compute in, and those that code for it computes in f32.
    #[must_use]
    pub fn dtypes(&self) -> (Vec<DType>, Vec<DType>) {
        let has = |names: &[&str]| self.features.iter().any(|feature| names.contains(&feature.as_str()));
        let half = [(DType::Bf16, has(&["avx512bf16", "bf16"])), (DType::F16, has(&["avx512fp16", "fp16"]))];
        let those = |native| half.iter().filter(move |(_, is)| *is == native).map(|(dtype, _)| *dtype);
        let integers = [DType::I64, DType::I32, DType::U32, DType::I8, DType::U8];
        let native = [DType::F64, DType::F32].into_iter().chain(those(true)).chain(integers).collect();
        (native, those(false).collect())
    }

    /// Looks at the processor of this machine.
    pub(super) fn probe() -> Self {
        let usable_cores = std::thread::available_parallelism().ok().and_then(|n| u32::try_from(n.get()).ok());
        let facts = linux::facts();
        Self {
            model: facts.model,
            logical_cores: facts.logical_cores.or(usable_cores),
            physical_cores: facts.physical_cores,
            usable_cores,
            memory_bytes: memory_bytes(),
            features: features(),
        }
    }
}

#[cfg(target_os = "linux")]
fn memory_bytes() -> Option<u64> {
    let info = rustix::system::sysinfo();
    #[cfg_attr(
        target_pointer_width = "64",
        expect(clippy::useless_conversion, reason = "a c_ulong, 32 bits elsewhere")
    )]
    let units = u64::try_from(info.totalram).ok()?;
    units.checked_mul(u64::from(info.mem_unit))
}

#[cfg(not(target_os = "linux"))]
fn memory_bytes() -> Option<u64> {
    None
}

/// Linux's own files. They are absent elsewhere, and then nothing is found.
mod linux {
    use std::fs::File;
    use std::io::Read as _;

    #[derive(Debug, Default, PartialEq, Eq)]
    pub(super) struct Facts {
        pub(super) model: Option<String>,
        pub(super) physical_cores: Option<u32>,
        pub(super) logical_cores: Option<u32>,
    }

    pub(super) fn facts() -> Facts {
        // The kernel writes this file while it is read, and slowly: on a machine of 200 threads all of it takes many
        // milliseconds. The first processor's block is enough.
        let mut start = String::new();
        if let Ok(file) = File::open("/proc/cpuinfo") {
            let mut bytes = Vec::new();
            // A failed read leaves what came before it; what is missing then is absent.
            let _ = file.take(4096).read_to_end(&mut bytes);
            start = String::from_utf8_lossy(&bytes).into_owned();
        }
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        parse(&start, &online)
    }

    /// `cpuinfo` is the start of `/proc/cpuinfo`, `online` a list of ranges such as `0-63,128`.
    pub(super) fn parse(cpuinfo: &str, online: &str) -> Facts {
        let block = cpuinfo.split("\n\n").next().unwrap_or_default();
        let field = |name: &str| {
            block
                .lines()
                .filter_map(|line| line.split_once(':'))
                .find(|(key, _)| key.trim() == name)
                .map(|(_, value)| value.trim().to_owned())
                .filter(|value| !value.is_empty())
        };
        let number = |name| field(name)?.parse::<u32>().ok();
        let logical_cores = count(online);
        // Cores and threads of one package; every package of a machine has the same. Right for mixed cores too, which
        // a count of threads per core is not.
        let physical_cores = match (logical_cores, number("cpu cores"), number("siblings")) {
            (Some(logical), Some(cores), Some(threads)) if cores > 0 && threads >= cores => {
                u32::try_from(u64::from(logical) * u64::from(cores) / u64::from(threads)).ok().map(|n| n.max(1))
            }
            _ => None,
        };
        Facts { model: field("model name"), physical_cores, logical_cores }
    }

    /// How many numbers a list of ranges holds.
    fn count(list: &str) -> Option<u32> {
        list.trim().split(',').try_fold(0_u32, |sum, range| {
            let (low, high) = range.split_once('-').unwrap_or((range, range));
            let (low, high) = (low.parse::<u32>().ok()?, high.parse::<u32>().ok()?);
            sum.checked_add(high.checked_sub(low)?.checked_add(1)?)
        })
    }
}

#[cfg(target_arch = "aarch64")]
use std::arch::is_aarch64_feature_detected as detect;
#[cfg(target_arch = "x86_64")]
use std::arch::is_x86_feature_detected as detect;

/// Those of the named features that the processor has.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! detected {
    ($($name:tt)+) => {
        [$(($name, detect!($name))),+].into_iter().filter(|(_, has)| *has).map(|(name, _)| name.to_owned()).collect()
    };
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<String> {
    detected!("sse4.2" "avx" "avx2" "fma" "f16c" "avx512f" "avx512bw" "avx512dq" "avx512vl" "avx512vnni" "avx512bf16"
        "avx512fp16")
}

#[cfg(target_arch = "aarch64")]
fn features() -> Vec<String> {
    detected!("neon" "fp16" "bf16" "dotprod" "i8mm" "sve" "sve2")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn features() -> Vec<String> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::linux::{Facts, parse};

    #[test]
    fn cores_are_counted_from_one_block() {
        let block = "processor\t: 0\nmodel name\t: Xeon 8480\nsiblings\t: 112\ncpu cores\t: 56\n\nprocessor\t: 1\n";
        let facts = Facts { model: Some("Xeon 8480".to_owned()), physical_cores: Some(112), logical_cores: Some(224) };
        assert_eq!(parse(block, "0-223\n"), facts);
        // A laptop with 6 cores of two threads and 8 of one.
        assert_eq!(parse("siblings: 20\ncpu cores: 14\n", "0-19").physical_cores, Some(14));
    }

    #[test]
    fn files_that_tell_nothing_or_nonsense_give_nothing() {
        assert_eq!(parse("", ""), Facts::default());
        assert_eq!(parse("siblings: 0\ncpu cores: 0\n", "0-3").physical_cores, None);
        for online in ["3-0", "a", "0-", ",", "0-4294967295"] {
            assert_eq!(parse("", online).logical_cores, None, "{online}");
        }
    }
}
