//! What to do about a fetch that failed.

use std::io;

use super::FetchError;
use crate::fetch::RepoType;
use crate::hint::Hint;

impl Hint for FetchError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::NoCacheRoot => Some("set HF_HOME or KERNELS_CACHE to a folder".to_owned()),
            Self::Offline { url, .. } => Some(format!("fetch {url} once while online; the cache serves it afterwards")),
            Self::Oci(source) => source.hint(),
            Self::Manifest { source, .. } | Self::Metadata { source, .. } => source.hint(),
            Self::Io { source, path, .. } => match source.kind() {
                io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => Some(format!(
                    "{} cannot be written; name another cache folder by KERNELS_CACHE or HF_HOME",
                    path.display()
                )),
                io::ErrorKind::StorageFull => Some("free space on that file system".to_owned()),
                _ => None,
            },
            Self::Status { status: 404 | 410, .. } => {
                Some("the file is not there; check the manifest's URL, or fetch a newer manifest".to_owned())
            }
            Self::Status { status: 401 | 403, .. } => {
                Some("the server wants a login: set HF_TOKEN, and ask the publisher for access".to_owned())
            }
            Self::Status { retry_after: Some(wait), .. } => {
                Some(format!("the server asks to wait {} s; try again then", wait.as_secs()))
            }
            Self::Status { status: 408 | 425 | 429 | 500..=599, .. }
            | Self::Transport { .. }
            | Self::TimedOut { .. }
            | Self::TooSlow { .. }
            | Self::TooShort { .. } => Some("the server or the network failed; try again".to_owned()),
            Self::Json { .. } => {
                Some("a login page or a proxy may have answered in the server's place; check HF_ENDPOINT".to_owned())
            }
            Self::RepoNotFound { tried, .. } if tried.iter().all(|(tried, _)| *tried == RepoType::Kernel) => Some(
                "check the name and HF_ENDPOINT; a kernel that was never registered as one may be a repo of type model, \
                 which is tried when the legacy type is allowed"
                    .to_owned(),
            ),
            Self::RepoNotFound { .. } => Some("check the name and HF_ENDPOINT; a private repo needs HF_TOKEN".to_owned()),
            Self::RevisionNotFound { known, .. } => known.last().map(|last| format!("ask for {last}")),
            Self::LockTimeout { .. } => {
                Some("wait for the other process, or end it; a lock ends with its process".to_owned())
            }
            Self::ReadOnly { .. } => {
                Some("fetch it with a cache that can be written, named by KERNELS_CACHE or HF_HOME".to_owned())
            }
            Self::FileDigest { .. } | Self::Range { .. } => {
                Some("the server's file is not the published one; ask its operator, or name another HF_ENDPOINT".to_owned())
            }
            Self::Damaged { .. } => Some("ask for the kernel once while online; it is then repaired".to_owned()),
            Self::LocalFolder { .. } => {
                Some("name a folder with metadata.json, or one with a build folder in it".to_owned())
            }
            Self::ArchiveDigest { .. } | Self::TooLong { .. } => Some(
                "the server's file is not the one in the manifest: fetch the manifest again, and if it still differs, \
                 do not use this archive"
                    .to_owned(),
            ),
            Self::RemoteToLocal { .. } | Self::Archive { .. } | Self::Content { .. } => {
                Some("the publisher's archive or manifest is wrong; do not use it".to_owned())
            }
            _ => None,
        }
    }
}
