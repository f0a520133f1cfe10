//! `kernelhub check-abi`.

use std::path::{Path, PathBuf};

use clap::Args;
use kernelhub::digest::{Violation, ViolationKind};
use kernelhub::elf::{Depth, ElfFacts};
use kernelhub::regular;
use kernelhub::variant::Variant;
use kernelhub::verify::elf::{POLICY, check_manylinux};
use serde_json::{Value, json};

use crate::failure::Failure;

/// Most files and folders that are looked at.
const MAX_ENTRIES: usize = 100_000;

#[derive(Args)]
pub(crate) struct Options {
    /// A folder of a kernel's builds, one build, or any folder with libraries in it; or one library.
    #[arg(value_name = "DIR")]
    place: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let libraries = libraries(&options.place)?;
    if libraries.is_empty() {
        return Err(Failure::new(
            format!("{} holds no library", options.place.display()),
            Some("a library is a file *.so or *.so.N"),
        ));
    }
    let mut rows = Vec::new();
    let mut violations = Vec::new();
    for path in &libraries {
        let name = path.strip_prefix(&options.place).unwrap_or(path).display().to_string();
        let name = if name.is_empty() { path.display().to_string() } else { name };
        let (facts, found) = check(path, &name)?;
        if !options.json {
            let state = if found.is_empty() { "ok" } else { "violates" };
            println!("{state:8}  {name}");
            for violation in &found {
                println!("          {violation}");
            }
        }
        rows.push(row(&name, facts.as_ref()));
        violations.extend(found);
    }
    if options.json {
        crate::print_json(&json!({ "policy": POLICY, "libraries": rows, "violations": violations }))?;
    }
    if violations.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        format!("{} violations of {POLICY} in {} libraries", violations.len(), libraries.len()),
        Some("build on a system of the policy, such as its container images, or against a sysroot of it"),
    ))
}

fn row(name: &str, facts: Option<&ElfFacts>) -> Value {
    let versions: Option<Vec<_>> =
        facts.map(|facts| facts.needed_versions.iter().map(|need| need.version.as_str()).collect());
    json!({ "path": name, "needed": facts.map(|facts| &facts.needed), "versions": versions })
}

fn check(path: &Path, name: &str) -> Result<(Option<ElfFacts>, Vec<Violation>), Failure> {
    let unreadable = |error: std::io::Error| Failure::new(format!("cannot open {}: {error}", path.display()), None);
    let file = regular::open(path).map_err(unreadable)?;
    Ok(match ElfFacts::from_file(file, Depth::Whole) {
        Ok(facts) => {
            // The folder above a build's files has its name.
            let variant: Option<Variant> =
                path.ancestors().skip(1).find_map(|folder| folder.file_name()?.to_str()?.parse().ok());
            let found = check_manylinux(name, &facts, variant.as_ref());
            (Some(facts), found)
        }
        Err(error) => {
            let (path, actual) = (name.to_owned(), Some(error.to_string()));
            let violation = Violation { kind: ViolationKind::LibraryMalformed, path, expected: None, actual };
            (None, vec![violation])
        }
    })
}

/// `libx.so`, `libx.so.1`, whatever the case.
fn is_library(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "so") || name.contains(".so.")
}

/// The libraries in a folder and those below it, sorted. Links are not followed.
fn libraries(place: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| Failure::new(format!("cannot look at {path}: {error}"), None)
    };
    // What is neither a folder nor a library is refused where it is opened.
    if !place.metadata().map_err(unreadable(place))?.is_dir() {
        return Ok(vec![place.to_path_buf()]);
    }
    let (mut found, mut folders, mut count) = (Vec::new(), vec![place.to_path_buf()], 0);
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().map_err(unreadable(&folder))? {
            let entry = entry.map_err(unreadable(&folder))?;
            count += 1;
            if count > MAX_ENTRIES {
                return Err(Failure::new(format!("more than {MAX_ENTRIES} files in {}", place.display()), None));
            }
            let name = entry.file_name().to_string_lossy().to_ascii_lowercase();
            let kind = entry.file_type().map_err(unreadable(&entry.path()))?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && (is_library(&name)) {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}
