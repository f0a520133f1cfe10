//! The rule that an archive breaks, one variant each.

use std::io;
use std::path::PathBuf;

use crate::names::NameError;

/// The rule that an archive breaks. Paths are as they stand in the archive, control characters escaped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// Not zstd, or damaged.
    #[error("its compression cannot be read")]
    Zstd {
        /// Where and why.
        #[source]
        source: io::Error,
    },
    /// A tar without compression cannot be read to its end.
    #[error("it cannot be read")]
    Plain {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The zstd frame asks for more memory than is given.
    #[error("its zstd frame cannot be read within {maximum} bytes of window")]
    Frame {
        /// The limit, in bytes.
        maximum: u64,
        /// Why.
        #[source]
        source: Box<ruzstd::decoding::errors::FrameDecoderError>,
    },
    /// The zstd frame's checksum is not that of its content.
    #[error("its zstd checksum is {expected:08x}, the content's is {actual:08x}")]
    Checksum {
        /// The checksum in the frame.
        expected: u32,
        /// The checksum of what was unpacked.
        actual: u32,
    },
    /// Bytes follow the end of the compressed archive.
    #[error("bytes follow the end of the compressed archive")]
    TrailingCompressed,
    /// Bytes other than padding follow the end of the tar.
    #[error("bytes other than padding follow the end of the tar")]
    TrailingData,
    /// The tar ends before its end mark.
    #[error("the tar breaks off before its end mark")]
    Truncated,
    /// A tar header cannot be read.
    #[error("entry {index}: its tar header cannot be read")]
    Header {
        /// The entry's number, from 0.
        index: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Too many entries.
    #[error("more than {maximum} entries")]
    TooManyEntries {
        /// The limit.
        maximum: u64,
    },
    /// A file is too large.
    #[error("{path}: larger than {maximum} bytes")]
    FileTooLarge {
        /// The file.
        path: String,
        /// The limit, in bytes.
        maximum: u64,
    },
    /// All files together are too large.
    #[error("{path}: with it the files have more than {maximum} bytes in all")]
    TotalTooLarge {
        /// The file that exceeds the limit.
        path: String,
        /// The limit, in bytes.
        maximum: u64,
    },
    /// The archive unpacks to far more than it holds.
    #[error("more than {maximum} unpacked bytes for each packed byte")]
    Ratio {
        /// The limit.
        maximum: u64,
    },
    /// A symbolic link.
    #[error("{path}: a symbolic link")]
    SymbolicLink {
        /// The entry.
        path: String,
    },
    /// A hard link.
    #[error("{path}: a hard link")]
    HardLink {
        /// The entry.
        path: String,
    },
    /// A character or block device.
    #[error("{path}: a device")]
    Device {
        /// The entry.
        path: String,
    },
    /// A named pipe.
    #[error("{path}: a named pipe")]
    Fifo {
        /// The entry.
        path: String,
    },
    /// A sparse file, whose content is not what it seems to be.
    #[error("{path}: a sparse file")]
    Sparse {
        /// The entry.
        path: String,
    },
    /// Another kind of entry.
    #[error("{path}: an entry of type {kind:#04x}")]
    EntryType {
        /// The entry.
        path: String,
        /// The type byte.
        kind: u8,
    },
    /// A name that is not UTF-8.
    #[error("{path}: a name that is not UTF-8")]
    NotUtf8 {
        /// The name, damaged characters replaced.
        path: String,
    },
    /// A name that could leave its folder, or cannot be a file everywhere.
    #[error("an unsafe name")]
    UnsafePath {
        /// The name and the rule that it breaks.
        #[source]
        source: NameError,
    },
    /// A file outside the variant's folder.
    #[error("{path}: outside {expected}")]
    Outside {
        /// The entry.
        path: String,
        /// The folder that every entry must be in.
        expected: String,
    },
    /// One name twice.
    #[error("{path}: this name stands twice")]
    Duplicate {
        /// The name.
        path: String,
    },
    /// Two names that a file system that ignores case takes for one.
    #[error("{path}: differs from {earlier} in case only")]
    CaseCollision {
        /// The later name.
        path: String,
        /// The earlier name.
        earlier: String,
    },
    /// A file below a file.
    #[error("{path}: {file} is a file, not a folder")]
    BelowFile {
        /// The entry.
        path: String,
        /// The file that it would be below.
        file: String,
    },
    /// Set-user-id, set-group-id or sticky bits.
    #[error("{path}: mode {mode:04o} has set-id or sticky bits")]
    SpecialBits {
        /// The entry.
        path: String,
        /// Its mode.
        mode: u32,
    },
    /// A folder with content.
    #[error("{path}: a folder with {bytes} bytes of content")]
    FolderWithContent {
        /// The entry.
        path: String,
        /// The declared size, in bytes.
        bytes: u64,
    },
    /// An extended header that would change what the entry's own header says.
    #[error("entry {index}: an extended header sets {key}")]
    ExtendedHeader {
        /// The entry's number, from 0.
        index: u64,
        /// What it sets.
        key: String,
    },
    /// An extended header that is too long, damaged, repeated, or belongs to no entry.
    #[error("entry {index}: an extended header that {reason}")]
    StrayHeader {
        /// The entry's number, from 0.
        index: u64,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// No `metadata.json` in the variant's folder.
    #[error("no {path}")]
    NoMetadata {
        /// The expected path.
        path: String,
    },
}

/// Why unpacking stopped.
#[derive(Debug)]
pub(crate) enum UnpackError {
    /// The archive breaks a rule.
    Refused(ArchiveError),
    /// This machine failed.
    Io {
        /// The operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

impl From<ArchiveError> for UnpackError {
    fn from(error: ArchiveError) -> Self {
        Self::Refused(error)
    }
}
