//! Pushes that a registry leads astray.

use kernelhub::oci::OciError;
use serde_json::json;

use super::push;
use super::registry::reference;
use crate::support::packs::Published;
use crate::support::server::{Reply, Server};

/// A registry that has nothing and answers the start of an upload with this.
fn upload_answer(answer: impl Fn() -> Reply + Send + Sync + 'static) -> OciError {
    let server = Server::start(move |request| match request.path.as_str() {
        "/v2/" => Reply::ok("{}"),
        path if path.ends_with("/blobs/uploads/") => answer(),
        _ => Reply::error(404),
    });
    push(&Published::new(), &reference(&server, "a"), false).unwrap_err()
}

#[test]
fn an_upload_that_the_registry_misleads_is_an_error() {
    let located = |status: u16, location: &str| {
        let location = location.to_owned();
        upload_answer(move || Reply { status, ..Reply::redirect(&location) })
    };
    for location in ["no url", "http://", "ftp://a/b", "http://127.0.0.1:1/upload"] {
        let error = located(202, location);
        assert!(matches!(error, OciError::Protocol { .. } | OciError::Transport { .. }), "{location}: {error:?}");
    }
    assert!(matches!(upload_answer(|| Reply { status: 202, ..Reply::ok("") }), OciError::Protocol { .. }));
    assert!(matches!(upload_answer(|| Reply::error(507)), OciError::Status { status: 507, .. }));
    assert!(matches!(upload_answer(|| Reply::error(403)), OciError::Unauthorized { .. }));
}

#[test]
fn a_push_is_done_only_when_the_artifact_can_be_read_back() {
    // Says yes to everything and keeps nothing.
    let server = Server::start(|request| match request.path.as_str() {
        "/v2/" => Reply::ok("{}"),
        "/v2/a/manifests/v1"
            if request.headers.iter().any(|header| header.to_lowercase().starts_with("content-type")) =>
        {
            Reply {
                status: 201,
                headers: vec![("Location".to_owned(), "/v2/a/manifests/v1".to_owned())],
                ..Reply::ok("")
            }
        }
        path if path.contains("/blobs/") => Reply::ok(""),
        _ => Reply::error(404),
    });
    let error = push(&Published::new(), &reference(&server, "a"), false).unwrap_err();
    assert!(matches!(error, OciError::NotFound { what: "artifact", .. }), "{error:?}");
}

#[test]
fn a_token_that_turns_bad_ends_in_an_error() {
    // The first has a form that the client does not keep, so that it asks again.
    let tokens = std::sync::Mutex::new(vec!["a\nb", "a.!.c"]);
    let server = Server::start(move |request| {
        let host =
            request.headers.iter().find_map(|header| header.to_lowercase().strip_prefix("host: ").map(str::to_owned));
        let host = host.unwrap();
        match request.path.as_str() {
            "/v2/" => Reply {
                headers: vec![(
                    "WWW-Authenticate".to_owned(),
                    format!(r#"Bearer realm="http://{host}/token",service="x""#),
                )],
                ..Reply::error(401)
            },
            path if path.starts_with("/token") => {
                let token = tokens.lock().unwrap().pop().unwrap_or("a\nb");
                Reply::ok(json!({ "token": token }).to_string())
            }
            _ => Reply::error(404),
        }
    });
    let error = push(&Published::new(), &reference(&server, "a"), false).unwrap_err();
    assert!(matches!(error, OciError::Unusable { .. }), "{error:?}");
}
