//! A configuration in code.

use super::{
    DeviceSelector, Entry, Fusion, FusionMember, KernelConfig, PathPattern, Registered, fusion, parse, parse_kernel,
};
use crate::swap::{Mode, SwapError};

/// The text that errors name as the origin.
const ORIGIN: &str = "KernelConfig::builder";

/// Builds a [`KernelConfig`] in code. What it doesn't name comes from the default table, as in a file; see
/// [`Self::inherit`].
#[derive(Debug, Clone)]
pub struct KernelConfigBuilder {
    config: KernelConfig,
}

impl KernelConfigBuilder {
    pub(super) fn new() -> Self {
        Self { config: KernelConfig { inherit: true, ..KernelConfig::default() } }
    }

    /// Gives `layer` on `device` the kernel `kernel` (`owner/name@v1:Layer`, `owner/name@<revision>:Layer`,
    /// `/folder:Layer`, or `Disabled`) in every mode for which nothing else is registered.
    ///
    /// `layer` is a layer's name, or a pattern of paths as in [`PathPattern`]; `device` a key, or a [`DeviceSelector`].
    ///
    /// # Errors
    /// [`SwapError::Config`] when `kernel` names no kernel, or the selector ties with another one.
    pub fn kernel(self, layer: &str, device: impl Into<DeviceSelector>, kernel: &str) -> Result<Self, SwapError> {
        self.insert(layer, Some(device.into()), Registered::Fallback, &[kernel])
    }

    /// Gives `layer` on `device` the kernel `kernel` in one mode.
    ///
    /// # Errors
    /// As [`Self::kernel`].
    pub fn kernel_for_mode(
        self,
        layer: &str,
        device: impl Into<DeviceSelector>,
        mode: Mode,
        kernel: &str,
    ) -> Result<Self, SwapError> {
        self.insert(layer, Some(device.into()), Registered::For(mode), &[kernel])
    }

    /// Gives `layer` on `device` the first of `kernels` that can be had and fits.
    ///
    /// # Errors
    /// As [`Self::kernel`], and when there are none, or `Disabled` is among several.
    pub fn first_of(self, layer: &str, device: impl Into<DeviceSelector>, kernels: &[&str]) -> Result<Self, SwapError> {
        self.insert(layer, Some(device.into()), Registered::Fallback, kernels)
    }

    /// Gives `layer` the kernel `kernel` on every device that has no key of its own.
    ///
    /// # Errors
    /// As [`Self::kernel`].
    pub fn kernel_everywhere(self, layer: &str, kernel: &str) -> Result<Self, SwapError> {
        self.insert(layer, None, Registered::Fallback, &[kernel])
    }

    /// Gives several layers of one parent, each by its name and pattern, one kernel together, on every device.
    ///
    /// # Errors
    /// [`SwapError::Config`] when there are fewer than two members, they have several parents, or `kernel` names none.
    pub fn fusion(mut self, members: &[(&str, &str)], kernel: &str) -> Result<Self, SwapError> {
        let key = format!("fusion[{}]", self.config.fusions.len());
        let members = members.iter().map(|(layer, pattern)| {
            let pattern = parse::pattern(pattern, ORIGIN, &key)?;
            Ok(FusionMember { layer: (*layer).to_owned(), pattern })
        });
        let members: Vec<_> = members.collect::<Result<_, SwapError>>()?;
        if let Some(fault) = fusion::fault(&members) {
            return Err(SwapError::config(ORIGIN, &key, fault, None));
        }
        let choice = parse_kernel::choice_of_texts(&[kernel], ORIGIN, &key)?;
        let kernel = Entry { devices: [(None, [(Registered::Fallback, choice)].into())].into() };
        self.config.fusions.push(Fusion { members, kernel });
        Ok(self)
    }

    /// How the model attends: `eager`, `sdpa`, `flash_attention_2`, `auto`, `owner/name@v1:function`, or one of these
    /// after `paged|`.
    ///
    /// # Errors
    /// [`SwapError::Config`] for another word.
    pub fn attn_implementation(mut self, word: &str) -> Result<Self, SwapError> {
        self.config.attention = Some(parse::attention(word, ORIGIN)?);
        Ok(self)
    }

    /// Whether layers that the configuration does not name take what the default table says for them. Default: yes.
    #[must_use]
    pub fn inherit(mut self, inherit: bool) -> Self {
        self.config.inherit = inherit;
        self
    }

    /// Whether every kernel must compute what its contract says before it takes a layer. Default: no.
    #[must_use]
    pub fn parity(mut self, checked: bool) -> Self {
        self.config.parity = checked;
        self
    }

    fn insert(
        mut self,
        layer: &str,
        device: Option<DeviceSelector>,
        registered: Registered,
        kernels: &[&str],
    ) -> Result<Self, SwapError> {
        let key = device.map_or_else(|| layer.to_owned(), |device| format!("{layer}.{device}"));
        let choice = parse_kernel::choice_of_texts(kernels, ORIGIN, &key)?;
        let entry = if PathPattern::is_one(layer) {
            self.config.patterns.entry(parse::pattern(layer, ORIGIN, layer)?).or_default()
        } else {
            self.config.layers.entry(layer.to_owned()).or_default()
        };
        entry.devices.entry(device).or_default().insert(registered, choice);
        parse::refuse_tie(entry, ORIGIN, layer)?;
        Ok(self)
    }

    /// The finished configuration.
    #[must_use]
    pub fn build(self) -> KernelConfig {
        self.config
    }
}
