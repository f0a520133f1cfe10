use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Environment, FetchError};

fn read(set: &[(&str, &str)]) -> Result<Environment, FetchError> {
    Environment::read_with(&|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)))
}

#[test]
fn f15_the_first_variable_that_is_set_names_each_folder() {
    let all = [
        ("KERNELS_CACHE", "/k"),
        ("HF_HUB_CACHE", "/c"),
        ("HF_HOME", "/h"),
        ("XDG_CACHE_HOME", "/x"),
        ("HOME", "/home/u"),
    ];
    let expected = [
        ("/k", "/k/kernelhub"),
        ("/c", "/c/kernelhub"),
        ("/h/hub", "/h/kernelhub"),
        ("/x/huggingface/hub", "/x/huggingface/kernelhub"),
        ("/home/u/.cache/huggingface/hub", "/home/u/.cache/huggingface/kernelhub"),
    ];
    for (skip, (hub, archives)) in expected.into_iter().enumerate() {
        let environment = read(&all[skip..]).unwrap();
        assert_eq!(environment.hub_cache.as_deref(), Some(Path::new(hub)));
        assert_eq!(environment.archive_cache.as_deref(), Some(Path::new(archives)));
    }
    let home = |set: &[(&str, &str)]| read(set).unwrap().hub_cache;
    assert_eq!(home(&[("KERNELS_CACHE", ""), ("HF_HOME", "/h")]), Some(PathBuf::from("/h/hub")));
    assert_eq!(home(&[("HF_HOME", "~/m"), ("HOME", "/home/u")]), Some(PathBuf::from("/home/u/m/hub")));
    assert_eq!(home(&[]), None);
}

#[test]
fn yes_is_what_the_python_tools_take_for_true() {
    for (value, expected) in [("1", true), ("TRUE", true), ("yes", true), ("on", true), ("0", false), ("", false)] {
        let environment = read(&[
            ("HF_HUB_OFFLINE", value),
            ("HF_HUB_DISABLE_SYMLINKS", value),
            ("HF_HUB_DISABLE_PROGRESS_BARS", value),
            ("DISABLE_KERNEL_MAPPING", value),
            ("DO_NOT_TRACK", value),
        ])
        .unwrap();
        let all = [
            environment.offline,
            environment.disable_symlinks,
            environment.disable_progress_bars,
            environment.disable_kernel_mapping,
            environment.disable_telemetry,
        ];
        assert_eq!(all, [expected; 5], "{value:?}");
    }
    assert!(read(&[]).unwrap().use_hub_kernels && !read(&[("USE_HUB_KERNELS", "0")]).unwrap().use_hub_kernels);
}

#[test]
fn the_switches_of_the_environment_say_which_of_them_it_is() {
    let off = |name: &str, value: &str| read(&[(name, value)]).unwrap().kernels_off();
    assert_eq!(read(&[]).unwrap().kernels_off(), None);
    assert_eq!(off("USE_HUB_KERNELS", "1"), None);
    assert_eq!(off("USE_HUB_KERNELS", "0"), Some("USE_HUB_KERNELS says no"));
    assert_eq!(off("DISABLE_KERNEL_MAPPING", "1"), Some("DISABLE_KERNEL_MAPPING says yes"));
    assert_eq!(off("DISABLE_KERNEL_MAPPING", "0"), None);
}

#[test]
fn values_that_cannot_be_read_are_named_and_secrets_are_not_shown() {
    let bad = [
        ("HF_HUB_DOWNLOAD_TIMEOUT", "soon"),
        ("HF_HUB_ETAG_TIMEOUT", "-1"),
        ("HF_ENDPOINT", "ftp://h"),
        ("HF_ENDPOINT", "https://me:hunter2@h"),
        ("HF_ENDPOINT", "h"),
        ("HF_TOKEN", "hunter2\u{e9}"),
        ("LOCAL_KERNELS", "a/b"),
        ("LOCAL_KERNELS", "a/b=/x:"),
        ("LOCAL_KERNELS", "../b=/x"),
    ];
    for (name, value) in bad {
        let error = read(&[(name, value)]).unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(matches!(error, FetchError::Environment { name: found, .. } if found == name), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
    let environment = read(&[("HF_TOKEN", " hf_hunter2\n")]).unwrap();
    let text = format!("{environment:?} {:?}", environment.variables());
    assert!(environment.token.is_some() && !text.contains("hunter2"), "{text}");
}

#[test]
fn every_variable_of_the_python_tools_is_listed_with_what_is_in_force() {
    let environment = read(&[
        ("HF_ENDPOINT", "http://127.0.0.1:8080/"),
        ("HF_HUB_ETAG_TIMEOUT", "3"),
        ("HOME", "/home/u"),
        ("LOCAL_KERNELS", "a/b=/x:c/d=y"),
    ])
    .unwrap();
    assert_eq!(environment.answer_timeout, Duration::from_secs(3));
    assert_eq!(environment.local_kernels.len(), 2);
    let effective =
        |name: &str| environment.variables().iter().find(|variable| variable.name == name).unwrap().effective.clone();
    assert_eq!(effective("HF_ENDPOINT"), "http://127.0.0.1:8080");
    assert_eq!(effective("HF_HUB_ETAG_TIMEOUT"), "3 s");
    assert_eq!(effective("HF_HUB_DOWNLOAD_TIMEOUT"), "10 s");
    assert_eq!(effective("HF_HUB_CACHE"), "/home/u/.cache/huggingface/hub");
    assert_eq!(effective("LOCAL_KERNELS"), "a/b=/x:c/d=y");
    assert_eq!(environment.variables().len(), 20);
    // A folder that another variable goes before is still the one that it is set to.
    let environment = read(&[
        ("HF_HOME", "/h"),
        ("XDG_CACHE_HOME", "/x/cache"),
        ("KERNELHUB_POLICY", "/p/policy.toml"),
        ("XDG_CONFIG_HOME", "/x/config"),
    ])
    .unwrap();
    let effective =
        |name: &str| environment.variables().iter().find(|variable| variable.name == name).unwrap().effective.clone();
    assert_eq!(effective("XDG_CACHE_HOME"), "/x/cache");
    assert_eq!(effective("XDG_CONFIG_HOME"), "/x/config");
    assert_eq!(effective("KERNELHUB_POLICY"), "/p/policy.toml");
}
