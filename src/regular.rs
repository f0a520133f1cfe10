//! Files from outside, opened so that they can do no harm before they are read.
//!
//! Owns: the one way in which this crate opens a file that somebody else put there or named: at once, and only if it is
//! a regular one. A pipe that nobody writes into would be waited for without end, a device may have no end at all or
//! do something when it is opened, and neither is a configuration, a lock or a library. Refuses: to say what the bytes
//! have to be.
//!
//! Leaves behind errors of [`std::io::Error`], so that each caller adds what it wanted the file for; [`NotRegular`] and
//! [`TooLong`] are their sources.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;

/// What stands at a path where a regular file is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotRegular {
    /// A folder.
    #[error("expected a regular file, found a folder")]
    Folder,
    /// A named pipe, or one that a shell made, as `<(...)` does.
    #[error("expected a regular file, found a pipe")]
    Pipe,
    /// A device, such as `/dev/zero` or a terminal.
    #[error("expected a regular file, found a device")]
    Device,
    /// A socket.
    #[error("expected a regular file, found a socket")]
    Socket,
    /// A symbolic link, where none is followed.
    #[error("expected a regular file, found a symbolic link")]
    Link,
    /// Something that this crate has no word for.
    #[error("expected a regular file, found something else")]
    Other,
}

/// A file has more bytes than are read of one of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it has more than {maximum} bytes")]
pub struct TooLong {
    /// The most, in bytes.
    pub maximum: u64,
}

impl NotRegular {
    /// What an error of this module says about what stands at the path. `None`: it is another error.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }

    fn error(self) -> io::Error {
        // The kind that reading a folder has by itself.
        let kind = if self == Self::Folder { ErrorKind::IsADirectory } else { ErrorKind::InvalidInput };
        io::Error::new(kind, self)
    }

    #[cfg(unix)]
    fn found(kind: std::fs::FileType) -> Self {
        use std::os::unix::fs::FileTypeExt as _;
        match kind {
            kind if kind.is_dir() => Self::Folder,
            kind if kind.is_fifo() => Self::Pipe,
            kind if kind.is_block_device() || kind.is_char_device() => Self::Device,
            kind if kind.is_socket() => Self::Socket,
            kind if kind.is_symlink() => Self::Link,
            _ => Self::Other,
        }
    }

    #[cfg(not(unix))]
    fn found(kind: std::fs::FileType) -> Self {
        if kind.is_dir() { Self::Folder } else { Self::Other }
    }
}

/// Opens a regular file for reading, following links.
///
/// # Errors
/// Those of the system, and one whose source is [`NotRegular`].
pub fn open(path: &Path) -> io::Result<File> {
    open_with(File::options().read(true), path)
}

/// As [`open`], where the path's last part may not be a link.
///
/// # Errors
/// As [`open`].
pub fn open_in_place(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    return opened(&mut options, path, rustix::fs::OFlags::NOFOLLOW);
    #[cfg(not(unix))]
    match path.symlink_metadata()?.file_type() {
        kind if kind.is_symlink() => Err(NotRegular::Link.error()),
        _ => open_with(&mut options, path),
    }
}

/// Opens, or makes, a regular file by these options, following links. On Unix the options' own flags are replaced.
///
/// # Errors
/// As [`open`].
pub fn open_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    return opened(options, path, rustix::fs::OFlags::empty());
    #[cfg(not(unix))]
    regular(options.open(path)?)
}

#[cfg(unix)]
fn opened(options: &mut OpenOptions, path: &Path, flags: rustix::fs::OFlags) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;

    use rustix::fs::OFlags;
    use rustix::io::Errno;
    // A terminal that is opened by chance must not become the process's own.
    options.custom_flags((flags | OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed());
    let is = |error: &io::Error, errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
    match options.open(path) {
        Ok(file) => regular(file),
        Err(error) if flags.contains(OFlags::NOFOLLOW) && is(&error, Errno::LOOP) => Err(NotRegular::Link.error()),
        // A socket, a device that is not there, and a pipe without a reader that is opened for writing.
        Err(error) if is(&error, Errno::NXIO) || is(&error, Errno::ISDIR) => {
            let kind = path.metadata().map(|metadata| metadata.file_type());
            Err(kind.ok().filter(|kind| !kind.is_file()).map_or(error, |kind| NotRegular::found(kind).error()))
        }
        Err(error) => Err(error),
    }
}

/// The file, if it is a regular one: asked of what was opened, whatever the path leads to by now.
fn regular(file: File) -> io::Result<File> {
    let kind = file.metadata()?.file_type();
    if kind.is_file() { Ok(file) } else { Err(NotRegular::found(kind).error()) }
}

/// The bytes of a regular file, following links. At most `maximum` of them are held.
///
/// # Errors
/// As [`open`], and one of the kind [`ErrorKind::FileTooLarge`] whose source is [`TooLong`].
pub fn read(path: &Path, maximum: u64) -> io::Result<Vec<u8>> {
    read_open(open(path)?, maximum)
}

/// As [`read`], of a text.
///
/// # Errors
/// As [`read`], and one of the kind [`ErrorKind::InvalidData`] for bytes that are not UTF-8.
pub fn read_text(path: &Path, maximum: u64) -> io::Result<String> {
    let invalid = |_| io::Error::new(ErrorKind::InvalidData, "expected UTF-8");
    String::from_utf8(read(path, maximum)?).map_err(invalid)
}

/// As [`read`], of a file that was opened here.
///
/// # Errors
/// As [`read`].
pub fn read_open(file: File, maximum: u64) -> io::Result<Vec<u8>> {
    let bytes = read_start(file, maximum.saturating_add(1))?;
    if bytes.len() as u64 > maximum {
        return Err(io::Error::new(ErrorKind::FileTooLarge, TooLong { maximum }));
    }
    Ok(bytes)
}

/// The first `length` bytes of a file that was opened here, fewer where it has fewer.
///
/// # Errors
/// Those of the system.
pub fn read_start(file: File, length: u64) -> io::Result<Vec<u8>> {
    // The length that a file has now saves asking for a few bytes, and more, and more; it bounds nothing.
    let now = file.metadata()?.len().saturating_add(1).min(length);
    let mut bytes = Vec::with_capacity(usize::try_from(now.min(1 << 20)).unwrap_or_default());
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::File;
    use std::io::ErrorKind;
    use std::path::Path;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::{NotRegular, TooLong, open, open_in_place, open_with, read, read_text};

    #[test]
    fn what_is_no_regular_file_is_refused_at_once_and_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let [pipe, socket, link] = ["pipe", "socket", "link"].map(|name| folder.path().join(name));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        let cases = [
            (pipe.as_path(), NotRegular::Pipe),
            (&socket, NotRegular::Socket),
            (&link, NotRegular::Pipe),
            (folder.path(), NotRegular::Folder),
            (Path::new("/dev/zero"), NotRegular::Device),
        ];
        for (path, expected) in cases {
            let errors = [
                open(path).unwrap_err(),
                read(path, 10).unwrap_err(),
                open_with(File::options().write(true), path).unwrap_err(),
                open_with(File::options().read(true).write(true).create(true).truncate(false), path).unwrap_err(),
            ];
            for error in errors {
                assert_eq!(NotRegular::of(&error), Some(expected), "{}: {error}", path.display());
            }
        }
        assert_eq!(NotRegular::of(&open_in_place(&link).unwrap_err()), Some(NotRegular::Link));
        let absent = open(&folder.path().join("absent")).unwrap_err();
        assert_eq!((absent.kind(), NotRegular::of(&absent)), (ErrorKind::NotFound, None));
    }

    #[test]
    fn a_file_is_read_up_to_its_bound_and_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        std::fs::write(&file, "12345").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(read(&link, 5).unwrap(), b"12345");
        assert_eq!(open_in_place(&file).unwrap().metadata().unwrap().len(), 5);
        let long = read(&file, 4).unwrap_err();
        assert_eq!(long.kind(), ErrorKind::FileTooLarge);
        assert_eq!(long.get_ref().and_then(|source| source.downcast_ref()), Some(&TooLong { maximum: 4 }));
        std::fs::write(&file, b"\xff").unwrap();
        assert_eq!(read_text(&file, 5).unwrap_err().kind(), ErrorKind::InvalidData);
        // A file whose length the system does not tell.
        assert!(read_text(Path::new("/proc/self/maps"), 1 << 20).unwrap().len() > 100);
    }
}
