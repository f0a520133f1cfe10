//! `KernelConfig`: layer → device → mode → kernel.
//!
//! The form is the Transformers dictionary, in TOML or JSON:
//!
//! ```toml
//! inherit = true                                        # what is not named here: the default table's (the default)
//! verify = "parity"                                     # run each kernel against its formula once, before it is used
//! RMSNorm = "kernelhub/rmsnorm@v1:RMSNorm"              # every device
//! "model.layers.0.mlp" = "Disabled"                     # one layer, or a pattern: model.layers.*.mlp
//!
//! [SiluAndMul]
//! cpu = "kernelhub/activation@v1:SiluAndMul"
//! cuda = { inference = "kernels-community/activation@v1:SiluAndMul", training = "Disabled" }
//! "cuda:90-" = ["owner/fast@v1:SiluAndMul", "kernels-community/activation@v1:SiluAndMul"]  # the first that can be had
//! ```
//!
//! `docs/kernel-config.md` has every form. Unknown devices, modes and keys are refused with the near word when the text
//! is read; layers and patterns that the model lacks, when the configuration is applied.

mod builder;
mod defaults;
mod device;
mod entry;
mod fusion;
mod mapped;
mod parse;
mod parse_kernel;
mod pattern;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

pub use self::builder::KernelConfigBuilder;
pub(crate) use self::defaults::{default_revision, own_kernels};
pub use self::device::{CapabilityRange, DeviceSelector, DeviceSelectorError, Target};
pub use self::entry::{Choice, Entry, Registered};
pub use self::fusion::{Fusion, FusionMember};
pub use self::mapped::MappedKernel;
pub use self::pattern::{PathPattern, PathPatternError};

use self::defaults::DefaultTable;
use self::entry::{Found, in_chain};
use super::{AttnImplementation, KernelRef, Mode, SwapError};
use crate::manifest::parse_json_strict;

/// Which kernel takes which layer, by device and mode.
///
/// [`KernelConfig::default`] asks for nothing; one that is read or built inherits the default table unless it says
/// `inherit = false`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KernelConfig {
    inherit: bool,
    layers: BTreeMap<String, Entry>,
    patterns: BTreeMap<PathPattern, Entry>,
    fusions: Vec<Fusion>,
    attention: Option<AttnImplementation>,
    parity: bool,
    /// Another default table than the one of this crate.
    defaults: Option<Arc<DefaultTable>>,
    /// What a scope lies over, in the place of the default table.
    base: Option<Arc<Self>>,
}

/// What a configuration says about one layer, on a device and in a mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LookUp<'a> {
    /// This is configured. `is_default`: by the default table, so that it need not be met.
    Choice { choice: &'a Choice, is_default: bool },
    /// Nothing is.
    NotMapped,
    /// What is goes by the device's capability, which is not known.
    NeedsCapability,
    /// The default table's entry cannot be read.
    BadDefault(&'a str),
}

impl KernelConfig {
    /// The default table: kernelhub's own packs, and what Transformers maps by default. A model may lack any of its
    /// layers, and a kernel of it that cannot be had is reported and is no error.
    ///
    /// # Errors
    /// None today: entries are read when a layer asks for them, and a bad one is reported for that layer.
    pub fn standard() -> Result<Self, SwapError> {
        Ok(Self { inherit: true, ..Self::default() })
    }

    /// A default table of an application's own, in the place of this crate's: the TOML form, layers only. Its entries
    /// are read when a layer asks for them, so that a bad one harms no other.
    ///
    /// # Errors
    /// [`SwapError::ConfigToml`] for syntax.
    pub fn default_table(text: &str, origin: &str) -> Result<Self, SwapError> {
        let defaults = Some(Arc::new(DefaultTable::from_toml(text, origin)?));
        Ok(Self { inherit: true, defaults, ..Self::default() })
    }

    /// Reads the TOML form. `origin` names the text in errors.
    ///
    /// # Errors
    /// [`SwapError::ConfigToml`] for syntax, [`SwapError::Config`] for an unknown device, mode or key, a value that
    /// names no kernel, and what is ambiguous.
    pub fn from_toml(text: &str, origin: &str) -> Result<Self, SwapError> {
        let top = toml::from_str(text)
            .map_err(|source| SwapError::ConfigToml { origin: origin.to_owned(), source: Box::new(source) })?;
        parse::config(top, origin)
    }

    /// Reads the JSON form, such as the dictionary that Transformers takes.
    ///
    /// # Errors
    /// [`SwapError::ConfigJson`] for syntax and doubled keys, else as [`Self::from_toml`].
    pub fn from_json(text: &str, origin: &str) -> Result<Self, SwapError> {
        let malformed = |source| SwapError::ConfigJson { origin: origin.to_owned(), source };
        match parse_json_strict(text.as_bytes()).map_err(malformed)? {
            Value::Object(top) => parse::config(top, origin),
            other => Err(malformed(serde::de::Error::invalid_type(
                if other.is_array() { serde::de::Unexpected::Seq } else { serde::de::Unexpected::Other("no table") },
                &"a table of layers",
            ))),
        }
    }

    /// Starts a configuration in code.
    #[must_use]
    pub fn builder() -> KernelConfigBuilder {
        KernelConfigBuilder::new()
    }

    /// The layers that the configuration names itself, in alphabetical order; without those of the default table.
    pub fn layers(&self) -> impl Iterator<Item = &str> {
        self.layers.keys().map(String::as_str)
    }

    /// The path patterns that it has entries for, in alphabetical order.
    pub fn patterns(&self) -> impl Iterator<Item = &PathPattern> {
        self.patterns.keys()
    }

    /// The layers that one kernel is to take together.
    #[must_use]
    pub fn fusions(&self) -> &[Fusion] {
        &self.fusions
    }

    /// The configuration that this one lies over, where it inherits from one.
    pub(super) fn inherited(&self) -> Option<&Self> {
        self.base.as_deref().filter(|_| self.inherit)
    }

    /// How the model is to attend, where the configuration says so.
    #[must_use]
    pub fn attn_implementation(&self) -> Option<&AttnImplementation> {
        self.attention.as_ref()
    }

    /// Whether it lies over what is in force, for a while.
    pub(super) fn is_override(&self) -> bool {
        self.base.is_some()
    }

    /// Whether every kernel must compute what its contract says before it takes a layer (`verify = "parity"`); see
    /// [`crate::bind::LayerKernel::parity`]. A scope checks where it says so itself or what it lies over does.
    #[must_use]
    pub fn asks_for_parity(&self) -> bool {
        self.parity || self.base.as_ref().is_some_and(|base| base.asks_for_parity())
    }

    /// Whether layers that it does not name take what the default table says.
    #[must_use]
    pub fn inherits(&self) -> bool {
        self.inherit
    }

    /// The kernels that it names itself for any layer, device or mode, each once, in order.
    #[must_use]
    pub fn kernels(&self) -> BTreeSet<&KernelRef> {
        let fused = self.fusions.iter().map(|fusion| &fusion.kernel);
        let entries = self.layers.values().chain(self.patterns.values()).chain(fused);
        entries.flat_map(Entry::choices).flat_map(Choice::kernels).collect()
    }

    /// Whether the configuration names no layer itself.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty() && self.patterns.is_empty() && self.fusions.is_empty()
    }

    /// What is configured for the layers named `layer` on a device in a mode, by the mode's chain; of the default table
    /// where the configuration has nothing for the device and inherits.
    #[must_use]
    pub fn choice(&self, layer: &str, target: impl Into<Target>, mode: Mode) -> Option<&Choice> {
        match self.look_up(layer, None, target.into(), mode) {
            LookUp::Choice { choice, .. } => Some(choice),
            LookUp::NotMapped | LookUp::NeedsCapability | LookUp::BadDefault(_) => None,
        }
    }

    /// The same for one layer: the closest pattern of its path that has something for the device, then its name.
    pub(super) fn look_up(&self, layer: &str, path: Option<&str>, target: Target, mode: Mode) -> LookUp<'_> {
        let mut matching: Vec<_> =
            self.patterns.iter().filter(|(pattern, _)| path.is_some_and(|path| pattern.matches(path))).collect();
        matching.sort_by_key(|(pattern, _)| std::cmp::Reverse(pattern.closeness()));
        let own = matching.into_iter().map(|(_, entry)| entry).chain(self.layers.get(layer));
        for entry in own {
            match entry.find(target) {
                Found::Nothing => {}
                // The closest that knows the device decides, even when it has nothing for the mode.
                found => return LookUp::of(found, mode, false),
            }
        }
        if !self.inherit {
            return LookUp::NotMapped;
        }
        if let Some(base) = &self.base {
            return base.look_up(layer, path, target, mode);
        }
        match self.defaults.as_ref().unwrap_or_else(|| DefaultTable::standard()).entry(layer) {
            None => LookUp::NotMapped,
            Some(Err(reason)) => LookUp::BadDefault(reason),
            Some(Ok(entry)) => LookUp::of(entry.find(target), mode, true),
        }
    }

    /// Whether the look-up of a layer depends on where it stands.
    pub(super) fn goes_by_path(&self) -> bool {
        !self.patterns.is_empty() || (self.inherit && self.base.as_ref().is_some_and(|base| base.goes_by_path()))
    }

    /// Whether anything is asked for at all.
    pub(super) fn asks_for_kernels(&self) -> bool {
        self.inherit || !self.is_empty()
    }

    /// The configuration of a scope, over the one that was in force before it: what it does not name itself stays as it
    /// was, unless it doesn't inherit.
    pub(super) fn over(&self, base: Option<Arc<Self>>) -> Self {
        Self { base, ..self.clone() }
    }
}

impl<'a> LookUp<'a> {
    fn of(found: Found<'a>, mode: Mode, is_default: bool) -> Self {
        match found {
            Found::Nothing => Self::NotMapped,
            Found::NeedsCapability => Self::NeedsCapability,
            Found::Modes(modes) => {
                in_chain(modes, mode).map_or(Self::NotMapped, |choice| Self::Choice { choice, is_default })
            }
        }
    }
}
