//! What this process has mapped.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::read_library;

/// A library in the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedLibrary {
    /// Its file.
    pub path: PathBuf,
    /// Its own name, where it has one.
    pub soname: Option<String>,
}

impl MappedLibrary {
    /// Whether the linker takes it for a name that another library needs.
    pub(super) fn answers_to(&self, name: &str) -> bool {
        match &self.soname {
            Some(soname) => soname == name,
            None => self.path.file_name().is_some_and(|file| file == name),
        }
    }
}

/// The files that the process has mapped and that are ELF files. Anonymous ones, such as the copies of kernels, are
/// left out: no kernel is to find another one by chance.
pub(super) fn read() -> Vec<MappedLibrary> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut found = Vec::new();
    for path in paths(&maps) {
        if let Some(facts) = read_library(&path) {
            found.push(MappedLibrary { path, soname: facts.soname.clone() });
        }
    }
    found
}

/// The mapped files that can be code. The kernel writes a line for each piece: addresses, rights, offset, device,
/// inode, path.
fn paths(maps: &str) -> BTreeSet<PathBuf> {
    let path = |line: &str| {
        let at = line.find('/')?;
        let is_code = line.split(' ').nth(1).is_some_and(|rights| rights.contains('x'));
        let path = &line[at..];
        (is_code && !path.ends_with(" (deleted)")).then(|| Path::new(path).to_path_buf())
    };
    maps.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::paths;

    #[test]
    fn the_mapped_code_is_found_in_the_process_map() {
        let maps = "\
            55e0-55e1 r--p 00000000 fd:01 1 /bin/program\n\
            55e1-55e2 r-xp 00001000 fd:01 1 /bin/program\n\
            7f00-7f01 r--p 00000000 fd:01 2 /usr/share/locale archive\n\
            7f01-7f02 r-xp 00000000 fd:01 3 /opt/a folder/libx.so.1\n\
            7f02-7f03 r-xp 00000000 00:01 4 /memfd:libkernel.so (deleted)\n\
            7f03-7f04 r-xp 00000000 00:00 0 [vdso]\n";
        let found: Vec<_> = paths(maps).into_iter().map(|path| path.display().to_string()).collect();
        assert_eq!(found, ["/bin/program", "/opt/a folder/libx.so.1"]);
    }
}
