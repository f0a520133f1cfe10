//! The operating system and its C library.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::regular;
use crate::variant::{Os, Version};

/// The C library of a Linux system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Libc {
    /// The GNU C library, of this version. Published Linux builds need it.
    Glibc(Version),
    /// musl: libraries made for glibc do not load.
    Musl,
}

impl fmt::Display for Libc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Glibc(version) => write!(f, "glibc {version}"),
            Self::Musl => f.write_str("musl"),
        }
    }
}

/// The system that this process runs on, when builds are published for it.
pub(super) fn current() -> Option<Os> {
    // The standard library says `macos` where variants say `darwin`.
    match std::env::consts::OS {
        "macos" => Some(Os::Darwin),
        word => Os::from_word(word),
    }
}

/// The C library that this process runs on. A library that it loads has to fit this one, whatever else is installed.
pub(super) fn libc() -> Option<Libc> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    return super::ffi::glibc_version().as_deref().and_then(Version::leading).map(Libc::Glibc);
    #[cfg(all(target_os = "linux", target_env = "musl"))]
    return Some(Libc::Musl);
    #[cfg(not(all(target_os = "linux", any(target_env = "gnu", target_env = "musl"))))]
    return None;
}

/// Largest file that tells a version, in bytes.
const MAX_VERSION_BYTES: u64 = 64 << 10;

/// The system's own version, from the file that it keeps for that.
pub(super) fn version() -> Option<String> {
    match current()? {
        Os::Linux => text("/etc/os-release").as_deref().and_then(os_release),
        Os::Darwin => text("/System/Library/CoreServices/SystemVersion.plist").as_deref().and_then(product_version),
        Os::Windows => None,
    }
}

fn text(path: &str) -> Option<String> {
    regular::read_text(Path::new(path), MAX_VERSION_BYTES).ok()
}

/// `PRETTY_NAME` of os-release(5).
fn os_release(text: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches(['"', '\'']).to_owned())
}

/// `ProductVersion` of macOS's `SystemVersion.plist`.
pub(super) fn product_version(text: &str) -> Option<String> {
    let after = text.split_once("<key>ProductVersion</key>")?.1;
    let value = after.split_once("<string>")?.1.split_once("</string>")?.0;
    Some(value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{os_release, product_version};

    #[test]
    fn version_files_are_read() {
        assert_eq!(os_release("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n").unwrap(), "Debian GNU/Linux 12");
        assert_eq!(os_release("ID=x"), None);
        let plist =
            "<dict><key>ProductName</key><string>macOS</string><key>ProductVersion</key>\n<string>26.1</string>";
        assert_eq!(product_version(plist).unwrap(), "26.1");
        assert_eq!(product_version("<key>ProductVersion</key>"), None);
    }

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn glibc_tells_its_version() {
        assert!(
            matches!(super::libc(), Some(super::Libc::Glibc(version)) if version.major == 2 && version.minor >= 17)
        );
    }
}
