//! The client, its runtime, and one request with its redirects.

use std::future::Future;
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, HeaderMap, LOCATION, RETRY_AFTER};
use reqwest::{Response, StatusCode, Url};
use tokio::runtime::Runtime;

use super::redirect::Route;
use super::retry::{RetryPolicy, retry_after};
use super::token::Token;
use crate::fetch::location::without_credentials;
use crate::fetch::{FetchError, Session};

/// How requests are made.
#[derive(Debug, Clone)]
pub(in crate::fetch) struct HttpOptions {
    /// How long to wait for a connection, and for an answer to begin.
    pub(in crate::fetch) answer_timeout: Duration,
    /// How long to wait for the next piece of a body.
    pub(in crate::fetch) read_timeout: Duration,
    pub(in crate::fetch) retry: RetryPolicy,
    /// A token, and the URL whose origin it is for.
    pub(in crate::fetch) token: Option<(Url, Token)>,
}

/// Makes requests. Has neither a runtime nor a client before the first one.
#[derive(Debug)]
pub(in crate::fetch) struct Http {
    pub(super) options: HttpOptions,
    runtime: OnceLock<Option<Runtime>>,
    plain: OnceLock<reqwest::Client>,
    secure: OnceLock<reqwest::Client>,
}

impl Drop for Http {
    fn drop(&mut self) {
        // Waiting for a runtime's end is forbidden inside another one.
        if let Some(Some(runtime)) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// An answer, after every redirect.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) response: Response,
    /// `X-Linked-Size` of the answer or of a redirect to it.
    pub(super) linked_size: Option<u64>,
}

impl Http {
    pub(in crate::fetch) fn new(options: HttpOptions) -> Self {
        Self { options, runtime: OnceLock::new(), plain: OnceLock::new(), secure: OnceLock::new() }
    }

    /// Runs work to its end. Blocks, on a thread of its own, because the caller's may belong to an asynchronous
    /// runtime, in which no second one may block.
    pub(in crate::fetch) fn block_on<T: Send>(
        &self,
        session: &Session<'_>,
        work: impl Future<Output = Result<T, FetchError>> + Send,
    ) -> Result<T, FetchError> {
        let runtime =
            self.runtime.get_or_init(|| tokio::runtime::Builder::new_current_thread().enable_all().build().ok());
        let Some(runtime) = runtime else {
            return Err(FetchError::Client { source: io::Error::other("no runtime could be made") });
        };
        std::thread::scope(|scope| {
            let run = || runtime.block_on(session.cancel.run(work));
            let thread = std::thread::Builder::new()
                .name("kernelhub-fetch".to_owned())
                .spawn_scoped(scope, run)
                .map_err(|source| FetchError::Client { source })?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Sends a request and follows its redirects. `timeout` is for each answer to begin.
    pub(super) async fn send(
        &self,
        url: &Url,
        headers: &HeaderMap,
        timeout: Duration,
        session: &Session<'_>,
    ) -> Result<Answer, FetchError> {
        let name = without_credentials(url).to_string();
        let mut route = Route::new(url);
        let mut linked_size = None;
        loop {
            let current = route.current();
            let mut request = self.client(current)?.get(current.clone()).headers(headers.clone());
            // The digest is about the file's own bytes, not about a server's compression of them.
            request = request.header(ACCEPT_ENCODING, "identity");
            if let Some((home, token)) = &self.options.token
                && route.keeps_credentials()
                && home.origin() == current.origin()
            {
                request = request.header(AUTHORIZATION, token.header());
            }
            session.cost.add_request();
            let response = match tokio::time::timeout(timeout, request.send()).await {
                Ok(Ok(response)) => response,
                Ok(Err(source)) => {
                    // The URL stands in the message already, and this one may hold a signature.
                    return Err(FetchError::Transport { url: name, bytes: 0, source: source.without_url() });
                }
                Err(_) => return Err(FetchError::TimedOut { url: name, bytes: 0, after: timeout }),
            };
            let headers = response.headers();
            let text = |header: &str| headers.get(header).and_then(|value| value.to_str().ok());
            linked_size = linked_size.or_else(|| text("x-linked-size")?.parse().ok());
            if matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                let location = text(LOCATION.as_str()).map(str::to_owned);
                if let Err((target, reason)) = route.follow(location.as_deref()) {
                    return Err(FetchError::Redirect { url: name, target, reason });
                }
                continue;
            }
            if !matches!(response.status(), StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
                return Err(FetchError::Status {
                    url: name,
                    status: response.status().as_u16(),
                    retry_after: text(RETRY_AFTER.as_str()).and_then(retry_after),
                });
            }
            if let Some(encoding) = headers.get(CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
                let encoding = String::from_utf8_lossy(encoding.as_bytes()).into_owned();
                return Err(FetchError::Encoding { url: name, encoding });
            }
            return Ok(Answer { response, linked_size });
        }
    }

    /// The client for a URL. The one for http loads no certificates, which takes milliseconds.
    fn client(&self, url: &Url) -> Result<&reqwest::Client, FetchError> {
        let is_secure = url.scheme() == "https";
        let place = if is_secure { &self.secure } else { &self.plain };
        if let Some(client) = place.get() {
            return Ok(client);
        }
        let builder = reqwest::Client::builder()
            .user_agent(concat!("kernelhub/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(self.options.answer_timeout)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false);
        // An https proxy needs certificates for a plain URL, too.
        let builder = if is_secure || crate::fetch::env::names_proxy() { builder } else { builder.tls_certs_only([]) };
        let client = builder.build().map_err(|error| FetchError::Client { source: io::Error::other(error) })?;
        Ok(place.get_or_init(|| client))
    }
}

/// The next piece of a body, `None` at its end. `bytes` are those that came before, for the message.
pub(super) async fn next_piece(
    url: &Url,
    response: &mut Response,
    timeout: Duration,
    bytes: u64,
) -> Result<Option<bytes::Bytes>, FetchError> {
    let name = || without_credentials(url).to_string();
    match tokio::time::timeout(timeout, response.chunk()).await {
        Ok(Ok(piece)) => Ok(piece),
        Ok(Err(source)) => Err(FetchError::Transport { url: name(), bytes, source: source.without_url() }),
        Err(_) => Err(FetchError::TimedOut { url: name(), bytes, after: timeout }),
    }
}
