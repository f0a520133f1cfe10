//! Bandwidth: copying and reading.

use std::sync::{Mutex, PoisonError};

use crate::pages::{Pages, with_capacity};
use crate::team;
use crate::walk::{LINE, Line, Part, Way};

/// Samples of one way.
const SAMPLES: usize = 5;
/// How long one sample takes at least, in seconds.
const SAMPLE_SECONDS: f64 = 3e-4;
/// The size of a huge page, at a multiple of which memory begins.
const HUGE: usize = 2 << 20;

/// What passes over memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pass {
    /// Half of the bytes are read and stored into the other half.
    Copy,
    /// The same by stores that go past the caches.
    StreamingCopy,
    /// All bytes are read.
    Read,
}

/// The rate of a pass, and the way that reached it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Of bytes read and written together.
    pub bytes_per_second: f64,
    /// The fastest way.
    pub way: Way,
}

/// Memory to pass over.
#[derive(Debug)]
pub struct Memory {
    lines: Vec<Line>,
    /// The first line that is used, and how many are.
    start: usize,
    count: usize,
}

impl Memory {
    /// Memory for passes over up to `bytes` bytes, all of it there, and of no pattern: a processor may treat lines of
    /// zeros better than others.
    #[must_use]
    pub fn new(bytes: usize, pages: Pages) -> Self {
        let count = bytes.div_ceil(LINE);
        let all = count + if bytes >= HUGE { HUGE / LINE } else { 0 };
        let mut lines = with_capacity(all, pages);
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        lines.resize_with(all, || {
            Line(std::array::from_fn(|_| {
                // Xorshift.
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random
            }))
        });
        let start = if bytes >= HUGE { lines.as_ptr().align_offset(HUGE).min(HUGE / LINE) } else { 0 };
        Self { lines, start, count }
    }

    /// The fastest way to pass over `bytes` bytes by `threads` threads. All of them together pass over `bytes`, each
    /// over a part of its own, again and again, so that the bytes are in those caches that hold them. The median of a
    /// few samples decides; rounded down to whole cache lines per thread. `None` where the processor has no such stores,
    /// and for fewer bytes than a line each way per thread.
    ///
    /// # Panics
    /// When `bytes` is more than the memory was made for, or the system gives no more threads.
    #[must_use]
    pub fn fastest(&mut self, pass: Pass, bytes: usize, threads: usize) -> Option<Rate> {
        let ways = Way::all(pass == Pass::StreamingCopy, pass == Pass::Read);
        let (read, written) = if pass == Pass::Read { (bytes, 0) } else { (bytes / 2, bytes / 2) };
        let parts = self.split(read, written, threads.max(1))?;
        let counted: usize = parts.iter().map(Part::bytes).sum();
        let work = |part: &mut Part<'_>, (way, passes): (Way, u32)| (0..passes).for_each(|_| part.pass(way));
        team::with(parts, work, |run| {
            let rate = |way| {
                run((way, 1));
                let passes = repetitions(run((way, 1)).as_secs_f64());
                let mut sample = || f64::from(passes) / run((way, passes)).as_secs_f64().max(1e-9);
                let all = (0..SAMPLES).map(|_| sample()).collect();
                Rate { bytes_per_second: crate::median(all) * counted as f64, way }
            };
            ways.into_iter().map(rate).max_by(|a, b| a.bytes_per_second.total_cmp(&b.bytes_per_second))
        })
    }

    /// Parts of the memory that together read `read` bytes and write `written` bytes once each, for a program that runs
    /// them by threads of its own; rounded down to whole cache lines per part. What is written is a copy of as many of
    /// the bytes that are read. `None` for less than a line per part.
    ///
    /// # Panics
    /// When the bytes are more than the memory was made for.
    #[must_use]
    pub fn parts(&mut self, read: usize, written: usize, parts: usize) -> Option<Parts<'_>> {
        Some(Parts(self.split(read, written, parts.max(1))?.into_iter().map(Mutex::new).collect()))
    }

    fn split(&mut self, read: usize, written: usize, parts: usize) -> Option<Vec<Part<'_>>> {
        let per_part = |bytes: usize| bytes / LINE / parts;
        let (written, read) = (per_part(written), per_part(read));
        let only_read = read.saturating_sub(written);
        let lines = (2 * written + only_read) * parts;
        if lines == 0 {
            return None;
        }
        assert!(lines <= self.count, "{} bytes are more than the memory was made for", lines * LINE);
        let (source, rest) = self.lines[self.start..].split_at_mut(written * parts);
        let (target, rest) = rest.split_at_mut(written * parts);
        let (mut source, mut target) = (&*source, target);
        let mut only = &rest[..only_read * parts];
        let all = (0..parts).map(|_| {
            Some(Part {
                source: source.split_off(..written)?,
                target: target.split_off_mut(..written)?,
                only_read: only.split_off(..only_read)?,
            })
        });
        all.collect()
    }
}

/// Parts of a [`Memory`]; different ones may be passed over by different threads at once.
#[derive(Debug)]
pub struct Parts<'a>(Vec<Mutex<Part<'a>>>);

impl Parts<'_> {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Bytes that all of them read and write together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let bytes = |part: &Mutex<Part<'_>>| part.lock().unwrap_or_else(PoisonError::into_inner).bytes();
        self.0.iter().map(bytes).sum()
    }

    /// Passes over one of them, once; nothing where there is no such part.
    pub fn pass(&self, index: usize, way: Way) {
        if let Some(part) = self.0.get(index) {
            part.lock().unwrap_or_else(PoisonError::into_inner).pass(way);
        }
    }
}

/// How often something of `seconds` is done in one sample.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to 100,000")]
fn repetitions(seconds: f64) -> u32 {
    (SAMPLE_SECONDS / seconds.max(1e-9)).ceil().clamp(1.0, 1e5) as u32
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::time::Instant;

    use super::{Memory, Pages, Pass};
    use crate::walk::Way;

    #[test]
    fn rates_are_numbers_of_this_world() {
        let mut memory = Memory::new(1 << 20, Pages::Plain);
        for pass in [Pass::Copy, Pass::StreamingCopy, Pass::Read] {
            for threads in [1, 2] {
                let Some(rate) = memory.fastest(pass, 1 << 18, threads) else { continue };
                assert!((1e7..1e14).contains(&rate.bytes_per_second), "{pass:?} by {threads}: {rate:?}");
            }
        }
        assert_eq!(memory.fastest(Pass::Copy, 64, 1), None, "half a line each way");
    }

    /// Other work on the machine makes either side slow for a while, but not every time.
    const ATTEMPTS: u32 = 20;

    fn simple(bytes: usize, mut pass: impl FnMut()) -> f64 {
        pass();
        let passes = (1 << 24) / bytes;
        let mut sample = || {
            let clock = Instant::now();
            (0..passes).for_each(|_| pass());
            (bytes * passes) as f64 / clock.elapsed().as_secs_f64()
        };
        crate::median((0..5).map(|_| sample()).collect())
    }

    #[test]
    fn no_simple_loop_is_faster() {
        let mut memory = Memory::new(8 << 20, Pages::Plain);
        for bytes in [16 << 10, 256 << 10, 8 << 20] {
            let (source, mut target) = (vec![3_u64; bytes / 16], vec![5_u64; bytes / 16]);
            let mut copies = || {
                let simple = simple(bytes, || black_box(&mut target).copy_from_slice(black_box(&source)));
                let streaming = memory.fastest(Pass::StreamingCopy, bytes, 1);
                let ceiling = memory.fastest(Pass::Copy, bytes, 1).unwrap().bytes_per_second;
                let ceiling = streaming.map_or(ceiling, |rate| rate.bytes_per_second.max(ceiling));
                ceiling >= 0.9 * simple
            };
            assert!((0..ATTEMPTS).any(|_| copies()), "copying {bytes} bytes");
            let numbers = vec![7_u64; bytes / 8];
            let mut reads = || {
                let simple = simple(bytes, || {
                    black_box(black_box(&numbers).iter().fold(0, |all, number| all | number));
                });
                memory.fastest(Pass::Read, bytes, 1).unwrap().bytes_per_second >= 0.9 * simple
            };
            assert!((0..ATTEMPTS).any(|_| reads()), "reading {bytes} bytes");
        }
    }

    /// Of a machine that has nothing else to do: on others it says nothing.
    #[test]
    fn two_threads_are_faster_than_one_in_caches_of_their_own() {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let mut memory = Memory::new(1 << 18, Pages::Plain);
        let mut rate = |threads| memory.fastest(Pass::Copy, 1 << 18, threads).unwrap().bytes_per_second;
        let mut is_faster = || rate(2) > 1.3 * rate(1);
        let is_quiet = || {
            let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
            // Tasks that want a processor right now; this is one, and the tests beside it are others.
            load.split([' ', '/']).nth(3).and_then(|tasks| tasks.parse().ok()).is_some_and(|tasks: usize| tasks < cores)
        };
        assert!((0..ATTEMPTS).any(|_| is_faster()) || cores < 2 || !is_quiet());
    }

    #[test]
    fn parts_cover_what_is_read_and_written_once() {
        let mut memory = Memory::new(1 << 16, Pages::Huge);
        for (read, written, parts) in [(1 << 15, 1 << 14, 2), (1 << 12, 1 << 12, 1), (1 << 15, 0, 3), (192, 64, 1)] {
            let all = memory.parts(read, written, parts).unwrap();
            assert_eq!(all.count(), parts);
            assert!(all.bytes() <= read + written && all.bytes() + parts * 3 * 64 > read + written);
            (0..=parts).for_each(|index| all.pass(index, Way::default()));
        }
        assert!(memory.parts(63, 63, 1).is_none());
    }

    #[test]
    #[should_panic(expected = "more than the memory was made for")]
    fn more_than_the_memory_is_refused() {
        let _ = Memory::new(1 << 12, Pages::Plain).parts(1 << 12, 1 << 12, 1);
    }
}
