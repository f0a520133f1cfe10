//! Limits of what is downloaded and unpacked. They are ours, not the publisher's: no size that an archive or a server
//! declares is believed, and none is used to allocate memory.

/// Largest archive that is downloaded, in bytes. The manifest's own `size` bounds it further.
pub const MAX_ARCHIVE_BYTES: u64 = 4 << 30;
/// Most entries in an archive, files and folders together.
pub const MAX_ENTRIES: u64 = 10_000;
/// Largest file in an archive, in bytes.
pub const MAX_FILE_BYTES: u64 = 2 << 30;
/// Most bytes in all files of an archive.
pub const MAX_TOTAL_BYTES: u64 = 8 << 30;
/// Most unpacked bytes per packed byte, beyond [`RATIO_SLACK_BYTES`]. Compiled kernels stay below 20.
pub const MAX_RATIO: u64 = 250;
/// Unpacked bytes that are allowed whatever the ratio is: small archives are mostly padding.
pub const RATIO_SLACK_BYTES: u64 = 4 << 20;
/// Largest window that a zstd frame may ask for, in bytes: the memory that unpacking takes.
pub const MAX_WINDOW_BYTES: u64 = 64 << 20;
/// Largest extended header (long file name) of a tar entry, in bytes.
pub(super) const MAX_HEADER_BYTES: u64 = 16 << 10;
/// Most zero bytes after the end of the tar: it is padded to a record, 10 KiB by default.
pub(super) const MAX_PADDING_BYTES: u64 = 1 << 20;

/// What one archive may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct ArchiveLimits {
    pub(super) entries: u64,
    pub(super) file_bytes: u64,
    pub(super) total_bytes: u64,
}

impl ArchiveLimits {
    /// The limits above.
    pub(super) const DEFAULT: Self =
        Self { entries: MAX_ENTRIES, file_bytes: MAX_FILE_BYTES, total_bytes: MAX_TOTAL_BYTES };
}

/// Largest bundle of locked kernels that is unpacked, in bytes, packed or not.
pub const MAX_BUNDLE_BYTES: u64 = 64 << 30;

impl ArchiveLimits {
    /// What a bundle of many kernels may hold.
    pub(super) const BUNDLE: Self =
        Self { entries: 20 * MAX_ENTRIES, file_bytes: MAX_FILE_BYTES, total_bytes: MAX_BUNDLE_BYTES };
}
