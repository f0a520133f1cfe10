//! The texts of a configuration, read into its model.

use serde_json::{Map, Value};

use super::entry::Modes;
use super::parse_kernel::choice;
use super::{DeviceSelector, Entry, Fusion, FusionMember, KernelConfig, PathPattern, Registered, fusion};
use crate::hint::{Hint as _, nearest};
use crate::swap::{AttnImplementation, AttnImplementationError, ModeError, SwapError};

/// The keys that are no layers.
pub(super) const INHERIT: &str = "inherit";
pub(super) const ATTENTION: &str = "attn_implementation";
pub(super) const FUSION: &str = "fusion";
pub(super) const VERIFY: &str = "verify";
/// What [`VERIFY`] may ask for: digests, which are always checked, or the numbers, too.
const VERIFY_WORDS: [&str; 2] = ["digest", PARITY];
pub(super) const PARITY: &str = "parity";
/// The key of a table of devices that stands for every other one.
pub(super) const EVERY_DEVICE: &str = "*";
/// The fields of a Transformers `KernelConfig`, where such an object was written out whole.
const MAPPING: &str = "kernel_mapping";
const INHERIT_MAPPING: &str = "inherit_mapping";
const USE_LOCAL: &str = "use_local_kernel";
const RESERVED: [&str; 7] = [ATTENTION, FUSION, INHERIT, INHERIT_MAPPING, MAPPING, USE_LOCAL, VERIFY];

pub(super) const A_KERNEL: &str = "a kernel such as \"owner/name@v1:Layer\", \"Disabled\", or a list of kernels";

/// Reads a whole configuration. `origin` names the text in errors.
pub(super) fn config(top: Map<String, Value>, origin: &str) -> Result<KernelConfig, SwapError> {
    let mut config = KernelConfig { inherit: true, ..KernelConfig::default() };
    let (mut inherits, mut local) = (None, false);
    for (key, value) in top {
        match key.as_str() {
            INHERIT | INHERIT_MAPPING => {
                if inherits.replace(flag(&value, origin, &key)?).is_some() {
                    return Err(SwapError::config(origin, &key, "it stands twice, under two names".to_owned(), None));
                }
            }
            USE_LOCAL => local = flag(&value, origin, &key)?,
            ATTENTION => {
                let word = value.as_str().ok_or_else(|| unexpected(&value, "a text", origin, &key))?;
                config.attention = Some(attention(word, origin)?);
            }
            VERIFY => {
                let word = value.as_str().ok_or_else(|| unexpected(&value, "a text", origin, &key))?;
                if !VERIFY_WORDS.contains(&word) {
                    let reason = format!("unknown value {word:?}; known: {}", VERIFY_WORDS.join(", "));
                    return Err(SwapError::config(origin, &key, reason, nearest(word, VERIFY_WORDS)));
                }
                config.parity = word == PARITY;
            }
            FUSION => config.fusions = fusions(value, origin)?,
            MAPPING => {
                let Value::Object(mapping) = value else {
                    return Err(unexpected(&value, "a table of layers", origin, &key));
                };
                for (layer, value) in mapping {
                    add(&mut config, &layer, value, origin)?;
                }
            }
            _ => add(&mut config, &key, value, origin)?,
        }
    }
    // In Transformers local kernels stand alone.
    config.inherit = inherits.unwrap_or(true) && !local;
    if local && let Some(kernel) = config.kernels().into_iter().find(|kernel| kernel.repo().is_some()) {
        let reason = format!("it is set, and {kernel} is no folder of this machine such as /folder:Layer");
        return Err(SwapError::config(origin, USE_LOCAL, reason, None));
    }
    Ok(config)
}

fn add(config: &mut KernelConfig, key: &str, value: Value, origin: &str) -> Result<(), SwapError> {
    if matches!(value, Value::Bool(_)) {
        let near = nearest(key, RESERVED);
        return Err(SwapError::config(origin, key, format!("expected {A_KERNEL}, found a truth value"), near));
    }
    let entry = entry(value, origin, key)?;
    let before = if PathPattern::is_one(key) {
        config.patterns.insert(pattern(key, origin, key)?, entry)
    } else {
        config.layers.insert(key.to_owned(), entry)
    };
    match before {
        Some(_) => Err(SwapError::config(origin, key, format!("it stands twice, once in {MAPPING}"), None)),
        None => Ok(()),
    }
}

/// One layer's value: a kernel, or a table by device.
pub(super) fn entry(value: Value, origin: &str, layer: &str) -> Result<Entry, SwapError> {
    let mut entry = Entry::default();
    let Value::Object(table) = value else {
        entry.devices.insert(None, modes(value, origin, layer)?);
        return Ok(entry);
    };
    for (device, value) in table {
        let key = format!("{layer}.{device}");
        let selector = if device == EVERY_DEVICE {
            None
        } else {
            Some(
                device
                    .parse::<DeviceSelector>()
                    .map_err(|error| SwapError::config(origin, &key, error.to_string(), error.suggestion()))?,
            )
        };
        // An alias and its key name one device: a table that has both is ambiguous.
        if entry.devices.insert(selector, modes(value, origin, &key)?).is_some() {
            let device = selector.map_or_else(|| EVERY_DEVICE.to_owned(), |selector| selector.to_string());
            let key = format!("{layer}.{device}");
            return Err(SwapError::config(origin, &key, format!("{device} stands twice, once by its alias"), None));
        }
    }
    refuse_tie(&entry, origin, layer)?;
    Ok(entry)
}

pub(super) fn refuse_tie(entry: &Entry, origin: &str, layer: &str) -> Result<(), SwapError> {
    match entry.tie() {
        None => Ok(()),
        Some((a, b)) => {
            let reason = format!("{a} and {b} overlap and are of one size, so that neither decides where both hold");
            Err(SwapError::config(origin, layer, reason, None))
        }
    }
}

/// A kernel for every mode, or a table by mode.
fn modes(value: Value, origin: &str, key: &str) -> Result<Modes, SwapError> {
    let Value::Object(table) = value else {
        return Ok([(Registered::Fallback, choice(&value, origin, key)?)].into());
    };
    let mut modes = Modes::new();
    for (mode, value) in table {
        let key = format!("{key}.{mode}");
        let registered = mode.parse::<Registered>().map_err(|error| unknown_mode(&error, &mode, origin, &key))?;
        if matches!(value, Value::Object(_)) {
            return Err(unexpected(&value, A_KERNEL, origin, &key));
        }
        if modes.insert(registered, choice(&value, origin, &key)?).is_some() {
            let reason = format!("{registered} stands twice, once by another spelling");
            return Err(SwapError::config(origin, &key, reason, None));
        }
    }
    Ok(modes)
}

fn unknown_mode(error: &ModeError, mode: &str, origin: &str, key: &str) -> SwapError {
    match error {
        ModeError::Unknown { .. } => {
            let reason = format!("unknown mode {mode:?}; known: {}", Registered::NAMES.join(", "));
            SwapError::config(origin, key, reason, nearest(mode, Registered::NAMES))
        }
        ModeError::Union { .. } => {
            let reason = error.hint().map_or_else(|| error.to_string(), |hint| format!("{error}; {hint}"));
            SwapError::config(origin, key, reason, None)
        }
    }
}

/// The word for the model's attention.
pub(super) fn attention(word: &str, origin: &str) -> Result<AttnImplementation, SwapError> {
    word.parse().map_err(|error: AttnImplementationError| {
        let reason = match std::error::Error::source(&error) {
            Some(source) => format!("{error} ({source})"),
            None => error.to_string(),
        };
        SwapError::config(origin, ATTENTION, reason, error.nearest().as_deref())
    })
}

pub(super) fn pattern(text: &str, origin: &str, key: &str) -> Result<PathPattern, SwapError> {
    text.parse().map_err(|error: super::PathPatternError| SwapError::config(origin, key, error.to_string(), None))
}

/// `[[fusion]]`, with `members = [["RMSNorm", "model.layers.*.norm"], ...]` and `kernel` as a layer's value.
fn fusions(value: Value, origin: &str) -> Result<Vec<Fusion>, SwapError> {
    let Value::Array(items) = value else { return Err(unexpected(&value, "a list of fusions", origin, FUSION)) };
    let mut fusions = Vec::with_capacity(items.len());
    for (at, item) in items.into_iter().enumerate() {
        let key = format!("{FUSION}[{at}]");
        let Value::Object(mut item) = item else {
            return Err(unexpected(&item, "a table with members and kernel", origin, &key));
        };
        let absent = |field: &str| SwapError::config(origin, &key, format!("it has no {field:?}"), None);
        let members = item.remove("members").ok_or_else(|| absent("members"))?;
        let kernel = item.remove("kernel").ok_or_else(|| absent("kernel"))?;
        if let Some(unknown) = item.keys().next() {
            let reason = format!("unknown key {unknown:?}; known: kernel, members");
            let near = nearest(unknown, ["kernel", "members"]);
            return Err(SwapError::config(origin, &format!("{key}.{unknown}"), reason, near));
        }
        let members = fusion_members(&members, origin, &format!("{key}.members"))?;
        if let Some(fault) = fusion::fault(&members) {
            return Err(SwapError::config(origin, &key, fault, None));
        }
        fusions.push(Fusion { members, kernel: entry(kernel, origin, &format!("{key}.kernel"))? });
    }
    Ok(fusions)
}

fn fusion_members(members: &Value, origin: &str, key: &str) -> Result<Vec<FusionMember>, SwapError> {
    let refuse = |value: &Value| unexpected(value, "[\"Layer\", \"path.of.*.layer\"]", origin, key);
    let pairs = members.as_array().ok_or_else(|| refuse(members))?;
    let pair = |pair: &Value| match pair.as_array().map(Vec::as_slice) {
        Some([Value::String(layer), Value::String(path)]) => {
            Ok(FusionMember { layer: layer.clone(), pattern: pattern(path, origin, key)? })
        }
        _ => Err(refuse(pair)),
    };
    pairs.iter().map(pair).collect()
}

pub(super) fn flag(value: &Value, origin: &str, key: &str) -> Result<bool, SwapError> {
    value.as_bool().ok_or_else(|| unexpected(value, "true or false", origin, key))
}

pub(super) fn unexpected(value: &Value, expected: &str, origin: &str, key: &str) -> SwapError {
    let found = match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    };
    SwapError::config(origin, key, format!("expected {expected}, found {found}"), None)
}
