//! `kernelhub/activation`.

use kernelhub::bind::{BindError, GatedActivationKernel, LayerKernel};

use super::{Number, View, assert_close, for_each_dtype, indices};
use crate::support::embedded;

fn check<T: Number>(kernel: &GatedActivationKernel, x: &View<T>, what: &str) {
    let mut shape = x.shape.clone();
    let width = shape.last().unwrap() / 2;
    *shape.last_mut().unwrap() = width;
    let expected: Vec<f64> = indices(&shape)
        .into_iter()
        .map(|mut index| {
            let gate = x.at(&index);
            *index.last_mut().unwrap() += width;
            gate * (1.0 / (1.0 + (-gate).exp())) * x.at(&index)
        })
        .collect();
    let actual = kernel.forward_to_vec::<T>(&x.tensor(), &shape).unwrap();
    assert_close(&actual, &expected, &format!("{what} {:?} by {:?}", x.shape, x.strides));
}

fn check_all<T: Number>(kernel: &GatedActivationKernel) {
    for shape in [&[2][..], &[14], &[1, 2], &[3, 258], &[2, 3, 64], &[0, 6], &[4, 0], &[2, 2 * 1408], &[33, 2 * 3420]] {
        check(kernel, &View::<T>::contiguous(1, shape), "contiguous");
    }
    check(kernel, &View::<T>::strided(2, &[4, 34], &[50, 1]), "narrowed");
    check(kernel, &View::<T>::strided(3, &[2, 5, 16], &[16, 32, 1]), "transposed");
    check(kernel, &View::<T>::strided(4, &[6, 18], &[0, 1]), "broadcast");
    for bad in [f64::NAN, f64::INFINITY] {
        for at in [5, 20] {
            let mut x = View::<T>::contiguous(6, &[3, 38]);
            x.set(&[1, at], bad);
            check(kernel, &x, &format!("with {bad} at {at}"));
        }
    }
    // Far from zero the gate is open or shut, without an overflow on the way.
    let mut x = View::<T>::contiguous(7, &[1, 34]);
    for (at, value) in [-60000.0, -1000.0, -100.0, -90.0, 90.0, 100.0, 1000.0, 20000.0].into_iter().enumerate() {
        x.set(&[0, at], value);
    }
    check(kernel, &x, "large");
}

/// A real call that went wrong elsewhere: halves of a wider tensor, by their strides; never as if they were contiguous.
fn check_views<T: Number>(kernel: &GatedActivationKernel) {
    check(kernel, &View::<T>::strided(8, &[1, 51, 2048], &[51 * 4096, 4096, 1]), "one of two chunks");
    check(kernel, &View::<T>::strided(9, &[51, 3, 64], &[64, 51 * 64, 1]), "transposed");
    check(kernel, &View::<T>::strided(10, &[3, 51, 64], &[0, 64, 1]), "broadcast");
    for strides in [[1, 51], [2, 0]] {
        let x = View::<T>::strided(11, &[51, 2], &strides);
        let error = kernel.forward_to_vec::<T>(&x.tensor(), &[51, 1]).err().unwrap();
        assert!(matches!(error, BindError::Layout { argument: "x", .. }), "{error}");
    }
}

#[test]
fn f42_views_are_read_by_their_strides_or_refused() {
    let Some(hub) = embedded::hub() else { return };
    let kernel = embedded::layer(hub, "activation", "SiluAndMul");
    let LayerKernel::GatedActivation(kernel) = &*kernel else { panic!("{kernel:?}") };
    for_each_dtype!(check_views(kernel));
}

fn check_widths<T: Number>(kernel: &GatedActivationKernel) {
    for shape in [&[2, 2 * 3420][..], &[2, 2 * 1408], &[5, 2 * 7], &[5, 2], &[0, 2 * 7], &[0, 0], &[70_001, 2]] {
        check(kernel, &View::<T>::contiguous(12, shape), "width and rows");
    }
}

#[test]
fn f47_any_width_no_rows_and_many_rows_are_computed() {
    let Some(hub) = embedded::hub() else { return };
    let kernel = embedded::layer(hub, "activation", "SiluAndMul");
    let LayerKernel::GatedActivation(kernel) = &*kernel else { panic!("{kernel:?}") };
    for_each_dtype!(check_widths(kernel));
}

#[test]
fn silu_and_mul() {
    let Some(hub) = embedded::hub() else { return };
    let kernel = embedded::layer(hub, "activation", "SiluAndMul");
    let LayerKernel::GatedActivation(kernel) = &*kernel else { panic!("{kernel:?}") };
    for_each_dtype!(check_all(kernel));
}
