use kernelhub_cpu::silu_and_mul;

use crate::support::{Arg, DTYPES, Dt, Tensor, at_every_level, call};

fn reference(x: &Tensor) -> impl Fn(&[i64]) -> f64 {
    let x = x.clone();
    let width = x.shape[x.shape.len() - 1] / 2;
    move |index: &[i64]| {
        let mut other = index.to_vec();
        *other.last_mut().expect("rank 1 or more") += width;
        let gate = x.get(index);
        gate / (1.0 + (-gate).exp()) * x.get(&other)
    }
}

fn check(out: &Tensor, x: &Tensor, what: &str) {
    call(silu_and_mul, &[Arg::T(out), Arg::T(x)]).expect(what);
    out.expect(reference(x), what);
}

#[test]
fn agrees_with_f64_at_odd_sizes_and_ranks() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for shape in [vec![2], vec![1, 3072], vec![3, 14], vec![2, 3, 66], vec![1, 51, 2, 34], vec![2, 20_002]] {
                let x = Tensor::random(dtype, &shape, 1);
                let mut half = shape.clone();
                *half.last_mut().expect("rank 1 or more") /= 2;
                check(&Tensor::new(dtype, &half), &x, &format!("{level:?} {shape:?}"));
            }
        }
    });
}

#[test]
fn takes_strided_broadcast_unaligned_rows() {
    at_every_level(|level| {
        for dtype in DTYPES {
            let base = Tensor::random(dtype, &[3000], 2);
            for (strides, offset) in [([400, 80, 1], 1), ([70, 300, 1], 5), ([0, 0, 1], 3), ([-400, 70, 1], 1300)] {
                let x = base.view(&[4, 5, 66], &strides, offset);
                let out = Tensor::new(dtype, &[3000]).view(&[4, 5, 33], &[50, 220, 1], 1);
                check(&out, &x, &format!("{level:?} strides {strides:?}"));
            }
        }
    });
}

#[test]
fn non_finite_and_large_gates_follow_the_reference() {
    let gates = [
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        0.0,
        -0.0,
        1e-40,
        -1e-40,
        80.0,
        -80.0,
        88.5,
        -88.5,
        89.5,
        -89.5,
        -103.0,
        200.0,
        -200.0,
        1e30,
        -1e30,
        1e4,
        -1e4,
    ];
    at_every_level(|level| {
        for dtype in DTYPES {
            let x = Tensor::new(dtype, &[2 * gates.len() as i64]);
            x.fill(|index| gates.get(index[0] as usize).copied().unwrap_or(1.0));
            check(&Tensor::new(dtype, &[gates.len() as i64]), &x, &format!("{level:?}"));
        }
    });
}

/// The exponential behind the kernel, seen through it: silu(x) / x over the range where nothing underflows.
#[test]
fn the_sigmoid_is_within_four_ulp() {
    at_every_level(|level| {
        let count = 200_003;
        let x = Tensor::new(Dt::F32, &[2 * count]);
        x.fill(|index| if index[0] < count { index[0] as f64 / count as f64 * 170.0 - 85.0 } else { 1.0 });
        let out = Tensor::new(Dt::F32, &[count]);
        call(silu_and_mul, &[Arg::T(&out), Arg::T(&x)]).expect("silu");
        let expected = reference(&x);
        let worst = out
            .indices()
            .iter()
            .filter(|index| x.get(index) != 0.0)
            .map(|index| ((out.get(index) - expected(index)) / expected(index)).abs())
            .fold(0.0, f64::max);
        assert!(worst < 4.0 * f64::from(f32::EPSILON), "{level:?}: relative error {worst:e}");
    });
}

#[test]
fn empty_tensors_return_at_once() {
    for (shape, half) in [([0, 8], [0, 4]), ([3, 0], [3, 0])] {
        let (x, out) = (Tensor::new(Dt::F16, &shape), Tensor::new(Dt::F16, &half));
        call(silu_and_mul, &[Arg::T(&out), Arg::T(&x)]).expect("empty");
    }
}
