//! What the Hub says about a publisher. It is asked and recorded here; what it means is decided in [`crate::policy`].

use serde_json::Value;

use super::{HubSource, may_pass};
use crate::fetch::hf_cache::Publisher;
use crate::fetch::http::RetryPolicy;
use crate::fetch::{FetchError, Session};
use crate::policy::Word;

/// Largest overview that is read, in bytes.
const MAX_OVERVIEW_BYTES: u64 = 1 << 20;

fn word(publisher: &Publisher) -> Word {
    match publisher.trusted {
        Some(true) => Word::Trusted,
        Some(false) => Word::NotTrusted,
        None => Word::Silent,
    }
}

impl HubSource {
    /// What is on record about a publisher at this endpoint, unless it has expired. Makes no request.
    #[must_use]
    pub fn publisher(&self, owner: &str) -> Option<Publisher> {
        self.records.publisher(owner, &self.options.endpoint).filter(Publisher::is_current)
    }

    /// The Hub's flag for a publisher: the recorded one until it expires, then the Hub is asked again. Offline, and
    /// where the Hub does not answer, the recorded one counts however old it is: what was decided once is not undone by
    /// a network that is gone, and nothing is decided without it.
    pub(super) fn flag_of(&self, owner: &str, session: &Session<'_>) -> Result<Word, FetchError> {
        let recorded = self.records.publisher(owner, &self.options.endpoint);
        if let Some(publisher) = recorded.as_ref().filter(|publisher| self.fetch.offline || publisher.is_current()) {
            return Ok(word(publisher));
        }
        if self.fetch.offline {
            return Ok(Word::NotRecorded);
        }
        // A kernel that is here must not wait for a Hub that is not.
        let retry = if recorded.is_some() { RetryPolicy::never() } else { self.fetch.retry };
        match self.http.block_on(session, self.ask_publisher(owner, retry, session)) {
            Ok(publisher) => {
                if let Err(error) = self.records.write_publisher(&publisher, &self.options.endpoint) {
                    tracing::warn!(owner, %error, "what the Hub says about a publisher could not be recorded");
                }
                Ok(word(&publisher))
            }
            Err(error) => match recorded.filter(|_| may_pass(&error)) {
                Some(publisher) => {
                    let note = format!("the publisher {owner} counts as recorded: the Hub could not be asked: {error}");
                    tracing::warn!("{note}");
                    session.progress.note(&note);
                    Ok(word(&publisher))
                }
                None => Err(error),
            },
        }
    }

    fn overview(&self, owner: &str) -> reqwest::Url {
        self.url(&["api", "organizations", owner, "overview"])
    }

    async fn ask_publisher(
        &self,
        owner: &str,
        retry: RetryPolicy,
        session: &Session<'_>,
    ) -> Result<Publisher, FetchError> {
        let trusted = match self.http.get_json(&self.overview(owner), MAX_OVERVIEW_BYTES, retry, session).await {
            Ok(page) => page.value.get("trustedKernelPublisher").and_then(Value::as_bool),
            // A user, or a mirror without this part of the protocol.
            Err(FetchError::Status { status: 404, .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(Publisher::now(owner, &self.options.endpoint, trusted))
    }
}
