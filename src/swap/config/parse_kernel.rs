//! The value of a configuration that names kernels.

use serde_json::{Map, Value};

use super::Choice;
use super::entry::DISABLED;
use super::parse::{A_KERNEL, flag, unexpected};
use crate::hint::nearest;
use crate::swap::{KernelRef, KernelRefError, KernelSource, SwapError};

/// A text, a text with its metadata, or a list of these.
pub(super) fn choice(value: &Value, origin: &str, key: &str) -> Result<Choice, SwapError> {
    match value {
        Value::String(text) if text == DISABLED => Ok(Choice::Disabled),
        Value::String(text) => kernel(text, origin, key).map(Choice::Kernel),
        Value::Array(items) if with_metadata(items).is_some() => kernel_value(value, origin, key).map(Choice::Kernel),
        Value::Array(items) => {
            let mut kernels = Vec::with_capacity(items.len());
            for (at, item) in items.iter().enumerate() {
                let kernel = kernel_value(item, origin, &format!("{key}[{at}]"))?;
                if kernels.contains(&kernel) {
                    return Err(SwapError::config(origin, key, format!("{kernel} stands in the list twice"), None));
                }
                kernels.push(kernel);
            }
            match kernels.len() {
                0 => Err(SwapError::config(origin, key, "the list names no kernel".to_owned(), Some(DISABLED))),
                1 => Ok(Choice::Kernel(kernels.remove(0))),
                _ => Ok(Choice::FirstOf(kernels)),
            }
        }
        other => Err(unexpected(other, A_KERNEL, origin, key)),
    }
}

/// As a list of one kernel or several, in code.
pub(super) fn choice_of_texts(kernels: &[&str], origin: &str, key: &str) -> Result<Choice, SwapError> {
    match kernels {
        [one] => choice(&Value::from(*one), origin, key),
        several => choice(&several.iter().map(|text| Value::from(*text)).collect(), origin, key),
    }
}

/// The form of Transformers: a kernel and a table of what else is to be known of it.
fn with_metadata(items: &[Value]) -> Option<(&str, &Map<String, Value>)> {
    match items {
        [Value::String(text), Value::Object(metadata)] => Some((text, metadata)),
        _ => None,
    }
}

fn kernel_value(value: &Value, origin: &str, key: &str) -> Result<KernelRef, SwapError> {
    match value {
        Value::String(text) if text == DISABLED => {
            let reason = format!("{DISABLED} is no kernel to try; give the list kernels alone");
            Err(SwapError::config(origin, key, reason, None))
        }
        Value::String(text) => kernel(text, origin, key),
        Value::Array(items) => match with_metadata(items) {
            Some((text, metadata)) => described(text, metadata, origin, key),
            None => Err(unexpected(value, A_KERNEL, origin, key)),
        },
        other => Err(unexpected(other, A_KERNEL, origin, key)),
    }
}

/// `["owner/name:Layer", { version = 1, trust_remote_code = true }]`
fn described(text: &str, metadata: &Map<String, Value>, origin: &str, key: &str) -> Result<KernelRef, SwapError> {
    let mut kernel = kernel(text, origin, key)?;
    let refuse = |reason: String| SwapError::config(origin, key, reason, None);
    let mut named = None;
    for (field, value) in metadata {
        let inner = format!("{key}.{field}");
        match (field.as_str(), value) {
            // A field that Python left at None.
            ("version" | "revision", Value::Null) => {}
            ("version", value) => {
                let version = value.as_u64().filter(|version| u32::try_from(*version).is_ok());
                let version = version.ok_or_else(|| unexpected(value, "a version's number", origin, &inner))?;
                if named.replace(format!("v{version}")).is_some() {
                    return Err(refuse(
                        "it has a version and a revision; one of them says which state is meant".to_owned(),
                    ));
                }
            }
            ("revision", value) => {
                let revision = value.as_str().ok_or_else(|| unexpected(value, "a text", origin, &inner))?;
                if named.replace(revision.to_owned()).is_some() {
                    return Err(refuse(
                        "it has a version and a revision; one of them says which state is meant".to_owned(),
                    ));
                }
            }
            ("trust_remote_code", value) => kernel.trust_remote_code = flag(value, origin, &inner)?,
            (unknown, _) => {
                let known = ["revision", "trust_remote_code", "version"];
                let reason = format!("unknown key {unknown:?}; known: {}", known.join(", "));
                return Err(SwapError::config(origin, &inner, reason, nearest(unknown, known)));
            }
        }
    }
    let Some(named) = named else { return Ok(kernel) };
    match &kernel.source {
        KernelSource::Repo { repo, revision: None } => {
            let again = self::kernel(&format!("{repo}@{named}"), origin, key)?;
            Ok(KernelRef { source: again.source, ..kernel })
        }
        KernelSource::Repo { .. } => Err(refuse(format!("{text:?} names its revision, and so does the table"))),
        KernelSource::Folder(_) => Err(refuse(format!("the folder {text:?} has no versions to choose from"))),
    }
}

fn kernel(text: &str, origin: &str, key: &str) -> Result<KernelRef, SwapError> {
    text.parse().map_err(|error: KernelRefError| {
        let reason = match std::error::Error::source(&error) {
            Some(source) => format!("{error} ({source})"),
            None => error.to_string(),
        };
        let hint = if text.eq_ignore_ascii_case(DISABLED) { Some(DISABLED) } else { None };
        SwapError::config(origin, key, reason, hint)
    })
}
