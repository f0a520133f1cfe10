//! What samples of a time say.
//!
//! A time has outliers to one side: what disturbs a call makes it longer. Typical values are therefore medians, and the
//! interval of a speed-up is that of the ratio of two medians, by resampling (the percentile bootstrap). Whether two
//! sides differ is asked twice: the interval leaves out 1, and Welch's test on the logarithms of the samples (which
//! outliers move less) gives a p-value below 0.05. Only where both agree is a difference called significant.

use serde::{Deserialize, Serialize};

/// Resamples of a bootstrap.
const RESAMPLES: usize = 1_000;
/// The level of significance.
const LEVEL: f64 = 0.05;

/// The samples of one side and what they say, in microseconds per call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) mean_us: f64,
    /// With Bessel's correction.
    pub(crate) std_us: f64,
    pub(crate) min_us: f64,
    pub(crate) q1_us: f64,
    pub(crate) median_us: f64,
    pub(crate) q3_us: f64,
    pub(crate) max_us: f64,
    /// `q3 - q1`.
    pub(crate) iqr_us: f64,
    /// Samples more than 1.5 IQR outside of the quartiles.
    pub(crate) outliers: usize,
    /// 95% confidence interval of the mean, by Student's t.
    pub(crate) mean_ci95_us: [f64; 2],
    /// Calls that one sample timed together.
    pub(crate) calls_per_sample: usize,
    /// Every sample, in the order in which they were taken.
    pub(crate) samples_us: Vec<f64>,
}

impl Summary {
    /// Whether it has samples, and they and their median are times of something: finite, and above 0.
    pub(crate) fn is_measured(&self) -> bool {
        let is_time = |time: &f64| time.is_finite() && *time > 0.0;
        !self.samples_us.is_empty() && is_time(&self.median_us) && self.samples_us.iter().all(is_time)
    }

    /// Of at least one sample.
    pub(crate) fn new(samples: Vec<f64>, calls_per_sample: usize) -> Self {
        let sorted = sorted(&samples);
        let (mean, std) = (mean(&samples), deviation(&samples));
        let [q1, median, q3] = [0.25, 0.5, 0.75].map(|part| quantile(&sorted, part));
        let iqr = q3 - q1;
        let is_outlier = |sample: &&f64| **sample < q1 - 1.5 * iqr || **sample > q3 + 1.5 * iqr;
        let count = samples.len() as f64;
        let half = if samples.len() < 2 { 0.0 } else { t_quantile(count - 1.0) * std / count.sqrt() };
        Self {
            mean_us: mean,
            std_us: std,
            min_us: sorted.first().copied().unwrap_or_default(),
            q1_us: q1,
            median_us: median,
            q3_us: q3,
            max_us: sorted.last().copied().unwrap_or_default(),
            iqr_us: iqr,
            outliers: samples.iter().filter(is_outlier).count(),
            mean_ci95_us: [mean - half, mean + half],
            calls_per_sample,
            samples_us: samples,
        }
    }
}

/// How much faster one side is than another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Speedup {
    /// The other side's median over this side's: above 1 this side is faster.
    pub(crate) ratio: f64,
    /// 95% confidence interval of the ratio.
    pub(crate) ci95: [f64; 2],
    /// The probability of such a difference between samples of one and the same time, by Welch's test on logarithms.
    pub(crate) p_value: f64,
    /// Whether the interval leaves out 1 and the p-value is below 0.05.
    pub(crate) significant: bool,
}

impl Speedup {
    /// Of `this` over `other`.
    pub(crate) fn new(this: &Summary, other: &Summary) -> Self {
        let ratio = other.median_us / this.median_us;
        let ci95 = ratio_interval(&this.samples_us, &other.samples_us);
        let p_value = welch(&logarithms(&this.samples_us), &logarithms(&other.samples_us));
        let excludes_one = ci95[0] > 1.0 || ci95[1] < 1.0;
        Self { ratio, ci95, p_value, significant: excludes_one && p_value < LEVEL }
    }
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn logarithms(samples: &[f64]) -> Vec<f64> {
    samples.iter().map(|sample| sample.max(f64::MIN_POSITIVE).ln()).collect()
}

fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

fn deviation(samples: &[f64]) -> f64 {
    if samples.len() < 2 {
        return 0.0;
    }
    let mean = mean(samples);
    (samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / (samples.len() - 1) as f64).sqrt()
}

/// The value below which a part of the samples lies, between two neighbours by their distance.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place among the samples")]
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = part * last as f64;
    let below = place.floor() as usize;
    let above = sorted[(below + 1).min(last)];
    sorted[below] + (above - sorted[below]) * (place - place.floor())
}

/// The 95% interval of the ratio of the medians, `other` over `this`, by resampling both.
fn ratio_interval(this: &[f64], other: &[f64]) -> [f64; 2] {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut median_of = |samples: &[f64]| {
        let pick = |_| {
            // xorshift64*: the same in every run.
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            let number = state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
            samples[usize::try_from(number).unwrap_or_default() % samples.len()]
        };
        let mut picked: Vec<f64> = (0..samples.len()).map(pick).collect();
        picked.sort_by(f64::total_cmp);
        quantile(&picked, 0.5)
    };
    let mut ratios: Vec<f64> = (0..RESAMPLES).map(|_| median_of(other) / median_of(this)).collect();
    ratios.sort_by(f64::total_cmp);
    [quantile(&ratios, 0.025), quantile(&ratios, 0.975)]
}

/// The p-value of Welch's test, two-sided. 1 where there are too few samples to tell anything.
fn welch(a: &[f64], b: &[f64]) -> f64 {
    if a.len() < 2 || b.len() < 2 {
        return 1.0;
    }
    let part = |samples: &[f64]| deviation(samples).powi(2) / samples.len() as f64;
    let (in_a, in_b) = (part(a), part(b));
    let difference = (mean(a) - mean(b)).abs();
    if in_a + in_b == 0.0 {
        return if difference == 0.0 { 1.0 } else { 0.0 };
    }
    let t = difference / (in_a + in_b).sqrt();
    let of = |part: f64, count: usize| part.powi(2) / (count - 1) as f64;
    let freedom = (in_a + in_b).powi(2) / (of(in_a, a.len()) + of(in_b, b.len()));
    two_sided(t, freedom)
}

/// The probability that Student's t with `freedom` degrees is farther from 0 than `t`.
fn two_sided(t: f64, freedom: f64) -> f64 {
    incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))
}

/// The `t` that Student's t with `freedom` degrees stays within in 95% of cases.
fn t_quantile(freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1e3);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if two_sided(middle, freedom) > LEVEL { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// The regularised incomplete beta function, by its continued fraction (Lentz's method).
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges fast on one side of the mean; the other side is its mirror image.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let front = (a * x.ln() + b * (1.0 - x).ln() + ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b)).exp() / a;
    let away = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let (mut c, mut d) = (1.0, 1.0 / away(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for step in 1..300 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = fraction;
        for term in [even, odd] {
            d = 1.0 / away(1.0 + term * d);
            c = away(1.0 + term / c);
            fraction *= c * d;
        }
        if (fraction / before - 1.0).abs() < 1e-14 {
            break;
        }
    }
    front * fraction
}

/// The logarithm of the gamma function above 0: Stirling's series, far enough out for it to be exact.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut below) = (x, 0.0);
    while x < 10.0 {
        below += x.ln();
        x += 1.0;
    }
    let square = x * x;
    let series = (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / (1680.0 * square)) / square) / square) / x;
    (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - below
}

#[cfg(test)]
mod tests {
    use super::{Speedup, Summary, incomplete_beta, ln_gamma, t_quantile, two_sided, welch};

    fn close(actual: f64, expected: f64, within: f64) {
        assert!((actual - expected).abs() <= within, "{actual}, expected {expected}");
    }

    #[test]
    fn a_summary_is_that_of_the_textbook() {
        let summary = Summary::new(vec![2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0, 50.0], 3);
        close(summary.mean_us, 10.0, 1e-12);
        // The sum of squared distances is 1832.
        close(summary.std_us, (1832.0_f64 / 8.0).sqrt(), 1e-12);
        let five = [summary.min_us, summary.q1_us, summary.median_us, summary.q3_us, summary.max_us];
        for (actual, expected) in five.into_iter().zip([2.0, 4.0, 5.0, 7.0, 50.0]) {
            close(actual, expected, 0.0);
        }
        close(summary.iqr_us, 3.0, 0.0);
        assert_eq!(summary.outliers, 1, "only 50 is beyond 7 + 4.5");
        // t of 8 degrees: 2.306004.
        let half = 2.306_004 * summary.std_us / 3.0;
        close(summary.mean_ci95_us[0], 10.0 - half, 1e-5);
        close(summary.mean_ci95_us[1], 10.0 + half, 1e-5);
        let [low, high] = Summary::new(vec![1.5], 1).mean_ci95_us;
        close(low, 1.5, 0.0);
        close(high, 1.5, 0.0);
    }

    #[test]
    fn the_functions_are_the_tables() {
        close(ln_gamma(0.5), std::f64::consts::PI.sqrt().ln(), 1e-12);
        close(ln_gamma(10.0), 362_880.0_f64.ln(), 1e-11);
        close(incomplete_beta(2.0, 3.0, 0.5), 0.6875, 1e-12);
        close(incomplete_beta(0.5, 0.5, 0.25), 1.0 / 3.0, 1e-12);
        for (freedom, t) in [(1.0, 12.7062), (2.0, 4.302_65), (10.0, 2.228_14), (30.0, 2.042_27), (1000.0, 1.962_34)] {
            close(t_quantile(freedom), t, 1e-4);
            close(two_sided(t, freedom), 0.05, 1e-5);
        }
    }

    #[test]
    fn welchs_test_is_that_of_the_integrated_density() {
        // A usual example of unequal variances: t = 2.2192 with 24.496 degrees of freedom. The density of Student's t
        // integrated numerically (Simpson's rule, 200,000 steps) gives p = 0.0359723.
        let a = [19.8, 20.4, 19.6, 17.8, 18.5, 18.9, 18.3, 18.9, 19.5, 22.0];
        let b = [
            28.2, 26.6, 20.1, 23.3, 25.2, 22.1, 17.7, 27.6, 20.6, 13.7, 23.2, 17.5, 20.6, 18.0, 23.9, 21.6, 24.3, 20.4,
            24.0, 13.2,
        ];
        close(welch(&a, &b), 0.035_972_3, 1e-7);
        close(welch(&b, &a), 0.035_972_3, 1e-7);
        close(welch(&a, &a), 1.0, 0.0);
        close(welch(&[1.0, 1.0], &[2.0, 2.0]), 0.0, 0.0);
        close(welch(&[1.0], &b), 1.0, 0.0);
    }

    #[test]
    fn a_difference_is_significant_only_when_it_is_one() {
        let around = |middle: f64| {
            let samples = (0..40).map(|at| middle * (1.0 + 0.05 * (f64::from(at * 7 % 40) / 40.0 - 0.5))).collect();
            Summary::new(samples, 1)
        };
        let faster = Speedup::new(&around(10.0), &around(30.0));
        close(faster.ratio, 3.0, 1e-9);
        assert!(faster.significant && faster.ci95[0] > 2.9 && faster.ci95[1] < 3.1, "{faster:?}");
        let slower = Speedup::new(&around(30.0), &around(10.0));
        assert!(slower.significant && slower.ratio < 1.0 && slower.ci95[1] < 1.0, "{slower:?}");
        let same = Speedup::new(&around(10.0), &around(10.001));
        assert!(!same.significant && same.p_value > 0.9, "{same:?}");
        let few = Speedup::new(&Summary::new(vec![10.0], 1), &Summary::new(vec![30.0], 1));
        assert!(!few.significant, "one sample each says nothing: {few:?}");
    }
}
