//! The unpacked bytes of a zstd frame or a gzip member, bounded by what was packed.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use super::ArchiveError;
use crate::fetch::limits::{MAX_PADDING_BYTES, MAX_RATIO, MAX_WINDOW_BYTES, RATIO_SLACK_BYTES};

/// The first bytes of a gzip member.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Counts what is read.
struct Counted<R> {
    inner: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.inner.consume(bytes);
        self.bytes += bytes as u64;
    }
}

/// What unpacks.
enum Decoder<R: BufRead> {
    Zstd(Box<StreamingDecoder<Counted<R>, FrameDecoder>>),
    Gzip(GzDecoder<Counted<R>>),
}

impl<R: BufRead> Decoder<R> {
    fn packed_bytes(&self) -> u64 {
        match self {
            Self::Zstd(decoder) => decoder.get_ref().bytes,
            Self::Gzip(decoder) => decoder.get_ref().bytes,
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Zstd(decoder) => decoder.read(buffer),
            Self::Gzip(decoder) => decoder.read(buffer),
        }
    }
}

/// The content of one zstd frame or one gzip member, whichever its first bytes say. Errors are [`ArchiveError`]s inside
/// [`io::Error`]s.
pub(super) struct Unpacking<R: BufRead> {
    decoder: Decoder<R>,
    produced: u64,
    ended: bool,
}

impl<R: BufRead> Unpacking<R> {
    pub(super) fn new(mut packed: R) -> Result<Self, ArchiveError> {
        let is_gzip = packed.fill_buf().is_ok_and(|start| start.starts_with(&GZIP));
        let packed = Counted { inner: packed, bytes: 0 };
        let decoder = if is_gzip {
            Decoder::Gzip(GzDecoder::new(packed))
        } else {
            let decoder = StreamingDecoder::new_with_max_window_size(packed, MAX_WINDOW_BYTES)
                .map_err(|error| ArchiveError::Frame { maximum: MAX_WINDOW_BYTES, source: Box::new(error) })?;
            Decoder::Zstd(Box::new(decoder))
        };
        Ok(Self { decoder, produced: 0, ended: false })
    }

    /// Checks what stands after the tar's first end block: a second one, padding, the end of the frame, nothing else.
    pub(super) fn finish(mut self) -> Result<(), ArchiveError> {
        let rule =
            |error: io::Error| error.downcast::<ArchiveError>().unwrap_or_else(|source| ArchiveError::Zstd { source });
        // The reader of the tar stops at the first end block. Had it met the end of the stream, there was none.
        if self.ended {
            return Err(ArchiveError::Truncated);
        }
        check_padding(&mut self).map_err(rule)??;
        let (mut packed, frame) = match self.decoder {
            // Reading to the member's end compared its checksum.
            Decoder::Gzip(decoder) => return nothing_after(&mut decoder.into_inner()),
            Decoder::Zstd(decoder) => decoder.into_parts(),
        };
        if let (Some(expected), Some(actual)) = (frame.get_checksum_from_data(), frame.get_calculated_checksum())
            && expected != actual
        {
            return Err(ArchiveError::Checksum { expected, actual });
        }
        nothing_after(&mut packed)
    }
}

/// Reads what stands after the tar's first end block to the end of the stream: a second one and padding.
fn check_padding(stream: &mut impl Read) -> io::Result<Result<(), ArchiveError>> {
    let mut padding = 0;
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Ok(if padding < 512 { Err(ArchiveError::Truncated) } else { Ok(()) });
        }
        padding += read as u64;
        if padding > MAX_PADDING_BYTES || buffer[..read].iter().any(|byte| *byte != 0) {
            return Ok(Err(ArchiveError::TrailingData));
        }
    }
}

/// A tar that is not compressed. The same end as [`Unpacking`]'s.
pub(super) struct Plain<R> {
    inner: R,
    ended: bool,
}

impl<R: Read> Plain<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, ended: false }
    }

    /// Checks what stands after the tar's first end block.
    pub(super) fn finish(mut self) -> Result<(), ArchiveError> {
        if self.ended {
            return Err(ArchiveError::Truncated);
        }
        check_padding(&mut self).map_err(|source| ArchiveError::Plain { source })?
    }
}

impl<R: Read> Read for Plain<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.ended |= read == 0 && !buffer.is_empty();
        Ok(read)
    }
}

fn nothing_after(packed: &mut impl Read) -> Result<(), ArchiveError> {
    match packed.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(ArchiveError::TrailingCompressed),
        Err(source) => Err(ArchiveError::Zstd { source }),
    }
}

impl<R: BufRead> Read for Unpacking<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.decoder.read(buffer).map_err(|source| io::Error::other(ArchiveError::Zstd { source }))?;
        self.ended |= read == 0 && !buffer.is_empty();
        self.produced += read as u64;
        let allowed = self.decoder.packed_bytes().saturating_mul(MAX_RATIO).saturating_add(RATIO_SLACK_BYTES);
        if self.produced > allowed {
            return Err(io::Error::other(ArchiveError::Ratio { maximum: MAX_RATIO }));
        }
        Ok(read)
    }
}
