//! ELF files made by hand, so that they can say anything.

/// The dynamic tags that tests use.
pub(crate) mod tag {
    pub(crate) const NEEDED: u64 = 1;
    pub(crate) const HASH: u64 = 4;
    pub(crate) const STRTAB: u64 = 5;
    pub(crate) const SYMTAB: u64 = 6;
    pub(crate) const STRSZ: u64 = 10;
    pub(crate) const SONAME: u64 = 14;
    pub(crate) const RPATH: u64 = 15;
    pub(crate) const TEXTREL: u64 = 22;
    pub(crate) const RUNPATH: u64 = 29;
    pub(crate) const FLAGS: u64 = 30;
    pub(crate) const PREINIT_ARRAY: u64 = 32;
    pub(crate) const GNU_HASH: u64 = 0x6fff_fef5;
    pub(crate) const FLAGS_1: u64 = 0x6fff_fffb;
    pub(crate) const VERDEF: u64 = 0x6fff_fffc;
    pub(crate) const VERNEED: u64 = 0x6fff_fffe;
    pub(crate) const AUXILIARY: u64 = 0x7fff_fffd;
    pub(crate) const FILTER: u64 = 0x7fff_ffff;
}

/// A shared object in one segment: header, program headers, dynamic table, names, and what a test adds.
pub(crate) struct Elf {
    pub(crate) class: u8,
    pub(crate) order: u8,
    pub(crate) kind: u16,
    pub(crate) machine: u16,
    /// Flags of the segment: 1 execute, 2 write, 4 read.
    pub(crate) segment: u32,
    /// Flags of the stack. `None`: no such header.
    pub(crate) stack: Option<u32>,
    /// Entries of the dynamic table whose values are names.
    pub(crate) names: Vec<(u64, String)>,
    /// Entries whose values are numbers.
    pub(crate) numbers: Vec<(u64, u64)>,
    /// Entries whose values are places in what a test adds.
    pub(crate) places: Vec<(u64, u64)>,
}

impl Default for Elf {
    fn default() -> Self {
        Self {
            class: 2,
            order: 1,
            kind: 3,
            machine: 62,
            segment: 6,
            stack: Some(6),
            names: Vec::new(),
            numbers: Vec::new(),
            places: Vec::new(),
        }
    }
}

impl Elf {
    pub(crate) fn name(mut self, tag: u64, name: &str) -> Self {
        self.names.push((tag, name.to_owned()));
        self
    }

    pub(crate) fn number(mut self, tag: u64, number: u64) -> Self {
        self.numbers.push((tag, number));
        self
    }

    pub(crate) fn place(mut self, tag: u64, at: u64) -> Self {
        self.places.push((tag, at));
        self
    }

    /// The file, with `tail` at its end.
    pub(crate) fn build(&self, tail: &[u8]) -> Vec<u8> {
        let mut strings = vec![0];
        let mut entries: Vec<(u64, u64)> = self.numbers.clone();
        for (tag, name) in &self.names {
            entries.push((*tag, strings.len() as u64));
            strings.extend(name.as_bytes());
            strings.push(0);
        }
        let headers = 2 + u16::from(self.stack.is_some());
        let dynamic_at = 64 + 56 * u64::from(headers);
        let count = (entries.len() + self.places.len() + 4) as u64;
        let strings_at = dynamic_at + count * 16;
        let tail_at = (strings_at + strings.len() as u64).next_multiple_of(16);
        entries.extend([(tag::STRTAB, strings_at), (tag::STRSZ, strings.len() as u64)]);
        entries.extend(self.places.iter().map(|(tag, at)| (*tag, tail_at + at)));
        // Without a table of symbols a linker crashes; without a hash table, nothing is looked up in this one.
        entries.push(
            self.places
                .iter()
                .find(|(tag, _)| *tag == tag::SYMTAB)
                .map_or((tag::SYMTAB, 0), |(_, at)| (tag::SYMTAB, tail_at + at)),
        );
        entries.push((0, 0));
        let length = tail_at + tail.len() as u64;

        let mut file = vec![0x7f, b'E', b'L', b'F', self.class, self.order, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        file.extend(self.kind.to_le_bytes());
        file.extend(self.machine.to_le_bytes());
        file.extend(1_u32.to_le_bytes());
        for number in [0_u64, 64, 0] {
            file.extend(number.to_le_bytes());
        }
        file.extend(0_u32.to_le_bytes());
        for number in [64_u16, 56, headers, 64, 0, 0] {
            file.extend(number.to_le_bytes());
        }
        let mut header = |kind: u32, flags: u32, at: u64, size: u64| {
            file.extend(kind.to_le_bytes());
            file.extend(flags.to_le_bytes());
            for number in [at, at, at, size, size, 4096] {
                file.extend(number.to_le_bytes());
            }
        };
        header(1, self.segment, 0, length);
        header(2, 6, dynamic_at, count * 16);
        if let Some(stack) = self.stack {
            header(0x6474_e551, stack, 0, 0);
        }
        for (tag, value) in entries {
            file.extend(tag.to_le_bytes());
            file.extend(value.to_le_bytes());
        }
        file.extend(strings);
        file.resize(usize::try_from(tail_at).unwrap(), 0);
        file.extend(tail);
        file
    }
}
