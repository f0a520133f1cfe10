//! Linear layers, and pairs of them of which one gates the other.

use super::compare::{Case, Checker, exact};
use super::number::Number;
use super::sample::{Layout, Sample, collect, unit, widths};
use super::{ParityError, takes};
use crate::bind::{BindError, LinearKernel, SiluGatedLinearKernel, TensorMut, TensorRef};

pub(super) fn linear<T: Number>(kernel: &LinearKernel, checker: &mut Checker<'_>) -> Result<(), ParityError> {
    let call = |out: &mut TensorMut<'_>, x: &TensorRef<'_>, weight: &TensorRef<'_>, bias: Option<&TensorRef<'_>>| {
        kernel.forward(out, x, weight, bias)
    };
    products::<T>(checker, (1, 0.5), &|products: &[f64], at| products[at], &call)
}

pub(super) fn silu_gated_linear<T: Number>(
    kernel: &SiluGatedLinearKernel,
    checker: &mut Checker<'_>,
) -> Result<(), ParityError> {
    let call = |out: &mut TensorMut<'_>, x: &TensorRef<'_>, weight: &TensorRef<'_>, bias: Option<&TensorRef<'_>>| {
        kernel.forward(out, x, weight, bias)
    };
    let gated = |products: &[f64], at: usize| {
        let (gate, up) = (products[at], products[at + products.len() / 2]);
        gate / (1.0 + (-gate).exp()) * up
    };
    // Smaller weights, so that products of sums are of about 1.
    products::<T>(checker, (2, 0.2), &gated, &call)
}

/// A kernel's call with `out`, `x`, `weight` and `bias`.
type Call<'a> =
    &'a dyn Fn(&mut TensorMut<'_>, &TensorRef<'_>, &TensorRef<'_>, Option<&TensorRef<'_>>) -> Result<(), BindError>;

/// Checks a kernel that makes each output of `per_output` products of a row with rows of the weight, whose numbers are
/// of the size `scale`: `element` gives the output at an index, from all products of one row.
fn products<T: Number>(
    checker: &mut Checker<'_>,
    (per_output, scale): (usize, f64),
    element: &dyn Fn(&[f64], usize) -> f64,
    call: Call<'_>,
) -> Result<(), ParityError> {
    let meta = checker.meta;
    let unit = unit::<T>(meta);
    let out_features = 5_usize.next_multiple_of(unit);
    let weight_rows = per_output * out_features;
    for in_features in widths::<T>(meta) {
        for layout in Layout::of_rows(in_features, unit, false) {
            let x = Sample::<T>::new(meta, &mut checker.noise, 0.5, &layout);
            let rows = Layout::contiguous(&[weight_rows, in_features]);
            let apart = Layout { name: "rows apart", strides: vec![in_features + unit, 1], ..rows.clone() };
            for weight_layout in [rows, apart] {
                let weight = Sample::<T>::new(meta, &mut checker.noise, scale, &weight_layout);
                let bias = Sample::<T>::new(meta, &mut checker.noise, 2.0 * scale, &Layout::contiguous(&[weight_rows]));
                let (x_values, weights, biases) = (x.values(), weight.values(), bias.values());
                let of = |has_bias: bool| {
                    let product = |row: &[f64], at: usize| {
                        let weight = &weights[at * in_features..][..in_features];
                        let sum = row.iter().zip(weight).map(|(x, weight)| x * weight).sum::<f64>();
                        sum + if has_bias { biases[at] } else { 0.0 }
                    };
                    exact(x_values.chunks(in_features).flat_map(|row| {
                        let products: Vec<_> = (0..weight_rows).map(|at| product(row, at)).collect();
                        (0..out_features).map(|at| element(&products, at)).collect::<Vec<_>>()
                    }))
                };
                for has_bias in if takes(meta, "bias") { &[false, true][..] } else { &[false] } {
                    let with = if *has_bias { "with" } else { "without" };
                    let name =
                        format!("x {:?}, {}, weight {}, {with} a bias", x.shape(), layout.name, weight_layout.name);
                    let case = Case::forward(&name);
                    let mut shape = x.shape().to_vec();
                    if let Some(last) = shape.last_mut() {
                        *last = out_features;
                    }
                    let outcome = collect(meta, &shape, |out| {
                        let bias = if *has_bias { Some(bias.tensor()?) } else { None };
                        call(out, &x.tensor()?, &weight.tensor()?, bias.as_ref())
                    });
                    let actual = checker.written::<T, T>(&case, outcome)?;
                    checker.compare::<T, T>(&case, &actual, &of(*has_bias), || {
                        vec![("its numbers are those without the bias".to_owned(), of(false))]
                    })?;
                }
            }
        }
    }
    Ok(())
}
