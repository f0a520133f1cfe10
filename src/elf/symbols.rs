//! The dynamic symbols that decide more than a name: shared by the whole process, or run while loading.

use std::collections::BTreeSet;

use object::elf::{self, GnuHashHeader, HashHeader, Sym64};
use object::endian::{LittleEndian as LE, U32, U64};
use object::read::ReadRef;

use super::image::Image;
use super::{ElfError, MAX_SYMBOLS, MAX_UNIQUE_NAMES, Strings, Tables};

/// Symbols of which a process has one, whichever library defines them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UniqueSymbols {
    /// How many there are.
    pub count: usize,
    /// Their names: the first [`MAX_UNIQUE_NAMES`] of them, those above [`super::MAX_NAME_BYTES`] left out.
    pub names: BTreeSet<String>,
}

const TOO_MANY: ElfError = ElfError::TooMany { what: "symbols", maximum: MAX_SYMBOLS };

/// The unique symbols, and how many indirect functions there are.
pub(super) fn read<'data, R: ReadRef<'data>>(
    image: &Image<'data, R>,
    tables: &Tables,
    strings: &Strings<'_, 'data, R>,
) -> Result<(UniqueSymbols, usize), ElfError> {
    let mut unique = UniqueSymbols::default();
    let mut indirect = 0;
    let Some(address) = tables.symbols else { return Ok((unique, indirect)) };
    let count = count(image, tables)?;
    let symbols: &[Sym64<LE>] = image.slice(address, count, "the symbols")?;
    for symbol in symbols.iter().filter(|symbol| symbol.st_shndx.get(LE) != elf::SHN_UNDEF) {
        if symbol.st_type() == elf::STT_GNU_IFUNC {
            indirect += 1;
        }
        if symbol.st_bind() == elf::STB_GNU_UNIQUE {
            unique.count += 1;
            // A name of a deep template can be longer than any that is kept; the count tells of it.
            let name = (unique.names.len() < MAX_UNIQUE_NAMES).then(|| strings.get(symbol.st_name.get(LE).into()));
            unique.names.extend(name.and_then(Result::ok));
        }
    }
    Ok((unique, indirect))
}

/// How many dynamic symbols there are. Nothing states it: the hash tables, by which the linker finds them, imply it.
fn count<'data, R: ReadRef<'data>>(image: &Image<'data, R>, tables: &Tables) -> Result<usize, ElfError> {
    let by_hash = match tables.hash {
        Some(address) => {
            let header: &HashHeader<LE> = image.structure(address, "the hash table")?;
            bounded(header.chain_count.get(LE).into())?
        }
        None => 0,
    };
    let by_gnu_hash = match tables.gnu_hash {
        Some(address) => count_by_gnu_hash(image, address)?,
        None => 0,
    };
    Ok(by_hash.max(by_gnu_hash))
}

fn count_by_gnu_hash<'data, R: ReadRef<'data>>(image: &Image<'data, R>, address: u64) -> Result<usize, ElfError> {
    const WHAT: &str = "the GNU hash table";
    const OUTSIDE: ElfError = ElfError::Truncated { what: WHAT };
    let header: &GnuHashHeader<LE> = image.structure(address, WHAT)?;
    let filters = u64::from(header.bloom_count.get(LE)) * size_of::<U64<LE>>() as u64;
    let behind = |address: u64, bytes: u64| address.checked_add(bytes).ok_or(OUTSIDE);
    let buckets_at = behind(behind(address, size_of::<GnuHashHeader<LE>>() as u64)?, filters)?;
    let bucket_count = bounded(header.bucket_count.get(LE).into())?;
    let buckets: &[U32<LE>] = image.slice(buckets_at, bucket_count, WHAT)?;
    let first = u64::from(header.symbol_base.get(LE));
    let Some(last) = buckets.iter().map(|bucket| u64::from(bucket.get(LE))).max().filter(|last| *last != 0) else {
        return bounded(first);
    };
    // The chain of the last bucket ends with the last symbol; an odd hash marks it.
    let into = last.checked_sub(first).ok_or(ElfError::Malformed { what: WHAT })?;
    let chains = behind(buckets_at, bucket_count as u64 * 4)?;
    let chain = behind(chains, into * 4)?;
    let mut count = last;
    // In pieces: chains are short, and what stands behind the last one is of no interest.
    loop {
        let at = behind(chain, (count - last) * 4)?;
        let piece = (image.left(at) / 4).min(256);
        let hashes: &[U32<LE>] = image.slice(at, usize::try_from(piece).unwrap_or(0), WHAT)?;
        match hashes.iter().position(|hash| hash.get(LE) & 1 == 1) {
            Some(end) => return bounded(count + end as u64 + 1),
            None if hashes.is_empty() => return Err(OUTSIDE),
            None => count = bounded(count + piece)? as u64,
        }
    }
}

fn bounded(count: u64) -> Result<usize, ElfError> {
    usize::try_from(count).ok().filter(|count| *count <= MAX_SYMBOLS).ok_or(TOO_MANY)
}
