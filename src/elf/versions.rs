//! Symbol versions: what a library needs of others, and what it defines.

use object::elf::{self, Verdaux, Verdef, Vernaux, Verneed};
use object::endian::LittleEndian as LE;
use object::read::ReadRef;

use super::image::Image;
use super::{ElfError, MAX_VERSIONS, Strings, Tables};

/// A version of a library's symbols that another library needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct VersionNeed {
    /// The library, such as `libc.so.6`.
    pub library: String,
    /// The version, such as `GLIBC_2.34`.
    pub version: String,
    /// Whether the linker goes on without it.
    pub is_weak: bool,
}

const TOO_MANY: ElfError = ElfError::TooMany { what: "symbol versions", maximum: MAX_VERSIONS };
const OUTSIDE: ElfError = ElfError::Malformed { what: "a symbol version behind the last address" };

/// The next entry of a list whose entries say how far away it is. `None`: this was the last. A step of zero bytes ends
/// a list, so that none goes on for ever; the bound on their number does the rest.
fn step(address: u64, next: u32) -> Result<Option<u64>, ElfError> {
    if next == 0 {
        return Ok(None);
    }
    address.checked_add(u64::from(next)).map(Some).ok_or(OUTSIDE)
}

pub(super) fn needed<'data, R: ReadRef<'data>>(
    image: &Image<'data, R>,
    tables: &Tables,
    strings: &Strings<'_, 'data, R>,
) -> Result<Vec<VersionNeed>, ElfError> {
    let mut found = Vec::new();
    let mut next = tables.version_needs;
    let mut libraries = 0;
    // As the linker does, by the links; the count in the dynamic table is a hint that may be wrong.
    while let Some(address) = next {
        libraries += 1;
        if libraries > MAX_VERSIONS {
            return Err(TOO_MANY);
        }
        let need: &Verneed<LE> = image.structure(address, "a needed symbol version")?;
        let library = strings.get(need.vn_file.get(LE).into())?;
        let mut next_version = step(address, need.vn_aux.get(LE))?.filter(|_| need.vn_cnt.get(LE) > 0);
        while let Some(address) = next_version {
            if found.len() >= MAX_VERSIONS {
                return Err(TOO_MANY);
            }
            let version: &Vernaux<LE> = image.structure(address, "a needed symbol version")?;
            found.push(VersionNeed {
                library: library.clone(),
                version: strings.get(version.vna_name.get(LE).into())?,
                is_weak: version.vna_flags.get(LE).0 & elf::VER_FLG_WEAK.0 != 0,
            });
            next_version = step(address, version.vna_next.get(LE))?;
        }
        next = step(address, need.vn_next.get(LE))?;
    }
    found.sort();
    found.dedup();
    Ok(found)
}

pub(super) fn defined<'data, R: ReadRef<'data>>(
    image: &Image<'data, R>,
    tables: &Tables,
    strings: &Strings<'_, 'data, R>,
) -> Result<Vec<String>, ElfError> {
    let mut found = Vec::new();
    let mut next = tables.version_definitions;
    let mut count = 0;
    while let Some(address) = next {
        count += 1;
        if count > MAX_VERSIONS {
            return Err(TOO_MANY);
        }
        let definition: &Verdef<LE> = image.structure(address, "a defined symbol version")?;
        let is_own_name = definition.vd_flags.get(LE).0 & elf::VER_FLG_BASE.0 != 0;
        if let Some(name) = step(address, definition.vd_aux.get(LE))?.filter(|_| !is_own_name) {
            // The first name is the version's; the others are those that it inherits from.
            let name: &Verdaux<LE> = image.structure(name, "the name of a symbol version")?;
            found.push(strings.get(name.vda_name.get(LE).into())?);
        }
        next = step(address, definition.vd_next.get(LE))?;
    }
    Ok(found)
}

/// A version's family and number: `GLIBC_2.34` is `GLIBC` and `[2, 34]`. `None`: it has no number, such as
/// `GLIBC_PRIVATE`.
#[must_use]
pub fn split_version(version: &str) -> Option<(&str, Vec<u32>)> {
    let (family, number) = version.rsplit_once('_')?;
    let parts: Option<Vec<u32>> = number.split('.').map(|part| part.parse().ok()).collect();
    Some((family, parts?))
}

#[cfg(test)]
mod tests {
    use super::split_version;

    #[test]
    fn a_version_splits_into_its_family_and_number() {
        assert_eq!(split_version("GLIBC_2.34"), Some(("GLIBC", vec![2, 34])));
        assert_eq!(split_version("GLIBCXX_3.4.30"), Some(("GLIBCXX", vec![3, 4, 30])));
        assert!(split_version("GLIBC_2.9").unwrap().1 < split_version("GLIBC_2.10").unwrap().1);
        for without in ["GLIBC_PRIVATE", "GLIBC", "GLIBC_ABI_DT_RELR", "", "_", "X_2.", "X_-1", "X_99999999999"] {
            assert_eq!(split_version(without), None, "{without}");
        }
    }
}
