//! What was decided, for people and for programs.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Serialize, Serializer};

use super::rank::{Place, Rank};
use super::reason::{Note, Reason};
use super::{Candidate, Request, Target};
use crate::hint::Hint as _;
use crate::system::{Route, Table, printable, printable_up_to};
use crate::variant::{AnyVariant, DeviceKey, Variant};

/// A device of the machine. Printed as `xpu:0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct DeviceRef {
    /// Its kind.
    pub key: DeviceKey,
    /// Its number among the devices of the same key and route.
    pub index: u32,
    /// How it is reached.
    pub route: Route,
}

impl fmt::Display for DeviceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.key, self.index)
    }
}

/// What became of a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It fits, and it is taken.
    Chosen {
        /// Its rank.
        rank: Rank,
        /// The device that it serves.
        device: DeviceRef,
        /// What a report has to say about it.
        notes: Vec<Note>,
    },
    /// It fits, and another one is preferred.
    Outranked {
        /// Its rank.
        rank: Rank,
        /// The device that it serves.
        device: DeviceRef,
        /// What a report has to say about it.
        notes: Vec<Note>,
        /// The variant that is taken instead.
        by: Variant,
    },
    /// It does not fit.
    Rejected {
        /// The first rule that it breaks.
        reason: Reason,
    },
}

/// The decision on one candidate.
///
/// Serialized as `variant`, `accepted`, `place` and `device` (null when rejected), `notes`, and `reason`: null for the
/// chosen one, `{"kind": "outranked-by", "variant": ...}` for one that fits, else the broken rule's `kind` and data.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decision {
    /// Its place in the list that was given.
    pub candidate: usize,
    /// Its name.
    pub variant: AnyVariant,
    /// What became of it.
    pub verdict: Verdict,
}

impl Decision {
    pub(super) fn new(index: usize, candidate: &Candidate, verdict: Verdict) -> Self {
        Self { candidate: index, variant: candidate.variant.clone(), verdict }
    }

    /// Whether it fits this machine and the request, chosen or not.
    #[must_use]
    pub const fn accepted(&self) -> bool {
        !matches!(self.verdict, Verdict::Rejected { .. })
    }

    /// The rule that it breaks, when it does not fit.
    #[must_use]
    pub const fn reason(&self) -> Option<&Reason> {
        match &self.verdict {
            Verdict::Rejected { reason } => Some(reason),
            Verdict::Chosen { .. } | Verdict::Outranked { .. } => None,
        }
    }

    /// The device that it serves, when it fits.
    #[must_use]
    pub const fn device(&self) -> Option<DeviceRef> {
        match &self.verdict {
            Verdict::Chosen { device, .. } | Verdict::Outranked { device, .. } => Some(*device),
            Verdict::Rejected { .. } => None,
        }
    }

    /// What a report has to say about it, when it fits.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        match &self.verdict {
            Verdict::Chosen { notes, .. } | Verdict::Outranked { notes, .. } => notes,
            Verdict::Rejected { .. } => &[],
        }
    }

    fn place(&self) -> Option<Place> {
        match &self.verdict {
            Verdict::Chosen { rank, .. } | Verdict::Outranked { rank, .. } => Some(rank.place),
            Verdict::Rejected { .. } => None,
        }
    }
}

impl Serialize for Decision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(untagged)]
        enum Why<'a> {
            Broken(&'a Reason),
            Outranked { kind: &'static str, variant: Variant },
        }
        #[derive(Serialize)]
        struct Row<'a> {
            variant: &'a AnyVariant,
            accepted: bool,
            place: Option<Place>,
            device: Option<DeviceRef>,
            notes: &'a [Note],
            reason: Option<Why<'a>>,
        }
        let reason = match &self.verdict {
            Verdict::Chosen { .. } => None,
            Verdict::Outranked { by, .. } => Some(Why::Outranked { kind: "outranked-by", variant: *by }),
            Verdict::Rejected { reason } => Some(Why::Broken(reason)),
        };
        Row {
            variant: &self.variant,
            accepted: self.accepted(),
            place: self.place(),
            device: self.device(),
            notes: self.notes(),
            reason,
        }
        .serialize(serializer)
    }
}

/// What was decided on every candidate. [`fmt::Display`] gives a table; serialized, it has the keys `chosen` (the
/// variant, or null) and `decisions`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resolution {
    /// What was asked for.
    pub request: Request,
    /// The place of the chosen candidate in the list that was given; `None` when none fits.
    pub chosen: Option<usize>,
    /// One for each candidate: those that fit, best first, then the others in the order of their names.
    pub decisions: Vec<Decision>,
}

impl Resolution {
    /// The decision on the chosen candidate.
    #[must_use]
    pub fn chosen_decision(&self) -> Option<&Decision> {
        self.decisions.iter().find(|decision| matches!(decision.verdict, Verdict::Chosen { .. }))
    }
}

impl Resolution {
    /// A sentence that nothing fits, with what was asked for: `none of 3 builds fits device cuda`.
    #[must_use]
    pub fn nothing_fits(&self) -> String {
        let builds = match self.decisions.len() {
            1 => "1 build".to_owned(),
            builds => format!("{builds} builds"),
        };
        match self.request.target {
            Target::Any => format!("none of {builds} fits this machine"),
            target @ (Target::Key(_) | Target::One { .. }) => format!("none of {builds} fits device {target}"),
        }
    }

    /// The keys of devices that decided on a build and that nobody has looked for: look, and resolve again.
    #[must_use]
    pub fn unprobed(&self) -> BTreeSet<DeviceKey> {
        let key = |decision: &Decision| match decision.reason()? {
            Reason::NoDevice { key, unprobed: true, .. } => Some(*key),
            Reason::ShaderNeedsAdapter { unprobed: true, .. } => Some(DeviceKey::Wgpu),
            _ => None,
        };
        self.decisions.iter().filter_map(key).collect()
    }

    /// What would make rejected builds fit, a sentence each, in the order of the decisions. A sentence that holds for
    /// several builds stands once.
    #[must_use]
    pub fn hints(&self) -> Vec<String> {
        let mut hints: Vec<String> = Vec::new();
        for hint in self.decisions.iter().filter_map(|decision| decision.reason()?.hint()) {
            if !hints.contains(&hint) {
                hints.push(hint);
            }
        }
        hints
    }
}

impl Serialize for Resolution {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Whole<'a> {
            chosen: Option<&'a AnyVariant>,
            decisions: &'a [Decision],
        }
        Whole { chosen: self.chosen_decision().map(|decision| &decision.variant), decisions: &self.decisions }
            .serialize(serializer)
    }
}

/// Longest decision that is shown whole, in characters: lists of architectures come from strangers too.
const MAX_TEXT_CHARS: usize = 400;

impl fmt::Display for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(&["", "VARIANT", "DEVICE", "DECISION"]);
        for decision in &self.decisions {
            let mark = if matches!(decision.verdict, Verdict::Chosen { .. }) { "->" } else { "" };
            let mut text = match &decision.verdict {
                Verdict::Chosen { rank, .. } => format!("chosen: {}", rank.place.describe()),
                Verdict::Outranked { rank, by, .. } => format!("fits: {}; outranked by {by}", rank.place.describe()),
                Verdict::Rejected { reason } => reason.to_string(),
            };
            for note in decision.notes() {
                text.push_str("; ");
                text.push_str(&note.to_string());
            }
            let device = decision.device().map_or_else(|| "-".to_owned(), |device| device.to_string());
            table.row([
                mark.to_owned(),
                printable(&decision.variant.to_string()),
                device,
                printable_up_to(&text, MAX_TEXT_CHARS),
            ]);
        }
        table.fmt(f)
    }
}
