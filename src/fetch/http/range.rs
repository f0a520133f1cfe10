//! Headers about parts of a file.

use reqwest::header::{CONTENT_RANGE, ETAG, HeaderMap};

/// What a 206 answer says that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContentRange {
    pub(super) start: u64,
    pub(super) total: Option<u64>,
}

/// Reads `bytes 233-999/1000` or `bytes 233-999/*`.
pub(super) fn content_range(headers: &HeaderMap) -> Option<ContentRange> {
    let text = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (start, end) = range.split_once('-')?;
    let (start, end): (u64, u64) = (start.parse().ok()?, end.parse().ok()?);
    let total = if total == "*" { None } else { Some(total.parse().ok()?) };
    (start <= end && total.is_none_or(|total| end < total)).then_some(ContentRange { start, total })
}

/// The tag that names the file's bytes exactly. A weak one does not.
pub(super) fn strong_tag(headers: &HeaderMap) -> Option<String> {
    let tag = headers.get(ETAG)?.to_str().ok()?.trim();
    (tag.len() > 2 && tag.starts_with('"') && tag.ends_with('"')).then(|| tag.to_owned())
}

#[cfg(test)]
mod tests {
    use reqwest::header::{CONTENT_RANGE, ETAG, HeaderMap, HeaderValue};

    use super::{ContentRange, content_range, strong_tag};

    #[test]
    fn ranges_and_tags_are_read_strictly() {
        let range = |text: &'static str| {
            content_range(&HeaderMap::from_iter([(CONTENT_RANGE, HeaderValue::from_static(text))]))
        };
        assert_eq!(range("bytes 233-999/1000"), Some(ContentRange { start: 233, total: Some(1000) }));
        assert_eq!(range("bytes 0-0/*"), Some(ContentRange { start: 0, total: None }));
        for bad in ["", "bytes */1000", "bytes 5-4/10", "bytes 0-10/10", "items 0-1/2", "bytes 0-1", "bytes -1/2"] {
            assert_eq!(range(bad), None, "{bad:?}");
        }
        let tag = |text: &'static str| strong_tag(&HeaderMap::from_iter([(ETAG, HeaderValue::from_static(text))]));
        assert_eq!(tag("\"abc\""), Some("\"abc\"".to_owned()));
        assert_eq!((tag("W/\"abc\""), tag("abc"), tag("\"\"")), (None, None, None));
    }
}
