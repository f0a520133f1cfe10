//! `oci://host[:port]/path/name[:tag][@sha256:...]`.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::OciError;
use crate::digest::Sha256Digest;

/// Longest repository path accepted, in bytes; the distribution specification's own bound.
const MAX_REPOSITORY_BYTES: usize = 255;
/// Longest host with its port accepted, in bytes.
const MAX_REGISTRY_BYTES: usize = 261;
/// Longest tag accepted, in bytes.
const MAX_TAG_BYTES: usize = 128;

/// The name of something in an OCI registry.
///
/// As the location of a manifest, its tag or digest is that of an artifact, which is one version of a kernel. As the
/// URL of an archive in a manifest, its digest is that of a layer, which is one build. Where both a tag and a digest
/// stand, the digest decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OciReference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Sha256Digest>,
}

impl OciReference {
    /// The scheme, with the slashes after it.
    pub const SCHEME: &'static str = "oci://";

    /// The registry's host, in lower case, with its port where one is given.
    #[must_use]
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The path of the repository in the registry, such as `team/rmsnorm`.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag. `None`: none was given.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest. `None`: none was given.
    #[must_use]
    pub fn digest(&self) -> Option<Sha256Digest> {
        self.digest
    }

    /// The same repository by a digest alone.
    #[must_use]
    pub fn pinned(&self, digest: Sha256Digest) -> Self {
        Self { tag: None, digest: Some(digest), ..self.clone() }
    }

    /// The same repository by the tag of a kernel's version, `v<version>`.
    #[cfg(feature = "oci")]
    pub(super) fn version(&self, version: u32) -> Self {
        Self { tag: Some(format!("v{version}")), digest: None, ..self.clone() }
    }

    /// Whether the registry is on this machine: `localhost` or a loopback address. Only such a registry is spoken to
    /// over plain http, and it always is; every other one is spoken to over https.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        is_loopback(host_of(&self.registry))
    }
}

/// Whether a host, as it stands in a URL, is this machine by its letters.
pub(super) fn is_loopback(host: &str) -> bool {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match inner {
        Some(address) => address.parse().is_ok_and(|address: Ipv6Addr| address.is_loopback()),
        None => host == "localhost" || host.parse().is_ok_and(|address: Ipv4Addr| address.is_loopback()),
    }
}

/// The host without its port.
fn host_of(registry: &str) -> &str {
    match registry.rsplit_once(':') {
        // Within brackets a colon is part of the address.
        Some((host, port)) if !port.contains(']') => host,
        _ => registry,
    }
}

/// The rule that a host with its port breaks, or `None`.
fn registry_fault(registry: &str) -> Option<&'static str> {
    if registry.len() > MAX_REGISTRY_BYTES {
        return Some("a host longer than 261 bytes");
    }
    let host = host_of(registry);
    if let Some(port) = registry[host.len()..].strip_prefix(':') {
        let is_number =
            port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
        if !is_number {
            return Some("a port that is no number from 1 to 65535");
        }
    }
    if let Some(address) = host.strip_prefix('[') {
        let is_address = address.strip_suffix(']').is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
        return (!is_address).then_some("brackets around something that is no IPv6 address");
    }
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    (!host.split('.').all(is_label)).then_some("a host that is no host name (letters, digits, - and .)")
}

/// The rule that a repository's path breaks, or `None`.
fn repository_fault(repository: &str) -> Option<&'static str> {
    if repository.is_empty() {
        return Some("no path after the host");
    }
    if repository.len() > MAX_REPOSITORY_BYTES {
        return Some("a path longer than 255 bytes");
    }
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_component = |component: &str| {
        let bytes = component.as_bytes();
        let ends_plain = bytes.first().copied().is_some_and(is_plain) && bytes.last().copied().is_some_and(is_plain);
        // Between letters and digits stand one dot, one or two underscores, or any number of dashes.
        let separators = component.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
        ends_plain
            && separators
                .filter(|text| !text.is_empty())
                .all(|text| matches!(text, "." | "_" | "__") || text.bytes().all(|byte| byte == b'-'))
    };
    (!repository.split('/').all(is_component))
        .then_some("a path outside the registry's rules (lower-case letters and digits, single . _ or - between them)")
}

/// The rule that a tag breaks, or `None`.
fn tag_fault(tag: &str) -> Option<&'static str> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut bytes = tag.bytes();
    let is_tag = tag.len() <= MAX_TAG_BYTES
        && bytes.next().is_some_and(is_word)
        && bytes.all(|byte| is_word(byte) || byte == b'.' || byte == b'-');
    (!is_tag).then_some("a tag outside the registry's rules (at most 128 letters, digits, _ . -)")
}

impl FromStr for OciReference {
    type Err = OciError;

    fn from_str(value: &str) -> Result<Self, Self::Err> {
        let refuse = |reason: &'static str| Err(OciError::Reference { value: shown(value), reason });
        let Some(rest) = value.strip_prefix(Self::SCHEME) else { return refuse("expected oci://host/path") };
        let Some((registry, path)) = rest.split_once('/') else { return refuse("no path after the host") };
        if registry.contains('@') {
            return refuse("credentials do not belong into a reference; log in with the registry's own tool");
        }
        let (path, digest) = match path.split_once('@') {
            None => (path, None),
            Some((path, digest)) => {
                match digest.strip_prefix("sha256:").and_then(|digits| digits.parse::<Sha256Digest>().ok()) {
                    Some(digest) => (path, Some(digest)),
                    None => return refuse("a digest that is not sha256: and 64 lower-case hexadecimal digits"),
                }
            }
        };
        let (repository, tag) = match path.split_once(':') {
            None => (path, None),
            Some((repository, tag)) => (repository, Some(tag)),
        };
        let registry = registry.to_ascii_lowercase();
        let fault =
            registry_fault(&registry).or_else(|| repository_fault(repository)).or_else(|| tag.and_then(tag_fault));
        match fault {
            Some(reason) => refuse(reason),
            None => Ok(Self { registry, repository: repository.to_owned(), tag: tag.map(str::to_owned), digest }),
        }
    }
}

/// The text as it may stand in a message: without what may be credentials.
fn shown(value: &str) -> String {
    let rest = value.strip_prefix(OciReference::SCHEME).unwrap_or(value);
    let authority = rest.split('/').next().unwrap_or(rest);
    match authority.rsplit_once('@') {
        Some((credentials, _)) => format!("{}...{}", OciReference::SCHEME, &rest[credentials.len()..]),
        None => value.to_owned(),
    }
}

impl fmt::Display for OciReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}/{}", Self::SCHEME, self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match self.digest {
            Some(digest) => write!(f, "@sha256:{digest}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::OciReference;

    fn digest() -> String {
        "0123456789abcdef".repeat(4)
    }

    #[test]
    fn references_round_trip() {
        for text in [
            "oci://ghcr.io/team/rmsnorm:v1",
            "oci://127.0.0.1:5000/a",
            "oci://[::1]:5000/a/b-c/d__e.f:V1.2-x",
            &format!("oci://h/a@sha256:{}", digest()),
            &format!("oci://h/a:v1@sha256:{}", digest()),
        ] {
            assert_eq!(text.parse::<OciReference>().unwrap().to_string(), text);
        }
        let reference: OciReference = "oci://GHCR.io/a:V1".parse().unwrap();
        assert_eq!((reference.registry(), reference.repository(), reference.tag()), ("ghcr.io", "a", Some("V1")));
    }

    #[test]
    fn near_references_are_refused() {
        for text in [
            "",
            "oci:",
            "oci://",
            "oci://h",
            "oci://h/",
            "OCI://h/a",
            "https://h/a",
            "oci:///a",
            "oci://h:/a",
            "oci://h:0/a",
            "oci://h:65536/a",
            "oci://h:+1/a",
            "oci://-h/a",
            "oci://h..i/a",
            "oci://h i/a",
            "oci://[::1/a",
            "oci://[x]/a",
            "oci://h/A",
            "oci://h/a//b",
            "oci://h/a/",
            "oci://h/../a",
            "oci://h/a/..",
            "oci://h/a%2e",
            "oci://h/a?x",
            "oci://h/a#x",
            "oci://h/a:",
            "oci://h/a:.x",
            "oci://h/a:x/y",
            "oci://h/a:v1:v2",
            "oci://h/a@sha256:00",
            "oci://h/a@",
            &format!("oci://h/a@sha512:{}", digest()),
            &format!("oci://h/a@sha256:{}", digest().to_uppercase()),
            &format!("oci://h/{}", "a".repeat(256)),
            &format!("oci://h/a:{}", "a".repeat(129)),
        ] {
            assert!(text.parse::<OciReference>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn credentials_are_refused_and_not_repeated() {
        let error = "oci://me:secret@h/a".parse::<OciReference>().unwrap_err().to_string();
        assert!(!error.contains("secret") && error.contains("@h/a"), "{error}");
    }

    #[test]
    fn only_this_machine_is_spoken_to_in_the_clear() {
        let is_loopback = |host: &str| format!("oci://{host}/a").parse::<OciReference>().unwrap().is_loopback();
        for host in ["localhost", "localhost:5000", "127.0.0.1", "127.9.9.9:80", "[::1]", "[::1]:5000"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in
            ["localhost.example", "127.0.0.1.example", "0.0.0.0:5000", "10.0.0.1", "[::2]:80", "ghcr.io", "127.1"]
        {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
