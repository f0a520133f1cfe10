//! Advice, kept apart from faults.

/// An error that can say what to do next.
///
/// The text of an error ([`std::fmt::Display`]) says what failed, on what, what was expected and what was found. Its
/// cause is behind [`std::error::Error::source`]. What the user can do about it is here, and a program prints it on a
/// line of its own, as `hint: ...`.
pub trait Hint: std::error::Error {
    /// One sentence of advice, or `None` where there is none that helps.
    fn hint(&self) -> Option<String>;
}

/// The longest text that is compared with names, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// The candidate nearest to `name`, when one is near enough to be a slip of the pen.
///
/// Compares without regard to case. `None` when nothing is close: a far-fetched suggestion is worse than none.
#[must_use]
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // What is longer is no name with a slip in it, and comparing takes time by the square of the length.
    if name.len() > MAX_NAME_BYTES {
        return None;
    }
    let lower = name.to_lowercase();
    let score = |candidate: &str| {
        let candidate = candidate.to_lowercase();
        // In a short word, two letters that changed places leave little that is alike: `cup` for `cpu`.
        let swapped = lower.len() == candidate.len() && lower != candidate && {
            let sorted = |text: &str| {
                let mut bytes = text.as_bytes().to_vec();
                bytes.sort_unstable();
                bytes
            };
            sorted(&lower) == sorted(&candidate) && strsim::osa_distance(&lower, &candidate) == 1
        };
        strsim::jaro_winkler(&lower, &candidate).max(if swapped { 0.8 } else { 0.0 })
    };
    candidates
        .into_iter()
        .map(|candidate| (score(candidate), candidate))
        .filter(|(score, _)| *score >= 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// An error's words and those of its causes, each once.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut last = text.clone();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let words = inner.to_string();
        // A transparent wrapper repeats its cause's words.
        if words != last {
            text = format!("{text}: {words}");
        }
        last = words;
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_is_found_and_a_stranger_is_not() {
        let layers = ["RMSNorm", "SiluAndMul", "RotaryEmbedding"];
        assert_eq!(nearest("RmsNorm", layers), Some("RMSNorm"));
        assert_eq!(nearest("SiLUAndMull", layers), Some("SiluAndMul"));
        assert_eq!(nearest("Conv2d", layers), None);
        assert_eq!(nearest("cup", ["cpu", "npu", "tpu"]), Some("cpu"));
        assert_eq!(nearest("puc", ["cpu", "npu", "tpu"]), None);
        assert_eq!(nearest(&"RMSNorm".repeat(1 << 20), layers), None);
    }
}
