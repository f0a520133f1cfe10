//! What an ELF file says about itself, for a decision before it is loaded.
//!
//! Owns: [`ElfFacts`], read the way the dynamic linker reads: by program headers and the dynamic table, never by
//! section headers, which it ignores and which can say something else. Refuses: decisions ([`crate::verify`]'s work)
//! and looking at this machine ([`crate::system`]'s).
//!
//! The bytes are a stranger's. Every table and every name has a bound, stated here; what is longer, cut off or points
//! out of the file is an [`ElfError`], never a panic, an endless loop or memory without a bound. Of a file in one of
//! the formats that we load nothing of (32 bits, big-endian), only the identity is read.
//!
//! The crate `object` gives the layout of the structures; the walk over them is ours, since its own follows section
//! headers.

mod error;
mod image;
mod pages;
mod symbols;
mod versions;

use std::io::{Read, Seek};

use object::elf;
use object::read::{ReadCache, ReadRef};

pub use error::ElfError;
use image::Image;
use pages::Pages;
pub use symbols::UniqueSymbols;
pub use versions::{VersionNeed, split_version};

/// Most program headers that are read.
pub const MAX_SEGMENTS: usize = 1024;
/// Most entries of the dynamic table that are read.
pub const MAX_DYNAMIC_ENTRIES: usize = 4096;
/// Most libraries that a library may need.
pub const MAX_NEEDED: usize = 512;
/// Longest name that is read, in bytes.
pub const MAX_NAME_BYTES: u64 = 4096;
/// Most symbol versions that are read, needed and defined ones each.
pub const MAX_VERSIONS: usize = 8192;
/// Most symbols that are looked at.
pub const MAX_SYMBOLS: usize = 16 << 20;
/// Most names of unique symbols that are kept.
pub const MAX_UNIQUE_NAMES: usize = 4096;
/// Most bytes of names that are kept of one file, in all: many entries may share one long name.
const MAX_KEPT_BYTES: usize = 4 << 20;

/// How much of a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Everything.
    Whole,
    /// All but the symbols: enough to know what a library needs and which versions it has.
    WithoutSymbols,
}

/// What an ELF file says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own; the format has no states")]
pub struct ElfFacts {
    /// 32 or 64.
    pub bits: u8,
    /// Whether its numbers are little-endian.
    pub is_little_endian: bool,
    /// The processor, an `EM_` number of the ELF specification.
    pub machine: u16,
    /// Whether it is a shared object that is no program (`ET_DYN` without `DF_1_PIE`).
    pub is_shared_object: bool,
    /// Its own name, `DT_SONAME`.
    pub soname: Option<String>,
    /// The libraries that it needs, `DT_NEEDED`, in its order.
    pub needed: Vec<String>,
    /// Folders to search, `DT_RPATH`, split at its colons. The linker ignores them where there is a [`Self::runpath`].
    pub rpath: Vec<String>,
    /// Folders to search, `DT_RUNPATH`, split at its colons.
    pub runpath: Vec<String>,
    /// Other libraries that the linker would load in its place: `DT_FILTER` and `DT_AUXILIARY`.
    pub filters: Vec<String>,
    /// The symbol versions that it needs.
    pub needed_versions: Vec<VersionNeed>,
    /// The symbol versions that it defines, its own name left out.
    pub defined_versions: Vec<String>,
    /// Whether it asks for a stack whose bytes can be executed: `PT_GNU_STACK` says so, or is missing.
    pub has_executable_stack: bool,
    /// Whether code has to be written to while it is loaded: `DT_TEXTREL` or `DF_TEXTREL`.
    pub has_text_relocations: bool,
    /// Whether a segment can be both written to and executed.
    pub has_writable_code: bool,
    /// Whether it needs room in the threads' static storage, which may be used up when it is loaded: `DF_STATIC_TLS`.
    pub has_static_tls: bool,
    /// Whether it has `DT_PREINIT_ARRAY`, which counts in programs only.
    pub has_preinit: bool,
    /// What it lacks without which the linker, which trusts its input, would crash.
    pub lacks: Option<&'static str>,
    /// Symbols that the whole process shares, one definition for all libraries: `STB_GNU_UNIQUE`.
    pub unique: UniqueSymbols,
    /// How many functions choose their code while the library is loaded, before its initialisers: `STT_GNU_IFUNC`.
    pub indirect_functions: usize,
}

impl ElfFacts {
    /// Reads a file in memory.
    ///
    /// # Errors
    /// [`ElfError`] when it is no ELF file, or one that breaks its format or a bound of this room.
    pub fn from_bytes(bytes: &[u8], depth: Depth) -> Result<Self, ElfError> {
        Self::read(bytes, depth)
    }

    /// Reads an open file, and of it only the parts that are needed.
    ///
    /// # Errors
    /// As [`Self::from_bytes`]; a part that cannot be read counts as cut off.
    pub fn from_file(file: impl Read + Seek, depth: Depth) -> Result<Self, ElfError> {
        Self::read(&ReadCache::new(Pages::new(file)), depth)
    }

    fn read<'data, R: ReadRef<'data>>(data: R, depth: Depth) -> Result<Self, ElfError> {
        let ident = data.read_bytes_at(0, 20).map_err(|()| ElfError::NotElf)?;
        if ident[..4] != elf::ELFMAG {
            return Err(ElfError::NotElf);
        }
        let bits = match ident[4] {
            1 => 32,
            2 => 64,
            _ => return Err(ElfError::Malformed { what: "the class in the header" }),
        };
        let is_little_endian = match ident[5] {
            1 => true,
            2 => false,
            _ => return Err(ElfError::Malformed { what: "the byte order in the header" }),
        };
        let number = |at: usize| {
            let bytes = [ident[at], ident[at + 1]];
            if is_little_endian { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) }
        };
        let mut facts = Self { bits, is_little_endian, machine: number(18), ..Self::default() };
        if bits != 64 || !is_little_endian {
            return Ok(facts);
        }
        let image = Image::read(data)?;
        facts.has_executable_stack = image.has_executable_stack;
        facts.has_writable_code = image.has_writable_code;
        facts.is_shared_object = number(16) == elf::ET_DYN.0;
        facts.read_dynamic(&image, depth)?;
        Ok(facts)
    }

    fn read_dynamic<'data, R: ReadRef<'data>>(
        &mut self,
        image: &Image<'data, R>,
        depth: Depth,
    ) -> Result<(), ElfError> {
        let mut tables = Tables::default();
        let mut names = Vec::new();
        for (tag, value) in image.dynamic()? {
            match tag {
                elf::DT_STRTAB => tables.strings = Some(value),
                elf::DT_STRSZ => tables.strings_size = value,
                elf::DT_SYMTAB => tables.symbols = Some(value),
                elf::DT_HASH => tables.hash = Some(value),
                elf::DT_GNU_HASH => tables.gnu_hash = Some(value),
                elf::DT_VERNEED => tables.version_needs = Some(value),
                elf::DT_VERNEEDNUM => tables.version_needs_count = value,
                elf::DT_VERDEF => tables.version_definitions = Some(value),
                elf::DT_VERDEFNUM => tables.version_definitions_count = value,
                elf::DT_TEXTREL => self.has_text_relocations = true,
                elf::DT_PREINIT_ARRAY => self.has_preinit = true,
                elf::DT_FLAGS => {
                    self.has_text_relocations |= value & elf::DF_TEXTREL.0 != 0;
                    self.has_static_tls |= value & elf::DF_STATIC_TLS.0 != 0;
                }
                elf::DT_FLAGS_1 if value & elf::DF_1_PIE.0 != 0 => self.is_shared_object = false,
                elf::DT_SONAME
                | elf::DT_NEEDED
                | elf::DT_RPATH
                | elf::DT_RUNPATH
                | elf::DT_FILTER
                | elf::DT_AUXILIARY => names.push((tag, value)),
                _ => {}
            }
        }
        self.lacks = if image.is_dynamic_writable() {
            match (tables.symbols, tables.strings) {
                (Some(_), Some(_)) => None,
                _ => Some("a table of symbols or of names"),
            }
        } else {
            Some("a dynamic table that can be written to")
        };
        let strings = Strings::new(image, &tables);
        for (tag, at) in names {
            let name = strings.get(at)?;
            let split = |list: &str| list.split(':').map(str::to_owned).collect();
            match tag {
                elf::DT_SONAME => self.soname = Some(name),
                elf::DT_RPATH => self.rpath = split(&name),
                elf::DT_RUNPATH => self.runpath = split(&name),
                elf::DT_NEEDED if self.needed.len() < MAX_NEEDED => self.needed.push(name),
                elf::DT_NEEDED => return Err(ElfError::TooMany { what: "needed libraries", maximum: MAX_NEEDED }),
                _ => self.filters.push(name),
            }
        }
        self.needed_versions = versions::needed(image, &tables, &strings)?;
        self.defined_versions = versions::defined(image, &tables, &strings)?;
        if depth == Depth::Whole {
            (self.unique, self.indirect_functions) = symbols::read(image, &tables, &strings)?;
        }
        Ok(())
    }
}

/// Where the dynamic table says that the others are, by address.
#[derive(Default)]
struct Tables {
    strings: Option<u64>,
    strings_size: u64,
    symbols: Option<u64>,
    hash: Option<u64>,
    gnu_hash: Option<u64>,
    version_needs: Option<u64>,
    version_needs_count: u64,
    version_definitions: Option<u64>,
    version_definitions_count: u64,
}

/// The names of a file, and how much of them is kept by now.
struct Strings<'a, 'data, R: ReadRef<'data>> {
    image: &'a Image<'data, R>,
    start: Option<u64>,
    size: u64,
    kept: std::cell::Cell<usize>,
}

impl<'a, 'data, R: ReadRef<'data>> Strings<'a, 'data, R> {
    fn new(image: &'a Image<'data, R>, tables: &Tables) -> Self {
        Self { image, start: tables.strings, size: tables.strings_size, kept: std::cell::Cell::new(0) }
    }

    fn get(&self, at: u64) -> Result<String, ElfError> {
        let outside = ElfError::Malformed { what: "a name outside the table of names" };
        let (Some(start), true) = (self.start, at < self.size) else { return Err(outside) };
        let address = start.checked_add(at).ok_or(outside)?;
        let bytes = self.image.text(address, (self.size - at).min(MAX_NAME_BYTES))?;
        let kept = self.kept.get().saturating_add(bytes.len());
        if kept > MAX_KEPT_BYTES {
            return Err(ElfError::TooMany { what: "bytes of names", maximum: MAX_KEPT_BYTES });
        }
        self.kept.set(kept);
        // A name that is no UTF-8 cannot be the name of anything that is looked for here; it is shown, not used.
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }
}
