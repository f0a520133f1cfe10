//! Gated linear layers.

use super::activations::sigmoid;
use super::compare::{Bounds, Case, Checker, exact};
use super::number::Number;
use super::sample::{Layout, Sample, collect, unit, widths};
use super::{ParityError, takes};
use crate::bind::{Contract, GatedLinear, GatedLinearKernel};

/// What the two halves become.
fn join(kind: GatedLinear, gate: f64, up: f64) -> f64 {
    match kind {
        GatedLinear::Silu => gate * sigmoid(gate) * up,
    }
}

/// `x weight^T + bias`, row by row.
fn products(x: &[f64], weight: &[f64], bias: Option<&[f64]>, in_features: usize) -> Vec<Vec<f64>> {
    let product = |row: &[f64], at: usize| {
        let weight = &weight[at * in_features..][..in_features];
        row.iter().zip(weight).map(|(x, weight)| x * weight).sum::<f64>() + bias.map_or(0.0, |bias| bias[at])
    };
    let rows = weight.len() / in_features;
    x.chunks(in_features).map(|row| (0..rows).map(|at| product(row, at)).collect()).collect()
}

pub(super) fn gated_linear<T: Number>(
    kernel: &GatedLinearKernel,
    checker: &mut Checker<'_>,
) -> Result<(), ParityError> {
    let meta = checker.meta;
    let Contract::GatedLinear(kind) = meta.contract else { return Ok(()) };
    let unit = unit::<T>(meta);
    let d = 5_usize.next_multiple_of(unit);
    for in_features in widths::<T>(meta) {
        for layout in Layout::of_rows(in_features, unit, false) {
            let x = Sample::<T>::new(meta, &mut checker.noise, 0.5, &layout);
            let rows = Layout::contiguous(&[2 * d, in_features]);
            let apart = Layout { name: "rows apart", strides: vec![in_features + unit, 1], ..rows.clone() };
            for weight_layout in [rows, apart] {
                let weight = Sample::<T>::new(meta, &mut checker.noise, 0.5, &weight_layout);
                let bias = Sample::<T>::new(meta, &mut checker.noise, 1.0, &Layout::contiguous(&[2 * d]));
                let (x_values, weights, biases) = (x.values(), weight.values(), bias.values());
                let of = |has_bias: bool, with: &dyn Fn(f64, f64) -> f64| -> Vec<Bounds> {
                    let products = products(&x_values, &weights, has_bias.then_some(&biases), in_features);
                    exact(products.iter().flat_map(|row| (0..d).map(|at| with(row[at], row[d + at]))))
                };
                for has_bias in if takes(meta, "bias") { &[false, true][..] } else { &[false] } {
                    let with = if *has_bias { "with" } else { "without" };
                    let name =
                        format!("x {:?}, {}, weight {}, {with} a bias", x.shape(), layout.name, weight_layout.name);
                    let case = Case::forward(&name);
                    let mut shape = x.shape().to_vec();
                    if let Some(last) = shape.last_mut() {
                        *last = d;
                    }
                    let outcome = collect(meta, &shape, |out| {
                        let bias = if *has_bias { Some(bias.tensor()?) } else { None };
                        kernel.forward(out, &x.tensor()?, &weight.tensor()?, bias.as_ref())
                    });
                    let actual = checker.written::<T, T>(&case, outcome)?;
                    let expected = of(*has_bias, &|gate, up| join(kind, gate, up));
                    checker.compare::<T, T>(&case, &actual, &expected, || {
                        let text = |text: &str| format!("its numbers are those {text}");
                        vec![
                            (text("without the bias"), of(false, &|gate, up| join(kind, gate, up))),
                            (
                                text("of the rows of up before those of the gate"),
                                of(*has_bias, &|a, b| join(kind, b, a)),
                            ),
                            (text("without the activation"), of(*has_bias, &|gate, up| gate * up)),
                        ]
                    })?;
                }
            }
        }
    }
    Ok(())
}
