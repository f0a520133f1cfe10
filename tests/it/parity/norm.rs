//! `kernelhub/rmsnorm`.

use kernelhub::bind::{BindError, LayerKernel, RmsNormKernel, TensorRef};

use super::{Number, View, assert_close, for_each_dtype, indices};
use crate::support::embedded;

const EPS: f64 = 1e-5;

fn formula<T: Number>(x: &View<T>, weight: &View<T>) -> Vec<f64> {
    let (hidden, leading) = x.shape.split_last().unwrap();
    let rows = indices(leading);
    rows.iter()
        .flat_map(|row| {
            let values: Vec<f64> = (0..*hidden).map(|at| x.at(&[&row[..], &[at]].concat())).collect();
            let mean = values.iter().map(|value| value * value).sum::<f64>() / *hidden as f64;
            let scale = (mean + EPS).sqrt();
            (0..*hidden).map(|at| values[at] / scale * weight.at(&[at])).collect::<Vec<_>>()
        })
        .collect()
}

fn check<T: Number>(kernel: &RmsNormKernel, x: &View<T>, what: &str) {
    let weight = View::<T>::contiguous(99, &x.shape[x.shape.len() - 1..]);
    let actual = kernel.forward_to_vec::<T>(&x.tensor(), &x.shape, &weight.tensor(), EPS, 0.0).unwrap();
    assert_close(&actual, &formula(x, &weight), &format!("{what} {:?} by {:?}", x.shape, x.strides));
}

fn check_all<T: Number>(kernel: &RmsNormKernel) {
    for shape in [&[1][..], &[7], &[1, 1], &[3, 129], &[2, 3, 64], &[1, 1, 1, 33], &[0, 5], &[2, 0, 5], &[70, 576]] {
        check(kernel, &View::<T>::contiguous(1, shape), "contiguous");
    }
    check(kernel, &View::<T>::strided(2, &[4, 33], &[50, 1]), "narrowed");
    check(kernel, &View::<T>::strided(3, &[2, 5, 16], &[16, 32, 1]), "transposed");
    check(kernel, &View::<T>::strided(4, &[6, 17], &[0, 1]), "broadcast");
    check(kernel, &View::<T>::strided(5, &[3, 1], &[5, 7]), "one column");
    // A row with a number that is none harms itself alone.
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut x = View::<T>::contiguous(6, &[3, 37]);
        x.set(&[1, 20], bad);
        check(kernel, &x, &format!("with {bad}"));
    }
}

/// Views that begin inside of their memory: the offset is in elements, folded into the address, and followed.
fn check_offsets<T: Number>(kernel: &RmsNormKernel) {
    // `narrow(0, 1, 3)` of `[5, 7]`: rows of 14 or 28 bytes, which begin at no multiple of 16.
    let whole = View::<T>::contiguous(8, &[5, 7]);
    let weight = View::<T>::contiguous(9, &[7]);
    let part = View { data: whole.data[7..].to_vec(), shape: vec![3, 7], strides: vec![7, 1] };
    let narrowed = TensorRef::new(&whole.data[7..], &[3, 7], &[7, 1]).unwrap();
    let actual = kernel.forward_to_vec::<T>(&narrowed, &[3, 7], &weight.tensor(), EPS, 0.0).unwrap();
    assert_close(&actual, &formula(&part, &weight), "narrowed");
    check(kernel, &View::<T>::strided(10, &[3, 1], &[5, 7]), "an odd stride on an axis of one");
    check(kernel, &View::<T>::strided(11, &[1, 7], &[3, 1]), "an odd stride on an axis of one");
    check(kernel, &View::<T>::contiguous(12, &[3, 0]), "no elements");
    let scalar = TensorRef::contiguous(&whole.data[..1], &[]).unwrap();
    let error = kernel.forward_to_vec::<T>(&scalar, &[], &weight.tensor(), EPS, 0.0).err().unwrap();
    assert!(matches!(error, BindError::Shape { argument: "x", .. }), "{error}");
}

#[test]
fn f46_offsets_ranks_and_odd_strides_are_followed() {
    let Some(hub) = embedded::hub() else { return };
    let kernel = embedded::layer(hub, "rmsnorm", "RMSNorm");
    let LayerKernel::RmsNorm(kernel) = &*kernel else { panic!("{kernel:?}") };
    for_each_dtype!(check_offsets(kernel));
}

#[test]
fn rms_norm() {
    let Some(hub) = embedded::hub() else { return };
    let kernel = embedded::layer(hub, "rmsnorm", "RMSNorm");
    let LayerKernel::RmsNorm(kernel) = &*kernel else { panic!("{kernel:?}") };
    for_each_dtype!(check_all(kernel));
}
