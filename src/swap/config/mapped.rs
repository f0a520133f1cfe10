//! Every kernel that a configuration maps for a device, with the default table's.

use std::collections::BTreeSet;

use super::defaults::DefaultTable;
use super::{KernelConfig, LookUp, Target};
use crate::swap::{KernelRef, Mode};

/// A kernel that a configuration maps a layer to, in one mode or more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedKernel {
    /// The layer's name in the mapping.
    pub layer: String,
    /// The kernel.
    pub kernel: KernelRef,
    /// Whether only the default table maps it, so that it need not be had.
    pub is_default: bool,
}

impl KernelConfig {
    /// The kernels that are mapped for a device by layer name, in any mode, each once; those of the default table where
    /// the configuration inherits it. Entries of paths, and what goes by a capability that `target` does not have, are
    /// left out.
    #[must_use]
    pub fn mapped(&self, target: impl Into<Target>) -> Vec<MappedKernel> {
        let target = target.into();
        let mut all: Vec<MappedKernel> = Vec::new();
        for layer in self.layers_with_defaults() {
            for mode in Mode::ALL {
                let LookUp::Choice { choice, is_default } = self.look_up(layer, None, target, mode) else { continue };
                for kernel in choice.kernels() {
                    let mapped = MappedKernel { layer: layer.to_owned(), kernel: kernel.clone(), is_default };
                    if !all.contains(&mapped) {
                        all.push(mapped);
                    }
                }
            }
        }
        all
    }

    fn layers_with_defaults(&self) -> BTreeSet<&str> {
        let mut layers: BTreeSet<&str> = self.layers().collect();
        if self.inherit {
            match &self.base {
                Some(base) => layers.extend(base.layers_with_defaults()),
                None => layers.extend(self.defaults.as_ref().unwrap_or_else(|| DefaultTable::standard()).layers()),
            }
        }
        layers
    }
}

#[cfg(test)]
mod tests {
    use super::KernelConfig;
    use crate::variant::DeviceKey;

    #[test]
    fn own_entries_and_the_default_tables_are_both_mapped() {
        let config = KernelConfig::from_toml("RMSNorm = \"a/b@v1:RMSNorm\"\nSiluAndMul = \"Disabled\"", "x").unwrap();
        let mapped = config.mapped(DeviceKey::Cpu);
        let own: Vec<_> = mapped.iter().filter(|mapped| !mapped.is_default).collect();
        assert_eq!(own.len(), 1);
        assert_eq!((own[0].layer.as_str(), own[0].kernel.to_string().as_str()), ("RMSNorm", "a/b@v1:RMSNorm"));
        assert!(mapped.iter().any(|mapped| mapped.layer == "RotaryEmbedding" && mapped.is_default));
        assert!(!mapped.iter().any(|mapped| mapped.layer == "SiluAndMul"));
        let alone = KernelConfig::from_toml("inherit = false", "x").unwrap();
        assert!(alone.mapped(DeviceKey::Cpu).is_empty());
    }
}
