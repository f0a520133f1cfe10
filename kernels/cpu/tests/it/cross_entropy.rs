use kernelhub_cpu::{cross_entropy, cross_entropy_backward};

use crate::support::{Arg, DTYPES, Dt, Tensor, at_every_level, call, flat, slope};

const IGNORED: i64 = -100;

fn loss_of(row: &[f64], target: usize) -> f64 {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    row.iter().map(|x| (x - max).exp()).sum::<f64>().ln() + max - row[target]
}

fn gradient_of(row: &[f64], target: usize) -> Vec<f64> {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
    row.iter().enumerate().map(|(i, x)| (x - max).exp() / sum - f64::from(u8::from(i == target))).collect()
}

/// Every third row ignored, where the dtype has the number for it.
fn targets(dtype: Dt, shape: &[i64], vocab: i64, ignored: i64) -> Tensor {
    let targets = Tensor::new(dtype, shape);
    let mut next = 1;
    targets.fill(|_| {
        next += 5;
        if next % 3 == 0 && (dtype == Dt::I64 || ignored >= 0) { ignored as f64 } else { (next % vocab) as f64 }
    });
    targets
}

fn check(loss: &Tensor, logits: &Tensor, targets: &Tensor, ignored: i64, what: &str) {
    call(cross_entropy, &[Arg::T(loss), Arg::T(logits), Arg::T(targets), Arg::I(ignored)]).expect(what);
    let rows = logits.rows();
    let shape = loss.shape.clone();
    loss.expect(
        |index| match targets.get(index) as i64 {
            target if target == ignored => 0.0,
            target => loss_of(&rows[flat(&shape, index)], target as usize),
        },
        what,
    );
}

fn check_backward(dlogits: &Tensor, dloss: &Tensor, logits: &Tensor, targets: &Tensor, ignored: i64, what: &str) {
    let rows = logits.rows();
    let args = [Arg::T(dlogits), Arg::T(dloss), Arg::T(logits), Arg::T(targets), Arg::I(ignored)];
    call(cross_entropy_backward, &args).expect(what);
    let gradients: Vec<Vec<f64>> = targets
        .indices()
        .iter()
        .zip(&rows)
        .map(|(index, row)| match targets.get(index) as i64 {
            target if target == ignored => vec![0.0; row.len()],
            target => gradient_of(row, target as usize).iter().map(|g| g * dloss.get(index)).collect(),
        })
        .collect();
    let shape = dlogits.shape.clone();
    let expected = |index: &[i64]| {
        let (place, column) = (&index[..index.len() - 1], index[index.len() - 1]);
        gradients[flat(&shape[..shape.len() - 1], place)][column as usize]
    };
    dlogits.expect(expected, what);
}

#[test]
fn the_formula_is_that_of_central_differences() {
    let row = [0.3, -1.2, 2.0, 0.05, -0.7];
    for target in 0..row.len() {
        for (at, expected) in gradient_of(&row, target).into_iter().enumerate() {
            assert!((slope(&row, at, |row| loss_of(row, target)) - expected).abs() < 1e-9);
        }
    }
}

#[test]
fn both_agree_with_f64_at_odd_widths() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for id_dtype in [Dt::U32, Dt::I64] {
                for (rows, vocab) in [(1, 1), (5, 7), (4, 1408), (2, 3420), (3, 9001), (0, 5)] {
                    let what = format!("{level:?} {id_dtype:?} [{rows}, {vocab}]");
                    let logits = Tensor::random(dtype, &[rows, vocab], 1);
                    logits.clone().fill(|index| logits.get(index) * 4.0);
                    let targets = targets(id_dtype, &[rows], vocab, IGNORED);
                    check(&Tensor::new(Dt::F32, &[rows]), &logits, &targets, IGNORED, &what);
                    let dloss = Tensor::random(Dt::F32, &[rows], 2);
                    check_backward(&Tensor::new(dtype, &logits.shape), &dloss, &logits, &targets, IGNORED, &what);
                }
            }
        }
    });
}

#[test]
fn rows_may_be_strided_and_the_gradient_written_over_the_logits() {
    at_every_level(|level| {
        for dtype in DTYPES {
            let base = Tensor::random(dtype, &[4000], 3);
            for strides in [[330, 66, 1], [33, 400, 1], [0, 50, 1], [-100, 33, 1]] {
                let what = format!("{level:?} {strides:?}");
                let logits = base.view(&[4, 5, 33], &strides, 900);
                let targets = targets(Dt::I64, &[5, 8], 33, IGNORED).view(&[4, 5], &[1, 8], 2);
                let loss = Tensor::new(Dt::F32, &[5, 7]).view(&[4, 5], &[1, 7], 1);
                check(&loss, &logits, &targets, IGNORED, &what);
                let dlogits = Tensor::new(dtype, &[4000]).view(&[4, 5, 33], &[40, 200, 1], 3);
                // One gradient for all rows, as of a sum.
                let dloss = Tensor::random(Dt::F32, &[1], 4).view(&[4, 5], &[0, 0], 0);
                check_backward(&dlogits, &dloss, &logits, &targets, IGNORED, &what);
            }
            let logits = Tensor::random(dtype, &[6, 33], 5);
            let targets = targets(Dt::I64, &[6], 33, IGNORED);
            let dloss = Tensor::random(Dt::F32, &[6], 6);
            check_backward(&logits, &dloss, &logits, &targets, IGNORED, &format!("{level:?} in place"));
        }
    });
}

#[test]
fn ignored_rows_give_zero_whatever_they_hold() {
    at_every_level(|level| {
        for (id_dtype, ignored) in [(Dt::I64, IGNORED), (Dt::I64, 2), (Dt::U32, 2), (Dt::I64, i64::MIN)] {
            let logits = Tensor::new(Dt::F32, &[2, 37]);
            logits.fill(|_| f64::NAN);
            let targets = Tensor::new(id_dtype, &[2]);
            targets.fill(|_| ignored as f64);
            let loss = Tensor::new(Dt::F32, &[2]);
            let args = [Arg::T(&loss), Arg::T(&logits), Arg::T(&targets), Arg::I(ignored)];
            call(cross_entropy, &args).expect("ignored");
            assert_eq!(loss.values(), [0.0; 2], "{level:?}");
            let dloss = Tensor::new(Dt::F32, &[2]);
            dloss.fill(|_| f64::INFINITY);
            let dlogits = Tensor::new(Dt::F32, &[2, 37]);
            let args = [&dlogits, &dloss, &logits, &targets].map(Arg::T);
            let args = [args[0], args[1], args[2], args[3], Arg::I(ignored)];
            call(cross_entropy_backward, &args).expect("ignored");
            assert!(dlogits.values().iter().all(|&value| value == 0.0), "{level:?}");
        }
    });
}

#[test]
fn large_and_non_finite_logits_follow_the_formula() {
    at_every_level(|level| {
        for (special, at) in [
            (1e30, 3),
            (-1e30, 3),
            (f64::NEG_INFINITY, 3),
            (f64::NEG_INFINITY, 1),
            (f64::INFINITY, 3),
            (f64::NAN, 20),
            (3e38, 1),
        ] {
            let logits = Tensor::random(Dt::F32, &[1, 37], 7);
            logits.set(&[0, at], special);
            let targets = Tensor::new(Dt::I64, &[1]);
            targets.fill(|_| 1.0);
            let what = format!("{level:?} {special} at {at}");
            check(&Tensor::new(Dt::F32, &[1]), &logits, &targets, IGNORED, &what);
            let dloss = Tensor::random(Dt::F32, &[1], 8);
            check_backward(&Tensor::new(Dt::F32, &[1, 37]), &dloss, &logits, &targets, IGNORED, &what);
        }
    });
}

#[test]
fn empty_tensors_and_wrong_calls() {
    let t = |shape: &[i64]| Tensor::random(Dt::F32, shape, 9);
    let some = targets(Dt::I64, &[3], 8, IGNORED);
    let run = |loss: &Tensor, logits: &Tensor, targets: &Tensor, ignored: Arg<'_>| {
        call(cross_entropy, &[Arg::T(loss), Arg::T(logits), Arg::T(targets), ignored])
    };
    let back = |dlogits: &Tensor, dloss: &Tensor, logits: &Tensor, targets: &Tensor| {
        let [a, b, c, d] = [dlogits, dloss, logits, targets].map(Arg::T);
        call(cross_entropy_backward, &[a, b, c, d, Arg::I(IGNORED)])
    };
    // No vocabulary, but no row that needs it.
    let ignored = Tensor::new(Dt::I64, &[3]);
    ignored.fill(|_| IGNORED as f64);
    let loss = t(&[3]);
    run(&loss, &t(&[3, 0]), &ignored, Arg::I(IGNORED)).expect("all ignored");
    assert_eq!(loss.values(), [0.0; 3]);
    back(&t(&[3, 0]), &t(&[3]), &t(&[3, 0]), &ignored).expect("all ignored");
    let wrong = targets(Dt::I64, &[3], 8, IGNORED);
    wrong.set(&[2], 8.0);
    let range = "`targets`: expected ids within 0..8 (vocab) or ignore_index -100, got 8 at index [2]";
    for (actual, text) in [
        (run(&t(&[3]), &t(&[3, 8]), &wrong, Arg::I(IGNORED)), range),
        (
            run(&t(&[3]), &t(&[2, 8]), &some, Arg::I(IGNORED)),
            "`loss`: expected shape [2] ([..], the leading axes of `logits`), got [3]",
        ),
        (
            run(&Tensor::new(Dt::F16, &[3]), &t(&[3, 8]), &some, Arg::I(IGNORED)),
            "`loss`: expected dtype f32 (always), got f16",
        ),
        (run(&t(&[3]), &t(&[3, 8]), &some, Arg::F(0.0)), "`ignore_index`: expected Int, got Float"),
        (
            run(&t(&[3]), &t(&[3, 8]), &t(&[3]), Arg::I(IGNORED)),
            "`targets`: expected dtype u32 or i64, got code 2, 32 bits, 1 lanes",
        ),
    ] {
        assert_eq!(actual.expect_err("wrong call"), format!("cross_entropy: argument {text}"));
    }
    for (actual, text) in [
        (back(&t(&[3, 8]), &t(&[3]), &t(&[3, 8]), &wrong), range),
        (back(&t(&[3, 7]), &t(&[3]), &t(&[3, 8]), &some), "`dlogits`: expected shape [3, 8] (as `logits`), got [3, 7]"),
        (
            back(&t(&[3, 8]), &t(&[2]), &t(&[3, 8]), &some),
            "`dloss`: expected shape [3] ([..], the leading axes of `logits`), got [2]",
        ),
    ] {
        assert_eq!(actual.expect_err("wrong call"), format!("cross_entropy_backward: argument {text}"));
    }
}
