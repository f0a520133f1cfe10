//! Every form of a configuration that the documentation shows, and what it means.

use std::fmt::Write as _;

use kernelhub::swap::KernelConfig;

const PAGE: &str = include_str!("../../../docs/kernel-config.md");

/// The examples of the page: the heading that each stands under, its language and its text.
fn examples() -> Vec<(&'static str, &'static str, String)> {
    let (mut heading, mut open, mut examples) = ("", None, Vec::new());
    for line in PAGE.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(language), None) => open = Some((language, String::new())),
            (Some(_), Some(_)) => {
                let (language, text) = open.take().unwrap();
                examples.push((heading, language, text));
            }
            (None, Some((_, text))) => writeln!(text, "{line}").unwrap(),
            (None, None) => heading = line.strip_prefix("## ").unwrap_or(heading),
        }
    }
    assert!(open.is_none(), "an example has no end");
    examples
}

#[test]
fn every_example_of_the_page_means_what_it_says() {
    let mut page = String::new();
    let mut read = 0;
    for (heading, language, text) in examples() {
        let config = match language {
            "toml" => KernelConfig::from_toml(&text, heading).unwrap(),
            "json" => KernelConfig::from_json(&text, heading).unwrap(),
            _ => continue,
        };
        read += 1;
        assert_eq!(KernelConfig::from_toml(&config.to_toml(), heading).unwrap(), config, "{heading}");
        writeln!(page, "## {heading} ({language})\n{}", config.to_toml()).unwrap();
    }
    assert_eq!(read, 15);
    insta::assert_snapshot!(page);
}
