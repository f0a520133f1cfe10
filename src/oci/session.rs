//! Bounded reads from one repository of a registry.

use std::io;
use std::time::Duration;

use futures_util::StreamExt as _;
use oci_client::{Client, RegistryOperation};
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Response, StatusCode, Url};

use super::client::{USER_AGENT, client, client_reference, token};
use super::reference::is_loopback;
use super::{Login, OciError, OciReference, credentials, redirect};

/// How much of an error page is read, in bytes.
const MAX_ERROR_BYTES: usize = 4 << 10;
/// How much of it is shown, in characters.
const MAX_ERROR_CHARS: usize = 300;

/// Reads from one repository, with a login once the registry wants one.
pub(super) struct Session {
    pub(super) reference: OciReference,
    http: reqwest::Client,
    client: Client,
    authorization: Option<HeaderValue>,
    operation: RegistryOperation,
    pub(super) login: Login,
    /// Requests made, redirects and those for a login not counted.
    pub(super) requests: u32,
}

/// Where the bytes of an answer go.
pub(super) type Sink<'a, E> = &'a mut (dyn FnMut(&[u8]) -> Result<(), E> + Send);

impl Session {
    /// `operation` is what a login is asked for: some registries deny that a repository exists to those who may only
    /// read, so that who is about to push asks for that.
    pub(super) fn new(
        reference: &OciReference,
        operation: RegistryOperation,
        timeout: Duration,
    ) -> Result<Self, OciError> {
        let http = reqwest::Client::builder()
            .user_agent(USER_AGENT)
            .connect_timeout(timeout)
            .read_timeout(timeout)
            .redirect(reqwest::redirect::Policy::custom(redirect::follow))
            .build()
            .map_err(|error| OciError::Client { source: io::Error::other(error) })?;
        let client = client(reference, timeout)?;
        Ok(Self {
            reference: reference.clone(),
            http,
            client,
            authorization: None,
            operation,
            login: Login::Anonymous,
            requests: 0,
        })
    }

    /// The address of `path` in the repository, such as `manifests/v1`.
    pub(super) fn url(&self, path: &str) -> String {
        let scheme = if self.reference.is_loopback() { "http" } else { "https" };
        let client = client_reference(&self.reference);
        format!("{scheme}://{}/v2/{}/{path}", client.resolve_registry(), self.reference.repository())
    }

    /// Streams the body of a 200 answer into `sink`, at most `limit` bytes. Returns the digest that the registry
    /// states.
    pub(super) async fn get<E: From<OciError>>(
        &mut self,
        path: &str,
        accept: &str,
        what: &'static str,
        limit: u64,
        sink: Sink<'_, E>,
    ) -> Result<Option<String>, E> {
        let url = self.url(path);
        let mut answer = self.send(&url, accept).await?;
        if answer.status() == StatusCode::UNAUTHORIZED && self.authorization.is_none() {
            self.log_in(&answer).await?;
            answer = self.send(&url, accept).await?;
        }
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(self.unauthorized().into()),
            StatusCode::NOT_FOUND => return Err(OciError::NotFound { url, what }.into()),
            status => {
                let message = message(answer).await;
                return Err(OciError::Status { url, status: status.as_u16(), message }.into());
            }
        }
        // The digest is about the blob's own bytes, not about a server's compression of them.
        if answer.headers().get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
            let message = "a content encoding that was not asked for".to_owned();
            return Err(OciError::Status { url, status: 200, message }.into());
        }
        if answer.content_length().is_some_and(|length| length > limit) {
            return Err(OciError::TooLong { url, maximum: limit }.into());
        }
        let stated = answer.headers().get("docker-content-digest").and_then(|value| value.to_str().ok());
        let stated = stated.map(str::to_owned);
        let mut body = answer.bytes_stream();
        let mut bytes = 0;
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|source| OciError::Transport {
                url: url.clone(),
                bytes,
                source: source.without_url(),
            })?;
            bytes += piece.len() as u64;
            if bytes > limit {
                return Err(OciError::TooLong { url, maximum: limit }.into());
            }
            sink(&piece)?;
        }
        Ok(stated)
    }

    async fn send(&mut self, url: &str, accept: &str) -> Result<Response, OciError> {
        self.requests += 1;
        let mut request = self.http.get(url).header(ACCEPT, accept).header(ACCEPT_ENCODING, "identity");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        request.send().await.map_err(|source| {
            let (url, source) = (url.to_owned(), source.without_url());
            if source.is_redirect() {
                OciError::Redirect { url, source }
            } else {
                OciError::Transport { url, bytes: 0, source }
            }
        })
    }

    /// Finds the login that an answer of 401 asks for.
    async fn log_in(&mut self, answer: &Response) -> Result<(), OciError> {
        let credentials = credentials::find(self.reference.registry())?;
        self.login = credentials.login;
        let challenges = answer.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let challenges: Vec<&str> = challenges.collect();
        let of = |scheme: &str| {
            challenges.iter().find(|text| text.get(..scheme.len()).is_some_and(|s| s.eq_ignore_ascii_case(scheme)))
        };
        if let Some(challenge) = of("bearer ") {
            self.check_realm(challenge)?;
            let token = token(&self.client, &self.reference, &credentials, self.operation).await?;
            self.authorization = match token {
                Some(token) => Some(self.header(&format!("Bearer {token}"))?),
                None => return Err(self.unauthorized()),
            };
        } else if let (Some(_), Some((user, password))) = (of("basic"), credentials.user()) {
            use base64::Engine as _;
            let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
            self.authorization = Some(self.header(&format!("Basic {pair}"))?);
        } else {
            return Err(self.unauthorized());
        }
        Ok(())
    }

    /// Refuses to send a login in the clear to another machine.
    fn check_realm(&self, challenge: &str) -> Result<(), OciError> {
        let realm = challenge.split_once("realm=\"").and_then(|(_, rest)| rest.split('"').next()).unwrap_or_default();
        let insecure = match Url::parse(realm) {
            Ok(realm) => realm.scheme() != "https" && !realm.host_str().is_some_and(is_loopback),
            // What is no URL is no place to send anything to; the client says so.
            Err(_) => false,
        };
        if insecure {
            let registry = self.reference.registry().to_owned();
            return Err(OciError::InsecureLogin { registry, realm: shorten(realm) });
        }
        Ok(())
    }

    fn header(&self, value: &str) -> Result<HeaderValue, OciError> {
        let mut header = HeaderValue::from_str(value).map_err(|_| self.unauthorized())?;
        header.set_sensitive(true);
        Ok(header)
    }

    pub(super) fn unauthorized(&self) -> OciError {
        OciError::Unauthorized { registry: self.reference.registry().to_owned(), login: self.login }
    }
}

/// What an error page says, as much of it as may stand in a message.
async fn message(answer: Response) -> String {
    let mut text = Vec::new();
    let mut body = answer.bytes_stream();
    while let Some(Ok(piece)) = body.next().await {
        text.extend_from_slice(&piece[..piece.len().min(MAX_ERROR_BYTES - text.len())]);
        if text.len() == MAX_ERROR_BYTES {
            break;
        }
    }
    shorten(String::from_utf8_lossy(&text).trim())
}

/// A foreign text, escaped and cut.
pub(super) fn shorten(text: &str) -> String {
    text.escape_debug().take(MAX_ERROR_CHARS).collect()
}
