//! Where a manifest or an archive is.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use reqwest::Url;

use super::FetchError;
use crate::manifest::ArtifactUrl;

/// A URL or a file of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// `http:` or `https:`.
    Remote(Url),
    /// A file or a folder.
    Local(PathBuf),
}

impl Location {
    /// Where the artifact of a manifest is, given where the manifest is.
    ///
    /// # Errors
    /// [`FetchError::RemoteToLocal`] when a remote manifest points at a file of this machine: a publisher has no say
    /// over what is read here. [`FetchError::Location`] when the parts make no URL.
    pub fn artifact(&self, url: &ArtifactUrl) -> Result<Self, FetchError> {
        match (self, url) {
            (Self::Remote(manifest), ArtifactUrl::Absolute(url)) if url.scheme() == "file" => {
                Err(FetchError::RemoteToLocal { manifest: manifest.to_string(), url: url.to_string() })
            }
            (_, ArtifactUrl::Absolute(url)) => url.as_str().parse(),
            (Self::Remote(manifest), ArtifactUrl::Relative(path)) => {
                let mut url = manifest.clone();
                url.set_query(None);
                let folder_ends_path = url.path().ends_with('/');
                {
                    let Ok(mut segments) = url.path_segments_mut() else {
                        return Err(FetchError::Location {
                            value: manifest.to_string(),
                            reason: "a URL without a path".to_owned(),
                        });
                    };
                    if !folder_ends_path {
                        segments.pop();
                    }
                    // Segments are percent-encoded as they are pushed: a `?` or `%2e` in a name stays a name.
                    segments.pop_if_empty().extend(path.as_str().split('/'));
                }
                Ok(Self::Remote(url))
            }
            (Self::Local(manifest), ArtifactUrl::Relative(path)) => {
                let folder = if manifest.is_dir() { Some(manifest.as_path()) } else { manifest.parent() };
                Ok(Self::Local(path.below(folder.unwrap_or_else(|| Path::new("")))))
            }
        }
    }

    /// This location as a URL, for a manifest that is read from another place later.
    pub(super) fn to_artifact_url(&self) -> Result<ArtifactUrl, FetchError> {
        let refuse = |value: String, reason: &str| FetchError::Location { value, reason: reason.to_owned() };
        match self {
            Self::Remote(url) => Ok(ArtifactUrl::Absolute(url.clone())),
            Self::Local(path) => {
                let absolute = std::path::absolute(path).map_err(|source| FetchError::Io {
                    action: "make absolute",
                    path: path.clone(),
                    source,
                })?;
                Url::from_file_path(&absolute)
                    .map(ArtifactUrl::Absolute)
                    .map_err(|()| refuse(absolute.display().to_string(), "no path that a file: URL can hold"))
            }
        }
    }
}

impl FromStr for Location {
    type Err = FetchError;

    /// Reads `http://...`, `https://...`, `file:///...`, or a path.
    fn from_str(value: &str) -> Result<Self, Self::Err> {
        let refuse = |reason: String| Err(FetchError::Location { value: value.to_owned(), reason });
        if value.is_empty() {
            return refuse("empty".to_owned());
        }
        let scheme = value.split_once(':').map_or("", |(scheme, _)| scheme).to_ascii_lowercase();
        match scheme.as_str() {
            "http" | "https" => match Url::parse(value) {
                Ok(url) => Ok(Self::Remote(url)),
                Err(error) => refuse(error.to_string()),
            },
            "file" => match Url::parse(value).map(|url| url.to_file_path()) {
                Ok(Ok(path)) => Ok(Self::Local(path)),
                Ok(Err(())) => refuse("a file: URL with a host or no absolute path".to_owned()),
                Err(error) => refuse(error.to_string()),
            },
            _ if value.contains("://") => refuse("expected http, https, file or a path".to_owned()),
            _ => Ok(Self::Local(PathBuf::from(value))),
        }
    }
}

impl From<&Path> for Location {
    fn from(path: &Path) -> Self {
        Self::Local(path.to_path_buf())
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote(url) => f.pad(url.as_str()),
            Self::Local(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::Location;

    fn artifact(base: &str, url: &str) -> Result<String, String> {
        let base: Location = base.parse().unwrap();
        base.artifact(&url.parse().unwrap()).map(|location| location.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn artifacts_stand_beside_their_manifest() {
        assert_eq!(artifact("http://h:1/a/k.toml?x=1", "b/c.tar.zst").unwrap(), "http://h:1/a/b/c.tar.zst");
        assert_eq!(artifact("https://h/a/", "c%2e%2e.tar").unwrap(), "https://h/a/c%252e%252e.tar");
        assert_eq!(artifact("https://h", "c.tar").unwrap(), "https://h/c.tar");
        assert_eq!(artifact("k/m.toml", "c.tar").unwrap(), "k/c.tar");
        assert_eq!(artifact("m.toml", "c.tar").unwrap(), "c.tar");
        assert_eq!(artifact("/k/m.toml", "http://h/c.tar").unwrap(), "http://h/c.tar");
        assert_eq!(artifact("/k/m.toml", "file:///x/c.tar").unwrap(), "/x/c.tar");
        assert!(artifact("http://h/m.toml", "file:///etc/passwd").unwrap_err().contains("file:///etc/passwd"));
    }

    #[test]
    fn schemes_are_closed_and_paths_are_paths() {
        for bad in ["", "ftp://h/x", "file://host/x", "http://", "https://[::1/x"] {
            assert!(bad.parse::<Location>().is_err(), "{bad:?}");
        }
        assert_eq!("./a b.toml".parse::<Location>().unwrap(), Location::Local(PathBuf::from("./a b.toml")));
        assert_eq!("file:///a%20b".parse::<Location>().unwrap(), Location::Local(PathBuf::from("/a b")));
    }
}
