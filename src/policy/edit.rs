//! Adding to a policy file. What stands there stays as it is, to the letter.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use reqwest::Url;

use super::file::Text;
use super::{Level, OriginKind, PolicyError, PublicKey, files};
use crate::names::RepoId;

/// What to add to a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Trust what a publisher publishes, signed or not.
    Publisher {
        /// The owner part of its repos.
        name: String,
        /// Where its name counts.
        from: Vec<OriginKind>,
    },
    /// Trust one repo, signed or not.
    Repo {
        /// The repo.
        repo: RepoId,
        /// Where its name counts.
        from: Vec<OriginKind>,
    },
    /// Trust what a publisher has signed with a key.
    Key {
        /// The owner part of its repos.
        publisher: String,
        /// The key.
        key: PublicKey,
    },
    /// Believe the names at an endpoint.
    Endpoint {
        /// The Hub.
        url: Url,
        /// Trust the publishers that it calls trusted, too.
        accept_publisher_flags: bool,
    },
    /// Trust the kernels in a folder and below it, under whatever name.
    Folder {
        /// The folder, absolute.
        path: PathBuf,
    },
    /// Refuse what a publisher publishes.
    Refusal {
        /// The owner part of its repos.
        publisher: String,
    },
}

impl Edit {
    /// A statement about an endpoint.
    ///
    /// # Errors
    /// Why the text is no URL.
    pub fn endpoint(url: &str, accept_publisher_flags: bool) -> Result<Self, String> {
        let url = Url::parse(url).map_err(|error| error.to_string())?;
        Ok(Self::Endpoint { url, accept_publisher_flags })
    }

    /// The lines of the policy file.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let from = |kinds: &[OriginKind]| {
            let mut kinds = kinds.to_vec();
            kinds.sort_unstable();
            kinds.dedup();
            kinds.iter().map(|kind| format!("{:?}", kind.as_str())).collect::<Vec<_>>().join(", ")
        };
        // Names, keys and URLs hold no character that TOML's strings escape otherwise than Rust's.
        match self {
            Self::Publisher { name, from: kinds } => {
                format!("[[publisher]]\nname = {name:?}\ntrust = true\nfrom = [{}]\n", from(kinds))
            }
            Self::Repo { repo, from: kinds } => {
                format!("[[repo]]\nname = {:?}\ntrust = true\nfrom = [{}]\n", repo.to_string(), from(kinds))
            }
            Self::Key { publisher, key } => {
                format!("[[publisher]]\nname = {publisher:?}\nkeys = [{:?}]\n", key.as_str())
            }
            Self::Endpoint { url, accept_publisher_flags } => {
                let url = url.as_str().trim_end_matches('/');
                format!("[[endpoint]]\nurl = {url:?}\naccept_publisher_flags = {accept_publisher_flags}\n")
            }
            Self::Folder { path } => {
                format!("[[folder]]\npath = {}\n", toml::Value::String(path.display().to_string()))
            }
            Self::Refusal { publisher } => format!("[[publisher]]\nname = {publisher:?}\ntrust = false\n"),
        }
    }
}

/// Adds to a policy file of the user or the machine, and makes it where there is none. Returns whether anything had to
/// be added: lines that stand there already are not written again.
///
/// # Errors
/// [`PolicyError`] when the file cannot be read or written, or is outside the format before or after the change.
pub fn add(path: &Path, edit: &Edit) -> Result<bool, PolicyError> {
    let lines = edit.to_toml();
    let standing = files::read(path)?;
    if let Some(text) = &standing {
        Text::parse(text, Level::User, path)?;
        let is_there = format!("\n{text}\n").contains(&format!("\n{lines}\n"));
        if is_there {
            return Ok(false);
        }
    }
    let text = match standing.as_deref().map(str::trim_end).filter(|text| !text.is_empty()) {
        Some(text) => format!("{text}\n\n{lines}"),
        None => format!("schema = 1\n\n{lines}"),
    };
    Text::parse(&text, Level::User, path)?;
    write(path, &text)?;
    Ok(true)
}

/// Writes the whole file at once. Where the path is a link, what it leads to is written.
fn write(path: &Path, text: &str) -> Result<(), PolicyError> {
    let failed =
        |action: &'static str| move |source: io::Error| PolicyError::Io { action, path: path.to_path_buf(), source };
    let place: PathBuf = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(failed("make the folder of"))?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(".policy-");
    let mut file = builder.tempfile_in(folder).map_err(failed("write beside"))?;
    // Rights that were narrowed stay so; a new file is its owner's, as temporary files are.
    if let Ok(metadata) = place.metadata() {
        file.as_file().set_permissions(metadata.permissions()).map_err(failed("keep the rights of"))?;
    }
    file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(failed("write"))?;
    file.persist(&place).map_err(|error| failed("write")(error.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Policy, PolicyFiles};
    use super::{Edit, OriginKind, add};

    fn publisher(name: &str) -> Edit {
        Edit::Publisher { name: name.to_owned(), from: vec![OriginKind::Hub] }
    }

    #[test]
    fn an_edit_adds_lines_once_and_leaves_the_rest_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/policy.toml");
        assert!(add(&path, &publisher("acme")).unwrap());
        assert!(!add(&path, &publisher("acme")).unwrap());
        let first = std::fs::read_to_string(&path).unwrap();
        assert_eq!(first, "schema = 1\n\n[[publisher]]\nname = \"acme\"\ntrust = true\nfrom = [\"hub\"]\n");
        std::fs::write(&path, format!("# mine\n{first}# end")).unwrap();
        let endpoint = Edit::Endpoint { url: "http://h:1/x/".parse().unwrap(), accept_publisher_flags: true };
        assert!(add(&path, &endpoint).unwrap());
        let second = std::fs::read_to_string(&path).unwrap();
        assert!(
            second.starts_with(&format!("# mine\n{first}# end\n\n[[endpoint]]\nurl = \"http://h:1/x\"\n")),
            "{second}"
        );
        let files = PolicyFiles { user: Some(path), ..PolicyFiles::default() };
        assert_eq!(Policy::read(&files).unwrap().files().len(), 1);
    }

    #[test]
    fn nothing_is_written_over_a_file_that_is_no_policy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.toml");
        std::fs::write(&path, "schema = 1\ntrsut = 1\n").unwrap();
        assert!(add(&path, &publisher("acme")).is_err());
        assert!(add(&folder.path().join("p.toml"), &publisher("no good")).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "schema = 1\ntrsut = 1\n");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
