//! Layers that one kernel may take together.
//!
//! A host layer that spans several others, such as a residual add with the norm after it, claims a slot for each of
//! them and one for the whole. The planner gives the whole its kernel where one is configured for the fused layer and
//! fits; the members then have none of their own. Otherwise each member is planned alone, and the report says why.
//! Nothing is rewritten in the model: the host layer asks the plan for the whole's kernel first, so that the next plan
//! may decide otherwise.

use std::sync::Arc;

use super::slot::Shared;
use super::state::State;
use super::{Slot, SlotSpec, SwapError};

/// What a host layer tells the planner about layers that it can run by one kernel.
#[derive(Debug, Clone)]
pub struct GroupSpec {
    /// The whole, as a layer: its path, its name in a kernel mapping such as `AddRMSNorm`, and the contract by which it
    /// calls a kernel. It counts as trainable where a member does.
    pub fused: SlotSpec,
    /// The layers that it replaces, each with a slot of the same model and in no other group.
    pub members: Vec<Slot>,
}

/// A group among a model's slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    /// Index of the whole's slot.
    pub(super) whole: usize,
    /// Indices of the members' slots.
    pub(super) members: Vec<usize>,
}

impl Group {
    /// Adds the group's slot to the model, or changes nothing.
    pub(super) fn claim(shared: &Arc<Shared>, spec: GroupSpec) -> Result<Slot, SwapError> {
        let GroupSpec { mut fused, members } = spec;
        let mut state = shared.state();
        let refuse = |reason: String| SwapError::Group { path: fused.path.clone(), layer: fused.layer.clone(), reason };
        if members.is_empty() {
            return Err(refuse("it has no members".to_owned()));
        }
        let mut indices = Vec::with_capacity(members.len());
        for member in &members {
            let index = member.index();
            if !member.is_of(shared) {
                return Err(refuse("a member belongs to another model".to_owned()));
            }
            let path = &state.specs[index].path;
            if indices.contains(&index) {
                return Err(refuse(format!("{path} is a member twice")));
            }
            if let Some(other) = state.group_with(index) {
                let (path, other) = (path.clone(), &state.specs[other.whole]);
                return Err(refuse(format!("{path} is in the group {} ({}) already", other.path, other.layer)));
            }
            indices.push(index);
        }
        fused.trainable |= indices.iter().any(|index| state.specs[*index].trainable);
        let whole = state.add(fused);
        state.groups.push(Group { whole, members: indices });
        Ok(shared.slot(whole))
    }
}

impl State {
    /// The group that a slot is in, as its whole or as a member.
    fn group_with(&self, slot: usize) -> Option<&Group> {
        self.groups.iter().find(|group| group.whole == slot || group.members.contains(&slot))
    }
}
