//! Small answers that are kept in memory: JSON and manifests.

use reqwest::header::{CONTENT_TYPE, HeaderMap, LINK};
use reqwest::{StatusCode, Url};
use serde_json::Value;

use super::client::{Http, next_piece};
use super::retry::{Attempts, RetryPolicy};
use crate::fetch::location::without_credentials;
use crate::fetch::{FetchError, Session};

/// One JSON answer.
#[derive(Debug)]
pub(in crate::fetch) struct Page {
    pub(in crate::fetch) value: Value,
    /// Where the next page is: the `Link` with `rel="next"`, on the same origin.
    pub(in crate::fetch) next: Option<Url>,
}

impl Http {
    /// Reads a small answer, at most `limit` bytes of it. Returns it with its headers.
    pub(in crate::fetch) async fn get_small(
        &self,
        url: &Url,
        limit: u64,
        retry: RetryPolicy,
        session: &Session<'_>,
    ) -> Result<(Vec<u8>, HeaderMap), FetchError> {
        let mut attempts = Attempts::new(retry);
        loop {
            match self.get_once(url, limit, &attempts, session).await {
                Ok(answer) => return Ok(answer),
                Err(error) => attempts.pause(error).await?,
            }
        }
    }

    async fn get_once(
        &self,
        url: &Url,
        limit: u64,
        attempts: &Attempts,
        session: &Session<'_>,
    ) -> Result<(Vec<u8>, HeaderMap), FetchError> {
        let name = || without_credentials(url).to_string();
        let timeout = attempts.within_budget(self.options.answer_timeout);
        let mut answer = self.send(url, &HeaderMap::new(), timeout, session).await?;
        let status = answer.response.status();
        if status != StatusCode::OK {
            return Err(FetchError::Status { url: name(), status: status.as_u16(), retry_after: None });
        }
        let headers = answer.response.headers().clone();
        let mut text = Vec::new();
        // A small answer comes as one; a server that sends it in drops is as good as a silent one.
        let deadline = tokio::time::Instant::now() + attempts.within_budget(self.options.read_timeout * 2);
        loop {
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            let timeout = self.options.read_timeout.min(left);
            let Some(piece) = next_piece(url, &mut answer.response, timeout, text.len() as u64).await? else { break };
            if (text.len() + piece.len()) as u64 > limit {
                return Err(FetchError::TooLong { url: name(), maximum: limit });
            }
            text.extend_from_slice(&piece);
        }
        Ok((text, headers))
    }

    /// Reads a JSON answer.
    pub(in crate::fetch) async fn get_json(
        &self,
        url: &Url,
        limit: u64,
        retry: RetryPolicy,
        session: &Session<'_>,
    ) -> Result<Page, FetchError> {
        let (text, headers) = self.get_small(url, limit, retry, session).await?;
        let name = || without_credentials(url).to_string();
        let value = crate::manifest::parse_json_strict(&text).map_err(|source| FetchError::Json {
            url: name(),
            content_type: headers
                .get(CONTENT_TYPE)
                .map_or_else(|| "none".to_owned(), |kind| String::from_utf8_lossy(kind.as_bytes()).into_owned()),
            source,
        })?;
        let next = match next_link(&headers) {
            None => None,
            Some(link) => match url.join(&link) {
                // The token must not follow a listing to another host, and nobody else's word is part of it.
                Ok(next) if next.origin() == url.origin() => Some(next),
                _ => return Err(FetchError::Paging { url: name(), reason: "the next page is on another server" }),
            },
        };
        Ok(Page { value, next })
    }
}

/// The target of the `Link` header whose relation is `next`.
fn next_link(headers: &HeaderMap) -> Option<String> {
    headers.get_all(LINK).iter().filter_map(|value| value.to_str().ok()).find_map(next_of_value)
}

/// A target may hold a comma, so that links are told apart by their brackets.
fn next_of_value(mut rest: &str) -> Option<String> {
    loop {
        let (_, after) = rest.split_once('<')?;
        let (target, after) = after.split_once('>')?;
        let parameters = after.split('<').next().unwrap_or_default();
        let is_next = parameters.split([';', ',']).any(|parameter| {
            let parameter = parameter.trim();
            parameter.eq_ignore_ascii_case("rel=\"next\"") || parameter.eq_ignore_ascii_case("rel=next")
        });
        if is_next {
            return Some(target.to_owned());
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderMap, HeaderValue, LINK};

    use super::next_link;

    #[test]
    fn only_the_next_relation_is_followed() {
        let link = |text: &'static str| next_link(&HeaderMap::from_iter([(LINK, HeaderValue::from_static(text))]));
        assert_eq!(link("<http://h/x?cursor=2>; rel=\"next\""), Some("http://h/x?cursor=2".to_owned()));
        assert_eq!(link("</a>; rel=\"prev\", </b,c>; rel=next"), Some("/b,c".to_owned()));
        for none in ["", "</a>; rel=\"prev\"", "</a>", "/a; rel=\"next\"", "</a"] {
            assert_eq!(link(none), None, "{none:?}");
        }
    }
}
