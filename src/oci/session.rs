//! Bounded reads from one repository of a registry.

use std::future::Future;
use std::io;
use std::time::Duration;

use futures_util::StreamExt as _;
use oci_client::{Client, Reference, RegistryOperation};
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Response, StatusCode, Url};

use super::credentials::{self, Credentials};
use super::reference::is_loopback;
use super::{Login, OciError, OciReference};

/// Most redirects followed for one request. Registries send blobs from the store behind them.
const MAX_REDIRECTS: usize = 5;
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
            .redirect(reqwest::redirect::Policy::custom(follow))
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

    /// Streams the body of a 200 answer into `sink`, at most `limit` bytes. Returns the digest that the registry states.
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

/// Asks the registry for a token, and makes the client use it. `None`: the registry wants none, or takes user and
/// password themselves.
pub(super) async fn token(
    client: &Client,
    reference: &OciReference,
    credentials: &Credentials,
    operation: RegistryOperation,
) -> Result<Option<String>, OciError> {
    let token = client
        .auth(&client_reference(reference), &credentials.auth(), operation)
        .await
        .map_err(|error| protocol(reference, "the login", error))?;
    match token {
        // The client takes it for a header's value without looking.
        Some(token) if !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Err(OciError::Unauthorized { registry: reference.registry().to_owned(), login: credentials.login })
        }
        token => Ok(token),
    }
}

const USER_AGENT: &str = concat!("kernelhub/", env!("CARGO_PKG_VERSION"));

/// The client for logins and pushes.
pub(super) fn client(reference: &OciReference, timeout: Duration) -> Result<Client, OciError> {
    use oci_client::client::{ClientConfig, ClientProtocol};
    let plain = if reference.is_loopback() { vec![reference.registry().to_owned()] } else { Vec::new() };
    let config = ClientConfig {
        protocol: ClientProtocol::HttpsExcept(plain),
        use_monolithic_push: true,
        platform_resolver: None,
        read_timeout: Some(timeout),
        connect_timeout: Some(timeout),
        user_agent: USER_AGENT,
        ..ClientConfig::default()
    };
    Client::try_from(config).map_err(|error| OciError::Client { source: io::Error::other(error) })
}

/// The reference in the client's form.
pub(super) fn client_reference(reference: &OciReference) -> Reference {
    let (registry, repository) = (reference.registry().to_owned(), reference.repository().to_owned());
    match (reference.digest(), reference.tag()) {
        (Some(digest), _) => Reference::with_digest(registry, repository, format!("sha256:{digest}")),
        (None, Some(tag)) => Reference::with_tag(registry, repository, tag.to_owned()),
        // Never asked for by this name: a manifest needs a tag or a digest, and a blob has its own.
        (None, None) => Reference::with_tag(registry, repository, "latest".to_owned()),
    }
}

/// An error of the client in this room's words.
pub(super) fn protocol(
    reference: &OciReference,
    action: &'static str,
    error: oci_client::errors::OciDistributionError,
) -> OciError {
    use oci_client::errors::OciDistributionError as Error;
    match error {
        Error::ServerError { code, message, .. } => {
            OciError::Status { url: reference.to_string(), status: code, message: shorten(&message) }
        }
        Error::RequestError(source) => {
            OciError::Transport { url: reference.to_string(), bytes: 0, source: source.without_url() }
        }
        error => OciError::Protocol { reference: reference.to_string(), action, source: Box::new(error) },
    }
}

/// Runs a future to its end, on a thread of its own, because the caller's may belong to an asynchronous runtime, in
/// which no second one may block.
pub(super) fn block<T: Send, E: From<OciError> + Send>(
    future: impl Future<Output = Result<T, E>> + Send,
) -> Result<T, E> {
    on_thread(future).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The same for a future that pushes: the client puts every later token into a header without looking, and panics over
/// one that is no header's value. What a registry answers ends in an error here.
pub(super) fn block_push<T: Send>(
    reference: &OciReference,
    future: impl Future<Output = Result<T, OciError>> + Send,
) -> Result<T, OciError> {
    let registry = reference.registry().to_owned();
    on_thread(future).unwrap_or_else(|_| Err(OciError::Unusable { registry }))
}

/// The outcome of a future, or its panic.
fn on_thread<T: Send, E: From<OciError> + Send>(
    future: impl Future<Output = Result<T, E>> + Send,
) -> std::thread::Result<Result<T, E>> {
    let failed = |source| E::from(OciError::Client { source });
    std::thread::scope(|scope| {
        let run = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
            runtime.block_on(future)
        };
        match std::thread::Builder::new().name("kernelhub-oci".to_owned()).spawn_scoped(scope, run) {
            Ok(thread) => thread.join(),
            Err(source) => Ok(Err(failed(source))),
        }
    })
}

/// Follows a redirect, unless it leads to plain http off this machine, or to no web server.
fn follow(attempt: reqwest::redirect::Attempt<'_>) -> reqwest::redirect::Action {
    match refusal(attempt.previous(), attempt.url()) {
        None => attempt.follow(),
        Some(reason) => {
            let target = shorten(&attempt.url().origin().ascii_serialization());
            attempt.error(RefusedRedirect { target, reason })
        }
    }
}

/// Why a redirect is not followed, given every URL before it.
fn refusal(previous: &[Url], target: &Url) -> Option<&'static str> {
    let is_here = |url: &Url| url.host_str().is_some_and(is_loopback);
    match target.scheme() {
        "http" | "https" if previous.len() > MAX_REDIRECTS => Some("on after too many redirects"),
        "http" if previous.iter().any(|url| url.scheme() == "https") => Some("from https to http"),
        "http" if !is_here(target) => Some("to plain http off this machine"),
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
fn shorten(text: &str) -> String {
    text.escape_debug().take(MAX_ERROR_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use reqwest::Url;

    use super::{MAX_REDIRECTS, refusal};

    #[test]
    fn redirects_never_lead_into_the_clear() {
        let refusal = |previous: &[&str], target: &str| {
            let previous: Vec<Url> = previous.iter().map(|url| Url::parse(url).unwrap()).collect();
            refusal(&previous, &Url::parse(target).unwrap())
        };
        assert_eq!(refusal(&["https://a/"], "https://b/"), None);
        assert_eq!(refusal(&["http://127.0.0.1/"], "http://localhost:9/"), None);
        assert_eq!(refusal(&["http://127.0.0.1/"], "https://b/"), None);
        assert_eq!(refusal(&["http://127.0.0.1/"], "http://b/"), Some("to plain http off this machine"));
        assert_eq!(refusal(&["https://a/"], "http://127.0.0.1/"), Some("from https to http"));
        assert_eq!(refusal(&["https://a/"], "file:///etc/passwd"), Some("to a scheme other than http and https"));
        let many = ["https://a/"; MAX_REDIRECTS + 1];
        assert_eq!(refusal(&many[..MAX_REDIRECTS], "https://a/"), None);
        assert!(refusal(&many, "https://a/").is_some());
    }
}
