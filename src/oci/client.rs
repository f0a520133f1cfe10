//! The client for logins and pushes, and the thread that it runs on.

use std::future::Future;
use std::io;
use std::time::Duration;

use oci_client::{Client, Reference, RegistryOperation};

use super::credentials::Credentials;
use super::session::shorten;
use super::{OciError, OciReference};

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

pub(super) const USER_AGENT: &str = concat!("kernelhub/", env!("CARGO_PKG_VERSION"));

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
