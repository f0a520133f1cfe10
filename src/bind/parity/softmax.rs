//! The softmax of rows.

use super::ParityError;
use super::compare::{Case, Checker, exact};
use super::number::Number;
use super::sample::{Layout, Sample, collect, unit, widths};
use crate::bind::SoftmaxKernel;

fn softmax_of(x: &[f64], width: usize) -> Vec<f64> {
    let of_row = |row: &[f64]| {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let exponentials: Vec<f64> = row.iter().map(|x| (x - max).exp()).collect();
        let sum: f64 = exponentials.iter().sum();
        exponentials.into_iter().map(|value| value / sum).collect::<Vec<_>>()
    };
    x.chunks(width.max(1)).flat_map(of_row).collect()
}

pub(super) fn softmax<T: Number>(kernel: &SoftmaxKernel, checker: &mut Checker<'_>) -> Result<(), ParityError> {
    let meta = checker.meta;
    for width in widths::<T>(meta) {
        for layout in Layout::of_rows(width, unit::<T>(meta), false) {
            // Wide enough that a row's elements differ by powers of ten.
            let x = Sample::<T>::new(meta, &mut checker.noise, 4.0, &layout);
            let case = Case::forward(&format!("x {:?}, {}", x.shape(), layout.name));
            let outcome = collect(meta, x.shape(), |out| kernel.forward(out, &x.tensor()?));
            let actual = checker.written::<T, T>(&case, outcome)?;
            let values = x.values();
            checker.compare::<T, T>(&case, &actual, &exact(softmax_of(&values, width)), || {
                let by_all = exact(softmax_of(&values, values.len()));
                let unscaled = exact(values.iter().map(|x| x.exp()));
                vec![
                    ("its numbers are those of one row of all rows".to_owned(), by_all),
                    ("its numbers are those without the division by the sum".to_owned(), unscaled),
                ]
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::softmax_of;

    #[test]
    fn rows_sum_to_one_in_the_ratio_of_their_exponentials() {
        let out = softmax_of(&[0.0, 2.0_f64.ln(), 1000.0, 1000.0], 2);
        let expected = [1.0 / 3.0, 2.0 / 3.0, 0.5, 0.5];
        assert!(out.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{out:?}");
    }
}
