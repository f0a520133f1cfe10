//! What the dynamic linker of this machine would find.
//!
//! Follows `ld.so(8)` of glibc: what is mapped already, then `DT_RPATH` of the library and of those that asked for it
//! (unless it has a `DT_RUNPATH`), `LD_LIBRARY_PATH`, `DT_RUNPATH`, the cache of `ldconfig`, the default folders. Opens
//! files to read them, and loads none.
//!
//! A view is of the moment in which it is made: what the process has mapped is asked each time. What was read of a file
//! is kept for the process, and read again once the file is another one or has changed.
//!
//! Wrong in one direction only: a folder that this knows and the linker does not (each of `lib`, `lib64` and the
//! distribution's own is tried) makes a library seem to be there, and the linker then says what is missing.

mod cache;
mod known;
mod mapped;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use super::Environment;
use crate::elf::{Depth, ElfFacts};
use crate::regular;
use cache::LinkerCache;
use known::{Known, SETTLED};
pub use mapped::MappedLibrary;

/// The dynamic linker's view of this machine and this process.
#[derive(Debug, Clone, Default)]
pub struct Linker {
    mapped: Vec<MappedLibrary>,
    library_path: Vec<PathBuf>,
    /// The file of the linker's cache, which is read where the search comes to it.
    cache: Option<PathBuf>,
    default_folders: Vec<PathBuf>,
    program_rpath: Vec<PathBuf>,
}

/// Where one library's own lists say that others are to be looked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchLists {
    /// `DT_RPATH` of the library and of those that asked for it, in the order of the search.
    pub rpath: Vec<PathBuf>,
    /// `DT_RUNPATH` of the library.
    pub runpath: Vec<PathBuf>,
}

/// How a library was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The process has mapped it already.
    Mapped,
    /// By the library's own `DT_RPATH` or `DT_RUNPATH`, or the program's.
    OwnList,
    /// By `LD_LIBRARY_PATH`, the linker's cache or a default folder.
    System,
}

/// A library that the linker would take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// Its file.
    pub path: PathBuf,
    /// How it was found.
    pub way: Way,
}

impl Linker {
    /// The view of this process, now. Reads the process's map, and the head of each mapped library that was not read
    /// before.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self {
            mapped: mapped::read(),
            library_path: Environment::read().library_path,
            cache: Some(PathBuf::from("/etc/ld.so.cache")),
            default_folders: default_folders(),
            program_rpath: program_rpath(),
        }
    }

    /// A machine that has these libraries mapped and searches these folders and no cache.
    #[must_use]
    pub fn described(mapped: Vec<MappedLibrary>, folders: Vec<PathBuf>) -> Self {
        Self { mapped, default_folders: folders, ..Self::default() }
    }

    /// Whether this crate knows the rules by which this process's linker searches. Where it doesn't, as with musl, what
    /// is not found here may be found by the linker all the same.
    #[must_use]
    pub const fn knows_the_rules() -> bool {
        cfg!(all(target_os = "linux", target_env = "gnu"))
    }

    /// The library that the linker would take for a name that another one needs. `None`: it would find none.
    #[must_use]
    pub fn find(&self, name: &str, lists: &SearchLists) -> Option<Located> {
        if let Some(mapped) = self.mapped.iter().find(|library| library.answers_to(name)) {
            return Some(Located { path: mapped.path.clone(), way: Way::Mapped });
        }
        let in_folder = |folder: &PathBuf| {
            let path = folder.join(name);
            // The linker passes by what is made for another machine.
            (folder.is_absolute() && is_for_this_machine(&path)).then_some(path)
        };
        let own = |path| Located { path, way: Way::OwnList };
        let system = |path| Located { path, way: Way::System };
        let by_rpath = lists.rpath.iter().chain(&self.program_rpath).filter(|_| lists.runpath.is_empty());
        by_rpath
            .cloned()
            .find_map(|folder| in_folder(&folder))
            .map(own)
            .or_else(|| self.library_path.iter().find_map(in_folder).map(system))
            .or_else(|| lists.runpath.iter().find_map(in_folder).map(own))
            .or_else(|| {
                LinkerCache::read(self.cache.as_deref()?)
                    .find(name)
                    .filter(|path| is_for_this_machine(path))
                    .map(system)
            })
            .or_else(|| self.default_folders.iter().find_map(in_folder).map(system))
    }
}

/// What an ELF file here says about itself, now. `None`: it is none, or cannot be read.
#[must_use]
pub fn read_library(path: &Path) -> Option<Arc<ElfFacts>> {
    static READ: LazyLock<Known<Option<Arc<ElfFacts>>>> = LazyLock::new(|| Known::new(SETTLED));
    let read = |file: &File| ElfFacts::from_file(file, Depth::WithoutSymbols).ok().map(Arc::new);
    READ.get(path, read).flatten()
}

/// The number of this process's processor in ELF files. `None`: no build is published for it.
#[must_use]
pub const fn own_machine() -> Option<u16> {
    if cfg!(target_arch = "x86_64") {
        Some(object::elf::EM_X86_64.0)
    } else if cfg!(target_arch = "aarch64") {
        Some(object::elf::EM_AARCH64.0)
    } else {
        None
    }
}

fn is_for_this_machine(path: &Path) -> bool {
    use std::io::Read as _;
    let mut head = [0; 20];
    let read = regular::open(path).and_then(|mut file| file.read_exact(&mut head));
    let machine = u16::from_le_bytes([head[18], head[19]]);
    read.is_ok() && head.starts_with(b"\x7fELF\x02\x01") && own_machine().is_none_or(|own| own == machine)
}

/// The folders that are searched without being told, the distributions' different ones all together.
fn default_folders() -> Vec<PathBuf> {
    let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
    let tails = [triple.as_str(), ""];
    let heads = ["/lib", "/usr/lib", "/lib64", "/usr/lib64"];
    heads.iter().flat_map(|head| tails.iter().map(move |tail| Path::new(head).join(tail))).collect()
}

/// The program's `DT_RPATH`, which counts for everything that it loads.
fn program_rpath() -> Vec<PathBuf> {
    let Ok(program) = std::env::current_exe() else { return Vec::new() };
    let facts = read_library(&program).filter(|facts| facts.runpath.is_empty());
    facts.map(|facts| expand(&facts.rpath, program.parent())).unwrap_or_default()
}

/// A library's list with its tokens replaced. `origin` is the library's folder; without one, entries that ask for it
/// lead nowhere. Relative and empty entries are left out: they mean the folder in which the process happens to be.
#[must_use]
pub fn expand(list: &[String], origin: Option<&Path>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in list {
        let mut texts = vec![entry.clone()];
        for token in ["$ORIGIN", "${ORIGIN}"] {
            if entry.contains(token) {
                let origin = origin.map(|origin| origin.to_string_lossy());
                texts = origin.map_or_else(Vec::new, |origin| vec![entry.replace(token, &origin)]);
            }
        }
        for token in ["$LIB", "${LIB}"] {
            if entry.contains(token) {
                let places =
                    ["lib64".to_owned(), "lib".to_owned(), format!("lib/{}-linux-gnu", std::env::consts::ARCH)];
                texts = texts.iter().flat_map(|text| places.iter().map(|place| text.replace(token, place))).collect();
            }
        }
        found.extend(texts.into_iter().map(PathBuf::from).filter(|path| path.is_absolute()));
    }
    found
}

/// For the fuzz targets.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_cache(bytes: &[u8], name: &str) -> Option<PathBuf> {
    LinkerCache::parse(bytes).find(name)
}

#[cfg(test)]
mod tests;
