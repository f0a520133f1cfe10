//! What is configured for one layer: device → mode → kernel.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::{DeviceSelector, Target};
use crate::swap::{KernelRef, Mode, ModeError};
use crate::variant::DeviceKey;

/// What is configured for one layer, device and mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// This kernel takes the layer, if it fits.
    Kernel(KernelRef),
    /// The first of these that can be had and fits takes the layer. Two or more.
    FirstOf(Vec<KernelRef>),
    /// No kernel: the layer keeps its reference code.
    Disabled,
}

impl Choice {
    /// The kernels to try, in order.
    #[must_use]
    pub fn kernels(&self) -> &[KernelRef] {
        match self {
            Self::Kernel(kernel) => std::slice::from_ref(kernel),
            Self::FirstOf(kernels) => kernels,
            Self::Disabled => &[],
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str(DISABLED),
            Self::Kernel(kernel) => kernel.fmt(f),
            Self::FirstOf(kernels) => {
                let kernels: Vec<_> = kernels.iter().map(ToString::to_string).collect();
                write!(f, "the first of {}", kernels.join(", "))
            }
        }
    }
}

/// The text that switches a layer's kernel off.
pub(super) const DISABLED: &str = "Disabled";

/// What a choice is registered for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Registered {
    /// One mode, and others whose chain comes by it.
    For(Mode),
    /// Whatever the mode, when nothing else is registered for it.
    Fallback,
}

impl Registered {
    /// Every name, in the order of the documentation.
    pub(super) const NAMES: [&str; 5] =
        [Mode::ALL[0].as_str(), Mode::ALL[1].as_str(), Mode::ALL[2].as_str(), Mode::ALL[3].as_str(), "fallback"];

    /// What is looked up for a mode, in order. A kernel that is made to be recorded can be run as it comes, and one
    /// with a backward can be run without it; never the other way.
    #[must_use]
    pub const fn chain(mode: Mode) -> &'static [Self] {
        use Mode::{Inference, InferenceCompile, Training, TrainingCompile};
        match mode {
            Inference => &[
                Self::For(Inference),
                Self::For(InferenceCompile),
                Self::For(Training),
                Self::For(TrainingCompile),
                Self::Fallback,
            ],
            InferenceCompile => &[Self::For(InferenceCompile), Self::For(TrainingCompile), Self::Fallback],
            Training => &[Self::For(Training), Self::For(TrainingCompile), Self::Fallback],
            TrainingCompile => &[Self::For(TrainingCompile), Self::Fallback],
        }
    }
}

impl FromStr for Registered {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let lower = text.trim().to_ascii_lowercase();
        if lower.strip_prefix("mode.").unwrap_or(&lower) == "fallback" {
            return Ok(Self::Fallback);
        }
        text.parse().map(Self::For)
    }
}

impl fmt::Display for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(mode) => mode.fmt(f),
            Self::Fallback => f.pad("fallback"),
        }
    }
}

/// Mode → choice.
pub(super) type Modes = BTreeMap<Registered, Choice>;

/// What is configured for one layer, or for the layers of a path pattern.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// `None`: every device that has no key of its own here.
    pub(super) devices: BTreeMap<Option<DeviceSelector>, Modes>,
}

/// What an entry says about a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// The device has its modes here.
    Modes(&'a Modes),
    /// The entry says nothing about the device.
    Nothing,
    /// It goes by the device's capability, which is not known.
    NeedsCapability,
}

impl Entry {
    /// The modes for a device: of its own keys the one with the fewest capabilities that holds it, then, for an Intel
    /// adapter seen through wgpu, which is an xpu, those of wgpu, then those for every device.
    pub(super) fn find(&self, target: Target) -> Found<'_> {
        let of_key = |key: DeviceKey| {
            self.devices
                .iter()
                .filter_map(move |(selector, modes)| selector.map(|selector| (selector, modes)))
                .filter(move |(selector, _)| selector.key() == key)
        };
        if target.capability.is_none() && of_key(target.device).any(|(selector, _)| selector.capability().is_some()) {
            return Found::NeedsCapability;
        }
        let holds = |selector: DeviceSelector| match (selector.capability(), target.capability) {
            (None, _) => true,
            (Some(range), Some(capability)) => range.contains(capability),
            (Some(_), None) => false,
        };
        let own = of_key(target.device)
            .filter(|(selector, _)| holds(*selector))
            .min_by_key(|(selector, _)| selector.size())
            .map(|(_, modes)| modes);
        let portable = || {
            let wgpu = Some(DeviceSelector::from(DeviceKey::Wgpu));
            (target.device == DeviceKey::Xpu).then(|| self.devices.get(&wgpu)).flatten()
        };
        match own.or_else(portable).or_else(|| self.devices.get(&None)) {
            Some(modes) => Found::Modes(modes),
            None => Found::Nothing,
        }
    }

    /// What takes the layer on a device in a mode, by the mode's chain. `None`: the entry says nothing, or the device's
    /// capability, by which it goes, is not known.
    #[must_use]
    pub fn choice(&self, target: impl Into<Target>, mode: Mode) -> Option<&Choice> {
        match self.find(target.into()) {
            Found::Modes(modes) => in_chain(modes, mode),
            Found::Nothing | Found::NeedsCapability => None,
        }
    }

    /// Every choice.
    pub(super) fn choices(&self) -> impl Iterator<Item = &Choice> {
        self.devices.values().flat_map(BTreeMap::values)
    }

    /// Two keys of this entry of which, for some device, neither decides.
    pub(super) fn tie(&self) -> Option<(DeviceSelector, DeviceSelector)> {
        let selectors: Vec<_> = self.devices.keys().filter_map(|selector| *selector).collect();
        let pairs = selectors.iter().enumerate().flat_map(|(at, a)| selectors[at + 1..].iter().map(move |b| (*a, *b)));
        pairs.into_iter().find(|(a, b)| a.ties_with(*b))
    }
}

/// The first of a mode's chain that is registered.
pub(super) fn in_chain(modes: &Modes, mode: Mode) -> Option<&Choice> {
    Registered::chain(mode).iter().find_map(|registered| modes.get(registered))
}
