//! Contracts with indices: embedding and cross-entropy.

use super::ParityError;
use super::compare::{Case, Checker, exact};
use super::number::Number;
use super::sample::{Layout, Sample, collect, unit, widths};
use crate::bind::{BindError, CrossEntropyKernel, EmbeddingKernel, IndexElement, TensorRef};

/// Indices in one of the types that the contracts take.
#[derive(Debug)]
enum Indices {
    U32(Vec<u32>),
    I64(Vec<i64>),
}

impl Indices {
    /// The same indices in both types; the second only where one is negative.
    fn of(indices: &[i64]) -> Vec<Self> {
        let unsigned: Result<Vec<u32>, _> = indices.iter().map(|index| u32::try_from(*index)).collect();
        unsigned.ok().map(Self::U32).into_iter().chain([Self::I64(indices.to_vec())]).collect()
    }

    fn tensor<'a>(&'a self, shape: &'a [usize]) -> Result<TensorRef<'a>, BindError> {
        match self {
            Self::U32(indices) => TensorRef::indices(indices, shape),
            Self::I64(indices) => TensorRef::indices(indices, shape),
        }
    }

    fn dtype(&self) -> crate::dtype::DType {
        match self {
            Self::U32(_) => u32::DTYPE,
            Self::I64(_) => i64::DTYPE,
        }
    }
}

const VOCAB: usize = 11;

pub(super) fn embedding<T: Number>(kernel: &EmbeddingKernel, checker: &mut Checker<'_>) -> Result<(), ParityError> {
    let meta = checker.meta;
    for hidden in widths::<T>(meta) {
        let rows = Layout::contiguous(&[VOCAB, hidden]);
        let apart = Layout { name: "rows apart", strides: vec![hidden + unit::<T>(meta), 1], ..rows.clone() };
        for (layout, shape) in [(&rows, &[2, 4][..]), (&apart, &[7]), (&rows, &[0]), (&rows, &[])] {
            let weight = Sample::<T>::new(meta, &mut checker.noise, 1.0, layout);
            let mut index = || i64::try_from(checker.noise.below(VOCAB)).unwrap_or_default();
            let mut ids: Vec<i64> = (0..shape.iter().product()).map(|_| index()).collect();
            // Both ends, whatever the noise.
            if let [first, .., last] = &mut ids[..] {
                (*first, *last) = (0, i64::try_from(VOCAB - 1).unwrap_or_default());
            }
            let weights = weight.values();
            let row = |id: &i64| weights[usize::try_from(*id).unwrap_or_default() * hidden..][..hidden].to_vec();
            let expected = exact(ids.iter().flat_map(row));
            for indices in Indices::of(&ids) {
                let name =
                    format!("ids {shape:?} of {}, weight {:?}, {}", indices.dtype(), weight.shape(), layout.name);
                let case = Case::forward(&name);
                let outcome = collect(meta, &[shape, &[hidden]].concat(), |out| {
                    kernel.forward(out, &indices.tensor(shape)?, &weight.tensor()?)
                });
                let actual = checker.written::<T, T>(&case, outcome)?;
                checker.compare::<T, T>(&case, &actual, &expected, Vec::new)?;
            }
        }
    }
    Ok(())
}

/// The loss of a row and its gradient for the logits.
fn cross_entropy_of(logits: &[f64], target: i64, ignore_index: i64) -> (f64, Vec<f64>) {
    if target == ignore_index {
        return (0.0, vec![0.0; logits.len()]);
    }
    let target = usize::try_from(target).unwrap_or_default();
    let highest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = logits.iter().map(|logit| (logit - highest).exp()).sum();
    let loss = total.ln() + highest - logits[target];
    let one_hot = |at: usize| if at == target { 1.0 } else { 0.0 };
    let gradient = logits.iter().enumerate().map(|(at, logit)| (logit - highest).exp() / total - one_hot(at));
    (loss, gradient.collect())
}

pub(super) fn cross_entropy<T: Number>(
    kernel: &CrossEntropyKernel,
    checker: &mut Checker<'_>,
) -> Result<(), ParityError> {
    let meta = checker.meta;
    for vocab in widths::<T>(meta) {
        let rows = Layout::contiguous(&[6, vocab]);
        let apart = Layout { name: "rows apart", strides: vec![vocab + unit::<T>(meta), 1], ..rows.clone() };
        for layout in [rows, apart, Layout { name: "no rows", ..Layout::contiguous(&[0, vocab]) }] {
            let logits = Sample::<T>::new(meta, &mut checker.noise, 2.0, &layout);
            // An index outside of the vocabulary, and one inside, which then is no target.
            for ignore_index in [-100, 0] {
                let mut index = || i64::try_from(checker.noise.below(vocab)).unwrap_or_default();
                let mut targets: Vec<i64> = (0..layout.shape[0]).map(|_| index()).collect();
                if let [.., ignored, _] = &mut targets[..] {
                    *ignored = ignore_index;
                }
                for indices in Indices::of(&targets) {
                    let name = format!(
                        "logits {:?}, {}, targets of {}, ignore_index {ignore_index}",
                        logits.shape(),
                        layout.name,
                        indices.dtype()
                    );
                    check_cross_entropy(kernel, checker, &name, &logits, (&targets, &indices), ignore_index)?;
                }
            }
        }
    }
    Ok(())
}

fn check_cross_entropy<T: Number>(
    kernel: &CrossEntropyKernel,
    checker: &mut Checker<'_>,
    name: &str,
    logits: &Sample<T>,
    (targets, indices): (&[i64], &Indices),
    ignore_index: i64,
) -> Result<(), ParityError> {
    let meta = checker.meta;
    let &[rows, vocab] = logits.shape() else { return Ok(()) };
    let values = logits.values();
    let of = |ignore_index: i64| -> Vec<(f64, Vec<f64>)> {
        let rows = values.chunks(vocab).zip(targets);
        rows.map(|(logits, target)| cross_entropy_of(logits, *target, ignore_index)).collect()
    };
    let expected = of(ignore_index);
    let case = Case::forward(name).of_output("loss");
    let outcome =
        collect(meta, &[rows], |loss| kernel.forward(loss, &logits.tensor()?, &indices.tensor(&[rows])?, ignore_index));
    let actual = checker.written::<T, f32>(&case, outcome)?;
    checker.compare::<T, f32>(&case, &actual, &exact(expected.iter().map(|(loss, _)| *loss)), || {
        // No target is this one, and those that are outside were refused.
        let is_inside = (0..i64::try_from(vocab).unwrap_or_default()).contains(&ignore_index);
        let ignored = is_inside.then(|| exact(of(-1).into_iter().map(|(loss, _)| loss)));
        ignored.map(|numbers| ("it ignores ignore_index".to_owned(), numbers)).into_iter().collect()
    })?;
    if !meta.has_backward {
        return Ok(());
    }
    let dloss = Sample::<f32>::new(meta, &mut checker.noise, 1.0, &Layout::contiguous(&[rows]));
    let case = Case::backward(name, "dlogits");
    let outcome = collect(meta, logits.shape(), |dlogits| {
        kernel.backward(dlogits, &dloss.tensor()?, &logits.tensor()?, &indices.tensor(&[rows])?, ignore_index)
    });
    let actual = checker.written::<T, T>(&case, outcome)?;
    let gradients = expected.iter().zip(dloss.values());
    let gradients = gradients.flat_map(|((_, row), dloss)| row.iter().map(move |slope| slope * dloss));
    checker.compare::<T, T>(&case, &actual, &exact(gradients), Vec::new)
}

#[cfg(test)]
mod tests {
    use super::super::sample::Noise;
    use super::cross_entropy_of;

    #[test]
    fn the_gradient_is_that_of_central_differences() {
        let mut noise = Noise::new(4);
        let logits: Vec<f64> = (0..5).map(|_| noise.number()).collect();
        let (_, gradient) = cross_entropy_of(&logits, 3, -100);
        for (at, gradient) in gradient.iter().enumerate() {
            let moved = |by: f64| {
                let mut logits = logits.clone();
                logits[at] += by;
                cross_entropy_of(&logits, 3, -100).0
            };
            let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!((slope - gradient).abs() < 1e-8, "{at}: {slope}, {gradient}");
        }
        assert_eq!(cross_entropy_of(&logits, -100, -100), (0.0, vec![0.0; 5]));
    }
}
