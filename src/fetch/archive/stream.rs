//! The unpacked bytes of a zstd frame, bounded by what was packed.

use std::io::{self, Read};

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use super::ArchiveError;
use crate::fetch::limits::{MAX_PADDING_BYTES, MAX_RATIO, MAX_WINDOW_BYTES, RATIO_SLACK_BYTES};

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

/// The content of one zstd frame. Errors are [`ArchiveError`]s inside [`io::Error`]s.
pub(super) struct Unpacking<R: Read> {
    decoder: StreamingDecoder<Counted<R>, FrameDecoder>,
    produced: u64,
    ended: bool,
}

impl<R: Read> Unpacking<R> {
    pub(super) fn new(packed: R) -> Result<Self, ArchiveError> {
        let packed = Counted { inner: packed, bytes: 0 };
        let decoder = StreamingDecoder::new_with_max_window_size(packed, MAX_WINDOW_BYTES)
            .map_err(|error| ArchiveError::Frame { maximum: MAX_WINDOW_BYTES, source: Box::new(error) })?;
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
        let (mut packed, frame) = self.decoder.into_parts();
        if let (Some(expected), Some(actual)) = (frame.get_checksum_from_data(), frame.get_calculated_checksum())
            && expected != actual
        {
            return Err(ArchiveError::Checksum { expected, actual });
        }
        match packed.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(ArchiveError::TrailingCompressed),
            Err(source) => Err(ArchiveError::Zstd { source }),
        }
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

impl<R: Read> Read for Unpacking<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.decoder.read(buffer).map_err(|source| io::Error::other(ArchiveError::Zstd { source }))?;
        self.ended |= read == 0 && !buffer.is_empty();
        self.produced += read as u64;
        let allowed = self.decoder.get_ref().bytes.saturating_mul(MAX_RATIO).saturating_add(RATIO_SLACK_BYTES);
        if self.produced > allowed {
            return Err(io::Error::other(ArchiveError::Ratio { maximum: MAX_RATIO }));
        }
        Ok(read)
    }
}
