//! The commands that the README and the pages of `docs/` show.
//!
//! Rust snippets are doctests, and tables of configurations and policies are read by the tests of their rooms. Here every
//! command line is held to the program's own help, and those of docs/resolution.md are run, with what they print.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::commands::Machine;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = docs.filter(|path| path.extension().is_some_and(|ending| ending == "md")).collect();
    pages.push(root().join("README.md"));
    pages.sort();
    pages
}

/// A fenced block: its language, its text, and the last line before it.
struct Block {
    language: String,
    text: String,
    before: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let (mut blocks, mut open, mut before) = (Vec::new(), None::<Block>, String::new());
    for line in page.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => {
                blocks.extend(open.take());
                before.clear();
            }
            (Some(language), None) => {
                open = Some(Block { language: language.to_owned(), text: String::new(), before: before.clone() });
            }
            (None, Some(block)) => block.text = format!("{}{line}\n", block.text),
            (None, None) if !line.trim().is_empty() => line.clone_into(&mut before),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block without an end");
    blocks
}

/// The words of `kernelhub` commands in a line of a shell, without its name; several where `&&` joins them.
fn program_calls(line: &str) -> Vec<Vec<String>> {
    let line = line.trim().trim_start_matches("$ ");
    let line = line.split(" #").next().unwrap_or_default();
    let commands = line.split("&&").map(str::trim);
    let of_program = commands.filter_map(|command| {
        ["kernelhub ", "cargo run --release -- ", "cargo run --release --features oci -- "]
            .iter()
            .find_map(|start| command.strip_prefix(start))
    });
    of_program.map(|words| words.split_whitespace().map(str::to_owned).collect()).collect()
}

fn help(command: &str) -> Option<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_kernelhub")).args([command, "--help"]).output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

/// Whether a help text has this option, with `--cache` not taken for `--cache-dir`.
fn has_option(help: &str, option: &str) -> bool {
    help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).any(|word| word == option)
}

#[test]
fn f59_every_command_that_the_pages_show_has_the_options_they_show() {
    let mut helps: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut lines = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        // Commands in blocks, and in a sentence between backticks.
        let shells = ["console", "sh", ""];
        let in_blocks: Vec<String> = blocks(&text)
            .into_iter()
            .filter(|block| shells.contains(&block.language.as_str()))
            .flat_map(|block| block.text.lines().map(str::to_owned).collect::<Vec<_>>())
            .collect();
        let in_words = text.split('`').filter(|words| words.starts_with("kernelhub ") && !words.contains('\n'));
        for line in in_blocks.into_iter().chain(in_words.map(str::to_owned)) {
            for words in program_calls(&line) {
                let (command, rest) = words.split_first().unwrap();
                if command.starts_with('-') {
                    continue;
                }
                lines += 1;
                let help = helps.entry(command.clone()).or_insert_with(|| help(command));
                let help = help.as_ref().unwrap_or_else(|| panic!("{}: no command {command}: {line}", page.display()));
                let mut helps_of = help.clone();
                // `cache ls` and `trust publisher` have options of their own.
                for sub in rest.iter().filter(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '-')).take(1) {
                    let output =
                        Command::new(env!("CARGO_BIN_EXE_kernelhub")).args([command, sub, "--help"]).output().unwrap();
                    helps_of.push_str(&String::from_utf8_lossy(&output.stdout));
                }
                for option in rest.iter().flat_map(|word| word.split(['[', ']', '|'])) {
                    let option = option.split('=').next().unwrap_or_default().trim_end_matches([',', '.', ';']);
                    if option.starts_with("--") && option.len() > 2 {
                        assert!(has_option(&helps_of, option), "{}: {option} of {line}", page.display());
                    }
                }
            }
        }
    }
    assert!(lines > 20, "{lines} command lines found");
}

/// The files that a page shows are written, its commands run beside them, and what they print is what it shows.
#[test]
fn f59_the_page_about_resolution_shows_what_its_commands_print() {
    let path = root().join("docs/resolution.md");
    let page = fs::read_to_string(&path).unwrap();
    let machine = Machine::new();
    let mut shown = String::new();
    for block in blocks(&page) {
        if let Some(name) = block.before.strip_prefix('`').and_then(|line| line.strip_suffix("`:")) {
            fs::write(machine.project().join(name), &block.text).unwrap();
        }
        if block.language == "console" {
            shown.push_str(&block.text);
        }
    }
    let mut printed = String::new();
    for line in shown.lines().filter(|line| line.starts_with("$ ")) {
        let calls = program_calls(line);
        assert_eq!(calls.len(), 1, "{line}");
        let arguments: Vec<&str> = calls[0].iter().map(String::as_str).collect();
        let output = machine.run(&arguments);
        let text = [output.stdout, output.stderr].concat();
        printed.extend([line, "\n", std::str::from_utf8(&text).unwrap()]);
    }
    assert!(printed.contains("error: none of"), "a failure is shown, too");
    if std::env::var_os("KERNELHUB_WRITE_PAGES").is_some() {
        fs::write(&path, page.replace(&shown, &printed)).unwrap();
        return;
    }
    assert_eq!(shown, printed, "run this test with KERNELHUB_WRITE_PAGES=1 and read what it changes");
}

/// The described machines of the page are shown as the command shows them.
#[test]
fn f59_the_page_about_devices_shows_what_its_commands_print() {
    let path = root().join("docs/devices.md");
    let page = fs::read_to_string(&path).unwrap();
    let machine = Machine::new();
    let mut renewed = page.clone();
    let mut compared = 0;
    for block in blocks(&page).iter().filter(|block| block.language == "console") {
        let line = block.text.lines().next().unwrap();
        let mut arguments = program_calls(line).remove(0);
        for argument in &mut arguments {
            if argument.starts_with("tests/") {
                *argument = root().join(&*argument).display().to_string();
            }
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = machine.run(&arguments);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        let printed = format!("{line}\n{}", String::from_utf8(output.stdout).unwrap());
        renewed = renewed.replace(&block.text, &printed);
        compared += 1;
    }
    assert_eq!(compared, 4, "as many machines are described");
    if std::env::var_os("KERNELHUB_WRITE_PAGES").is_some() {
        fs::write(&path, renewed).unwrap();
        return;
    }
    assert_eq!(page, renewed, "run this test with KERNELHUB_WRITE_PAGES=1 and read what it changes");
}
