//! The file as the linker maps it: addresses, and the bytes that will stand there.

use object::elf::{self, Dyn64, DynamicTag, FileHeader64, ProgramHeader64};
use object::endian::LittleEndian as LE;
use object::pod::Pod;
use object::read::ReadRef;

use super::{ElfError, MAX_DYNAMIC_ENTRIES, MAX_SEGMENTS};

/// The size by which the linker maps, in bytes: the smallest of those that our processors use.
const PAGE: u64 = 4096;

/// A piece of the file with the address at which it will stand.
#[derive(Debug, Clone, Copy)]
struct Segment {
    address: u64,
    offset: u64,
    in_file: u64,
    is_writable: bool,
}

/// The pieces of a file, in the order of their addresses, none over another.
#[derive(Debug)]
pub(super) struct Image<'data, R: ReadRef<'data>> {
    data: R,
    segments: Vec<Segment>,
    dynamic: Option<(u64, u64)>,
    pub(super) has_executable_stack: bool,
    pub(super) has_writable_code: bool,
    lifetime: std::marker::PhantomData<&'data ()>,
}

impl<'data, R: ReadRef<'data>> Image<'data, R> {
    pub(super) fn read(data: R) -> Result<Self, ElfError> {
        let header: &FileHeader64<LE> = data.read_at(0).map_err(|()| ElfError::Truncated { what: "the header" })?;
        if usize::from(header.e_phentsize.get(LE)) != size_of::<ProgramHeader64<LE>>() {
            return Err(ElfError::Malformed { what: "the size of a program header" });
        }
        let count = usize::from(header.e_phnum.get(LE));
        if count > MAX_SEGMENTS {
            return Err(ElfError::TooMany { what: "program headers", maximum: MAX_SEGMENTS });
        }
        let headers: &[ProgramHeader64<LE>] = data
            .read_slice_at(header.e_phoff.get(LE), count)
            .map_err(|()| ElfError::Truncated { what: "the program headers" })?;
        let length = data.len().map_err(|()| ElfError::Truncated { what: "the file's length" })?;
        let mut image = Self {
            data,
            segments: Vec::new(),
            dynamic: None,
            // What the linker takes where nothing is said.
            has_executable_stack: true,
            has_writable_code: false,
            lifetime: std::marker::PhantomData,
        };
        let mut free = 0;
        for header in headers {
            let flags = header.p_flags.get(LE).0;
            let (writable, executable) = (flags & elf::PF_W.0 != 0, flags & elf::PF_X.0 != 0);
            match header.p_type.get(LE) {
                elf::PT_LOAD => {
                    image.has_writable_code |= writable && executable;
                    free = image.add(header, length, free, writable)?;
                }
                elf::PT_DYNAMIC => image.dynamic = Some((header.p_vaddr.get(LE), header.p_memsz.get(LE))),
                elf::PT_GNU_STACK => image.has_executable_stack = executable,
                _ => {}
            }
        }
        Ok(image)
    }

    /// Adds a segment and gives the first address behind its pages. Two that share a page are refused: which of them
    /// the memory shows would depend on the linker.
    fn add(
        &mut self,
        header: &ProgramHeader64<LE>,
        length: u64,
        free: u64,
        is_writable: bool,
    ) -> Result<u64, ElfError> {
        let (address, offset) = (header.p_vaddr.get(LE), header.p_offset.get(LE));
        let (in_file, in_memory) = (header.p_filesz.get(LE), header.p_memsz.get(LE));
        if in_file > in_memory {
            return Err(ElfError::Malformed { what: "a segment with more bytes in the file than in memory" });
        }
        if offset.checked_add(in_file).is_none_or(|end| end > length) {
            return Err(ElfError::Truncated { what: "a segment" });
        }
        if address % PAGE != offset % PAGE {
            return Err(ElfError::Malformed { what: "a segment whose address and place do not fit" });
        }
        let end = address.checked_add(in_memory).and_then(|end| end.checked_next_multiple_of(PAGE));
        let end = end.ok_or(ElfError::Malformed { what: "a segment behind the last address" })?;
        if address - address % PAGE < free {
            return Err(ElfError::Malformed { what: "segments that overlap or are out of order" });
        }
        self.segments.push(Segment { address, offset, in_file, is_writable });
        Ok(end)
    }

    fn segment(&self, address: u64) -> Option<&Segment> {
        let next = self.segments.partition_point(|segment| segment.address <= address);
        self.segments.get(next.checked_sub(1)?)
    }

    /// Where the bytes of an address stand in the file, and how many of its segment are left from there.
    fn place(&self, address: u64) -> Option<(u64, u64)> {
        let segment = self.segment(address)?;
        let into = address - segment.address;
        (into < segment.in_file).then(|| (segment.offset + into, segment.in_file - into))
    }

    /// Whether the dynamic table can be written to. The linker writes addresses into it, and crashes where it can't.
    pub(super) fn is_dynamic_writable(&self) -> bool {
        let segment = self.dynamic.and_then(|(address, _)| self.segment(address));
        segment.is_some_and(|segment| segment.is_writable)
    }

    /// How many bytes of the file stand at and behind an address.
    pub(super) fn left(&self, address: u64) -> u64 {
        self.place(address).map_or(0, |(_, left)| left)
    }

    /// `count` structures from an address on.
    pub(super) fn slice<T: Pod>(&self, address: u64, count: usize, what: &'static str) -> Result<&'data [T], ElfError> {
        let outside = ElfError::Truncated { what };
        let Some((offset, left)) = self.place(address) else { return Err(outside) };
        if (count as u64).checked_mul(size_of::<T>() as u64).is_none_or(|bytes| bytes > left) {
            return Err(outside);
        }
        self.data.read_slice_at(offset, count).map_err(|()| outside)
    }

    /// One structure at an address.
    pub(super) fn structure<T: Pod>(&self, address: u64, what: &'static str) -> Result<&'data T, ElfError> {
        self.slice(address, 1, what)?.first().ok_or(ElfError::Truncated { what })
    }

    /// The bytes from an address to the next zero byte, which is at most `maximum` bytes away.
    pub(super) fn text(&self, address: u64, maximum: u64) -> Result<&'data [u8], ElfError> {
        let outside = ElfError::Malformed { what: "a name outside the file, without an end or too long" };
        let Some((offset, left)) = self.place(address) else { return Err(outside) };
        self.data.read_bytes_at_until(offset..offset + left.min(maximum), 0).map_err(|()| outside)
    }

    /// The entries of the dynamic table, up to its end mark.
    pub(super) fn dynamic(&self) -> Result<Vec<(DynamicTag, u64)>, ElfError> {
        let Some((address, bytes)) = self.dynamic else {
            return Err(ElfError::Malformed { what: "there is no dynamic table" });
        };
        // The linker reads up to the end mark, whatever the header says; what is before it must be in the file.
        let entry = size_of::<Dyn64<LE>>() as u64;
        let count = (bytes.min(self.left(address)) / entry).min(MAX_DYNAMIC_ENTRIES as u64 + 1);
        let entries: &[Dyn64<LE>] = self.slice(address, usize::try_from(count).unwrap_or(0), "the dynamic table")?;
        let end = entries.iter().position(|entry| entry.d_tag.get(LE) == elf::DT_NULL);
        match end {
            Some(end) => Ok(entries[..end].iter().map(|entry| (entry.d_tag.get(LE), entry.d_val.get(LE))).collect()),
            None if count > MAX_DYNAMIC_ENTRIES as u64 => {
                Err(ElfError::TooMany { what: "entries in the dynamic table", maximum: MAX_DYNAMIC_ENTRIES })
            }
            None => Err(ElfError::Malformed { what: "a dynamic table without an end" }),
        }
    }
}
