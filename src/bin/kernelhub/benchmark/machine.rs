//! What a run was measured on.

use kernelhub::system::SystemInfo;
use serde::{Deserialize, Serialize};

/// candle's version in the lock file of this workspace.
const CANDLE: &str = "0.11.1";

/// The machine and its load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// The processor's own name; null where the system does not tell.
    pub(crate) cpu: Option<String>,
    /// Instruction sets of it that kernels make use of.
    pub(crate) features: Vec<String>,
    pub(crate) os: String,
    /// Hardware threads that the process may use.
    pub(crate) usable_cores: Option<u32>,
    pub(crate) memory_bytes: Option<u64>,
    /// Load average of the last minute before and after the run; null where the system does not tell.
    pub(crate) load_average: [Option<f64>; 2],
}

impl Machine {
    /// This machine, before the run.
    pub(crate) fn probe() -> Self {
        let cpu = SystemInfo::probe().cpu;
        Self {
            cpu: cpu.model,
            features: cpu.features,
            os: std::env::consts::OS.to_owned(),
            usable_cores: cpu.usable_cores,
            memory_bytes: cpu.memory_bytes,
            load_average: [load_average(), None],
        }
    }

    /// Notes the load after the run.
    pub(crate) fn finish(&mut self) {
        self.load_average[1] = load_average();
    }
}

fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// The code that kernels are compared with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reference {
    /// The host's framework, whose own operations the reference code is.
    pub(crate) framework: String,
    pub(crate) version: String,
    /// Instruction sets that it was compiled for, as far as kernels make use of them; none: those of every processor of
    /// the architecture.
    pub(crate) compiled_for: Vec<String>,
}

impl Reference {
    pub(crate) fn candle() -> Self {
        let known = [
            ("avx2", cfg!(target_feature = "avx2")),
            ("fma", cfg!(target_feature = "fma")),
            ("f16c", cfg!(target_feature = "f16c")),
            ("avx512f", cfg!(target_feature = "avx512f")),
            ("avx512bf16", cfg!(target_feature = "avx512bf16")),
            ("fp16", cfg!(target_feature = "fp16")),
        ];
        let compiled_for = known.into_iter().filter(|(_, is_on)| *is_on).map(|(name, _)| name.to_owned()).collect();
        Self { framework: "candle".to_owned(), version: CANDLE.to_owned(), compiled_for }
    }

    /// The words for a person.
    pub(crate) fn words(&self) -> String {
        let compiled = match &*self.compiled_for {
            [] => format!("compiled for any {} processor", std::env::consts::ARCH),
            features => format!("compiled for {}", features.join(", ")),
        };
        format!("{} {}'s own operations, {compiled}", self.framework, self.version)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_version_of_candle_is_the_locked_one() {
        let lock = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.lock"));
        let entry = format!("name = \"candle-nn\"\nversion = \"{}\"\n", super::CANDLE);
        assert!(lock.replace('\r', "").contains(&entry), "Cargo.lock has another version of candle-nn");
    }
}
