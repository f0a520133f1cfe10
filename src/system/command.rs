//! Vendors' commands, asked for what no file tells.
//!
//! A command is found by the `PATH` of the [`Environment`], started without a shell, given nothing to read, and held to
//! a time and to a size of its output: a driver that hangs takes its vendor's command with it.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::environment::Environment;

/// How long a command may take when its caller has no reason for another limit. Some load a driver first, which takes
/// seconds on a machine where nothing else uses the device.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(10);
/// The most that a command may write to its standard output, in bytes. A table of a few hundred devices is far below.
const MAX_OUTPUT: u64 = 256 << 10;
/// How much of its standard error is kept, in bytes. What comes after is read and dropped.
const MAX_ERRORS: u64 = 4 << 10;
/// How long a killed command is waited for. One that is stuck in its driver cannot be killed, and is left behind.
const KILL_PATIENCE: Duration = Duration::from_secs(1);

/// Why there is no output.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    /// No folder of `PATH` has it.
    #[error("{name} is in no folder of PATH")]
    NotFound {
        /// The command's name.
        name: String,
    },
    /// It was found, and the system would not start it, or its output could not be read.
    #[error("{} could not be run: {source}", path.display())]
    Run {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// It did not end in time, and was killed.
    #[error("{} was stopped: it took more than {} s", path.display(), limit.as_secs_f64())]
    TimedOut {
        /// The file.
        path: PathBuf,
        /// The time that it had.
        limit: Duration,
    },
    /// It wrote more than [`MAX_OUTPUT`], and was killed.
    #[error("{} was stopped: it wrote more than {MAX_OUTPUT} bytes", path.display())]
    TooMuch {
        /// The file.
        path: PathBuf,
    },
    /// It ended with an error.
    #[error("{} failed ({status}){}", path.display(), said(errors))]
    Failed {
        /// The file.
        path: PathBuf,
        /// How it ended.
        status: ExitStatus,
        /// The start of what it wrote to standard error.
        errors: String,
    },
}

fn said(errors: &str) -> String {
    match errors.trim() {
        "" => String::new(),
        errors => format!(": {}", super::printable(errors)),
    }
}

/// The standard output of a command, when it ends well within the limits. Bytes that are no UTF-8 are replaced.
///
/// The command gets this process's environment, with `LC_ALL=C`, so that numbers are written with a point.
///
/// # Errors
/// [`CommandError`], each kind when it says.
pub(super) fn run(
    environment: &Environment,
    name: &str,
    arguments: &[&str],
    limit: Duration,
) -> Result<String, CommandError> {
    let path = find(environment, name).ok_or_else(|| CommandError::NotFound { name: name.to_owned() })?;
    let failed = |source| CommandError::Run { path: path.clone(), source };
    let mut command = Command::new(&path);
    command.args(arguments).env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt as _;
        // So that what it starts can be ended with it.
        command.process_group(0);
    }
    let deadline = Instant::now() + limit;
    let mut child = command.spawn().map_err(failed)?;
    // One byte more than allowed, to tell a full output from one that was cut.
    let output = read(child.stdout.take(), MAX_OUTPUT + 1);
    let errors = read(child.stderr.take(), MAX_ERRORS);
    // The output first and the command's end after it: as long as nobody asked for its end, its number and that of its
    // group stay its own, and killing them hits nobody else.
    let Ok(output) = output.recv_timeout(deadline.saturating_duration_since(Instant::now())) else {
        kill(&mut child);
        return Err(CommandError::TimedOut { path, limit });
    };
    if output.len() as u64 > MAX_OUTPUT {
        kill(&mut child);
        return Err(CommandError::TooMuch { path });
    }
    match wait(&mut child, deadline).map_err(failed)? {
        None => {
            kill(&mut child);
            Err(CommandError::TimedOut { path, limit })
        }
        Some(status) if status.success() => Ok(String::from_utf8_lossy(&output).into_owned()),
        Some(status) => {
            // Another process may hold the pipe for as long as it likes.
            let errors = errors.recv_timeout(KILL_PATIENCE).unwrap_or_default();
            Err(CommandError::Failed { path, status, errors: String::from_utf8_lossy(&errors).into_owned() })
        }
    }
}

/// The first executable file of this name in `PATH`. Relative folders are passed by: they would let the working
/// directory decide what runs.
pub(super) fn find(environment: &Environment, name: &str) -> Option<PathBuf> {
    let folders = std::env::split_paths(environment.setting("PATH")?).collect::<Vec<_>>();
    let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    folders.iter().filter(|folder| folder.is_absolute()).map(|folder| folder.join(&file)).find(|path| {
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
        }
        #[cfg(not(unix))]
        path.is_file()
    })
}

/// Reads a pipe to its end, so that nobody waits for room in it, and hands over its start as soon as that is full or the
/// pipe is at its end.
fn read(pipe: Option<impl Read + Send + 'static>, keep: u64) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let Some(mut pipe) = pipe else { return };
        let mut kept = Vec::new();
        // A failed read leaves what came before it.
        let _ = pipe.by_ref().take(keep).read_to_end(&mut kept);
        // Nobody waits any more when this fails.
        let _ = sender.send(kept);
        let _ = std::io::copy(&mut pipe, &mut std::io::sink());
    });
    receiver
}

/// Waits for the end of a command; `None` when the time is over before it.
fn wait(child: &mut Child, deadline: Instant) -> std::io::Result<Option<ExitStatus>> {
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Ends a command that has not been waited for, and what it started.
fn kill(child: &mut Child) {
    #[cfg(unix)]
    {
        use rustix::process::{Pid, Signal, kill_process_group};
        // The command itself is killed below in any case.
        let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    }
    // Both fail for a command that has just ended, which is as good.
    let _ = child.kill();
    let _ = wait(child, Instant::now() + KILL_PATIENCE);
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::{CommandError, Environment, TIME_LIMIT, find, run};

    /// An environment whose `PATH` holds `sh` under the name of `tool`, and two folders before it that must not count:
    /// one that is relative, and one in which the file is no program.
    fn environment(folder: &Path) -> Environment {
        // A link and no file of our own: a file that was just written cannot be started while any thread forks.
        std::fs::create_dir(folder.join("relative")).unwrap();
        for name in ["tool", "relative/tool"] {
            std::os::unix::fs::symlink("/bin/sh", folder.join(name)).unwrap();
        }
        let up = std::env::current_dir().unwrap().components().map(|_| "../").collect::<String>();
        let relative = format!("{up}{}", folder.join("relative").strip_prefix("/").unwrap().display());
        assert!(Path::new(&relative).join("tool").exists());
        std::fs::create_dir(folder.join("first")).unwrap();
        std::fs::write(folder.join("first/tool"), "not executable").unwrap();
        let path = format!("{relative}:{0}/first:{0}", folder.display());
        let mut environment = Environment::default();
        environment.settings.insert("PATH".to_owned(), path);
        environment
    }

    #[test]
    fn a_command_is_found_by_the_given_path_alone_and_its_output_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let environment = environment(folder.path());
        assert_eq!(find(&environment, "tool"), Some(folder.path().join("tool")));
        let script = "echo \"$1 $LC_ALL\"; cat; echo noise >&2";
        let output = run(&environment, "tool", &["-c", script, "sh", "a b"], TIME_LIMIT).unwrap();
        assert_eq!(output, "a b C\n");
        for environment in [&environment, &Environment::default()] {
            let error = run(environment, "sh", &[], TIME_LIMIT).unwrap_err();
            assert!(matches!(&error, CommandError::NotFound { name } if name == "sh"), "{error}");
        }
    }

    #[test]
    fn a_failure_is_told_with_what_the_command_said() {
        let folder = tempfile::tempdir().unwrap();
        let error = run(&environment(folder.path()), "tool", &["-c", "echo 'no\x1b driver' >&2; exit 9"], TIME_LIMIT)
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("failed (exit status: 9): no\\u{1b} driver"), "{error}");
    }

    #[test]
    fn a_command_that_hangs_is_ended_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let environment = environment(folder.path());
        // The first holds the pipe by a process of its own, the second has closed its own ends.
        for script in ["sleep 60 & echo $! >&2; wait", "exec >&- 2>&-; sleep 60"] {
            let start = Instant::now();
            let error = run(&environment, "tool", &["-c", script], Duration::from_millis(200)).unwrap_err();
            assert!(matches!(error, CommandError::TimedOut { .. }), "{error}");
            assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        }
    }

    #[test]
    fn a_command_that_never_stops_writing_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let environment = environment(folder.path());
        let error = run(&environment, "tool", &["-c", "while :; do echo 0123456789; done"], TIME_LIMIT).unwrap_err();
        assert!(matches!(error, CommandError::TooMuch { .. }), "{error}");
        // Standard error is drained, so that a command with much of it comes to its end.
        let script = "i=0; while [ $i -lt 20000 ]; do echo 0123456789 >&2; i=$((i+1)); done; echo done";
        assert_eq!(run(&environment, "tool", &["-c", script], TIME_LIMIT).unwrap(), "done\n");
    }
}
