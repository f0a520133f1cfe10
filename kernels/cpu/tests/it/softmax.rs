use kernelhub_cpu::softmax;

use crate::support::{Arg, DTYPES, Dt, Tensor, at_every_level, call, flat};

/// Takes its input at once, so that a kernel may then overwrite it.
fn reference(x: &Tensor) -> impl Fn(&[i64]) -> f64 {
    let shape = x.shape.clone();
    let values: Vec<f64> = x
        .rows()
        .iter()
        .flat_map(|row| {
            let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let exponentials: Vec<f64> = row.iter().map(|x| (x - max).exp()).collect();
            let sum: f64 = exponentials.iter().sum();
            exponentials.into_iter().map(|value| value / sum).collect::<Vec<_>>()
        })
        .collect();
    move |index: &[i64]| values[flat(&shape, index)]
}

fn check(out: &Tensor, x: &Tensor, what: &str) {
    let expected = reference(x);
    call(softmax, &[Arg::T(out), Arg::T(x)]).expect(what);
    out.expect(expected, what);
}

#[test]
fn agrees_with_f64_at_odd_widths_and_in_rows_longer_than_what_is_kept() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for shape in
                [vec![1], vec![3, 7], vec![2, 3, 65], vec![5, 576], vec![3, 4096], vec![2, 4097], vec![2, 9001]]
            {
                let x = Tensor::random(dtype, &shape, 1);
                // Rows whose greatest element stands at the end of a part, and whose elements differ by much.
                x.clone().fill(|index| x.get(index) * if index.last() == Some(&4095) { 9.0 } else { 4.0 });
                check(&Tensor::new(dtype, &shape), &x, &format!("{level:?} {shape:?}"));
            }
        }
    });
}

#[test]
fn rows_may_be_strided_unaligned_and_in_place() {
    at_every_level(|level| {
        for dtype in DTYPES {
            let base = Tensor::random(dtype, &[4000], 3);
            for (strides, offset) in [([700, 140, 1], 1), ([135, 600, 1], 3), ([0, 0, 1], 7), ([-700, 135, 1], 2100)] {
                let x = base.view(&[3, 4, 131], &strides, offset);
                let out = Tensor::new(dtype, &[9000]).view(&[3, 4, 131], &[140, 500, 1], 1);
                check(&out, &x, &format!("{level:?} strides {strides:?}"));
            }
            for width in [5000, 33] {
                let x = Tensor::random(dtype, &[3, width + 7], 4).view(&[3, width], &[width + 7, 1], 2);
                check(&x, &x, &format!("{level:?} in place"));
            }
        }
    });
}

#[test]
fn non_finite_and_large_numbers_follow_the_formula() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for width in [3, 37, 300, 5000] {
                for special in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 6e4, -6e4, 1e-40] {
                    let x = Tensor::random(dtype, &[3, width], 5);
                    x.set(&[0, 0], special);
                    x.set(&[1, width - 1], special);
                    check(&Tensor::new(dtype, &x.shape), &x, &format!("{level:?} {width} {special}"));
                }
                // Of nothing but infinities there is no greatest element: NaN, as the formula says.
                let x = Tensor::new(dtype, &[2, width]);
                x.fill(|index| if index[0] == 0 { f64::NEG_INFINITY } else { f64::INFINITY });
                check(&Tensor::new(dtype, &x.shape), &x, &format!("{level:?} {width} of infinities"));
                // A mask of -infinity: exact zeros.
                let x = Tensor::random(dtype, &[1, width], 6);
                x.view(&[1, width / 2], &[width, 1], 0).fill(|_| f64::NEG_INFINITY);
                let out = Tensor::new(dtype, &x.shape);
                check(&out, &x, &format!("{level:?} {width} masked"));
                assert!((0..width / 2).all(|i| out.get(&[0, i]) == 0.0), "{level:?} {width}");
            }
        }
    });
}

#[test]
fn empty_tensors_return_at_once_and_wrong_calls_are_told() {
    for shape in [[0, 8], [3, 0]] {
        let x = Tensor { data: std::ptr::null_mut(), ..Tensor::new(Dt::F16, &shape) };
        call(softmax, &[Arg::T(&x), Arg::T(&x)]).expect("empty");
    }
    let t = |shape: &[i64]| Tensor::random(Dt::F32, shape, 7);
    let base = t(&[100]);
    let (low, high) = (base.view(&[2, 8], &[8, 1], 0), base.view(&[2, 8], &[8, 1], 4));
    for (actual, text) in [
        (
            call(softmax, &[Arg::T(&t(&[2, 3])), Arg::T(&t(&[2, 4]))]),
            "softmax: argument `out`: expected shape [2, 4] (as `x`), got [2, 3]",
        ),
        (
            call(softmax, &[Arg::T(&high), Arg::T(&low)]),
            "softmax: argument `out`: expected memory apart from `x`, got a partial overlap with it",
        ),
        (
            call(softmax, &[Arg::T(&Tensor::new(Dt::F16, &[4])), Arg::T(&t(&[4]))]),
            "softmax: argument `out`: expected dtype f32 (as `x`), got f16",
        ),
        (
            call(softmax, &[Arg::T(&t(&[])), Arg::T(&t(&[]))]),
            "softmax: argument `x`: expected rank 1 to 8 [.., d], got rank 0 []",
        ),
        (
            call(softmax, &[Arg::T(&t(&[4])), Arg::T(&base.view(&[4], &[2], 0))]),
            "softmax: argument `x`: expected stride 1 in the last axis, got strides [2]",
        ),
    ] {
        assert_eq!(actual.expect_err("wrong call").get(..text.len()), Some(text));
    }
}
