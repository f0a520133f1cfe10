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

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
#[expect(unsafe_code, reason = "maps a library of the system")]
fn what_is_mapped_from_now_on_is_seen_from_now_on() {
    // A part of glibc that no Rust program maps, with initialisers of its own that do nothing.
    const NAME: &str = "libBrokenLocale.so.1";
    let lists = SearchLists::default();
    let Some(before) = Linker::of_this_process().find(NAME, &lists) else { return };
    assert_eq!(before.way, Way::System);
    // SAFETY: a library of the C library's own, which only overrides how many bytes a character may have.
    let library = unsafe { libloading::Library::new(NAME) }.unwrap();
    let after = Linker::of_this_process().find(NAME, &lists).unwrap();
    assert_eq!(after.way, Way::Mapped);
    assert_eq!(after.path.canonicalize().unwrap(), before.path.canonicalize().unwrap());
    library.close().unwrap();
    assert_eq!(Linker::of_this_process().find(NAME, &lists).unwrap().way, Way::System);
}

#[test]
fn a_cache_that_is_written_anew_is_read_anew() {
    let Some(libc) = Linker::of_this_process().find("libc.so.6", &SearchLists::default()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first.so"), folder.path().join("second.so"));
    for library in [&first, &second] {
        std::fs::copy(&libc.path, library).unwrap();
    }
    let path = folder.path().join("ld.so.cache");
    let linker = Linker { cache: Some(path.clone()), ..Linker::default() };
    let found = || linker.find("libx.so", &SearchLists::default()).map(|located| located.path);
    assert_eq!(found(), None, "there is no cache");
    for library in [first, second] {
        // As ldconfig does it: another file takes the place of the one before.
        let other = folder.path().join("ld.so.cache~");
        std::fs::write(&other, cache_of("libx.so", &library)).unwrap();
        std::fs::rename(&other, &path).unwrap();
        for _ in 0..2 {
            assert_eq!(found(), Some(library.clone()));
        }
    }
}

/// A linker's cache with one entry for this machine.
fn cache_of(name: &str, path: &Path) -> Vec<u8> {
    let required: u32 = if cfg!(target_arch = "aarch64") { 0x0a00 } else { 0x0300 };
    let texts = [name.as_bytes(), &[0], path.to_str().unwrap().as_bytes(), &[0]].concat();
    let mut bytes = b"glibc-ld.so.cache1.1".to_vec();
    bytes.extend(1_u32.to_le_bytes());
    bytes.resize(48, 0);
    let path_at = 72 + u32::try_from(name.len()).unwrap() + 1;
    for number in [required | 3, 72, path_at, 0, 0, 0] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(texts);
    bytes
}
