//! The parent's side.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{Read, Write as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::wire::{Answer, Request};
use super::{ProbeError, ProbeOptions, ProbeReport};
use crate::fetch::Snapshot;
use crate::load::Handshake;
use crate::verify::elf::ScanRules;

/// How much of what the child writes is kept, in bytes: its end.
const KEPT_BYTES: usize = 64 << 10;
/// How much of it an error shows, in bytes.
const SHOWN_BYTES: usize = 4 << 10;
/// How long the pipes may stay open after the child's end: a process that it started may hold them.
const PIPE_PATIENCE: Duration = Duration::from_secs(1);

/// Has a child process verify and load a build, and waits for its end.
///
/// # Errors
/// [`ProbeError::Crashed`] with the signal, [`ProbeError::Hung`] when the time limit is over, [`ProbeError::Exited`]
/// when the library ends the process, [`ProbeError::Refused`] for a build that the child refuses (not as published, not
/// fit for this machine, another interface version), [`ProbeError::Child`].
pub fn probe(snapshot: &Snapshot, rules: &ScanRules, options: &ProbeOptions) -> Result<ProbeReport, ProbeError> {
    let start = Instant::now();
    let failed = |action| {
        let program = options.command.program.clone();
        move |source| ProbeError::Child { action, program, source }
    };
    let mark = format!("kernelhub-probe-{:016x}:", RandomState::new().build_hasher().finish());
    let request = Request {
        mark: mark.clone(),
        snapshot: snapshot.into(),
        rules: *rules,
        time_limit: options.time_limit.as_secs().max(1),
    };
    let request = serde_json::to_vec(&request).map_err(|error| failed("ask")(error.into()))?;
    let mut command = Command::new(&options.command.program);
    command.args(&options.command.arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt as _;
        // So that what it starts can be ended with it.
        command.process_group(0);
    }
    let mut child = command.spawn().map_err(failed("start"))?;
    let (stdout, stderr) = (tail(child.stdout.take()), tail(child.stderr.take()));
    // A request fits into a pipe; a child that reads nothing has ended, which its status tells.
    let asked = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(&request));
    let status = wait(&mut child, start, options.time_limit).map_err(failed("wait for"))?;
    let read = |pipe: mpsc::Receiver<Vec<u8>>| pipe.recv_timeout(PIPE_PATIENCE).unwrap_or_default();
    let (stdout, stderr) = (read(stdout), read(stderr));
    let output = String::from_utf8_lossy(&stderr[stderr.len().saturating_sub(SHOWN_BYTES)..]).into_owned();
    let answer = answer(&stdout, &mark);
    let path = snapshot.root().to_path_buf();
    let loaded = matches!(answer, Some(Answer::Loaded { .. }));
    let Some(status) = status else {
        return Err(ProbeError::Hung { path, limit: options.time_limit, output });
    };
    if let Some(signal) = signal_of(status) {
        return Err(ProbeError::Crashed { path, signal, loaded, output });
    }
    match (answer, status.code().unwrap_or(-1)) {
        (Some(Answer::Loaded { handshake }), 0) => {
            let handshake = handshake.map(|name| if name == "pack" { Handshake::Pack } else { Handshake::VariantTag });
            Ok(ProbeReport { handshake, ms: start.elapsed().as_secs_f64() * 1e3 })
        }
        (Some(Answer::Refused { reason, violations }), 0) => Err(ProbeError::Refused { path, reason, violations }),
        (None, _) if asked.is_err() => asked.map_err(failed("ask")).and(Err(ProbeError::Exited {
            path,
            code: status.code().unwrap_or(-1),
            loaded,
            output,
        })),
        (_, code) => Err(ProbeError::Exited { path, code, loaded, output }),
    }
}

/// Waits for the child's end, at most until the limit is over; then it is killed, and there is no status.
fn wait(child: &mut Child, start: Instant, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let left = limit.saturating_sub(start.elapsed());
        if left.is_zero() {
            kill(child)?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn kill(child: &mut Child) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use rustix::process::{Pid, Signal, kill_process_group};
        // Its own group is all that it could not have left by accident; the child itself is killed below in any case.
        let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    }
    child.kill()
}

/// Reads a pipe to its end, so that nobody waits for room in it, and keeps the last of it.
fn tail(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        if let Some(mut pipe) = pipe {
            let mut buffer = vec![0; 8 << 10];
            while let Ok(read) = pipe.read(&mut buffer) {
                if read == 0 {
                    break;
                }
                kept.extend_from_slice(&buffer[..read]);
                let more = kept.len().saturating_sub(KEPT_BYTES);
                kept.drain(..more);
            }
        }
        // Nobody waits any more when this fails.
        let _ = sender.send(kept);
    });
    receiver
}

/// The last line with the mark.
fn answer(stdout: &[u8], mark: &str) -> Option<Answer> {
    let text = String::from_utf8_lossy(stdout);
    text.lines().rev().find_map(|line| serde_json::from_str(line.strip_prefix(mark)?).ok())
}

#[cfg(unix)]
fn signal_of(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal_of(_: ExitStatus) -> Option<i32> {
    None
}
