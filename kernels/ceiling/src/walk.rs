//! One thread's pass over its part of the memory.
#![expect(unsafe_code, reason = "wide loads and stores of several places at once")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]

use std::hint::black_box;

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;
/// Lines that are copied from each stream before some are read only.
const TURN: usize = 8;

/// A cache line.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line(pub(crate) [u64; LINE / 8]);

/// How a thread passes over memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Way {
    /// Whether stores go past the caches.
    pub is_streaming: bool,
    /// Places of the memory that are passed over at once, a line of each in turn: 1, 2, 4 or 8.
    pub streams: usize,
    /// Lines ahead of each place that are asked for beforehand: 0 or 16.
    pub ahead: usize,
}

impl Default for Way {
    /// A line after the other.
    fn default() -> Self {
        Self { is_streaming: false, streams: 1, ahead: 0 }
    }
}

impl Way {
    /// A way; `streams` and `ahead` are rounded down to what there is.
    #[must_use]
    pub fn new(is_streaming: bool, streams: usize, ahead: usize) -> Self {
        let streams = 1 << streams.clamp(1, 8).ilog2();
        Self { is_streaming, streams, ahead: ahead.min(16) / 16 * 16 }
    }

    /// Every way; none where the processor cannot store past the caches and is to.
    pub(crate) fn all(is_streaming: bool, is_read: bool) -> Vec<Self> {
        if is_streaming && !can_stream() {
            return Vec::new();
        }
        // More streams of stores than four gain nothing on any processor that this was run on.
        let streams: &[usize] = if is_read { &[1, 2, 4, 8] } else { &[1, 2, 4] };
        let of = |ahead| streams.iter().map(move |&streams| Self { is_streaming, streams, ahead });
        of(0).chain(of(16)).collect()
    }
}

/// One thread's part.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    /// As long as the target.
    pub(crate) source: &'a [Line],
    pub(crate) target: &'a mut [Line],
    pub(crate) only_read: &'a [Line],
}

impl Part<'_> {
    /// Bytes read and written.
    pub(crate) fn bytes(&self) -> usize {
        (2 * self.target.len() + self.only_read.len()) * LINE
    }

    /// Copies the source and reads the rest, a little of each in turn.
    pub(crate) fn pass(&mut self, way: Way) {
        black_box(dispatch(self, way));
    }
}

/// Loads and stores of a whole line.
///
/// # Safety
/// Of the functions: the processor has the instruction set. Lines are readable, and writable where they are stored to.
trait Wide {
    type Register: Copy;
    /// All bits off.
    unsafe fn zero() -> Self::Register;
    unsafe fn load(line: *const Line) -> Self::Register;
    unsafe fn store(line: *mut Line, register: Self::Register);
    /// Past the caches.
    unsafe fn stream(line: *mut Line, register: Self::Register);
    /// Asks for a line, which need not be there.
    unsafe fn ask_for(line: *const Line);
    unsafe fn or(a: Self::Register, b: Self::Register) -> Self::Register;
    /// A number that depends on every bit that `or` has gathered.
    unsafe fn gather(register: Self::Register) -> u64;
    /// What stores past the caches need at the end.
    unsafe fn fence();
}

/// A pass by one instruction set; a number that depends on all that was only read.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
#[expect(clippy::inline_always, reason = "must be inlined into the function compiled for its instruction set")]
unsafe fn pass<W: Wide, const STREAMS: usize, const AHEAD: usize>(part: &mut Part<'_>, is_streaming: bool) -> u64 {
    let (copied, read) = (part.target.len() / STREAMS, part.only_read.len() / STREAMS);
    let (source, target, only) = (part.source.as_ptr(), part.target.as_mut_ptr(), part.only_read.as_ptr());
    // SAFETY: the caller's contract.
    let mut sums = [unsafe { W::zero() }; STREAMS];
    // Without anything to read in between, one turn has all.
    let turns = if read == 0 { 1 } else { (copied / TURN).max(1) };
    for turn in 0..turns {
        for at in copied * turn / turns..copied * (turn + 1) / turns {
            for stream in 0..STREAMS {
                let line = stream * copied + at;
                // SAFETY: `line` is below STREAMS * copied, which is no more than there are of source and target; a
                // line that is only asked for need not be there.
                unsafe {
                    if AHEAD > 0 {
                        W::ask_for(source.wrapping_add(line + AHEAD));
                    }
                    let register = W::load(source.add(line));
                    if is_streaming {
                        W::stream(target.add(line), register);
                    } else {
                        W::store(target.add(line), register);
                    }
                }
            }
        }
        for at in read * turn / turns..read * (turn + 1) / turns {
            for (stream, sum) in sums.iter_mut().enumerate() {
                let line = stream * read + at;
                // SAFETY: as above, of the lines that are only read.
                unsafe {
                    if AHEAD > 0 {
                        W::ask_for(only.wrapping_add(line + AHEAD));
                    }
                    *sum = W::or(*sum, W::load(only.add(line)));
                }
            }
        }
    }
    // What the streams leave over.
    for line in STREAMS * copied..part.target.len() {
        // SAFETY: below the length of both.
        unsafe { W::store(target.add(line), W::load(source.add(line))) };
    }
    for line in STREAMS * read..part.only_read.len() {
        // SAFETY: below the length.
        sums[0] = unsafe { W::or(sums[0], W::load(only.add(line))) };
    }
    if is_streaming {
        // SAFETY: the caller's contract.
        unsafe { W::fence() };
    }
    // SAFETY: the caller's contract.
    sums.into_iter().map(|sum| unsafe { W::gather(sum) }).fold(0, |all, sum| all | sum)
}

/// A pass in a way.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
#[expect(clippy::inline_always, reason = "must be inlined into the function compiled for its instruction set")]
unsafe fn by<W: Wide>(part: &mut Part<'_>, way: Way) -> u64 {
    let is_streaming = way.is_streaming;
    // SAFETY: the caller's contract.
    unsafe {
        match (way.streams, way.ahead) {
            (0..=1, 0) => pass::<W, 1, 0>(part, is_streaming),
            (0..=1, _) => pass::<W, 1, 16>(part, is_streaming),
            (2..=3, 0) => pass::<W, 2, 0>(part, is_streaming),
            (2..=3, _) => pass::<W, 2, 16>(part, is_streaming),
            (4..=7, 0) => pass::<W, 4, 0>(part, is_streaming),
            (4..=7, _) => pass::<W, 4, 16>(part, is_streaming),
            (_, 0) => pass::<W, 8, 0>(part, is_streaming),
            _ => pass::<W, 8, 16>(part, is_streaming),
        }
    }
}

/// What the compiler makes of plain Rust.
struct Plain;

impl Wide for Plain {
    type Register = Line;

    unsafe fn zero() -> Line {
        Line([0; LINE / 8])
    }

    unsafe fn load(line: *const Line) -> Line {
        // SAFETY: the trait's contract.
        unsafe { *line }
    }

    unsafe fn store(line: *mut Line, register: Line) {
        // SAFETY: the trait's contract.
        unsafe { *line = register };
    }

    unsafe fn stream(line: *mut Line, register: Line) {
        // SAFETY: the trait's contract.
        unsafe { Self::store(line, register) };
    }

    unsafe fn ask_for(_line: *const Line) {}

    unsafe fn or(a: Line, b: Line) -> Line {
        Line(std::array::from_fn(|at| a.0[at] | b.0[at]))
    }

    unsafe fn gather(register: Line) -> u64 {
        register.0.into_iter().fold(0, |all, part| all | part)
    }

    unsafe fn fence() {}
}

#[cfg(not(target_arch = "x86_64"))]
fn can_stream() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn dispatch(part: &mut Part<'_>, way: Way) -> u64 {
    // SAFETY: every processor has what plain Rust needs.
    unsafe { by::<Plain>(part, way) }
}

#[cfg(target_arch = "x86_64")]
use x86::{can_stream, dispatch};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, __m512i, _MM_HINT_T0, _mm_prefetch, _mm_sfence, _mm256_load_si256, _mm256_or_si256,
        _mm256_setzero_si256, _mm256_store_si256, _mm256_stream_si256, _mm512_load_si512, _mm512_or_si512,
        _mm512_reduce_or_epi64, _mm512_setzero_si512, _mm512_store_si512, _mm512_stream_si512,
    };

    use super::{Line, Part, Plain, Way, Wide, by};

    pub(super) fn can_stream() -> bool {
        is_x86_feature_detected!("avx2")
    }

    pub(super) fn dispatch(part: &mut Part<'_>, way: Way) -> u64 {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has AVX-512 F, as just detected.
            unsafe { by_512(part, way) }
        } else if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, as just detected.
            unsafe { by_256(part, way) }
        } else {
            // SAFETY: every processor has what plain Rust needs.
            unsafe { by::<Plain>(part, way) }
        }
    }

    #[target_feature(enable = "avx512f")]
    fn by_512(part: &mut Part<'_>, way: Way) -> u64 {
        // SAFETY: this function is called where the processor has AVX-512 F.
        unsafe { by::<Of512>(part, way) }
    }

    #[target_feature(enable = "avx2")]
    fn by_256(part: &mut Part<'_>, way: Way) -> u64 {
        // SAFETY: this function is called where the processor has AVX2.
        unsafe { by::<Of256>(part, way) }
    }

    struct Of512;
    struct Of256;

    /// The instructions of a set, each inlined into the function that is compiled for the set.
    macro_rules! instructions {
        ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? = $body:expr;)*) => {
            $(
                $(#[$doc])*
                #[inline(always)]
                #[allow(clippy::inline_always, reason = "must be inlined into the function compiled for its set")]
                unsafe fn $name($($argument: $type),*) $(-> $result)? {
                    // SAFETY: the trait's contract: the processor has the set, and lines, which lie at multiples of
                    // their size, are there.
                    unsafe { $body }
                }
            )*
        };
    }

    impl Wide for Of512 {
        type Register = __m512i;

        instructions! {
            fn zero() -> __m512i = _mm512_setzero_si512();
            fn load(line: *const Line) -> __m512i = _mm512_load_si512(line.cast());
            fn store(line: *mut Line, register: __m512i) = _mm512_store_si512(line.cast(), register);
            fn stream(line: *mut Line, register: __m512i) = _mm512_stream_si512(line.cast(), register);
            fn ask_for(line: *const Line) = _mm_prefetch::<_MM_HINT_T0>(line.cast());
            fn or(a: __m512i, b: __m512i) -> __m512i = _mm512_or_si512(a, b);
            fn gather(register: __m512i) -> u64 = _mm512_reduce_or_epi64(register).cast_unsigned();
            fn fence() = _mm_sfence();
        }
    }

    impl Wide for Of256 {
        type Register = [__m256i; 2];

        instructions! {
            fn zero() -> [__m256i; 2] = [_mm256_setzero_si256(); 2];
            fn load(line: *const Line) -> [__m256i; 2] =
                [_mm256_load_si256(line.cast()), _mm256_load_si256(line.cast::<__m256i>().add(1))];
            fn store(line: *mut Line, register: [__m256i; 2]) = {
                _mm256_store_si256(line.cast(), register[0]);
                _mm256_store_si256(line.cast::<__m256i>().add(1), register[1]);
            };
            fn stream(line: *mut Line, register: [__m256i; 2]) = {
                _mm256_stream_si256(line.cast(), register[0]);
                _mm256_stream_si256(line.cast::<__m256i>().add(1), register[1]);
            };
            fn ask_for(line: *const Line) = _mm_prefetch::<_MM_HINT_T0>(line.cast());
            fn or(a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] =
                [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])];
            fn gather(register: [__m256i; 2]) -> u64 =
                std::mem::transmute::<[__m256i; 2], [u64; 8]>(register).into_iter().fold(0, |all, part| all | part);
            fn fence() = _mm_sfence();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LINE, Line, Part, Way, dispatch};

    fn ways() -> Vec<Way> {
        [(false, false), (true, false), (false, true)].into_iter().flat_map(|(a, b)| Way::all(a, b)).collect()
    }

    #[test]
    fn every_way_copies_every_byte() {
        for (count, only) in [(1, 0), (21, 0), (64, 0), (21, 5), (300, 77), (3, 100)] {
            let source: Vec<Line> = (1..=count).map(|at| Line([at; LINE / 8])).collect();
            let rest = vec![Line([7; LINE / 8]); only];
            for way in ways() {
                let mut target = vec![Line([0; LINE / 8]); source.len()];
                let mut part = Part { source: &source, target: &mut target, only_read: &rest };
                assert_eq!(part.bytes(), (2 * source.len() + only) * LINE);
                part.pass(way);
                assert!(target == source, "{count} and {only} {way:?}");
            }
        }
    }

    #[test]
    fn every_way_reads_every_byte() {
        for (count, copied) in [(1, 0), (21, 0), (37, 20)] {
            for way in ways() {
                for at in 0..count {
                    let mut lines = vec![Line([0; LINE / 8]); count];
                    let source = vec![Line([1; LINE / 8]); copied];
                    let read = |lines: &[Line]| {
                        let mut target = vec![Line([0; LINE / 8]); copied];
                        dispatch(&mut Part { source: &source, target: &mut target, only_read: lines }, way)
                    };
                    assert_eq!(read(&lines), 0);
                    lines[at].0[at % 8] = 1 << 63;
                    assert_eq!(read(&lines), 1 << 63, "line {at} of {count} {way:?}");
                }
            }
        }
    }
}
