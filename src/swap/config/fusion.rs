//! Several layers that one kernel takes together.

use super::entry::Found;
use super::{Entry, LookUp, PathPattern, Target};
use crate::swap::Mode;

/// One of the layers of a fusion: its name, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FusionMember {
    /// The layer's name in a mapping, such as `RMSNorm`.
    pub layer: String,
    /// Where it stands, such as `model.layers.*.post_attention_layernorm`.
    pub pattern: PathPattern,
}

/// Layers of one parent that one kernel takes together, wherever the parent's pattern matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fusion {
    /// The layers, in the order in which the kernel computes them. Two or more, of one parent.
    pub members: Vec<FusionMember>,
    /// Which kernel takes them, by device and mode.
    pub kernel: Entry,
}

impl Fusion {
    /// What takes the layers on a device in a mode; `None` where the entry says nothing about the device.
    pub(in crate::swap) fn look_up(&self, target: Target, mode: Mode) -> Option<LookUp<'_>> {
        match self.kernel.find(target) {
            Found::Nothing => None,
            found => Some(LookUp::of(found, mode, false)),
        }
    }
}

/// What is wrong with a group of members, or nothing.
pub(super) fn fault(members: &[FusionMember]) -> Option<String> {
    if members.len() < 2 {
        return Some("a fusion has two members or more".to_owned());
    }
    let mut parts = Vec::new();
    for FusionMember { pattern, .. } in members {
        match pattern.parent_and_name() {
            Some((parent, name)) if !name.contains('*') => parts.push((parent, name)),
            _ => {
                return Some(format!(
                    "the pattern {:?} must end in the name of one layer below its parent",
                    pattern.as_str()
                ));
            }
        }
    }
    if let Some((other, _)) = parts.iter().find(|(parent, _)| *parent != parts[0].0) {
        return Some(format!("its members stand below two parents, {:?} and {other:?}", parts[0].0));
    }
    let twice = parts.iter().enumerate().find(|(at, part)| parts[..*at].contains(part));
    twice.map(|(_, (_, name))| format!("it has the member {name:?} twice"))
}
