//! A download that resumes.

use std::path::Path;
use std::time::{Duration, Instant};

use reqwest::header::{HeaderMap, HeaderValue, IF_RANGE, RANGE};
use reqwest::{StatusCode, Url};

use super::client::{Answer, Http, next_piece};
use super::range::{content_range, strong_tag};
use super::retry::Attempts;
use super::sink::Sink;
use crate::digest::{BlobId, GitOid, Sha256Digest};
use crate::fetch::location::without_credentials;
use crate::fetch::{FetchError, Session};
use crate::regular;

/// A transfer that brings less than [`SLOW_BYTES`] in this time has failed.
const SLOW_WINDOW: Duration = Duration::from_secs(20);
const SLOW_BYTES: u64 = 10 << 10;
/// So many bytes are progress: the attempts are counted anew.
const PROGRESS_BYTES: u64 = 64 << 10;
/// Most times that a file is begun anew because a server changed its mind about it.
const MAX_RESTARTS: u32 = 3;

/// A file whose digest is known.
#[derive(Debug, Clone, Copy)]
pub(in crate::fetch) struct Wanted<'a> {
    pub(in crate::fetch) url: &'a Url,
    /// How progress names it.
    pub(in crate::fetch) name: &'a str,
    /// Its size, in bytes, as far as a listing can be believed. Rejects nothing.
    pub(in crate::fetch) size: Option<u64>,
    /// Most bytes that are read.
    pub(in crate::fetch) limit: u64,
    pub(in crate::fetch) sha256: Option<Sha256Digest>,
    pub(in crate::fetch) git: Option<GitOid>,
}

/// The tag of a partial file: what its server called its bytes, kept for whoever resumes it.
pub(in crate::fetch) trait TagStore: Send {
    fn load(&self) -> Option<String>;
    fn store(&mut self, tag: Option<&str>);
}

/// For a partial file that nobody resumes.
pub(in crate::fetch) struct NoTag;

impl TagStore for NoTag {
    fn load(&self) -> Option<String> {
        None
    }

    fn store(&mut self, _: Option<&str>) {}
}

/// Downloads into `partial`, going on with what is there, until the bytes have their digests. On any error the partial
/// file stays where another attempt can go on with it, and is removed where its bytes are wrong.
pub(in crate::fetch) async fn download(
    http: &Http,
    wanted: Wanted<'_>,
    partial: &Path,
    tags: &mut dyn TagStore,
    session: &Session<'_>,
) -> Result<u64, FetchError> {
    let mut transfer = Transfer {
        http,
        wanted,
        session,
        sink: Sink::open(partial)?,
        tag: tags.load(),
        tags,
        attempts: Attempts::new(http.options.retry),
        restarts: 0,
        resumed: false,
        size: wanted.size,
    };
    transfer.resumed = transfer.sink.length() > 0;
    let result = transfer.run(partial).await;
    if matches!(result, Err(FetchError::FileDigest { .. } | FetchError::TooLong { .. })) {
        drop(transfer);
        // Wrong bytes are no start for anybody.
        std::fs::remove_file(partial).map_err(FetchError::io("remove", partial))?;
    }
    result
}

struct Transfer<'a> {
    http: &'a Http,
    wanted: Wanted<'a>,
    session: &'a Session<'a>,
    sink: Sink,
    tag: Option<String>,
    tags: &'a mut dyn TagStore,
    attempts: Attempts,
    restarts: u32,
    /// Whether the file holds bytes of an earlier answer.
    resumed: bool,
    size: Option<u64>,
}

impl Transfer<'_> {
    fn url(&self) -> String {
        without_credentials(self.wanted.url).to_string()
    }

    async fn run(&mut self, partial: &Path) -> Result<u64, FetchError> {
        // What is there may be the whole file: a process can be killed between the last byte and the move.
        if self.resumed && self.wanted.size.is_none_or(|size| self.sink.length() >= size) {
            if self.mismatch(partial)?.is_none() {
                return Ok(self.sink.length());
            }
            self.restart()?;
        }
        loop {
            match self.attempt().await {
                Ok(()) => {}
                Err(error) => {
                    self.resumed = self.sink.length() > 0;
                    self.attempts.pause(error).await?;
                    continue;
                }
            }
            let Some(error) = self.mismatch(partial)? else { return Ok(self.sink.length()) };
            if let Some(expected) = self.size.filter(|size| self.sink.length() < *size) {
                let short = FetchError::TooShort { url: self.url(), expected, actual: self.sink.length() };
                self.resumed = true;
                self.attempts.pause(short).await?;
            } else if self.resumed && self.restarts < MAX_RESTARTS {
                tracing::debug!(url = %self.url(), "a resumed file has another digest; starting again");
                self.restart()?;
            } else {
                return Err(error);
            }
        }
    }

    /// In what the file is not the one that is wanted.
    fn mismatch(&mut self, partial: &Path) -> Result<Option<FetchError>, FetchError> {
        let actual = self.sink.digest()?;
        let refuse =
            |expected, actual| FetchError::FileDigest { url: self.url(), expected, actual, bytes: self.sink.length() };
        if let Some(expected) = self.wanted.sha256
            && expected != actual
        {
            return Ok(Some(refuse(BlobId::Sha256(expected), BlobId::Sha256(actual))));
        }
        if let Some(expected) = self.wanted.git {
            let file = regular::open(partial).map_err(FetchError::io("open", partial))?;
            let actual = GitOid::of_reader(self.sink.length(), file).map_err(FetchError::io("read", partial))?;
            if expected != actual {
                return Ok(Some(refuse(BlobId::Git(expected), BlobId::Git(actual))));
            }
        }
        Ok(None)
    }

    fn restart(&mut self) -> Result<(), FetchError> {
        self.restarts += 1;
        self.resumed = false;
        self.tag = None;
        self.tags.store(None);
        self.sink.restart()
    }

    /// The file cannot be gone on with: it is begun anew, unless that has happened too often.
    fn restart_because(&mut self, reason: String) -> Result<(), FetchError> {
        if self.restarts >= MAX_RESTARTS {
            return Err(FetchError::Range { url: self.url(), offset: self.sink.length(), reason });
        }
        tracing::debug!(url = %self.url(), reason, "starting again from the first byte");
        self.restart()
    }

    /// One request, and as much of its body as comes.
    async fn attempt(&mut self) -> Result<(), FetchError> {
        let mut answer = self.open().await?;
        let limit = self.wanted.limit;
        let too_long = || FetchError::TooLong { url: without_credentials(self.wanted.url).to_string(), maximum: limit };
        let announced = answer.response.content_length();
        if announced.is_some_and(|length| self.sink.length().saturating_add(length) > limit) {
            return Err(too_long());
        }
        // A size is a hint: the Hub's own header first, then the body's. The listing's where neither tells.
        self.size = answer.linked_size.or(self.wanted.size).or(announced.map(|length| self.sink.length() + length));
        let mut window = (Instant::now(), 0);
        let mut unreported = 0;
        loop {
            let timeout = self.attempts.within_budget(self.http.options.read_timeout);
            let received = self.sink.length();
            let Some(piece) = next_piece(self.wanted.url, &mut answer.response, timeout, received).await? else {
                return Ok(());
            };
            let length = piece.len() as u64;
            if self.sink.length() + length > limit {
                return Err(too_long());
            }
            self.sink.write(piece)?;
            self.session.cost.add_bytes(length);
            self.session.progress.advanced(self.wanted.name, length);
            unreported += length;
            if unreported >= PROGRESS_BYTES {
                unreported = 0;
                self.attempts.progress();
            }
            window.1 += length;
            if window.0.elapsed() >= SLOW_WINDOW {
                if window.1 < SLOW_BYTES {
                    return Err(FetchError::TooSlow {
                        url: self.url(),
                        bytes: window.1,
                        seconds: SLOW_WINDOW.as_secs(),
                    });
                }
                self.attempts.progress();
                window = (Instant::now(), 0);
            }
        }
    }

    /// Sends the request for what is missing.
    async fn open(&mut self) -> Result<Answer, FetchError> {
        loop {
            let offset = self.sink.length();
            let mut headers = HeaderMap::new();
            if offset > 0 {
                headers.insert(RANGE, header(&format!("bytes={offset}-"))?);
                if let Some(tag) = &self.tag {
                    headers.insert(IF_RANGE, header(tag)?);
                }
            }
            let timeout = self.attempts.within_budget(self.http.options.answer_timeout);
            let answer = match self.http.send(self.wanted.url, &headers, timeout, self.session).await {
                Err(FetchError::Status { status: 416, .. }) if offset > 0 => {
                    self.restart_because("the server has no bytes from there on".to_owned())?;
                    continue;
                }
                answer => answer?,
            };
            let tag = strong_tag(answer.response.headers());
            if answer.response.status() == StatusCode::OK {
                if offset > 0 {
                    // The server sends the whole file, whatever was asked for.
                    self.sink.restart()?;
                    self.resumed = false;
                    self.restarts += 1;
                    if self.restarts > MAX_RESTARTS {
                        let reason = "the server begins anew at every request".to_owned();
                        return Err(FetchError::Range { url: self.url(), offset, reason });
                    }
                }
                self.remember(tag);
                return Ok(answer);
            }
            if offset == 0 {
                return Err(FetchError::Status { url: self.url(), status: 206, retry_after: None });
            }
            let other_tag = matches!((&self.tag, &tag), (Some(ours), Some(theirs)) if ours != theirs);
            match content_range(answer.response.headers()) {
                Some(range) if range.start == offset && !other_tag => {
                    self.resumed = true;
                    if self.size.is_none() {
                        self.size = range.total;
                    }
                    self.remember(tag);
                    return Ok(answer);
                }
                Some(_) if other_tag => self.restart_because("the file has changed".to_owned())?,
                Some(range) => self.restart_because(format!("the server sent bytes from {} on", range.start))?,
                None => self.restart_because("the answer does not say which bytes it holds".to_owned())?,
            }
        }
    }

    fn remember(&mut self, tag: Option<String>) {
        if tag.is_some() && tag != self.tag {
            self.tags.store(tag.as_deref());
            self.tag = tag;
        }
    }
}

fn header(text: &str) -> Result<HeaderValue, FetchError> {
    HeaderValue::try_from(text).map_err(|error| FetchError::Client { source: std::io::Error::other(error) })
}
