//! Results against what the formula gives.

use super::number::Number;
use super::sample::{Noise, Written};
use super::{ParityError, ParityReport};
use crate::bind::{BindError, LayerMeta, Rounding, Tolerance};
use crate::dtype::DType;

/// How much the `f32` work before an intermediate rounding may move what is rounded, relative to it.
const NUDGE: f64 = 2e-6;

/// What one element may be, before its tolerance. Both ends are equal but where a value is rounded on its way, and lies
/// so close to the middle between two numbers that work in `f32` may take either.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    low: f64,
    high: f64,
}

impl Bounds {
    pub(super) fn exact(value: f64) -> Self {
        Self { low: value, high: value }
    }

    /// All values that `steps` gives when each of two intermediate values is moved by as much as `f32` may: it
    /// multiplies them by the numbers that it is given, before it rounds them.
    pub(super) fn of(steps: impl Fn([f64; 2]) -> f64) -> Self {
        let nudges = [1.0 - NUDGE, 1.0, 1.0 + NUDGE];
        let values = nudges.into_iter().flat_map(|first| nudges.map(|second| steps([first, second])));
        let start = Self { low: f64::INFINITY, high: f64::NEG_INFINITY };
        values.fold(start, |all, value| Self { low: all.low.min(value), high: all.high.max(value) })
    }

    /// The distance from the nearer end and what is allowed there.
    fn distance(self, actual: f64, dtype: DType, tolerance: &Tolerance) -> (f64, f64, f64) {
        let expected = actual.clamp(self.low, self.high);
        // A NaN stays one through the clamp; the formula has none.
        let expected = if expected.is_nan() { self.low } else { expected };
        ((actual - expected).abs(), tolerance.allowed(dtype, expected), expected)
    }
}

/// Exact values as bounds.
pub(super) fn exact(values: impl IntoIterator<Item = f64>) -> Vec<Bounds> {
    values.into_iter().map(Bounds::exact).collect()
}

/// What a kernel may compute instead of what it should: the words for it, and the results.
pub(super) type Instead = (String, Vec<Bounds>);

/// One call, for messages and tolerances.
#[derive(Debug)]
pub(super) struct Case {
    /// The pass, the layout and the options.
    pub(super) name: String,
    pub(super) output: &'static str,
    pub(super) is_backward: bool,
}

impl Case {
    pub(super) fn forward(name: &str) -> Self {
        Self { name: format!("forward, {name}"), output: "out", is_backward: false }
    }

    pub(super) fn backward(name: &str, output: &'static str) -> Self {
        Self { name: format!("backward, {name}"), output, is_backward: true }
    }

    pub(super) fn of_output(&self, output: &'static str) -> Self {
        Self { name: self.name.clone(), output, is_backward: self.is_backward }
    }
}

/// Runs the cases of one kernel and keeps count.
#[derive(Debug)]
pub(super) struct Checker<'a> {
    pub(super) meta: &'a LayerMeta,
    pub(super) noise: Noise,
    report: ParityReport,
}

impl<'a> Checker<'a> {
    pub(super) fn new(meta: &'a LayerMeta) -> Self {
        let report = ParityReport { calls: 0, worst: 0.0, dtypes: Vec::new(), skipped: Vec::new() };
        Self { meta, noise: Noise::new(20_25), report }
    }

    pub(super) fn rounding(&self) -> Rounding {
        self.meta.identity.rounding
    }

    pub(super) fn skip(&mut self, reason: String) {
        self.report.skipped.push(reason);
    }

    pub(super) fn tried(&mut self, dtype: DType) {
        self.report.dtypes.push(dtype);
    }

    pub(super) fn finish(self) -> Result<ParityReport, ParityError> {
        if self.report.calls > 0 {
            return Ok(self.report);
        }
        let mut reasons = self.report.skipped;
        if reasons.is_empty() {
            reasons.push("no width that the check tries is within the kernel's limits".to_owned());
        }
        let (kernel, contract) = (self.meta.identity.to_string(), self.meta.contract.as_str());
        Err(ParityError::NoCase { kernel, contract, reasons })
    }

    /// The elements that a call wrote, for inputs of `T`.
    pub(super) fn written<T: Number, O>(
        &self,
        case: &Case,
        outcome: Result<Written<O>, BindError>,
    ) -> Result<Vec<O>, ParityError> {
        let (kernel, contract) = (self.meta.identity.to_string(), self.meta.contract.as_str());
        let (dtype, name) = (T::DTYPE, case.name.clone());
        match outcome {
            Ok(Some(elements)) => Ok(elements),
            Ok(None) => Err(ParityError::Outside { kernel, contract, dtype, case: name, output: case.output }),
            Err(source) => Err(ParityError::Call { kernel, contract, dtype, case: name, source: Box::new(source) }),
        }
    }

    /// Holds the output of a call on inputs of `T` to what it should be. `instead` says what else a faulty kernel may
    /// have computed; it is asked only when the results are wrong.
    pub(super) fn compare<T: Number, O: Number>(
        &mut self,
        case: &Case,
        actual: &[O],
        expected: &[Bounds],
        instead: impl FnOnce() -> Vec<Instead>,
    ) -> Result<(), ParityError> {
        let tolerance = Tolerance::of(self.meta.contract, O::DTYPE, self.rounding(), case.is_backward);
        let outcome = distances(actual, expected, &tolerance);
        if outcome.wrong == 0 {
            self.report.calls += 1;
            self.report.worst = self.report.worst.max(outcome.worst);
            return Ok(());
        }
        let fits = |(words, expected): Instead| (distances(actual, &expected, &tolerance).wrong == 0).then_some(words);
        let explanation = instead().into_iter().find_map(fits);
        let at = outcome.at;
        let element = actual.get(at).map_or(f64::NAN, |value| value.wide());
        let bounds = expected.get(at).copied().unwrap_or(Bounds::exact(f64::NAN));
        let (error, allowed, nearest) = bounds.distance(element, O::DTYPE, &tolerance);
        Err(ParityError::Mismatch {
            kernel: self.meta.identity.to_string(),
            contract: self.meta.contract.as_str(),
            dtype: T::DTYPE,
            case: case.name.clone(),
            output: case.output,
            element: at,
            expected: nearest,
            actual: element,
            error,
            allowed,
            wrong: outcome.wrong,
            total: expected.len(),
            explanation,
        })
    }
}

struct Distances {
    /// The largest error as a part of what is allowed, and where it is.
    worst: f64,
    at: usize,
    wrong: usize,
}

fn distances<O: Number>(actual: &[O], expected: &[Bounds], tolerance: &Tolerance) -> Distances {
    let missing = actual.len().abs_diff(expected.len());
    let mut all = Distances { worst: 0.0, at: 0, wrong: missing };
    for (at, (actual, bounds)) in actual.iter().zip(expected).enumerate() {
        let (error, allowed, _) = bounds.distance(actual.wide(), O::DTYPE, tolerance);
        let part = match (error == 0.0, error.is_nan()) {
            (true, _) => 0.0,
            (false, true) => f64::INFINITY,
            (false, false) => error / allowed,
        };
        if part > 1.0 {
            all.wrong += 1;
        }
        if part > all.worst {
            (all.worst, all.at) = (part, at);
        }
    }
    all
}
