//! `KernelConfig`: layer → device → mode → kernel.
//!
//! The form is the Transformers dictionary, in TOML or JSON:
//!
//! ```toml
//! RMSNorm = "kernelhub/rmsnorm@v1:RMSNorm"              # every device
//! [SiluAndMul]
//! cpu = "kernelhub/activation@v1:SiluAndMul"
//! cuda = { inference = "kernels-community/activation@v1:SiluAndMul", training = "Disabled" }
//! ```

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{KernelRef, Mode, SwapError};
use crate::hint::nearest;
use crate::manifest::parse_json_strict;
use crate::variant::DeviceKey;

/// The text that switches a layer's kernel off.
const DISABLED: &str = "Disabled";
const STANDARD: &str = include_str!("../../kernel-manifests/mapping/standard.toml");

/// What is configured for one layer, device and mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// This kernel takes the layer, if it fits.
    Kernel(KernelRef),
    /// No kernel: the layer keeps its reference code.
    Disabled,
}

/// The modes that a choice can be registered for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Registered {
    Inference,
    Training,
    /// Whatever the mode, when nothing is registered for it.
    Fallback,
}

/// Which kernel takes which layer, by device and mode.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelConfig {
    /// Whether the entries are a default table, of which a model may lack any layer. Entries that an application wrote
    /// must all be met.
    is_default_table: bool,
    /// Layer → (device, or `None` for every device) → mode → choice.
    layers: BTreeMap<String, BTreeMap<Option<DeviceKey>, BTreeMap<Registered, Choice>>>,
}

/// TOML and JSON alike: a text, or a table of such values.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a kernel such as \"owner/name@v1:Layer\", \"Disabled\", or a table of them")]
enum Raw {
    Text(String),
    Table(BTreeMap<String, Self>),
}

impl KernelConfig {
    /// The mapping of kernelhub's own packs.
    ///
    /// # Errors
    /// [`SwapError::Config`] when the embedded table is broken; it is read when asked for, so that a bad entry harms
    /// nobody who doesn't use it.
    pub fn standard() -> Result<Self, SwapError> {
        let config = Self::from_toml(STANDARD, "the standard mapping")?;
        Ok(Self { is_default_table: true, ..config })
    }

    /// Reads the TOML form. `origin` names the text in errors.
    ///
    /// # Errors
    /// [`SwapError::ConfigToml`] for syntax, [`SwapError::Config`] for an unknown device or mode or a value that names no
    /// kernel.
    pub fn from_toml(text: &str, origin: &str) -> Result<Self, SwapError> {
        let raw: BTreeMap<String, Raw> = toml::from_str(text)
            .map_err(|source| SwapError::ConfigToml { origin: origin.to_owned(), source: Box::new(source) })?;
        Self::from_raw(raw, origin)
    }

    /// Reads the JSON form, such as the dictionary that Transformers takes.
    ///
    /// # Errors
    /// [`SwapError::ConfigJson`] for syntax and doubled keys, else as [`Self::from_toml`].
    pub fn from_json(text: &str, origin: &str) -> Result<Self, SwapError> {
        let raw: BTreeMap<String, Raw> = parse_json_strict(text.as_bytes())
            .and_then(serde_json::from_value)
            .map_err(|source| SwapError::ConfigJson { origin: origin.to_owned(), source })?;
        Self::from_raw(raw, origin)
    }

    /// Starts a configuration in code.
    #[must_use]
    pub fn builder() -> KernelConfigBuilder {
        KernelConfigBuilder { config: Self::default() }
    }

    fn from_raw(raw: BTreeMap<String, Raw>, origin: &str) -> Result<Self, SwapError> {
        let mut config = Self::default();
        for (layer, value) in raw {
            let mut devices = BTreeMap::new();
            match value {
                Raw::Text(text) => {
                    devices.insert(None, modes(Raw::Text(text), origin, &layer)?);
                }
                Raw::Table(table) => {
                    for (device, value) in table {
                        let key = format!("{layer}.{device}");
                        let device = device.parse().map_err(|_| unknown_device(origin, &key, &device))?;
                        // An alias and its key name one device: a table that has both is ambiguous.
                        if devices.insert(Some(device), modes(value, origin, &key)?).is_some() {
                            let reason = format!("{device} stands twice, once by its alias");
                            return Err(SwapError::config(origin, &key, reason, None));
                        }
                    }
                }
            }
            config.layers.insert(layer, devices);
        }
        Ok(config)
    }

    /// The layers that the configuration names, in alphabetical order.
    pub fn layers(&self) -> impl Iterator<Item = &str> {
        self.layers.keys().map(String::as_str)
    }

    /// The kernels that any layer, device or mode names, each once, in order.
    #[must_use]
    pub fn kernels(&self) -> BTreeSet<&KernelRef> {
        let choices = self.layers.values().flat_map(BTreeMap::values).flat_map(BTreeMap::values);
        choices
            .filter_map(|choice| match choice {
                Choice::Kernel(kernel) => Some(kernel),
                Choice::Disabled => None,
            })
            .collect()
    }

    /// Whether a model may lack layers that the configuration names.
    pub(super) fn allows_absent_layers(&self) -> bool {
        self.is_default_table
    }

    /// Whether the configuration names no layer at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// What is configured for `layer` on `device` in `mode`. The chain is: inference → training → fallback, and
    /// training → fallback; an entry for the device beats one for every device, and an xpu takes what is mapped for wgpu
    /// before that.
    #[must_use]
    pub fn choice(&self, layer: &str, device: DeviceKey, mode: Mode) -> Option<&Choice> {
        let chain: &[Registered] = match mode {
            Mode::Inference => &[Registered::Inference, Registered::Training, Registered::Fallback],
            Mode::Training => &[Registered::Training, Registered::Fallback],
            Mode::InferenceCompile | Mode::TrainingCompile => &[Registered::Fallback],
        };
        let devices = self.layers.get(layer)?;
        // An Intel adapter seen through wgpu is an xpu: its own key goes first.
        let portable = || (device == DeviceKey::Xpu).then(|| devices.get(&Some(DeviceKey::Wgpu))).flatten();
        let modes = devices.get(&Some(device)).or_else(portable).or_else(|| devices.get(&None))?;
        chain.iter().find_map(|registered| modes.get(registered))
    }
}

fn unknown_device(origin: &str, key: &str, device: &str) -> SwapError {
    let known: Vec<_> = DeviceKey::all().map(DeviceKey::as_str).collect();
    let reason = format!("unknown device {device:?}; known: {}", known.join(", "));
    SwapError::config(origin, key, reason, nearest(device, known))
}

/// A text for every mode, or a table by mode.
fn modes(value: Raw, origin: &str, key: &str) -> Result<BTreeMap<Registered, Choice>, SwapError> {
    match value {
        Raw::Text(text) => Ok(BTreeMap::from([(Registered::Fallback, choice(&text, origin, key)?)])),
        Raw::Table(table) => {
            let mut modes = BTreeMap::new();
            for (mode, value) in table {
                let key = format!("{key}.{mode}");
                let registered = match mode.as_str() {
                    "inference" => Registered::Inference,
                    "training" => Registered::Training,
                    "fallback" => Registered::Fallback,
                    unknown => {
                        let hint = nearest(unknown, ["inference", "training", "fallback"]);
                        let reason = format!("unknown mode {unknown:?}; known: inference, training, fallback");
                        return Err(SwapError::config(origin, &key, reason, hint));
                    }
                };
                let Raw::Text(text) = value else {
                    let reason = "expected a kernel such as \"owner/name@v1:Layer\", found a table".to_owned();
                    return Err(SwapError::config(origin, &key, reason, None));
                };
                modes.insert(registered, choice(&text, origin, &key)?);
            }
            Ok(modes)
        }
    }
}

fn choice(text: &str, origin: &str, key: &str) -> Result<Choice, SwapError> {
    if text == DISABLED {
        return Ok(Choice::Disabled);
    }
    text.parse().map(Choice::Kernel).map_err(|error: super::KernelRefError| {
        let reason = match std::error::Error::source(&error) {
            Some(source) => format!("{error} ({source})"),
            None => error.to_string(),
        };
        let hint = if text.eq_ignore_ascii_case(DISABLED) { Some(DISABLED) } else { None };
        SwapError::config(origin, key, reason, hint)
    })
}

/// Builds a [`KernelConfig`] in code.
#[derive(Debug, Clone)]
pub struct KernelConfigBuilder {
    config: KernelConfig,
}

impl KernelConfigBuilder {
    /// Gives `layer` on `device` the kernel `kernel` (`owner/name@v1:Layer`, or `Disabled`) in every mode for which
    /// nothing else is registered.
    ///
    /// # Errors
    /// [`SwapError::Config`] when `kernel` names no kernel.
    pub fn kernel(self, layer: &str, device: DeviceKey, kernel: &str) -> Result<Self, SwapError> {
        self.insert(layer, device, Registered::Fallback, kernel)
    }

    /// Gives `layer` on `device` the kernel `kernel` in one mode.
    ///
    /// # Errors
    /// [`SwapError::Config`] when `kernel` names no kernel.
    pub fn kernel_for_mode(self, layer: &str, device: DeviceKey, mode: Mode, kernel: &str) -> Result<Self, SwapError> {
        let registered = match mode {
            Mode::Inference | Mode::InferenceCompile => Registered::Inference,
            Mode::Training | Mode::TrainingCompile => Registered::Training,
        };
        self.insert(layer, device, registered, kernel)
    }

    fn insert(
        mut self,
        layer: &str,
        device: DeviceKey,
        registered: Registered,
        kernel: &str,
    ) -> Result<Self, SwapError> {
        let choice = choice(kernel, "KernelConfig::builder", &format!("{layer}.{device}"))?;
        let devices = self.config.layers.entry(layer.to_owned()).or_default();
        devices.entry(Some(device)).or_default().insert(registered, choice);
        Ok(self)
    }

    /// The finished configuration.
    #[must_use]
    pub fn build(self) -> KernelConfig {
        self.config
    }
}
