//! How times are taken.
//!
//! The sides of a case take turns, a few rounds of some samples each, so that what the machine does meanwhile is in all
//! of them. A round of a side begins with untimed calls, for the other sides have been in the caches. A sample is the
//! mean of as many calls as take a while, for a clock reads no nanoseconds.

use std::time::Instant;

use super::error::CallError;
use super::statistics::Summary;

/// How often and how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Samples of each side, where the time suffices.
    pub(crate) iterations: usize,
    /// Untimed samples before the first.
    pub(crate) warmup: usize,
    /// The most time for one side, in seconds; a side has `MIN_SAMPLES` samples at least, however long they take.
    pub(crate) seconds: f64,
}

/// The fewest samples of a side.
pub(crate) const MIN_SAMPLES: usize = 3;
const ROUNDS: usize = 4;
/// The least time of one sample, in seconds.
const SAMPLE_SECONDS: f64 = 20e-6;

/// A side, ready to be timed.
pub(crate) type Side<'a> = &'a mut dyn FnMut() -> Result<(), CallError>;

/// One side's plan and what it gave.
struct Timed {
    calls_per_sample: usize,
    samples: usize,
    seconds_per_sample: f64,
    taken: Vec<f64>,
}

/// Times the sides; a failure names the side by its place.
pub(crate) fn measure(sides: &mut [Side<'_>], effort: Effort) -> Result<Vec<Summary>, (usize, CallError)> {
    let mut all = Vec::with_capacity(sides.len());
    for (at, side) in sides.iter_mut().enumerate() {
        all.push(plan(side, effort).map_err(|error| (at, error))?);
    }
    for round in 0..ROUNDS {
        for (at, (side, timed)) in sides.iter_mut().zip(&mut all).enumerate() {
            run_round(side, timed, round, effort).map_err(|error| (at, error))?;
        }
    }
    Ok(all.into_iter().map(|timed| Summary::new(timed.taken, timed.calls_per_sample)).collect())
}

/// Calls a side twice, and plans by the second time.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers, and casts saturate")]
fn plan(side: &mut Side<'_>, effort: Effort) -> Result<Timed, CallError> {
    side()?;
    let clock = Instant::now();
    side()?;
    let mut seconds = clock.elapsed().as_secs_f64().max(1e-9);
    if seconds < SAMPLE_SECONDS {
        // Short enough for its first calls to be all start-up: ask a few more.
        let clock = Instant::now();
        (0..10).try_for_each(|_| side())?;
        seconds = (clock.elapsed().as_secs_f64() / 10.0).max(1e-9);
    }
    let calls_per_sample = (SAMPLE_SECONDS / seconds).ceil().clamp(1.0, 1e5) as usize;
    let seconds_per_sample = seconds * calls_per_sample as f64;
    let fitting = (effort.seconds / seconds_per_sample) as usize;
    let samples = effort.iterations.min(fitting).max(MIN_SAMPLES.min(effort.iterations.max(1)));
    let mut taken = Vec::with_capacity(samples);
    if seconds > effort.seconds {
        // So long that planning by it and not counting it would cost as much as a sample.
        taken.push(seconds * 1e6);
    }
    Ok(Timed { calls_per_sample, samples, seconds_per_sample, taken })
}

fn run_round(side: &mut Side<'_>, timed: &mut Timed, round: usize, effort: Effort) -> Result<(), CallError> {
    // As many more as bring it to its part of all samples by the end of this round.
    let upto = timed.samples * (round + 1) / ROUNDS;
    if upto <= timed.taken.len() {
        return Ok(());
    }
    // A long call brings its own data back in a small part of its time.
    let is_long = timed.seconds_per_sample > effort.seconds / 10.0;
    let untimed = match round {
        _ if is_long => 0,
        0 => effort.warmup,
        _ => 1,
    };
    (0..untimed * timed.calls_per_sample).try_for_each(|_| side())?;
    while timed.taken.len() < upto {
        let clock = Instant::now();
        (0..timed.calls_per_sample).try_for_each(|_| side())?;
        timed.taken.push(clock.elapsed().as_secs_f64() * 1e6 / timed.calls_per_sample as f64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CallError, Effort, MIN_SAMPLES, measure};

    #[test]
    fn sides_get_their_samples_and_their_times() {
        // So much time that no hiccup of the machine makes a call a long one.
        let effort = Effort { iterations: 10, warmup: 2, seconds: 3_600.0 };
        let (mut short, mut long) = (0_u32, 0_u32);
        let mut count = || {
            short += 1;
            Ok(())
        };
        let mut sleep = || {
            long += 1;
            std::thread::sleep(Duration::from_millis(2));
            Ok(())
        };
        let all = measure(&mut [&mut count, &mut sleep], effort).unwrap();
        assert_eq!((all[0].samples_us.len(), all[1].samples_us.len()), (10, 10));
        assert!(all[0].min_us < 10.0 && all[0].calls_per_sample > 1, "{:?}", all[0]);
        assert!(all[1].min_us >= 2_000.0, "{:?}", all[1]);
        assert_eq!(all[1].calls_per_sample, 1);
        assert!(
            short > 10 && long == 2 + 2 + 10 + 3,
            "two to plan, the warm-up, and one before each later round: {long}"
        );
    }

    #[test]
    fn the_time_limits_the_samples_and_leaves_a_few() {
        let effort = Effort { iterations: 1_000, warmup: 10, seconds: 0.01 };
        let mut sleep = || {
            std::thread::sleep(Duration::from_millis(5));
            Ok(())
        };
        let all = measure(&mut [&mut sleep], effort).unwrap();
        assert_eq!(all[0].samples_us.len(), MIN_SAMPLES);
        let (short, mut calls) = (Effort { seconds: 0.001, ..effort }, 0);
        let mut counted = || {
            calls += 1;
            sleep()
        };
        assert_eq!(measure(&mut [&mut counted], short).unwrap()[0].samples_us.len(), MIN_SAMPLES);
        assert_eq!(calls, 1 + MIN_SAMPLES, "the call that planned is a sample, and none is a warm-up");
        let one = Effort { iterations: 1, ..effort };
        assert_eq!(measure(&mut [&mut sleep], one).unwrap()[0].samples_us.len(), 1);
    }

    #[test]
    fn a_failure_names_its_side() {
        let mut fine = || Ok(());
        let mut broken = || Err(CallError::Broken);
        let effort = Effort { iterations: 1, warmup: 0, seconds: 0.1 };
        let (at, error) = measure(&mut [&mut fine, &mut broken], effort).unwrap_err();
        assert_eq!(at, 1);
        assert!(matches!(error, CallError::Broken));
    }
}
