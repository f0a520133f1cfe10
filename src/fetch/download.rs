//! Bytes from a server or a file.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::Url;
use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use sha2::{Digest as _, Sha256};

use super::FetchError;
use super::location::without_credentials;
use crate::digest::Sha256Digest;

/// A file that is hashed while it is written.
#[derive(Debug)]
pub(super) struct Download {
    path: PathBuf,
    file: File,
    hasher: Sha256,
    bytes: u64,
}

impl Download {
    pub(super) fn create(path: &Path) -> Result<Self, FetchError> {
        let file = File::create_new(path).map_err(FetchError::io("make", path))?;
        Ok(Self { path: path.to_path_buf(), file, hasher: Sha256::new(), bytes: 0 })
    }

    pub(super) fn write(&mut self, piece: &[u8]) -> Result<(), FetchError> {
        self.hasher.update(piece);
        self.bytes += piece.len() as u64;
        self.file.write_all(piece).map_err(FetchError::io("write", &self.path))
    }

    /// The digest and the number of bytes.
    pub(super) fn finish(self) -> (Sha256Digest, u64) {
        (Sha256Digest::from_bytes(self.hasher.finalize().into()), self.bytes)
    }
}

/// The HTTP client, made at the first request.
#[derive(Debug)]
pub(super) struct Client {
    timeout: Duration,
    http: OnceLock<reqwest::Client>,
}

impl Client {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { timeout, http: OnceLock::new() }
    }

    /// Streams the body of a 200 answer into `sink`, at most `limit` bytes of it.
    ///
    /// Blocks. Runs on a thread of its own, because the caller's may belong to an asynchronous runtime, in which no
    /// second one may block.
    pub(super) fn get(
        &self,
        url: &Url,
        limit: u64,
        sink: &mut (dyn FnMut(&[u8]) -> Result<(), FetchError> + Send),
    ) -> Result<(), FetchError> {
        let http = self.http()?;
        std::thread::scope(|scope| {
            let transfer = || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .map_err(|source| FetchError::Client { source })?;
                runtime.block_on(get(http, url, limit, sink))
            };
            let thread = std::thread::Builder::new()
                .name("kernelhub-fetch".to_owned())
                .spawn_scoped(scope, transfer)
                .map_err(|source| FetchError::Client { source })?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn http(&self) -> Result<&reqwest::Client, FetchError> {
        if let Some(http) = self.http.get() {
            return Ok(http);
        }
        let http = reqwest::Client::builder()
            .user_agent(concat!("kernelhub/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(self.timeout)
            .read_timeout(self.timeout)
            .redirect(reqwest::redirect::Policy::custom(follow))
            // The runtime that a connection belongs to ends with its request.
            .pool_max_idle_per_host(0)
            .build()
            .map_err(|error| FetchError::Client { source: io::Error::other(error) })?;
        Ok(self.http.get_or_init(|| http))
    }
}

/// Most redirects followed for one request.
const MAX_REDIRECTS: usize = 5;

/// Follows a redirect, unless it leaves https or leads to no web server.
fn follow(attempt: reqwest::redirect::Attempt<'_>) -> reqwest::redirect::Action {
    match refusal(attempt.previous(), attempt.url()) {
        None => attempt.follow(),
        Some(reason) => {
            let target = without_credentials(attempt.url()).to_string();
            attempt.error(RefusedRedirect { target, reason })
        }
    }
}

/// Why a redirect is not followed, given every URL before it.
fn refusal(previous: &[Url], target: &Url) -> Option<&'static str> {
    match target.scheme() {
        "http" if previous.iter().any(|url| url.scheme() == "https") => Some("from https to http"),
        "http" | "https" if previous.len() > MAX_REDIRECTS => Some("on after too many redirects"),
        "http" | "https" => None,
        _ => Some("to a scheme other than http and https"),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("it leads {reason}, to {target}")]
struct RefusedRedirect {
    target: String,
    reason: &'static str,
}

async fn get(
    http: &reqwest::Client,
    url: &Url,
    limit: u64,
    sink: &mut (dyn FnMut(&[u8]) -> Result<(), FetchError> + Send),
) -> Result<(), FetchError> {
    let name = || without_credentials(url).to_string();
    let answer = http
        .get(url.clone())
        // The digest is about the file's own bytes, not about a server's compression of them.
        .header(ACCEPT_ENCODING, "identity")
        .send()
        .await
        .map_err(|source| {
            // The URL stands in the message already.
            let source = source.without_url();
            if source.is_redirect() {
                FetchError::Redirect { url: name(), source }
            } else {
                FetchError::Transport { url: name(), bytes: 0, source }
            }
        })?;
    if answer.status() != reqwest::StatusCode::OK {
        return Err(FetchError::Status { url: name(), status: answer.status().as_u16() });
    }
    if let Some(encoding) = answer.headers().get(CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
        let encoding = String::from_utf8_lossy(encoding.as_bytes()).into_owned();
        return Err(FetchError::Encoding { url: name(), encoding });
    }
    if answer.content_length().is_some_and(|length| length > limit) {
        return Err(FetchError::TooLong { url: name(), maximum: limit });
    }
    let mut body = answer.bytes_stream();
    let mut bytes = 0;
    while let Some(piece) = body.next().await {
        let piece =
            piece.map_err(|source| FetchError::Transport { url: name(), bytes, source: source.without_url() })?;
        bytes += piece.len() as u64;
        if bytes > limit {
            return Err(FetchError::TooLong { url: name(), maximum: limit });
        }
        sink(&piece)?;
    }
    Ok(())
}

/// Streams a file of this machine, at most `limit` bytes of it.
pub(super) fn read_file(
    path: &Path,
    limit: u64,
    sink: &mut (dyn FnMut(&[u8]) -> Result<(), FetchError> + Send),
) -> Result<(), FetchError> {
    let mut file = File::open(path).map_err(FetchError::io("open", path))?;
    let mut buffer = vec![0; 64 << 10];
    let mut total = 0;
    loop {
        let read = file.read(&mut buffer).map_err(FetchError::io("read", path))?;
        if read == 0 {
            return Ok(());
        }
        total += read as u64;
        if total > limit {
            return Err(FetchError::TooLong { url: path.display().to_string(), maximum: limit });
        }
        sink(&buffer[..read])?;
    }
}

#[cfg(test)]
mod tests {
    use reqwest::Url;

    use super::{MAX_REDIRECTS, refusal};

    #[test]
    fn redirects_never_leave_https_and_end() {
        let refusal = |previous: &[&str], target: &str| {
            let previous: Vec<Url> = previous.iter().map(|url| Url::parse(url).unwrap()).collect();
            refusal(&previous, &Url::parse(target).unwrap())
        };
        assert_eq!(refusal(&["http://a/"], "http://b/"), None);
        assert_eq!(refusal(&["http://a/"], "https://b/"), None);
        assert_eq!(refusal(&["https://a/"], "https://b/"), None);
        assert_eq!(refusal(&["https://a/"], "http://a/"), Some("from https to http"));
        assert_eq!(refusal(&["http://a/", "https://a/"], "http://a/"), Some("from https to http"));
        for target in ["file:///etc/passwd", "ftp://a/", "data:,x"] {
            assert_eq!(refusal(&["http://a/"], target), Some("to a scheme other than http and https"));
        }
        let many = ["http://a/"; MAX_REDIRECTS + 1];
        assert_eq!(refusal(&many[..MAX_REDIRECTS], "http://a/"), None);
        assert!(refusal(&many, "http://a/").is_some());
    }
}
