//! A configuration as text, in the form in which it is read.

use serde_json::{Map, Value};

use super::entry::{DISABLED, Modes};
use super::parse::{ATTENTION, EVERY_DEVICE, FUSION, INHERIT, PARITY, VERIFY};
use super::{Choice, Entry, Fusion, KernelConfig, Registered};
use crate::fetch::Revision;
use crate::swap::{KernelRef, KernelSource};

impl KernelConfig {
    /// The configuration as TOML. Reading it gives an equal one; of a scope, its own part is written.
    ///
    /// # Panics
    /// Never: the model has no value that TOML cannot hold.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(&self.to_value()).expect("tables of texts, lists, numbers and truth values are TOML")
    }

    /// The configuration as JSON. Reading it gives an equal one.
    #[must_use]
    pub fn to_json(&self) -> Value {
        Value::Object(self.to_value())
    }

    fn to_value(&self) -> Map<String, Value> {
        let mut top = Map::new();
        top.insert(INHERIT.to_owned(), self.inherit.into());
        if let Some(word) = &self.attention {
            top.insert(ATTENTION.to_owned(), word.to_string().into());
        }
        if self.parity {
            top.insert(VERIFY.to_owned(), PARITY.into());
        }
        let patterns = self.patterns.iter().map(|(pattern, entry)| (pattern.as_str(), entry));
        let layers = self.layers.iter().map(|(layer, entry)| (layer.as_str(), entry));
        top.extend(layers.chain(patterns).map(|(key, entry)| (key.to_owned(), entry_value(entry))));
        if !self.fusions.is_empty() {
            top.insert(FUSION.to_owned(), self.fusions.iter().map(fusion_value).collect());
        }
        top
    }
}

fn fusion_value(fusion: &Fusion) -> Value {
    let members = fusion.members.iter().map(|member| Value::from(vec![member.layer.as_str(), member.pattern.as_str()]));
    let members = members.collect();
    Value::Object(
        [("members".to_owned(), members), ("kernel".to_owned(), entry_value(&fusion.kernel))].into_iter().collect(),
    )
}

fn entry_value(entry: &Entry) -> Value {
    // The short form: one kernel for every device and mode.
    if let (1, Some(modes)) = (entry.devices.len(), entry.devices.get(&None))
        && let (1, Some(choice)) = (modes.len(), modes.get(&Registered::Fallback))
    {
        return choice_value(choice);
    }
    let devices = entry.devices.iter().map(|(device, modes)| {
        (device.map_or_else(|| EVERY_DEVICE.to_owned(), |device| device.to_string()), modes_value(modes))
    });
    Value::Object(devices.collect())
}

fn modes_value(modes: &Modes) -> Value {
    if let (1, Some(choice)) = (modes.len(), modes.get(&Registered::Fallback)) {
        return choice_value(choice);
    }
    Value::Object(modes.iter().map(|(registered, choice)| (registered.to_string(), choice_value(choice))).collect())
}

fn choice_value(choice: &Choice) -> Value {
    match choice {
        Choice::Disabled => DISABLED.into(),
        Choice::Kernel(kernel) => kernel_value(kernel),
        Choice::FirstOf(kernels) => kernels.iter().map(kernel_value).collect(),
    }
}

/// A text, or with its metadata where the text has no place for it.
fn kernel_value(kernel: &KernelRef) -> Value {
    if !kernel.trust_remote_code {
        return kernel.to_string().into();
    }
    let mut metadata = Map::new();
    metadata.insert("trust_remote_code".to_owned(), true.into());
    let mut bare = kernel.clone();
    if let KernelSource::Repo { revision, .. } = &mut bare.source {
        match revision.take() {
            Some(Revision::Version(version)) => metadata.insert("version".to_owned(), version.into()),
            Some(revision) => metadata.insert("revision".to_owned(), revision.to_string().into()),
            None => None,
        };
    }
    Value::Array(vec![bare.to_string().into(), Value::Object(metadata)])
}
