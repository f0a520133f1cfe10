//! When a request is sent again, and after how long.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::fetch::FetchError;

/// How failures that may pass are met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Most attempts in a row without progress, the first one included. Default: 5.
    pub attempts: u32,
    /// The wait after the first failure; it doubles with each further one. A random part of it, up to a half, is left
    /// out, so that many machines do not come back at once. Default: 300 ms.
    pub first_delay: Duration,
    /// The longest wait between attempts, unless the server asks for more. Default: 5 s.
    pub max_delay: Duration,
    /// Longest time without progress, all attempts and waits together. A server that asks to wait longer is not waited
    /// for. Default: 25 s.
    pub budget: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 5,
            first_delay: Duration::from_millis(300),
            max_delay: Duration::from_secs(5),
            budget: Duration::from_secs(25),
        }
    }
}

impl RetryPolicy {
    /// One attempt, and no more.
    #[must_use]
    pub fn never() -> Self {
        Self { attempts: 1, ..Self::default() }
    }
}

/// The attempts of one request.
#[derive(Debug)]
pub(super) struct Attempts {
    policy: RetryPolicy,
    failed: u32,
    since: Instant,
}

impl Attempts {
    pub(super) fn new(policy: RetryPolicy) -> Self {
        Self { policy, failed: 0, since: Instant::now() }
    }

    /// Something was gained: the count and the clock start again.
    pub(super) fn progress(&mut self) {
        self.failed = 0;
        self.since = Instant::now();
    }

    /// `timeout`, or what the budget leaves, but long enough for one answer on the same machine.
    pub(super) fn within_budget(&self, timeout: Duration) -> Duration {
        let left = self.policy.budget.saturating_sub(self.since.elapsed());
        timeout.min(left.max(Duration::from_millis(200)))
    }

    /// Waits before the next attempt, or gives the error back where there is none.
    pub(super) async fn pause(&mut self, error: FetchError) -> Result<(), FetchError> {
        self.failed += 1;
        if !may_pass(&error) || self.failed >= self.policy.attempts {
            return Err(error);
        }
        let asked = match &error {
            FetchError::Status { retry_after, .. } => *retry_after,
            _ => None,
        };
        let delay = asked.unwrap_or_else(|| {
            let doubled = self.policy.first_delay.saturating_mul(1 << (self.failed - 1).min(16));
            let delay = doubled.min(self.policy.max_delay);
            delay.mul_f64(1.0 - 0.5 * fraction())
        });
        if self.since.elapsed() + delay > self.policy.budget {
            return Err(error);
        }
        tracing::debug!(%error, ?delay, attempt = self.failed, "trying again");
        tokio::time::sleep(delay).await;
        Ok(())
    }
}

/// Whether a failure may pass.
fn may_pass(error: &FetchError) -> bool {
    matches!(
        error,
        FetchError::Status { status: 408 | 425 | 429 | 500 | 502 | 503 | 504, .. }
            | FetchError::Transport { .. }
            | FetchError::TimedOut { .. }
            | FetchError::TooShort { .. }
    )
}

/// A number from 0 to 1 that other processes do not share.
fn fraction() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

/// The wait that a `Retry-After` header asks for: a number of seconds, or a date.
pub(super) fn retry_after(value: &str) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        // More digits than fit mean longer than anybody waits.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::from(u32::MAX))));
    }
    let at = UNIX_EPOCH.checked_add(Duration::from_secs(http_date(value)?))?;
    Some(at.duration_since(SystemTime::now()).unwrap_or(Duration::ZERO))
}

/// Seconds since 1970 of an HTTP date in its one current form, `Sun, 06 Nov 1994 08:49:37 GMT`.
fn http_date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let parts: Vec<&str> = text.split(' ').collect();
    let [_, day, month, year, time, "GMT"] = parts.as_slice() else { return None };
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    let month = MONTHS.iter().position(|name| name == month)? as u64 + 1;
    let (day, year) = (number(day)?, number(year)?);
    let mut clock = time.split(':').map(number);
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    if !(1970..=9999).contains(&year) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days since 1970 in the Gregorian calendar, counted from March so that the leap day is the year's last.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    Some((days.checked_sub(719_468)?) * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{http_date, retry_after};

    #[test]
    fn retry_after_is_read_in_both_forms() {
        assert_eq!(retry_after("2"), Some(Duration::from_secs(2)));
        assert_eq!(retry_after(&"9".repeat(40)), Some(Duration::from_secs(u64::from(u32::MAX))));
        assert_eq!(http_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(http_date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(http_date("Thu, 29 Feb 2024 12:00:00 GMT"), Some(1_709_208_000));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        assert!(retry_after("Fri, 01 Jan 9999 00:00:00 GMT").unwrap() > Duration::from_secs(1 << 30));
        for bad in ["", "-1", "soon", "1.5", "Sun, 06 Nov 1994 08:49:37", "x, 99 Nov 1994 08:49:37 GMT", "é, é é é é é"]
        {
            assert_eq!(retry_after(bad), None, "{bad:?}");
        }
    }
}
