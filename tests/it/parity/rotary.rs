//! `kernelhub/rotary`.

use kernelhub::bind::{LayerKernel, RotaryKernel, RotaryStyle};

use super::{Number, View, assert_close, for_each_dtype, indices};
use crate::support::embedded;

fn check<T: Number>(kernel: &RotaryKernel, x: &View<T>, tables: [&View<T>; 2], style: RotaryStyle, what: &str) {
    let half = x.shape[3] / 2;
    let [cos, sin] = tables;
    let expected: Vec<f64> = indices(&x.shape)
        .into_iter()
        .map(|index| {
            let [batch, head, position, at] = index[..] else { unreachable!() };
            let (pair, is_second, other) = match style {
                RotaryStyle::HalfSplit => (at % half, at >= half, (at + half) % (2 * half)),
                RotaryStyle::Interleaved => (at / 2, at % 2 == 1, at ^ 1),
            };
            let (value, other) = (x.at(&index), x.at(&[batch, head, position, other]));
            let (cos, sin) = (cos.at(&[position, pair]), sin.at(&[position, pair]));
            if is_second { other * sin + value * cos } else { value * cos - other * sin }
        })
        .collect();
    let actual = kernel.forward_to_vec::<T>(&x.tensor(), &x.shape, &cos.tensor(), &sin.tensor(), style).unwrap();
    assert_close(&actual, &expected, &format!("{what} {style:?} {:?} by {:?}", x.shape, x.strides));
}

fn check_all<T: Number>(kernel: &RotaryKernel) {
    for style in [RotaryStyle::HalfSplit, RotaryStyle::Interleaved] {
        let tables =
            |seq: usize, half: usize| [View::<T>::contiguous(8, &[seq, half]), View::contiguous(9, &[seq, half])];
        let run = |x: &View<T>, what: &str| {
            let [cos, sin] = tables(x.shape[2], x.shape[3] / 2);
            check(kernel, x, [&cos, &sin], style, what);
        };
        for shape in
            [[1, 1, 1, 2], [1, 3, 5, 6], [2, 3, 4, 64], [1, 9, 70, 80], [1, 2, 0, 8], [0, 2, 3, 8], [1, 2, 3, 0]]
        {
            run(&View::contiguous(1, &shape), "contiguous");
        }
        run(&View::strided(2, &[2, 3, 4, 10], &[120, 10, 30, 1]), "transposed");
        run(&View::strided(3, &[1, 3, 4, 10], &[999, 64, 16, 1]), "narrowed");
        run(&View::strided(4, &[2, 3, 4, 10], &[0, 0, 10, 1]), "broadcast");
        let x = View::<T>::contiguous(5, &[1, 2, 3, 8]);
        let (cos, sin) = (View::strided(6, &[3, 4], &[9, 1]), View::strided(7, &[3, 4], &[0, 1]));
        check(kernel, &x, [&cos, &sin], style, "strided tables");
        for bad in [f64::NAN, f64::INFINITY] {
            let mut x = View::<T>::contiguous(5, &[1, 2, 3, 34]);
            x.set(&[0, 1, 1, 20], bad);
            run(&x, &format!("with {bad}"));
        }
    }
}

/// A pair has the bits of two tensors, whatever their heads and strides are.
fn check_pairs<T: Number>(kernel: &RotaryKernel) {
    for style in [RotaryStyle::HalfSplit, RotaryStyle::Interleaved] {
        for (q, k) in [
            (View::<T>::contiguous(1, &[1, 9, 1, 64]), View::<T>::contiguous(2, &[1, 3, 1, 64])),
            (View::contiguous(3, &[2, 4, 70, 10]), View::strided(4, &[2, 1, 70, 10], &[700, 700, 10, 1])),
            (View::strided(5, &[2, 3, 4, 10], &[120, 10, 30, 1]), View::contiguous(6, &[2, 5, 4, 10])),
            (View::contiguous(7, &[1, 0, 4, 10]), View::contiguous(8, &[1, 2, 4, 10])),
            (View::contiguous(9, &[1, 2, 4, 10]), View::contiguous(10, &[1, 0, 4, 10])),
            (View::contiguous(11, &[1, 2, 0, 8]), View::contiguous(12, &[1, 2, 0, 8])),
        ] {
            let half = q.shape[3] / 2;
            let tables = [13, 14].map(|seed| View::<T>::contiguous(seed, &[q.shape[2], half]));
            let [cos, sin] = [tables[0].tensor(), tables[1].tensor()];
            let alone = |x: &View<T>| kernel.forward_to_vec::<T>(&x.tensor(), &x.shape, &cos, &sin, style).unwrap();
            let tensors = [&q.tensor(), &k.tensor()];
            let pair = kernel.forward_pair_to_vec::<T>(tensors, [&q.shape, &k.shape], &cos, &sin, style).unwrap();
            for (pair, alone) in [(pair.0, alone(&q)), (pair.1, alone(&k))] {
                let numbers = |all: Vec<T>| all.into_iter().map(Number::wide).collect::<Vec<_>>();
                assert_eq!(numbers(pair), numbers(alone), "{style:?} {:?} and {:?}", q.shape, k.shape);
            }
        }
    }
}

#[test]
fn apply_rotary_of_a_pair() {
    let Some(hub) = embedded::hub() else { return };
    let kernel = embedded::layer(hub, "rotary", "RotaryEmbedding");
    let LayerKernel::Rotary(kernel) = &*kernel else { panic!("{kernel:?}") };
    assert_eq!(kernel.meta().identity.function, "apply_rotary_pair");
    for_each_dtype!(check_pairs(kernel));
}

#[test]
fn apply_rotary() {
    let Some(hub) = embedded::hub() else { return };
    let kernel = embedded::layer(hub, "rotary", "RotaryEmbedding");
    let LayerKernel::Rotary(kernel) = &*kernel else { panic!("{kernel:?}") };
    for_each_dtype!(check_all(kernel));
}
