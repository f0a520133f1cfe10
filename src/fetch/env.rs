//! The environment variables of this room, all of them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Reads one variable. A parameter, so that tests need no process-wide change.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The process's environment. An empty value counts as unset.
pub(super) fn process(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// The cache's root; see the room's documentation. `None` where no variable and no home folder is set.
pub(super) fn cache_root(lookup: Lookup<'_>) -> Option<PathBuf> {
    let get = |name: &str| lookup(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = get("HOME").or_else(|| get("USERPROFILE"));
    let folder = get("KERNELS_CACHE")
        .or_else(|| get("HF_HUB_CACHE"))
        .or_else(|| get("HF_HOME"))
        .or_else(|| get("XDG_CACHE_HOME").map(|cache| cache.join("huggingface")))
        .or_else(|| Some(home.as_ref()?.join(".cache/huggingface")))?;
    // The Python tools expand a leading `~`, which a shell does not do inside quotes.
    let folder = match (folder.strip_prefix("~"), &home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => folder,
    };
    Some(folder.join(Path::new("kernelhub")))
}

/// Whether `HF_HUB_OFFLINE` forbids the network: `1`, `true`, `yes` or `on`, in any case.
pub(super) fn offline(lookup: Lookup<'_>) -> bool {
    lookup("HF_HUB_OFFLINE")
        .and_then(|value| value.into_string().ok())
        .is_some_and(|value| ["1", "true", "yes", "on"].iter().any(|yes| value.trim().eq_ignore_ascii_case(yes)))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::PathBuf;

    use super::{cache_root, offline};

    fn root(set: &[(&str, &str)]) -> Option<PathBuf> {
        cache_root(&|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)))
    }

    #[test]
    fn the_first_variable_that_is_set_names_the_root() {
        let all = [
            ("KERNELS_CACHE", "/k"),
            ("HF_HUB_CACHE", "/c"),
            ("HF_HOME", "/h"),
            ("XDG_CACHE_HOME", "/x"),
            ("HOME", "/home/u"),
        ];
        let expected = ["/k/kernelhub", "/c/kernelhub", "/h/kernelhub", "/x/huggingface/kernelhub"];
        for (skip, expected) in expected.iter().enumerate() {
            assert_eq!(root(&all[skip..]), Some(PathBuf::from(expected)));
        }
        assert_eq!(root(&all[4..]), Some(PathBuf::from("/home/u/.cache/huggingface/kernelhub")));
        assert_eq!(root(&[("KERNELS_CACHE", ""), ("HF_HOME", "/h")]), Some(PathBuf::from("/h/kernelhub")));
        assert_eq!(root(&[("HF_HOME", "~/m"), ("HOME", "/home/u")]), Some(PathBuf::from("/home/u/m/kernelhub")));
        assert_eq!(root(&[]), None);
    }

    #[test]
    fn offline_is_what_the_python_tools_take_for_true() {
        for (value, expected) in [("1", true), ("TRUE", true), ("yes", true), ("on", true), ("0", false), ("", false)] {
            assert_eq!(offline(&|_| Some(OsString::from(value))), expected, "{value:?}");
        }
        assert!(!offline(&|_| None));
    }
}
