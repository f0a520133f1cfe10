//! Linear layers.

use super::compare::{Case, Checker, exact};
use super::number::Number;
use super::sample::{Layout, Sample, collect, unit, widths};
use super::{ParityError, takes};
use crate::bind::LinearKernel;

pub(super) fn linear<T: Number>(kernel: &LinearKernel, checker: &mut Checker<'_>) -> Result<(), ParityError> {
    let meta = checker.meta;
    let unit = unit::<T>(meta);
    let out_features = 5_usize.next_multiple_of(unit);
    for in_features in widths::<T>(meta) {
        for layout in Layout::of_rows(in_features, unit, false) {
            let x = Sample::<T>::new(meta, &mut checker.noise, 0.5, &layout);
            let rows = Layout::contiguous(&[out_features, in_features]);
            let apart = Layout { name: "rows apart", strides: vec![in_features + unit, 1], ..rows.clone() };
            for weight_layout in [rows, apart] {
                let weight = Sample::<T>::new(meta, &mut checker.noise, 0.5, &weight_layout);
                let bias = Sample::<T>::new(meta, &mut checker.noise, 1.0, &Layout::contiguous(&[out_features]));
                let (x_values, weights, biases) = (x.values(), weight.values(), bias.values());
                let of = |has_bias: bool| {
                    let rows = x_values.chunks(in_features);
                    let product = |row: &[f64], at: usize| {
                        let weight = &weights[at * in_features..][..in_features];
                        row.iter().zip(weight).map(|(x, weight)| x * weight).sum::<f64>()
                    };
                    let element = |row, at| product(row, at) + if has_bias { biases[at] } else { 0.0 };
                    exact(rows.flat_map(|row| (0..out_features).map(|at| element(row, at)).collect::<Vec<_>>()))
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
                        kernel.forward(out, &x.tensor()?, &weight.tensor()?, bias.as_ref())
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
