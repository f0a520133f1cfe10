//! Which of a model's groups a configuration's fusions are for.

use std::collections::BTreeMap;

use super::config::{Fusion, LookUp};
use super::group::Group;
use super::{KernelConfig, KernelRef, Mode, Reason, SlotSpec, SwapError, Target};

/// The fusions of a configuration, by the path and the name of the whole of each group that they match.
#[derive(Debug, Clone, Default)]
pub(super) struct Fusions {
    by_whole: BTreeMap<(String, String), Fusion>,
}

impl Fusions {
    /// Matches every fusion with the groups whose members are its own: as many, each with the layer's name and a path
    /// of the pattern.
    ///
    /// # Errors
    /// [`SwapError::FusionUnmatched`], and [`SwapError::FusionTwice`] for a group that two fusions match.
    pub(super) fn of(specs: &[SlotSpec], groups: &[Group], config: &KernelConfig) -> Result<Self, SwapError> {
        let mut by_whole = BTreeMap::new();
        for fusion in config.fusions() {
            let mut is_matched = false;
            for group in groups.iter().filter(|group| is_for(fusion, group, specs)) {
                is_matched = true;
                let whole = &specs[group.whole];
                let key = (whole.path.clone(), whole.layer.clone());
                if let Some(first) = by_whole.insert(key, fusion.clone()) {
                    let (path, second) = (whole.path.clone(), patterns(fusion));
                    return Err(SwapError::FusionTwice { path, first: patterns(&first), second });
                }
            }
            if !is_matched {
                let groups = groups.iter().map(|group| {
                    let members = group.members.iter().map(|member| specs[*member].path.as_str());
                    members.collect::<Vec<_>>().join(" + ")
                });
                return Err(SwapError::FusionUnmatched { members: patterns(fusion), groups: groups.collect() });
            }
        }
        // What was in force before goes on where this configuration says nothing.
        if let Some(base) = config.inherited() {
            for (whole, fusion) in Self::of(specs, groups, base)?.by_whole {
                by_whole.entry(whole).or_insert(fusion);
            }
        }
        Ok(Self { by_whole })
    }

    /// What is configured for a slot: by the fusion for its group where it is a group's whole and the fusion knows the
    /// device, else by its path and its name.
    pub(super) fn look_up<'a>(
        &'a self,
        config: &'a KernelConfig,
        spec: &SlotSpec,
        target: Target,
        mode: Mode,
    ) -> LookUp<'a> {
        let own = || config.look_up(&spec.layer, Some(&spec.path), target, mode);
        self.get(spec).and_then(|fusion| fusion.look_up(target, mode)).unwrap_or_else(own)
    }

    /// Why the members of a group are not left to the kernel that the default table has for its whole: the application
    /// itself maps one of them to a kernel from elsewhere, and what it asks for comes before a default.
    pub(super) fn overrule(
        &self,
        config: &KernelConfig,
        (specs, group): (&[SlotSpec], &Group),
        target: Target,
        mode: Mode,
    ) -> Option<Reason> {
        let look_up = |slot: usize| self.look_up(config, &specs[slot], target, mode);
        let LookUp::Choice { choice: fused, is_default: true } = look_up(group.whole) else { return None };
        let is_elsewhere = |kernel: &&KernelRef| !fused.kernels().iter().any(|fused| fused.repo() == kernel.repo());
        group.members.iter().find_map(|member| match look_up(*member) {
            LookUp::Choice { choice, is_default: false } => {
                let kernel = choice.kernels().iter().find(is_elsewhere)?.to_string();
                Some(Reason::MemberMapped { path: specs[*member].path.clone(), kernel })
            }
            _ => None,
        })
    }

    /// Whether a fusion is for this slot.
    pub(super) fn is_for(&self, spec: &SlotSpec) -> bool {
        self.get(spec).is_some()
    }

    fn get(&self, spec: &SlotSpec) -> Option<&Fusion> {
        // Most configurations have none, and this is asked for every slot and mode.
        if self.by_whole.is_empty() {
            return None;
        }
        self.by_whole.get(&(spec.path.clone(), spec.layer.clone()))
    }
}

fn is_for(fusion: &Fusion, group: &Group, specs: &[SlotSpec]) -> bool {
    // The patterns of a fusion end in different names, so that no member is matched twice.
    fusion.members.len() == group.members.len()
        && fusion.members.iter().all(|wanted| {
            let is_wanted = |spec: &SlotSpec| spec.layer == wanted.layer && wanted.pattern.matches(&spec.path);
            group.members.iter().any(|member| is_wanted(&specs[*member]))
        })
}

fn patterns(fusion: &Fusion) -> Vec<String> {
    fusion.members.iter().map(|member| format!("{} {}", member.layer, member.pattern)).collect()
}
