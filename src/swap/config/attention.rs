//! The word for a model's attention, checked for its form.

use crate::hint::nearest;
use crate::swap::KernelRef;

const KNOWN: [&str; 6] = ["auto", "eager", "flash_attention_2", "flash_attention_3", "flash_attention_4", "sdpa"];

/// Checks `eager`, `sdpa`, `flash_attention_2`, `auto`, `owner/name@v1:function`, each after `paged|` too; gives what is
/// wrong and the near word.
pub(super) fn check(text: &str) -> Result<(), (String, Option<&'static str>)> {
    let word = text.strip_prefix("paged|").unwrap_or(text);
    if KNOWN.contains(&word) || (word.contains('/') && word.parse::<KernelRef>().is_ok()) {
        return Ok(());
    }
    let known = KNOWN.join(", ");
    let reason = format!("unknown attention {text:?}; known: {known}, owner/name@v1:function, each also after paged|");
    Err((reason, nearest(word, KNOWN)))
}
