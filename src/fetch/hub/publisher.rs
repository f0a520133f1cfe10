//! What the Hub says about a publisher. It is recorded here; what it means is decided elsewhere.

use serde_json::Value;

use super::HubSource;
use crate::fetch::hf_cache::Publisher;
use crate::fetch::http::RetryPolicy;
use crate::fetch::{FetchError, Session};

/// Largest overview that is read, in bytes.
const MAX_OVERVIEW_BYTES: u64 = 1 << 20;

impl HubSource {
    /// What is on record about a publisher at this endpoint, unless it has expired. Makes no request.
    #[must_use]
    pub fn publisher(&self, owner: &str) -> Option<Publisher> {
        self.records.publisher(owner, &self.options.endpoint)
    }

    /// Asks about a publisher and records the answer. A Hub that does not answer leaves no record, and fails nothing.
    pub(super) async fn record_publisher(&self, owner: &str, session: &Session<'_>) {
        match self.ask_publisher(owner, session).await {
            Ok(publisher) => {
                if let Err(error) = self.records.write_publisher(&publisher, &self.options.endpoint) {
                    tracing::warn!(owner, %error, "what the Hub says about a publisher could not be recorded");
                }
            }
            Err(error) => tracing::warn!(owner, %error, "the Hub does not say whether it trusts a publisher"),
        }
    }

    async fn ask_publisher(&self, owner: &str, session: &Session<'_>) -> Result<Publisher, FetchError> {
        let url = self.url(&["api", "organizations", owner, "overview"]);
        let trusted = match self.http.get_json(&url, MAX_OVERVIEW_BYTES, RetryPolicy::never(), session).await {
            Ok(page) => page.value.get("trustedKernelPublisher").and_then(Value::as_bool),
            // A user, or a mirror without this part of the protocol.
            Err(FetchError::Status { status: 404, .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(Publisher::now(owner, &self.options.endpoint, trusted))
    }
}
