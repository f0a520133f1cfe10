//! Parsers of text.

use std::path::{Component, Path};

use kernelhub::digest::{GitOid, Sha256Digest};
use kernelhub::fetch::{Location, Revision};
use kernelhub::manifest::{
    GridExpression, KernelManifest, KernelsLock, LayersFile, LockSidecar, Metadata, cargo_kernels, pyproject_kernels,
};
use kernelhub::names::{RelativePath, RepoId, check_component};
use kernelhub::oci::OciReference;
use kernelhub::resolve::{Candidate, Request, Target, choose, resolve};
use kernelhub::swap::KernelConfig;
use kernelhub::system::SystemInfo;
use kernelhub::variant::{AnyVariant, Arch, DeviceKey, Os, Variant};

use crate::{kind, outcome, outcome_with_causes};

const ORIGIN: &str = "a fuzzed file";

fn text(data: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(data).map_err(|_| "no UTF-8".to_owned())
}

macro_rules! text {
    ($data:expr) => {
        match text($data) {
            Ok(text) => text,
            Err(outcome) => return outcome,
        }
    };
}

pub(crate) fn variant(data: &[u8]) -> String {
    let text = text!(data);
    let parsed = text.parse::<Variant>();
    if let Ok(variant) = &parsed {
        assert_eq!(variant.to_string(), text, "printing gives back what was read");
        check_component("variant", text).expect("a variant is a folder's name");
    }
    assert_eq!(AnyVariant::read(text).known(), parsed.as_ref().ok().copied());
    outcome(&parsed)
}

/// A list of builds, decided for a machine: whatever the list says, each build has a decision.
pub(crate) fn builds(data: &[u8]) -> String {
    let read = Candidate::read_list(data, ORIGIN);
    let Ok(candidates) = &read else { return outcome_with_causes(&read) };
    let system = SystemInfo::described(Os::Linux, Arch::X86_64);
    let mut chosen = String::new();
    for target in [Target::Any, Target::Key(DeviceKey::Cpu)] {
        let resolution = resolve(candidates, &system, &Request::to(target).with_torch_loader(true));
        assert_eq!(resolution.decisions.len(), candidates.len(), "one decision for each");
        let mut reversed = candidates.clone();
        reversed.reverse();
        let again = resolve(&reversed, &system, &Request::to(target).with_torch_loader(true));
        let shown = resolution.to_string();
        assert_eq!(again.to_string(), shown, "the order of the list plays no part");
        assert!(!shown.contains('\u{1b}'), "no command for the terminal");
        chosen =
            resolution.chosen_decision().map_or_else(|| "none".to_owned(), |decision| decision.variant.to_string());
    }
    format!("accepted, {}", kind(chosen))
}

/// A description of a machine: what is accepted is written and read as itself, and builds are decided for it.
pub(crate) fn system(data: &[u8]) -> String {
    let read = SystemInfo::from_json(data, ORIGIN);
    let Ok(system) = &read else { return outcome_with_causes(&read) };
    let text = serde_json::to_vec(system).expect("a description is written");
    assert_eq!(SystemInfo::from_json(&text, ORIGIN).as_ref().ok(), Some(system), "what it writes it reads");
    let names = [
        "tvm-ffi01-cpu-x86_64-linux",
        "tvm-ffi01-cu128-x86_64-linux",
        "wgsl-universal",
        "torch29-metal-aarch64-darwin",
    ];
    let candidates = Candidate::from_names(names);
    let mut told = String::new();
    for target in DeviceKey::all().map(Target::Key).chain([Target::Any]) {
        match choose(&candidates, system, &Request::to(target)) {
            Ok((chosen, _)) => told = format!("{told} {chosen}"),
            Err(error) => assert!(!error.to_string().contains('\u{1b}'), "no command for the terminal"),
        }
    }
    format!("accepted{told}")
}

pub(crate) fn names(data: &[u8]) -> String {
    let text = text!(data);
    let path = text.parse::<RelativePath>();
    if let Ok(path) = &path {
        let root = Path::new("/root/of/all");
        let below = path.below(root);
        let rest = below.strip_prefix(root).expect("below its root");
        assert!(rest.components().all(|part| matches!(part, Component::Normal(_))), "{}", below.display());
        assert_eq!(path.to_string(), text);
        let bytes = text.bytes().all(|byte| byte >= 0x20 && !br#"<>:"|?*\"#.contains(&byte));
        assert!(bytes, "{text:?}");
        for part in text.split('/') {
            check_component("part", part).expect("each part is a component");
        }
    }
    let repo = text.parse::<RepoId>();
    if let Ok(repo) = &repo {
        assert_eq!(repo.to_string(), text);
        check_component("owner", repo.owner()).expect("an owner is a component");
        check_component("name", repo.name()).expect("a name is a component");
        let folder = repo.cache_folder();
        assert!(folder.len() <= 255 && !folder.contains(['/', '\\', ':']), "its folder is a folder's name");
    }
    let revision = text.parse::<Revision>();
    if let Ok(revision) = &revision {
        assert_eq!(revision.to_string().parse::<Revision>().as_ref(), Ok(revision));
    }
    format!("{} | {} | {}", outcome(&path), outcome(&repo), outcome(&revision))
}

pub(crate) fn metadata(data: &[u8]) -> String {
    let parsed = Metadata::parse(data, ORIGIN);
    if let Ok(metadata) = &parsed {
        let again = Metadata::parse(metadata.to_json().as_bytes(), ORIGIN);
        let again = again.expect("what it writes it reads");
        assert_eq!((&again.name, &again.id, again.version), (&metadata.name, &metadata.id, metadata.version));
        assert_eq!(again.digest.map(|digest| digest.files), metadata.digest.clone().map(|digest| digest.files));
        let found = std::collections::BTreeMap::new();
        let listed = metadata.digest.as_ref().map_or(0, |digest| digest.files.len());
        assert!(metadata.violations(&found).len() >= listed, "a missing file is a violation");
    }
    outcome_with_causes(&parsed)
}

pub(crate) fn layers(data: &[u8]) -> String {
    let parsed = LayersFile::parse(text!(data), ORIGIN);
    if let Ok(file) = &parsed {
        for layer in &file.layers {
            if let Some(shader) = &layer.shader {
                let _ = shader.signature();
            }
        }
    }
    outcome_with_causes(&parsed)
}

pub(crate) fn manifest(data: &[u8]) -> String {
    let parsed = KernelManifest::parse(text!(data), ORIGIN);
    if let Ok(manifest) = &parsed {
        let written = manifest.to_toml().expect("what was read can be written");
        assert_eq!(&KernelManifest::parse(&written, ORIGIN).expect("what it writes it reads"), manifest);
    }
    outcome_with_causes(&parsed)
}

pub(crate) fn lock(data: &[u8]) -> String {
    let parsed = KernelsLock::parse(data, ORIGIN);
    if let Ok(lock) = &parsed
        && let Ok(written) = lock.to_json()
    {
        let again = KernelsLock::parse(written.as_bytes(), ORIGIN).expect("what it writes it reads");
        assert_eq!(&again.to_json().expect("again"), &written);
    }
    outcome_with_causes(&parsed)
}

pub(crate) fn sidecar(data: &[u8]) -> String {
    let parsed = LockSidecar::parse(text!(data), ORIGIN);
    if let Ok(sidecar) = &parsed {
        let written = sidecar.to_toml().expect("what was read can be written");
        let again = LockSidecar::parse(&written, ORIGIN).expect("what it writes it reads");
        assert_eq!(again.to_toml().expect("again"), written);
    }
    outcome_with_causes(&parsed)
}

pub(crate) fn config(data: &[u8]) -> String {
    let text = text!(data);
    let (toml, json) = (KernelConfig::from_toml(text, ORIGIN), KernelConfig::from_json(text, ORIGIN));
    for config in [&toml, &json].into_iter().flatten() {
        let _ = (config.layers().count(), config.kernels().len(), config.is_empty());
    }
    format!("{} | {}", outcome_with_causes(&toml), outcome_with_causes(&json))
}

pub(crate) fn dependencies(data: &[u8]) -> String {
    let text = text!(data);
    let (cargo, python) = (cargo_kernels(text, ORIGIN), pyproject_kernels(text, ORIGIN));
    format!("{} | {}", outcome_with_causes(&cargo), outcome_with_causes(&python))
}

pub(crate) fn grid(data: &[u8]) -> String {
    let parsed = GridExpression::parse(text!(data));
    let Ok(expression) = &parsed else { return outcome(&parsed) };
    let mut told = "accepted".to_owned();
    for value in [0, 1, 7, u64::from(u32::MAX), u64::MAX] {
        told += &outcome(&expression.evaluate(&|_| Some(value)));
    }
    assert!(expression.evaluate(&|_| None).is_ok() || !expression.parameters().is_empty() || told.len() > 8);
    told
}

pub(crate) fn location(data: &[u8]) -> String {
    let text = text!(data);
    let (location, reference) = (text.parse::<Location>(), text.parse::<OciReference>());
    if let Ok(reference) = &reference {
        assert_eq!(reference.to_string().parse::<OciReference>().ok().as_ref(), Some(reference));
    }
    format!("{} | {}", outcome(&location), outcome(&reference))
}

pub(crate) fn digests(data: &[u8]) -> String {
    let text = text!(data);
    let (sha256, base64) = (text.parse::<Sha256Digest>(), Sha256Digest::from_base64(text));
    let git = text.parse::<GitOid>();
    if let Ok(digest) = &sha256 {
        assert_eq!(digest.to_string(), text);
    }
    if let Ok(digest) = &base64 {
        assert_eq!(digest.to_base64(), text, "one spelling for each digest");
    }
    if let Ok(oid) = &git {
        assert_eq!(oid.to_string(), text);
    }
    format!("{} {} {}", sha256.is_ok(), base64.is_ok(), git.is_ok())
}

pub(crate) fn tree(data: &[u8]) -> String {
    let variant = "tvm-ffi01-cpu-x86_64-linux".parse().expect("a variant");
    match kernelhub::fuzzing::listing(data, &variant) {
        Ok(paths) => {
            for path in &paths {
                path.parse::<RelativePath>().expect("a checked path");
            }
            "accepted".to_owned()
        }
        Err(reason) => kind(reason),
    }
}
