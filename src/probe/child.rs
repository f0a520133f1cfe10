//! The child's side.

use std::io::{self, Read as _, Write as _};

use super::wire::{Answer, MAX_REQUEST_BYTES, Request};
use crate::fetch::{Anchor, Snapshot};
use crate::hint::with_causes;
use crate::load::{Handshake, KernelLibrary};
use crate::policy::{Admission, DEFAULT_ENDPOINT, Origin};
use crate::variant::Variant;
use crate::verify::{VerifyOptions, verify_with};

/// Answers the one request on standard input: verifies a build, loads its library and shakes hands with it. The result
/// is the exit code: 0 when it answered, 1 when it was not asked in a way that it knows.
///
/// For a process that does nothing else: it takes limits on itself (no core dump, a limit on processor time), and ends
/// when its parent does.
#[must_use]
pub fn serve() -> u8 {
    let mut text = Vec::new();
    let read = io::stdin().lock().take(MAX_REQUEST_BYTES).read_to_end(&mut text);
    let Ok(request) = read.map_err(|_| ()).and_then(|_| serde_json::from_slice::<Request>(&text).map_err(|_| ()))
    else {
        return 1;
    };
    limit(request.time_limit);
    let answer = answer(&request);
    let Ok(text) = serde_json::to_string(&answer) else { return 1 };
    // A line of its own, whatever the library wrote before it.
    let written = writeln!(io::stdout().lock(), "\n{}{text}", request.mark).and_then(|()| io::stdout().flush());
    u8::from(written.is_err())
}

fn answer(request: &Request) -> Answer {
    let refused = |reason: &dyn std::error::Error, violations: &[crate::digest::Violation]| Answer::Refused {
        reason: with_causes(reason),
        violations: violations.to_vec(),
    };
    let snapshot: Snapshot = request.snapshot.clone().into();
    let admission = Admission::of_parent(snapshot.repo().clone(), origin(&snapshot));
    let verified = match verify_with(&snapshot, &admission, &VerifyOptions::default().rules(request.rules)) {
        Ok(verified) => verified,
        Err(error) => return refused(&error, error.violations()),
    };
    if matches!(verified.variant(), Variant::Shader(_)) {
        return Answer::Loaded { handshake: None };
    }
    match KernelLibrary::open(&verified) {
        Ok(library) => {
            let handshake = match library.handshake() {
                Handshake::Pack => "pack",
                Handshake::VariantTag => "variant-tag",
            };
            Answer::Loaded { handshake: Some(handshake.to_owned()) }
        }
        Err(error) => refused(&error, error.violations()),
    }
}

/// The kind of place that a build is from.
fn origin(snapshot: &Snapshot) -> Origin {
    match snapshot.anchor() {
        // Which Hub that was, the parent knows; nothing is fetched here.
        Anchor::Hub { .. } => {
            Origin::Hub { endpoint: DEFAULT_ENDPOINT.parse().expect("internal: the constant is an address") }
        }
        Anchor::Archive { .. } => Origin::Archive,
        Anchor::Local => Origin::Local { folder: snapshot.root().to_path_buf() },
    }
}

/// Limits on this process. Where the system has none of them, the parent's time limit is left.
#[cfg(unix)]
fn limit(seconds: u64) {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let at_most = |maximum| Rlimit { current: Some(maximum), maximum: Some(maximum) };
    // A core dump would hold what the process inherited, and take long to write.
    let _ = setrlimit(Resource::Core, at_most(0));
    // Of all threads together; the parent's clock runs out first unless the library keeps several processors busy.
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let _ = setrlimit(Resource::Cpu, at_most(seconds.saturating_add(1).saturating_mul(processors)));
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}

#[cfg(not(unix))]
fn limit(_: u64) {}
