//! Where a manifest or an archive is.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use reqwest::Url;

use super::FetchError;
use crate::manifest::{ArtifactUrl, UrlError};
use crate::oci::OciReference;

/// A URL, a file of this machine, or something in an OCI registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// `http:` or `https:`.
    Remote(Url),
    /// A file or a folder.
    Local(PathBuf),
    /// An artifact or a layer in an OCI registry; see [`crate::oci`].
    Oci(OciReference),
}

impl Location {
    /// Where the artifact of a manifest is, given where the manifest is.
    ///
    /// # Errors
    /// [`FetchError::RemoteToLocal`] when a remote manifest points at a file of this machine: a publisher has no say
    /// over what is read here. [`FetchError::Location`] when the parts make no URL.
    pub fn artifact(&self, url: &ArtifactUrl) -> Result<Self, FetchError> {
        match (self, url) {
            (Self::Remote(_) | Self::Oci(_), ArtifactUrl::Absolute(url)) if url.scheme() == "file" => {
                Err(FetchError::RemoteToLocal { manifest: self.to_string(), url: url.to_string() })
            }
            (_, ArtifactUrl::Absolute(url)) => url.as_str().parse(),
            (Self::Remote(manifest), ArtifactUrl::Relative(path)) => {
                let mut url = manifest.clone();
                url.set_query(None);
                let folder_ends_path = url.path().ends_with('/');
                {
                    let Ok(mut segments) = url.path_segments_mut() else {
                        return Err(FetchError::Location {
                            value: self.to_string(),
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
            // A kernel from there names its layers by digest.
            (Self::Oci(_), ArtifactUrl::Relative(path)) => Err(FetchError::Location {
                value: path.as_str().to_owned(),
                reason: format!("no file stands beside {self}"),
            }),
            (Self::Local(manifest), ArtifactUrl::Relative(path)) => {
                let folder = if manifest.is_dir() { Some(manifest.as_path()) } else { manifest.parent() };
                Ok(Self::Local(path.below(folder.unwrap_or_else(|| Path::new("")))))
            }
        }
    }

    /// This location as a URL, for a manifest that is read from another place later. Without credentials: a cache is
    /// no place for them.
    pub(super) fn to_artifact_url(&self) -> Result<ArtifactUrl, FetchError> {
        let url = match self {
            Self::Remote(url) => without_credentials(url),
            Self::Oci(reference) => Url::parse(&reference.to_string())
                .map_err(|error| FetchError::Location { value: reference.to_string(), reason: error.to_string() })?,
            Self::Local(path) => {
                let absolute = resolved(path)?;
                Url::from_file_path(&absolute).map_err(|()| FetchError::Location {
                    value: absolute.display().to_string(),
                    reason: "no path that a file: URL can hold".to_owned(),
                })?
            }
        };
        // By the same rules as any other manifest's URL, so that the record can be read again.
        url.as_str()
            .parse()
            .map_err(|error: UrlError| FetchError::Location { value: error.value, reason: error.reason })
    }
}

/// The URL as it may be shown and stored.
pub(super) fn without_credentials(url: &Url) -> Url {
    let mut url = url.clone();
    // Both fail only for URLs without a host, which have no credentials.
    if url.set_username("").and_then(|()| url.set_password(None)).is_err() {
        tracing::trace!("a URL without a host");
    }
    url
}

/// An absolute path without `..`, by the file system where the file exists, else by the letters.
fn resolved(path: &Path) -> Result<PathBuf, FetchError> {
    if let Ok(path) = path.canonicalize() {
        return Ok(path);
    }
    let absolute = std::path::absolute(path).map_err(FetchError::io("make absolute", path))?;
    let mut plain = PathBuf::new();
    for part in absolute.components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    Ok(plain)
}

impl FromStr for Location {
    type Err = FetchError;

    /// Reads `http://...`, `https://...`, `file:///...`, `oci://...`, or a path.
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
            "oci" => Ok(Self::Oci(value.parse()?)),
            _ if value.contains("://") => refuse("expected http, https, file, oci or a path".to_owned()),
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
            Self::Remote(url) => f.pad(without_credentials(url).as_str()),
            Self::Local(path) => write!(f, "{}", path.display()),
            Self::Oci(reference) => reference.fmt(f),
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
    fn credentials_are_used_and_neither_shown_nor_stored() {
        let base: Location = "https://me:secret@h/a/m.toml".parse().unwrap();
        assert_eq!(base.to_string(), "https://h/a/m.toml");
        let artifact = base.artifact(&"c.tar".parse().unwrap()).unwrap();
        assert!(matches!(&artifact, Location::Remote(url) if url.password() == Some("secret")));
        assert_eq!(artifact.to_artifact_url().unwrap().to_string(), "https://h/a/c.tar");
    }

    #[test]
    fn a_stored_path_is_absolute_and_plain() {
        let stored = |path: &str| path.parse::<Location>().unwrap().to_artifact_url().unwrap().to_string();
        let here = std::env::current_dir().unwrap();
        let parent = here.parent().unwrap().display();
        assert_eq!(stored("../no such file"), format!("file://{parent}/no%20such%20file"));
        assert!(!stored("src/../Cargo.toml").contains(".."));
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
