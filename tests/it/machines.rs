//! Published lists of builds for described machines: a table that a person can read and check.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use kernelhub::resolve::{Candidate, Note, Request, Resolution, Target, resolve};
use kernelhub::system::SystemInfo;
use kernelhub::variant::{AnyVariant, DeviceKey, Variant};
use serde_json::Value;

fn fixtures(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures").join(folder)
}

/// The files of a folder with this ending, by their names without it.
fn files(folder: &str, ending: &str) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(fixtures(folder)).unwrap().map(|entry| entry.unwrap().path());
    let with_ending = entries.filter(|path| path.extension().is_some_and(|extension| extension == ending));
    with_ending.map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap())).collect()
}

/// Every machine, by its file's name.
pub(crate) fn machines() -> BTreeMap<String, SystemInfo> {
    let read = |(name, bytes): (String, Vec<u8>)| {
        let system = SystemInfo::from_json(&bytes, &name).unwrap_or_else(|error| panic!("{error}"));
        (name, system)
    };
    files("machines", "json").into_iter().map(read).collect()
}

/// Every kernel's builds, with the architectures that its publisher asks for.
fn kernels() -> BTreeMap<String, Vec<Candidate>> {
    let archs: Value = serde_json::from_slice(&files("listings", "json")["archs"]).unwrap();
    let read = |(name, bytes): (String, Vec<u8>)| {
        let mut candidates = Candidate::read_list(&bytes, &name).unwrap();
        for candidate in &mut candidates {
            let AnyVariant::Known(variant) = candidate.variant else { panic!("{name}: {}", candidate.variant) };
            if let Variant::Arch(build) = variant {
                let stated = &archs["archs"][&name][build.backend().name()];
                candidate.archs =
                    stated.as_array().map(|archs| archs.iter().map(|arch| arch.as_str().unwrap().to_owned()).collect());
            }
        }
        (name, candidates)
    };
    files("listings", "txt").into_iter().map(read).collect()
}

/// What was chosen and where it runs, with a mark for each thing that is unknown; or how many builds break which rule.
fn cell(resolution: &Resolution) -> String {
    if let Some(decision) = resolution.chosen_decision() {
        let mut text = format!("{} on {}", decision.variant, decision.device().unwrap());
        for note in decision.notes() {
            text.push_str(match note {
                Note::ArchUnknown => " (code for it?)",
                Note::TvmFfiUnknown => " (libtvm_ffi?)",
                Note::LibcUnknown => " (libc?)",
                Note::BelowUsualFloor { .. } => " (old system?)",
                Note::Software { .. } => " (software)",
                _ => panic!("{note}"),
            });
        }
        return text;
    }
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for decision in &resolution.decisions {
        let reason = serde_json::to_value(decision.reason().unwrap()).unwrap();
        *kinds.entry(reason["kind"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    format!("- {}", kinds.join(", "))
}

#[test]
fn published_builds_for_described_machines_read_as_a_table() {
    let (machines, kernels) = (machines(), kernels());
    assert!(machines.len() >= 20 && kernels.len() >= 12, "{} machines, {} kernels", machines.len(), kernels.len());
    let mut text = String::new();
    for (name, system) in &machines {
        let of = |library: &Option<kernelhub::system::LibraryFound>| {
            library.as_ref().map_or_else(|| "none".to_owned(), |found| found.version.clone().unwrap())
        };
        let libc = system.libc.map_or_else(String::new, |libc| format!(", {libc}"));
        writeln!(
            text,
            "{name}: {} {}{libc}; libtorch {}; libtvm_ffi {}",
            system.arch.unwrap(),
            system.os.unwrap(),
            of(&system.torch),
            of(&system.tvm_ffi)
        )
        .unwrap();
        for device in &system.devices {
            let version = device.backend_version.map_or_else(String::new, |version| format!(" {version}"));
            let code = device.capability.map(|c| c.to_string()).or(device.arch.clone()).unwrap_or_default();
            let route = serde_json::to_value(device.route).unwrap();
            let line = format!(
                "    {}:{} {} ({}{version}) {code}",
                device.key,
                device.index,
                device.name,
                route.as_str().unwrap()
            );
            writeln!(text, "{}", line.trim_end()).unwrap();
        }
        for (kernel, candidates) in &kernels {
            let request = Request::to(Target::Any);
            let own = cell(&resolve(candidates, system, &request));
            let loader = cell(&resolve(candidates, system, &request.with_torch_loader(true)));
            if own == loader {
                writeln!(text, "  {kernel:<18} {own}").unwrap();
            } else {
                writeln!(text, "  {kernel:<18} with a loader for Torch: {loader}").unwrap();
                writeln!(text, "  {:<18} without:                 {own}", "").unwrap();
            }
        }
        writeln!(text).unwrap();
    }
    insta::assert_snapshot!("published_builds", text);
}

/// The same choices whatever the order of the listing, for every machine, kernel and kind of request.
#[test]
fn shuffled_listings_give_the_same_decisions() {
    for (name, system) in machines() {
        for (kernel, candidates) in kernels() {
            for target in [Target::Any].into_iter().chain(DeviceKey::all().map(Target::Key)) {
                let request = Request::to(target).with_torch_loader(true);
                let shown = |candidates: &[Candidate]| resolve(candidates, &system, &request).to_string();
                let expected = shown(&candidates);
                let mut shuffled = candidates.clone();
                for turn in 1..4 {
                    shuffled.rotate_left(turn % candidates.len());
                    shuffled.reverse();
                    assert_eq!(shown(&shuffled), expected, "{kernel} on {name} for {target}");
                }
            }
        }
    }
}

/// No two builds that fit have the same place in the order: rank and name decide between any two.
#[test]
fn no_two_builds_tie() {
    use kernelhub::resolve::Verdict;
    for (name, system) in machines() {
        for (kernel, candidates) in kernels() {
            let resolution = resolve(&candidates, &system, &Request::any().with_torch_loader(true));
            let mut places = Vec::new();
            for decision in &resolution.decisions {
                if let Verdict::Chosen { rank, .. } | Verdict::Outranked { rank, .. } = &decision.verdict {
                    places.push((*rank, decision.variant.clone()));
                }
            }
            assert!(places.is_sorted_by(|a, b| a < b), "{kernel} on {name}: {places:?}");
        }
    }
}
