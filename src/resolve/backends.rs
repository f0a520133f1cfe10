//! Which backends there are builds for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::Candidate;
use crate::system::Table;
use crate::variant::{FrameworkKind, Variant};

/// The builds of one backend, whether they fit or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BackendBuilds {
    /// The backend's name: `cuda`; `python` for noarch builds, `wgsl-universal` and the like for shader packs.
    pub backend: String,
    /// How many builds there are.
    pub builds: usize,
    /// What they are called by, each once: `tvm-ffi`, `torch-stable-abi`, `torch`. Empty for shader packs.
    pub frameworks: Vec<String>,
    /// The toolkit's versions, ascending, where builds carry one.
    pub versions: Vec<String>,
    /// Processors and systems, each pair once: `x86_64-linux`. Empty for builds that are for all.
    pub systems: Vec<String>,
}

impl BackendBuilds {
    /// Those of a list of candidates, in the order of their names. Names that the grammar does not know are left out.
    #[must_use]
    pub fn of(candidates: &[Candidate]) -> Vec<Self> {
        #[derive(Default)]
        struct Row {
            builds: usize,
            frameworks: BTreeSet<FrameworkKind>,
            is_python: bool,
            versions: BTreeSet<crate::variant::Version>,
            systems: BTreeSet<String>,
        }
        let mut rows: BTreeMap<String, Row> = BTreeMap::new();
        for variant in candidates.iter().filter_map(|candidate| candidate.variant.known()) {
            let name = match variant {
                Variant::Arch(build) => build.backend().name().to_owned(),
                Variant::Noarch(_) => "python".to_owned(),
                Variant::Shader(_) => variant.to_string(),
            };
            let row = rows.entry(name).or_default();
            row.builds += 1;
            match variant {
                Variant::Arch(build) => {
                    row.frameworks.insert(build.framework().kind());
                    row.versions.extend(build.backend().version());
                    row.systems.insert(format!("{}-{}", build.arch(), build.os()));
                }
                Variant::Noarch(_) => row.is_python = true,
                Variant::Shader(_) => {}
            }
        }
        let word = |kind: &FrameworkKind| match kind {
            FrameworkKind::TvmFfi => "tvm-ffi",
            FrameworkKind::TorchStableAbi => "torch-stable-abi",
            FrameworkKind::Torch => "torch",
        };
        rows.into_iter()
            .map(|(backend, row)| Self {
                backend,
                builds: row.builds,
                frameworks: row
                    .frameworks
                    .iter()
                    .map(word)
                    .chain(row.is_python.then_some("torch"))
                    .map(str::to_owned)
                    .collect(),
                versions: row.versions.iter().map(ToString::to_string).collect(),
                systems: row.systems.into_iter().collect(),
            })
            .collect()
    }
}

/// Prints backends as a table.
#[derive(Debug)]
pub struct BackendTable<'a>(
    /// The rows.
    pub &'a [BackendBuilds],
);

impl fmt::Display for BackendTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_dash = |words: &[String]| if words.is_empty() { "-".to_owned() } else { words.join(" ") };
        let mut table = Table::new(&["BACKEND", "BUILDS", "FOR", "VERSIONS", "SYSTEMS"]);
        for row in self.0 {
            table.row([
                row.backend.clone(),
                row.builds.to_string(),
                or_dash(&row.frameworks),
                or_dash(&row.versions),
                or_dash(&row.systems),
            ]);
        }
        table.fmt(f)
    }
}
