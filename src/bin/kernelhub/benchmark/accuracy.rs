//! Whether a kernel's results are the reference's.
//!
//! The expected values are those of candle's operations on the same inputs in f32, whatever the dtype of the kernel, so
//! that the reference's own roundings don't count. An element may be off by a part of its expected value, which is the
//! rounding to the dtype, and by a part of the root mean square of all expected values, which is the work in f32, where
//! terms of that size cancel out.

use candle_core::{DType, Result, Tensor};
use serde::{Deserialize, Serialize};

/// The outcome of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Match {
    /// Whether every element is within its tolerance.
    pub(crate) passed: bool,
    /// The largest distance between an element and its expected value; null when there is one that is not a number.
    pub(crate) max_error: Option<f64>,
    /// Elements outside of their tolerance, of all.
    pub(crate) wrong: usize,
    pub(crate) elements: usize,
    /// What an element may be off by: this part of its expected value ...
    pub(crate) relative: f64,
    /// ... and this much, whatever its value.
    pub(crate) absolute: f64,
}

impl Match {
    /// Of both outputs together, where there are two.
    pub(crate) fn and(&self, other: &Self) -> Self {
        Self {
            passed: self.passed && other.passed,
            max_error: self.max_error.zip(other.max_error).map(|(a, b)| a.max(b)),
            wrong: self.wrong + other.wrong,
            elements: self.elements + other.elements,
            relative: self.relative,
            absolute: self.absolute.max(other.absolute),
        }
    }
}

/// The part of an expected value, and of the root mean square, that an element may be off by. Of narrow types, one unit
/// in the last place and half of one.
fn parts(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::BF16 => (1.0 / 128.0, 1.0 / 512.0),
        DType::F16 => (1.0 / 1024.0, 1.0 / 2048.0),
        _ => (1e-5, 5e-5),
    }
}

/// `actual`, computed in `dtype`, against `expected` in f32.
pub(crate) fn compare(actual: &Tensor, expected: &Tensor, dtype: DType) -> Result<Match> {
    let numbers = |tensor: &Tensor| tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>();
    Ok(judge(&numbers(actual)?, &numbers(expected)?, parts(dtype)))
}

fn judge(actual: &[f32], expected: &[f32], (relative, part): (f64, f64)) -> Match {
    let finite = expected.iter().filter(|value| value.is_finite());
    let squares: f64 = finite.map(|value| f64::from(*value).powi(2)).sum();
    let absolute = part * (squares / expected.len().max(1) as f64).sqrt();
    let mut wrong = actual.len().abs_diff(expected.len());
    let mut max_error = Some(0.0_f64);
    for (actual, expected) in actual.iter().zip(expected) {
        // Infinities that agree are no error.
        let error =
            if actual.to_bits() == expected.to_bits() { 0.0 } else { f64::from(*actual) - f64::from(*expected) };
        max_error = max_error.filter(|_| error.is_finite()).map(|max| max.max(error.abs()));
        // A NaN is within nothing.
        let is_within = error.abs() <= relative * f64::from(*expected).abs() + absolute;
        wrong += usize::from(!is_within);
    }
    Match { passed: wrong == 0, max_error, wrong, elements: expected.len(), relative, absolute }
}

#[cfg(test)]
mod tests {
    use super::judge;

    #[test]
    fn an_element_beyond_its_tolerance_is_wrong() {
        // The root mean square is 2, so that 0.02 is allowed and 1% of the value.
        let expected = [2.0_f32, -2.0, 2.0, -2.0];
        let of = |actual: &[f32]| judge(actual, &expected, (0.01, 0.01));
        assert!(of(&expected).passed);
        let near = of(&[2.03, -2.0, 2.0, -2.0]);
        assert!(near.passed && (near.max_error.unwrap() - 0.03).abs() < 1e-6, "{near:?}");
        let far = of(&[2.05, -2.0, 2.0, -1.9]);
        assert_eq!((far.passed, far.wrong, far.elements), (false, 2, 4));
    }

    #[test]
    fn what_is_no_number_or_missing_is_wrong() {
        let of = |actual: &[f32], expected: &[f32]| judge(actual, expected, (0.01, 0.01));
        let nan = of(&[f32::NAN, 1.0], &[1.0, 1.0]);
        assert_eq!((nan.passed, nan.wrong, nan.max_error), (false, 1, None));
        assert!(!of(&[1.0], &[1.0, 1.0]).passed, "an element is missing");
        assert!(!of(&[f32::INFINITY], &[1.0]).passed);
        let infinite = of(&[f32::INFINITY, 2.0], &[f32::INFINITY, 1.0]);
        assert_eq!(infinite.wrong, 1, "one infinity does not allow anything for the others: {infinite:?}");
        assert!(of(&[], &[]).passed);
        let both = of(&[1.0], &[1.0]).and(&nan);
        assert_eq!((both.passed, both.elements, both.max_error), (false, 3, None));
    }
}
