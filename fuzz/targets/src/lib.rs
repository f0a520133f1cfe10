//! The fuzz targets: each reads bytes that an attacker may choose, and checks what must hold whatever they are.
//!
//! A target panics where something does not hold; what it returns only tells apart what happened. libFuzzer runs the
//! same functions (`fuzz/`), and so does the runner of this crate, which needs no nightly compiler and has no coverage
//! to go by: it keeps inputs that made something new happen.

mod archives;
mod files;
mod seeds;
mod texts;
mod trust;

/// A parser of outside bytes.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    body: fn(&[u8]) -> String,
    seeds: fn() -> Vec<Vec<u8>>,
    /// Pieces that its format is made of.
    pub words: &'static [&'static str],
    /// The longest input worth trying, in bytes.
    pub longest: usize,
}

impl Target {
    /// Runs one input. The text tells apart what happened.
    ///
    /// # Panics
    /// Where something does not hold that must: that is what a target is for.
    #[expect(clippy::must_use_candidate, reason = "libFuzzer has no use for it")]
    pub fn run(&self, data: &[u8]) -> String {
        (self.body)(data)
    }

    /// Real inputs to start from.
    #[must_use]
    pub fn seeds(&self) -> Vec<Vec<u8>> {
        (self.seeds)()
    }
}

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

const JSON: &[&str] = &["{", "}", "[", "]", "\"", ":", ",", "null", "true", "1e9", "-0", "\\u0000", "\\ud800"];
const TOML: &[&str] = &["=", "[", "]", "[[", "]]", "\"", "'''", "\n", "{", "}", "#", "1_0", "inf", "1979-05-27"];

macro_rules! targets {
    ($($name:literal: $body:path, $seeds:path, $words:expr, $longest:expr;)*) => {
        &[$(Target { name: $name, body: $body, seeds: $seeds, words: $words, longest: $longest }),*]
    };
}

/// Every target.
pub const TARGETS: &[Target] = targets! {
    "variant": texts::variant, seeds::variants, &["torch", "-", "cxx11", "cu130", "x86_64", "linux", "wgsl-", "stable-abi"], 128;
    "builds": texts::builds, seeds::builds, &["#", "\n", "[", "]", "{", "}", "\"variant\":", "\"archs\":", "torch213-", "-cu130-", "x86_64-linux", "wgsl-"], 1 << 13;
    "system": texts::system, seeds::systems, JSON, 1 << 14;
    "names": texts::names, seeds::names, &["/", "..", "\\", "C:", "con", "\u{202e}", "@", "v1", "sha256:"], 600;
    "metadata": texts::metadata, seeds::metadata, JSON, 1 << 14;
    "layers": texts::layers, seeds::layers, TOML, 1 << 14;
    "manifest": texts::manifest, seeds::manifests, TOML, 1 << 14;
    "lock": texts::lock, seeds::locks, JSON, 1 << 14;
    "sidecar": texts::sidecar, seeds::sidecars, TOML, 1 << 14;
    "config": texts::config, seeds::configs, JSON, 1 << 14;
    "dependencies": texts::dependencies, seeds::dependencies, TOML, 1 << 14;
    "grid": texts::grid, seeds::grids, &["ceil(", ")", "/", "*", "rows", "1", "(", "+"], 256;
    "location": texts::location, seeds::locations, &["http://", "oci://", "file://", "@", ":", "%2e", "?", "#"], 512;
    "digests": texts::digests, seeds::digests, &["=", "sha256:", "0"], 256;
    "archive": archives::archive, seeds::archives, &["ustar", "path=", "././@LongLink"], 1 << 16;
    "bundle_stream": archives::bundle, seeds::archives, &["ustar", "path=", "index.json"], 1 << 16;
    "tree": texts::tree, seeds::trees, JSON, 1 << 14;
    "elf": files::elf, seeds::elfs, &["\x7fELF", "GLIBC_2.34", "$ORIGIN"], 1 << 16;
    "policy": trust::policy, seeds::policies, TOML, 1 << 14;
    "signature_bundle": trust::signature_bundle, seeds::signature_bundles, JSON, 1 << 15;
    "minisign": trust::minisign, seeds::minisigns, &["untrusted comment: ", "trusted comment: ", "RWQ", "RUQ", "\n", "="], 1 << 12;
    "linker_cache": files::linker_cache, seeds::linker_caches, &["glibc-ld.so.cache1.1", "libc.so.6"], 1 << 14;
};

/// What happened, without what differs between two inputs of the same kind: numbers and quoted texts.
fn kind(text: impl AsRef<str>) -> String {
    let mut kind = String::new();
    let mut quoted = false;
    for c in text.as_ref().chars().take(400) {
        if c == '"' || c == '`' {
            quoted = !quoted;
        }
        if !quoted && !c.is_ascii_digit() && kind.len() < 120 {
            kind.push(c);
        }
    }
    kind
}

/// What a parser said.
fn outcome<T, E: std::fmt::Display>(result: &Result<T, E>) -> String {
    match result {
        Ok(_) => "accepted".to_owned(),
        Err(error) => kind(error.to_string()),
    }
}

/// As [`outcome`], with the causes behind an error.
fn outcome_with_causes<T, E: std::error::Error>(result: &Result<T, E>) -> String {
    let Err(error) = result else { return "accepted".to_owned() };
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    kind(text)
}

#[cfg(test)]
mod tests {
    use super::TARGETS;

    #[test]
    fn every_target_takes_its_seeds_and_no_bytes_at_all() {
        for target in TARGETS {
            let seeds = target.seeds();
            assert!(!seeds.is_empty(), "{}", target.name);
            for seed in seeds.iter().chain([&Vec::new()]) {
                target.run(seed);
            }
        }
    }
}
