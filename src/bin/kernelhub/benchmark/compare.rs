//! A run beside an earlier one.
//!
//! The same machine is not as fast every day. The reference code, which is the same in both runs, tells: where it
//! changed as the kernel did, the machine changed, and nothing is said of the kernel.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::error::BenchmarkError;
use super::report::{Case, Report};
use super::statistics::Speedup;

/// The least change that is told, as a part of the earlier time.
const THRESHOLD: f64 = 0.05;

/// One case in both runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Change {
    pub(crate) layer: String,
    pub(crate) shape: String,
    pub(crate) dtype: String,
    pub(crate) before_us: f64,
    pub(crate) now_us: f64,
    /// The earlier median over this one: above 1 the kernel is faster now.
    pub(crate) kernel: Speedup,
    /// The same of the reference code.
    pub(crate) reference: Speedup,
    pub(crate) verdict: Verdict,
}

/// What became of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// Faster, significantly and by more than 5%.
    Improvement,
    /// Slower, significantly and by more than 5%.
    Regression,
    /// Neither.
    Unchanged,
    /// The kernel changed, and the reference code at least half as much in the same direction.
    Machine,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Improvement => "improvement",
            Self::Regression => "regression",
            Self::Unchanged => "unchanged",
            Self::Machine => "unclear: the reference changed as well",
        })
    }
}

/// A comparison of two runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Comparison {
    pub(crate) changes: Vec<Change>,
    /// Cases that only one of the runs has.
    pub(crate) only_before: Vec<String>,
    pub(crate) only_now: Vec<String>,
    /// What else differs between the runs, a sentence each.
    pub(crate) notes: Vec<String>,
}

impl Comparison {
    /// `now` beside the run that `path` holds.
    pub(crate) fn new(before: &Report, path: &Path, now: &Report) -> Result<Self, BenchmarkError> {
        let same = |a: &Case, b: &Case| a.layer == b.layer && a.shape == b.shape && a.dtype == b.dtype;
        let earlier = |case: &&Case| before.results.iter().find(|other| same(case, other));
        let changes: Vec<Change> = now.results.iter().filter_map(|case| Some(change(earlier(&case)?, case))).collect();
        if changes.is_empty() {
            let what = format!("{} at a shape and in a dtype of this run", now.kernel.repo);
            return Err(BenchmarkError::NothingInCommon { path: path.to_path_buf(), what });
        }
        let is_new = |case: &&Case| earlier(case).is_none();
        let is_gone = |case: &&Case| !now.results.iter().any(|other| same(case, other));
        Ok(Self {
            changes,
            only_before: before.results.iter().filter(is_gone).map(Case::name).collect(),
            only_now: now.results.iter().filter(is_new).map(Case::name).collect(),
            notes: notes(before, now),
        })
    }

    pub(crate) fn count(&self, verdict: Verdict) -> usize {
        self.changes.iter().filter(|change| change.verdict == verdict).count()
    }
}

fn change(before: &Case, now: &Case) -> Change {
    let kernel = Speedup::new(&now.kernel, &before.kernel);
    let reference = Speedup::new(&now.reference, &before.reference);
    Change {
        layer: now.layer.clone(),
        shape: now.shape.clone(),
        dtype: now.dtype.to_string(),
        before_us: before.kernel.median_us,
        now_us: now.kernel.median_us,
        verdict: judge(&kernel, &reference),
        kernel,
        reference,
    }
}

fn judge(kernel: &Speedup, reference: &Speedup) -> Verdict {
    let change = kernel.ratio.ln();
    if !kernel.significant || change.abs() < (1.0 + THRESHOLD).ln() {
        return Verdict::Unchanged;
    }
    let of_reference = reference.ratio.ln();
    if reference.significant && of_reference * change.signum() > change.abs() / 2.0 {
        return Verdict::Machine;
    }
    if change > 0.0 { Verdict::Improvement } else { Verdict::Regression }
}

fn notes(before: &Report, now: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    let mut differ = |what: &str, before: &str, now: &str| {
        if before != now {
            notes.push(format!("{what}: {before} before, {now} now"));
        }
    };
    let of = |report: &Report| {
        let (machine, settings) = (&report.machine, &report.settings);
        let memory = if settings.kept_memory { "kept" } else { "given back" };
        [
            ("kernel", report.kernel.name()),
            ("build", report.kernel.variant.clone()),
            ("device", report.device.to_string()),
            ("processor", machine.cpu.clone().unwrap_or_else(|| "unknown".to_owned())),
            ("threads", settings.threads.to_string()),
            ("freed memory", memory.to_owned()),
            ("reference", report.reference.words()),
        ]
    };
    for ((what, before), (_, now)) in of(before).into_iter().zip(of(now)) {
        differ(what, &before, &now);
    }
    notes
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::report::tests::example;
    use super::super::statistics::Summary;
    use super::{Comparison, Verdict};
    use crate::benchmark::error::BenchmarkError;
    use crate::benchmark::report::Report;

    fn times(middle: f64) -> Summary {
        Summary::new((0..30).map(|at| middle * (1.0 + 0.02 * f64::from(at * 7 % 30) / 30.0)).collect(), 1)
    }

    fn run(kernel: f64, reference: f64) -> Report {
        let mut report = example();
        report.results[0].kernel = times(kernel);
        report.results[0].reference = times(reference);
        report
    }

    fn verdict(before: &Report, now: &Report) -> Verdict {
        Comparison::new(before, Path::new("before.json"), now).unwrap().changes[0].verdict
    }

    #[test]
    fn changes_are_told_from_noise_and_from_the_machine() {
        let before = run(10.0, 100.0);
        assert_eq!(verdict(&before, &run(5.0, 100.0)), Verdict::Improvement);
        assert_eq!(verdict(&before, &run(12.0, 100.0)), Verdict::Regression);
        assert_eq!(verdict(&before, &run(12.0, 80.0)), Verdict::Regression, "the reference went the other way");
        assert_eq!(verdict(&before, &run(12.0, 104.0)), Verdict::Regression, "the reference hardly moved");
        assert_eq!(verdict(&before, &run(12.0, 120.0)), Verdict::Machine);
        assert_eq!(verdict(&before, &run(8.0, 75.0)), Verdict::Machine);
        assert_eq!(verdict(&before, &run(10.3, 100.0)), Verdict::Unchanged, "significant and small");
        assert_eq!(verdict(&before, &before), Verdict::Unchanged);
    }

    #[test]
    fn what_only_one_run_has_is_named() {
        let (mut before, mut now) = (run(10.0, 100.0), run(10.0, 100.0));
        let mut other = before.results[0].clone();
        other.shape = "7x7".to_owned();
        before.results.push(other.clone());
        other.shape = "8x8".to_owned();
        now.results.push(other);
        now.settings.threads = 7;
        let comparison = Comparison::new(&before, Path::new("before.json"), &now).unwrap();
        assert_eq!(comparison.only_before, ["RMSNorm 7x7 f32"]);
        assert_eq!(comparison.only_now, ["RMSNorm 8x8 f32"]);
        assert_eq!(comparison.notes, ["threads: 2 before, 7 now"]);
        before.results.remove(0);
        now.results.remove(1);
        let nothing = Comparison::new(&before, Path::new("before.json"), &now);
        assert!(matches!(nothing, Err(BenchmarkError::NothingInCommon { .. })), "{nothing:?}");
    }
}
