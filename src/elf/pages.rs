//! A file read in pieces, so that the many small structures of it do not cost a call of the system each.

use std::io::{Error, ErrorKind, Read, Result, Seek, SeekFrom};

/// The size of a piece, in bytes.
const PIECE: usize = 16 << 10;
/// The most pieces that are kept.
const KEPT: usize = 16;

/// The last pieces that were read. A piece stands at a place of its own, and takes it from the one before it: tables
/// that are read in turns stay, and a hostile file takes no more memory than any other.
pub(super) struct Pages<R> {
    file: R,
    /// Where the next read begins.
    at: u64,
    /// The number of each piece in the file, and its bytes; the file's last one is shorter, and one behind it empty.
    pieces: Vec<Option<(u64, Vec<u8>)>>,
}

impl<R: Read + Seek> Pages<R> {
    pub(super) fn new(file: R) -> Self {
        Self { file, at: 0, pieces: (0..KEPT).map(|_| None).collect() }
    }

    /// The bytes from `self.at` to the end of their piece.
    fn rest_of_piece(&mut self) -> Result<&[u8]> {
        let number = self.at / PIECE as u64;
        #[expect(clippy::cast_possible_truncation, reason = "below KEPT and PIECE")]
        let (place, into) = ((number % KEPT as u64) as usize, (self.at % PIECE as u64) as usize);
        if self.pieces[place].as_ref().is_none_or(|(kept, _)| *kept != number) {
            // Dropped first: what fails to be read must not stand under another number.
            let mut bytes = self.pieces[place].take().map(|(_, bytes)| bytes).unwrap_or_default();
            self.file.seek(SeekFrom::Start(number * PIECE as u64))?;
            // Not by `read_to_end`, which begins with a few bytes and asks for more and more.
            bytes.resize(PIECE, 0);
            let mut filled = 0;
            while filled < PIECE {
                match self.file.read(&mut bytes[filled..]) {
                    Ok(0) => break,
                    Ok(read) => filled += read,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            bytes.truncate(filled);
            self.pieces[place] = Some((number, bytes));
        }
        Ok(self.pieces[place].as_ref().and_then(|(_, bytes)| bytes.get(into..)).unwrap_or_default())
    }
}

impl<R: Read + Seek> Read for Pages<R> {
    fn read(&mut self, target: &mut [u8]) -> Result<usize> {
        let read = if target.len() >= PIECE {
            self.file.seek(SeekFrom::Start(self.at))?;
            self.file.read(target)?
        } else {
            let bytes = self.rest_of_piece()?;
            let read = bytes.len().min(target.len());
            target[..read].copy_from_slice(&bytes[..read]);
            read
        };
        self.at += read as u64;
        Ok(read)
    }
}

impl<R: Read + Seek> Seek for Pages<R> {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::Current(by) => {
                let outside = || Error::from(ErrorKind::InvalidInput);
                self.at.checked_add_signed(by).ok_or_else(outside)?
            }
            SeekFrom::End(_) => self.file.seek(to)?,
        };
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::{Cursor, Read, Result, Seek, SeekFrom};

    use super::{KEPT, PIECE, Pages};

    /// Counts the calls that reach the file.
    struct Counted<'a>(Cursor<&'a [u8]>, &'a Cell<usize>);

    impl Read for Counted<'_> {
        fn read(&mut self, target: &mut [u8]) -> Result<usize> {
            self.1.set(self.1.get() + 1);
            self.0.read(target)
        }
    }

    impl Seek for Counted<'_> {
        fn seek(&mut self, to: SeekFrom) -> Result<u64> {
            self.1.set(self.1.get() + 1);
            self.0.seek(to)
        }
    }

    #[test]
    fn every_read_gives_the_files_bytes() {
        let bytes: Vec<u8> = (0..=250).cycle().take(2 * KEPT * PIECE + 77).collect();
        let mut pages = Pages::new(Cursor::new(&bytes[..]));
        let ends = [0, 1, PIECE - 1, PIECE, 3 * PIECE - 5, KEPT * PIECE + 9, bytes.len() - 3, bytes.len(), PIECE];
        for (at, length) in ends.into_iter().flat_map(|at| [0, 1, 40, PIECE, 3 * PIECE].map(|length| (at, length))) {
            assert_eq!(pages.seek(SeekFrom::Start(at as u64)).unwrap(), at as u64);
            let mut read = vec![0; length];
            let whole = pages.read_exact(&mut read);
            match bytes.get(at..at + length) {
                Some(expected) => assert!(whole.is_ok() && read == expected, "{length} bytes at {at}"),
                None => assert!(whole.is_err(), "{length} bytes at {at} reach beyond the end"),
            }
        }
        assert_eq!(pages.seek(SeekFrom::End(-3)).unwrap(), bytes.len() as u64 - 3);
        let mut last = Vec::new();
        pages.read_to_end(&mut last).unwrap();
        assert_eq!(last, bytes[bytes.len() - 3..]);
        assert!(pages.seek(SeekFrom::Current(-1 << 40)).is_err(), "in front of the file");
    }

    #[test]
    fn neighbours_are_read_once() {
        let (bytes, calls) = (vec![7; 4 * PIECE], Cell::new(0));
        let mut pages = Pages::new(Counted(Cursor::new(&bytes), &calls));
        for at in (0..bytes.len()).step_by(64).chain((0..bytes.len()).step_by(64).rev()) {
            pages.seek(SeekFrom::Start(at as u64)).unwrap();
            pages.read_exact(&mut [0; 64]).unwrap();
        }
        assert_eq!(calls.get(), 4 * 2, "a seek and a read for each piece");
    }
}
