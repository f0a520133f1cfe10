//! Parsers of binary files.

use std::io::Cursor;

use kernelhub::elf::{Depth, ElfFacts};
use kernelhub::verify::elf::check_manylinux;

use crate::outcome;

pub(crate) fn elf(data: &[u8]) -> String {
    let whole = ElfFacts::from_bytes(data, Depth::Whole);
    assert_eq!(ElfFacts::from_file(Cursor::new(data), Depth::Whole), whole, "a file says the same, wherever it stands");
    if let Ok(facts) = &whole {
        let less = ElfFacts::from_bytes(data, Depth::WithoutSymbols).expect("less is read of the same");
        assert_eq!((&less.needed, &less.needed_versions), (&facts.needed, &facts.needed_versions));
        let variant = "torch213-cxx11-cu130-x86_64-linux".parse().expect("a variant");
        let found = check_manylinux("x.so", facts, Some(&variant));
        let texts: Vec<_> = found.iter().map(ToString::to_string).collect();
        return format!("{} {}", texts.len(), facts.needed.len());
    }
    outcome(&whole)
}

pub(crate) fn linker_cache(data: &[u8]) -> String {
    kernelhub::fuzzing::linker_cache(data, "libc.so.6").is_some().to_string()
}
