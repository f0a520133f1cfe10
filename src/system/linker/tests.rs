use std::path::{Path, PathBuf};

use super::{Linker, MappedLibrary, SearchLists, Way, expand, read_library};

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

#[test]
fn tokens_are_replaced_and_relative_entries_lead_nowhere() {
    let list = strings(&["$ORIGIN/../lib", "${ORIGIN}", "/opt/x", "", ".", "relative", "$ORIGINAL"]);
    let expected: Vec<PathBuf> = ["/a/../lib", "/a", "/opt/x", "/aAL"].iter().map(PathBuf::from).collect();
    assert_eq!(expand(&list, Some(Path::new("/a"))), expected);
    assert_eq!(expand(&list, None), [PathBuf::from("/opt/x")]);
    assert_eq!(expand(&strings(&["/usr/$LIB"]), None).len(), 3);
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn this_process_finds_its_own_c_library_and_not_what_is_nowhere() {
    let linker = Linker::of_this_process();
    let lists = SearchLists::default();
    let libc = linker.find("libc.so.6", &lists).unwrap();
    assert_eq!(libc.way, Way::Mapped);
    let facts = read_library(&libc.path).unwrap();
    assert!(facts.defined_versions.iter().any(|version| version.starts_with("GLIBC_2.")), "{facts:?}");
    // Not mapped by a Rust program, and a part of every glibc before it was merged.
    if let Some(found) = linker.find("libresolv.so.2", &lists) {
        assert_eq!(found.way, Way::System);
    }
    assert_eq!(linker.find("libkernelhub-is-nowhere.so.1", &lists), None);
}

#[test]
fn the_order_of_the_search_is_the_linkers() {
    let Some(libc) = Linker::of_this_process().find("libc.so.6", &SearchLists::default()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| {
        let place = folder.path().join(name);
        std::fs::create_dir(&place).unwrap();
        std::fs::copy(&libc.path, place.join("libx.so")).unwrap();
        place
    };
    let (rpath, runpath, system) = (place("rpath"), place("runpath"), place("system"));
    let linker = Linker::described(Vec::new(), vec![system.clone()]);
    let found = |lists: &SearchLists| linker.find("libx.so", lists).unwrap();
    let both = SearchLists { rpath: vec![rpath.clone()], runpath: vec![runpath.clone()] };
    assert_eq!(found(&both).path, runpath.join("libx.so"), "an rpath beside a runpath does not count");
    let only_rpath = SearchLists { rpath: vec![rpath.clone()], ..SearchLists::default() };
    assert_eq!(found(&only_rpath).path, rpath.join("libx.so"));
    let neither = found(&SearchLists::default());
    assert_eq!((neither.path, neither.way), (system.join("libx.so"), Way::System));
    // A file for another machine is passed by.
    std::fs::write(rpath.join("libx.so"), "not a library").unwrap();
    assert_eq!(found(&only_rpath).path, system.join("libx.so"));
    let mapped = MappedLibrary { path: "/somewhere/else.so".into(), soname: Some("libx.so".to_owned()) };
    let linker = Linker::described(vec![mapped], vec![system]);
    assert_eq!(linker.find("libx.so", &both).unwrap().way, Way::Mapped);
    assert_eq!(linker.find("else.so", &both), None, "a name of its own counts instead of the file's");
}
