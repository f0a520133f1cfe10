//! Which redirects of a registry are followed.

use reqwest::Url;

use super::reference::is_loopback;
use super::session::shorten;

/// Most redirects followed for one request. Registries send blobs from the store behind them.
const MAX_REDIRECTS: usize = 5;

/// Follows a redirect, unless it leads to plain http off this machine, or to no web server.
pub(super) fn follow(attempt: reqwest::redirect::Attempt<'_>) -> reqwest::redirect::Action {
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
