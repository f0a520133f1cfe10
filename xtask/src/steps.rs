//! What the steps of a long command took.

use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

/// The steps of one command, timed from one to the next.
#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<Step>,
    /// The one that runs, since when, and the processor time of everything that ended before it.
    running: Option<(&'static str, Instant, Option<Duration>)>,
}

struct Step {
    name: &'static str,
    wall: Duration,
    /// Of the programs that it ran, all threads together. `None` where the system doesn't tell.
    processor: Option<Duration>,
}

impl Steps {
    /// Ends the step before, and announces this one.
    pub(crate) fn begin(&mut self, name: &'static str) {
        self.end();
        println!("\n== {name} ==");
        self.running = Some((name, Instant::now(), children_time()));
    }

    fn end(&mut self) {
        if let Some((name, start, before)) = self.running.take() {
            let processor = children_time().zip(before).map(|(now, before)| now.saturating_sub(before));
            self.done.push(Step { name, wall: start.elapsed(), processor });
        }
    }

    /// Ends the last step, and prints all of them.
    pub(crate) fn finish(&mut self) {
        self.end();
        println!("\n{}", self.table());
    }

    fn table(&self) -> String {
        let width = self.done.iter().map(|step| step.name.len()).max().unwrap_or(0);
        let mut table = format!("{:width$}  {:>8}  {:>13}\n", "step", "wall (s)", "processor (s)");
        let mut line = |name: &str, wall: Duration, processor: Option<Duration>| {
            let processor = processor.map_or_else(|| "?".to_owned(), |time| format!("{:.1}", time.as_secs_f64()));
            let _ = writeln!(table, "{name:width$}  {:>8.1}  {processor:>13}", wall.as_secs_f64());
        };
        for step in &self.done {
            line(step.name, step.wall, step.processor);
        }
        let wall = self.done.iter().map(|step| step.wall).sum();
        line("all", wall, self.done.iter().map(|step| step.processor).sum());
        table
    }
}

/// The processor time, user and system, of all programs that this one has run and waited for, and of theirs in turn.
/// Linux alone tells it without a C call.
fn children_time() -> Option<Duration> {
    /// The kernel counts for programs in hundredths of a second, whatever its own tick is (`USER_HZ`, on the processors
    /// that Rust has as first-tier hosts).
    const TICK: Duration = Duration::from_millis(10);
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let ticks: u32 = child_ticks(&stat)?;
    Some(TICK * ticks)
}

/// `cutime` + `cstime` of `proc_pid_stat(5)`, the fields 16 and 17. The second field, the program's name in brackets, may
/// hold spaces and brackets of its own.
fn child_ticks(stat: &str) -> Option<u32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(13);
    let mut next = || fields.next()?.parse::<u32>().ok();
    next()?.checked_add(next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_children_are_read_behind_any_name() {
        let stat = "42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 130 7 20 0 1 0 99";
        assert_eq!(child_ticks(stat), Some(137));
        assert_eq!(child_ticks("42 (name) S 1 2"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_program_that_was_waited_for_is_counted() {
        let before = children_time().expect("Linux tells it");
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(std::process::Command::new("sh").args(["-c", busy]).status().unwrap().success());
        assert!(children_time().unwrap() > before);
    }

    #[test]
    fn every_step_has_a_line() {
        let mut steps = Steps::default();
        steps.begin("first");
        steps.begin("the second");
        steps.end();
        let table = steps.table();
        let names: Vec<&str> = table.lines().map(|line| line.split("  ").next().unwrap().trim_end()).collect();
        assert_eq!(names, ["step", "first", "the second", "all"]);
    }
}
