//! The one validator for remote strings that become paths or URLs.
//!
//! Owns: [`RepoId`] and [`RelativePath`]. Everything that arrives from a manifest, an archive, a listing, a lock file
//! or the command line and is joined into a path passes here first, by POSIX **and** Windows rules on every system: a
//! cache may be shared, and a name that is harmless here may not be elsewhere. Refuses: I/O.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Longest path accepted, in bytes.
pub const MAX_PATH_BYTES: usize = 512;
/// Longest path component accepted, in bytes.
pub const MAX_COMPONENT_BYTES: usize = 200;
/// Deepest path accepted, in components.
pub const MAX_DEPTH: usize = 16;

/// Why a remote string was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unsafe {what} {value:?}: {reason}")]
pub struct NameError {
    /// What the string was to be used as, such as "file path" or "repo id".
    pub what: &'static str,
    /// The string as it arrived.
    pub value: String,
    /// The rule that it breaks.
    pub reason: &'static str,
}

const RESERVED: [&str; 30] = [
    "con",
    "prn",
    "aux",
    "nul",
    "com1",
    "com2",
    "com3",
    "com4",
    "com5",
    "com6",
    "com7",
    "com8",
    "com9",
    "lpt1",
    "lpt2",
    "lpt3",
    "lpt4",
    "lpt5",
    "lpt6",
    "lpt7",
    "lpt8",
    "lpt9",
    "com\u{b9}",
    "com\u{b2}",
    "com\u{b3}",
    "lpt\u{b9}",
    "lpt\u{b2}",
    "lpt\u{b3}",
    "conin$",
    "conout$",
];

/// The rule that one path component breaks, or `None`.
fn component_fault(component: &str) -> Option<&'static str> {
    if component.is_empty() {
        return Some("an empty component");
    }
    if component == "." || component == ".." {
        return Some("a component that is . or ..");
    }
    if component.len() > MAX_COMPONENT_BYTES {
        return Some("a component longer than 200 bytes");
    }
    if component.chars().any(|c| c.is_control() || matches!(c, '<' | '>' | ':' | '"' | '|' | '?' | '*' | '\\' | '/')) {
        return Some("a character that a file name cannot hold everywhere (control, < > : \" | ? * \\ /)");
    }
    if component.ends_with('.') || component.ends_with(' ') || component.starts_with(' ') {
        return Some("a component that starts with a space or ends with a dot or a space");
    }
    if component.chars().any(is_invisible) {
        return Some("an invisible character or one that turns the direction of writing");
    }
    let stem = component.split('.').next().unwrap_or(component).trim_end().to_ascii_lowercase();
    RESERVED.contains(&stem.as_str()).then_some("a device name of Windows")
}

/// Characters that make a name look like another one in messages.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Checks a string that becomes one path component: a variant, a revision without slashes, a manifest's file stem.
///
/// # Errors
/// [`NameError`] with the rule that the string breaks.
pub fn check_component(what: &'static str, value: &str) -> Result<(), NameError> {
    component_fault(value).map_or(Ok(()), |reason| Err(NameError { what, value: value.to_owned(), reason }))
}

/// A file path inside a kernel: relative, `/`-separated, with no component that could leave its folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RelativePath(String);

impl RelativePath {
    /// The path as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// This path below `root`.
    #[must_use]
    pub fn below(&self, root: &Path) -> PathBuf {
        self.0.split('/').fold(root.to_path_buf(), |path, component| path.join(component))
    }

    /// The form by which two paths collide on a file system that ignores case.
    #[must_use]
    pub fn case_folded(&self) -> String {
        Self::fold(&self.0)
    }

    /// As [`Self::case_folded`], for a part of a path. Through upper case, so that letters with several lower-case
    /// forms (`s` and `\u{17f}`) meet.
    pub(crate) fn fold(text: &str) -> String {
        text.to_uppercase().to_lowercase()
    }
}

impl FromStr for RelativePath {
    type Err = NameError;

    fn from_str(value: &str) -> Result<Self, Self::Err> {
        let refuse = |reason| Err(NameError { what: "file path", value: value.to_owned(), reason });
        if value.len() > MAX_PATH_BYTES {
            return refuse("longer than 512 bytes");
        }
        if value.starts_with('/') {
            return refuse("an absolute path");
        }
        if value.split('/').count() > MAX_DEPTH {
            return refuse("deeper than 16 components");
        }
        match value.split('/').find_map(component_fault) {
            Some(reason) => refuse(reason),
            None => Ok(Self(value.to_owned())),
        }
    }
}

impl TryFrom<String> for RelativePath {
    type Error = NameError;

    fn try_from(value: String) -> Result<Self, Self::Error> {
        value.parse()
    }
}

impl From<RelativePath> for String {
    fn from(path: RelativePath) -> Self {
        path.0
    }
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The id of a kernel repo: `owner/name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RepoId {
    text: String,
    slash: usize,
}

impl RepoId {
    /// The publisher: an organisation or a user.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.text[..self.slash]
    }

    /// The repo's own name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.text[self.slash + 1..]
    }

    /// The folder name of the Hugging Face cache layout: `kernels--owner--name`.
    #[must_use]
    pub fn cache_folder(&self) -> String {
        format!("kernels--{}--{}", self.owner(), self.name())
    }
}

impl FromStr for RepoId {
    type Err = NameError;

    fn from_str(value: &str) -> Result<Self, Self::Err> {
        let refuse = |reason| Err(NameError { what: "repo id", value: value.to_owned(), reason });
        let Some((owner, name)) = value.split_once('/') else {
            return refuse("a repo id has the form owner/name");
        };
        for part in [owner, name] {
            if let Some(reason) = component_fault(part) {
                return refuse(reason);
            }
            if part.len() > 96 {
                return refuse("a part longer than 96 characters");
            }
            if !part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')) {
                return refuse("a character other than letters, digits, '-', '_' and '.'");
            }
            if part.starts_with(['-', '.']) || part.ends_with(['-', '.']) || part.contains("--") || part.contains("..")
            {
                return refuse("a part that starts or ends with '-' or '.', or holds '--' or '..'");
            }
        }
        Ok(Self { text: value.to_owned(), slash: owner.len() })
    }
}

impl TryFrom<String> for RepoId {
    type Error = NameError;

    fn try_from(value: String) -> Result<Self, Self::Error> {
        value.parse()
    }
}

impl From<RepoId> for String {
    fn from(repo: RepoId) -> Self {
        repo.text
    }
}

impl fmt::Display for RepoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::{RelativePath, RepoId};

    #[test]
    fn paths_that_leave_their_folder_are_refused_by_the_rules_of_every_system() {
        let long = "x/".repeat(20) + "x";
        for bad in [
            "../x",
            "a/../../b",
            "/etc/x",
            "C:\\x",
            "D:foo",
            "\\x",
            "\\\\h\\s\\x",
            "a\0b",
            "CON",
            "con.txt",
            "",
            ".",
            "a//b",
            "a/",
            "a/.",
            "x.",
            "x ",
            " x",
            "a\nb",
            "nul",
            "LPT1.so",
            "com\u{b9}.txt",
            "CONOUT$",
            "a\u{202e}os.b",
            "a\u{200b}",
            &long,
        ] {
            assert!(bad.parse::<RelativePath>().is_err(), "{bad:?} was accepted");
        }
        for good in ["build/tvm-ffi01-cpu-x86_64-linux/librmsnorm.so", "metadata.json", "console/a.py", "__init__.py"] {
            assert!(good.parse::<RelativePath>().is_ok(), "{good:?} was refused");
        }
    }

    #[test]
    fn repo_ids_have_two_plain_parts() {
        let repo: RepoId = "kernels-community/flash-attn2".parse().unwrap();
        assert_eq!((repo.owner(), repo.name()), ("kernels-community", "flash-attn2"));
        assert_eq!(repo.cache_folder(), "kernels--kernels-community--flash-attn2");
        for bad in ["", "x", "a/b/c", "../b", "a/..", "a/", "/b", "a b/c", "a--b/c", ".a/b", "a/b:c", "-a/b"] {
            assert!(bad.parse::<RepoId>().is_err(), "{bad:?} was accepted");
        }
    }
}
