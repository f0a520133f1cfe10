//! RMSNorm, alone and after a residual add, and LayerNorm.

use super::compare::{Bounds, Case, Checker, Instead, exact};
use super::number::{Number, round};
use super::sample::{Layout, Output, Sample, Written, collect, unit, widths};
use super::{ParityError, takes};
#[cfg(feature = "wgpu")]
use crate::bind::kernel::Route;
use crate::bind::{AddRmsNormKernel, BindError, LayerNormKernel, RmsNormKernel, Rounding};

/// The numbers of a norm.
#[derive(Debug, Clone, Copy)]
struct Numbers {
    eps: f64,
    offset: f64,
}

/// A usual and a large `eps`, so that one that is ignored shows, and every `offset` that the kernel takes.
fn numbers(has_offset: bool) -> Vec<Numbers> {
    let offsets: &[f64] = if has_offset { &[0.0, 1.0] } else { &[0.0] };
    offsets.iter().flat_map(|offset| [1e-5, 0.5].map(|eps| Numbers { eps, offset: *offset })).collect()
}

/// `x / sqrt(mean(x^2) + eps) * (weight + offset)` of row-major rows, in a rounding order of `T`.
fn rms_norm_of<T: Number>(x: &[f64], weight: &[f64], numbers: Numbers, rounding: Rounding) -> Vec<Bounds> {
    let rows = x.chunks(weight.len().max(1));
    let of_row = |row: &[f64]| {
        let scale = (mean(row.iter().map(|x| x * x)) + numbers.eps).sqrt();
        let elements = row.iter().zip(weight);
        let bounds = elements.map(|(x, weight)| {
            let factor = weight + numbers.offset;
            match rounding {
                Rounding::F32WeightDtype => Bounds::of(|[a, _]| round::<T>(x / scale * a) * round::<T>(factor)),
                Rounding::Dtype => Bounds::of(|[a, b]| round::<T>(x / round::<T>(scale * a) * b) * round::<T>(factor)),
                _ => Bounds::exact(x / scale * factor),
            }
        });
        bounds.collect::<Vec<_>>()
    };
    rows.flat_map(of_row).collect()
}

#[expect(clippy::cast_precision_loss, reason = "the lengths of small rows")]
fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

/// What a norm may have computed instead: another rounding, or without one of its numbers.
fn instead<T: Number>(x: &[f64], weight: &[f64], numbers: Numbers, declared: Rounding) -> Vec<Instead> {
    let orders = [Rounding::F32WeightF32, Rounding::F32WeightDtype, Rounding::Dtype];
    let others = orders.into_iter().filter(|order| order.differs_from(declared, T::DTYPE));
    let mut all: Vec<Instead> = others
        .map(|order| {
            (format!("its numbers are those of the rounding {order}"), rms_norm_of::<T>(x, weight, numbers, order))
        })
        .collect();
    for (words, other) in [
        ("its numbers are those without the offset", Numbers { offset: 0.0, ..numbers }),
        ("its numbers are those of eps = 1e-5", Numbers { eps: 1e-5, ..numbers }),
        ("its numbers are those of eps = 1e-6", Numbers { eps: 1e-6, ..numbers }),
        ("its numbers are those of eps = 0", Numbers { eps: 0.0, ..numbers }),
    ] {
        all.push((words.to_owned(), rms_norm_of::<T>(x, weight, other, declared)));
    }
    all
}

/// The gradients of RMSNorm for `x` and `weight`: with `n = x / scale` and `g = dy * (weight + offset)`,
/// `dx = (g - n * mean(g * n)) / scale` and `dweight = sum over rows of dy * n`.
fn rms_norm_gradients(x: &[f64], weight: &[f64], dy: &[f64], numbers: Numbers) -> (Vec<f64>, Vec<f64>) {
    let hidden = weight.len().max(1);
    let mut dx = Vec::with_capacity(x.len());
    let mut dweight = vec![0.0; weight.len()];
    for (x, dy) in x.chunks(hidden).zip(dy.chunks(hidden)) {
        let scale = (mean(x.iter().map(|x| x * x)) + numbers.eps).sqrt();
        let normed: Vec<f64> = x.iter().map(|x| x / scale).collect();
        let weighed: Vec<f64> = dy.iter().zip(weight).map(|(dy, weight)| dy * (weight + numbers.offset)).collect();
        let along = mean(weighed.iter().zip(&normed).map(|(g, n)| g * n));
        dx.extend(weighed.iter().zip(&normed).map(|(g, n)| (g - n * along) / scale));
        for ((sum, dy), n) in dweight.iter_mut().zip(dy).zip(&normed) {
            *sum += dy * n;
        }
    }
    (dx, dweight)
}

pub(super) fn rms_norm<T: Number>(kernel: &RmsNormKernel, checker: &mut Checker<'_>) -> Result<(), ParityError> {
    let (meta, rounding) = (checker.meta, checker.rounding());
    let is_shader = kernel.route.is_shader();
    for width in widths::<T>(meta) {
        for layout in Layout::of_rows(width, unit::<T>(meta), is_shader) {
            let x = Sample::<T>::new(meta, &mut checker.noise, 1.0, &layout);
            let weight = Sample::<T>::new(meta, &mut checker.noise, 1.0, &Layout::contiguous(&[width]));
            let (x_values, weight_values) = (x.values(), weight.values());
            for numbers in numbers(takes(meta, "offset")) {
                let name =
                    format!("x {:?}, {}, eps {}, offset {}", x.shape(), layout.name, numbers.eps, numbers.offset);
                let case = Case::forward(&name);
                let actual = checker.written::<T, T>(&case, run(kernel, &x, &weight, numbers))?;
                let expected = rms_norm_of::<T>(&x_values, &weight_values, numbers, rounding);
                checker.compare::<T, T>(&case, &actual, &expected, || {
                    instead::<T>(&x_values, &weight_values, numbers, rounding)
                })?;
                let is_taken = numbers.offset == 0.0 || meta.backward_lacks(&["offset"]).is_none();
                if meta.has_backward && is_taken {
                    rms_norm_backward(kernel, checker, &name, (&x, &weight), numbers)?;
                }
            }
        }
    }
    Ok(())
}

fn run<T: Number>(
    kernel: &RmsNormKernel,
    x: &Sample<T>,
    weight: &Sample<T>,
    Numbers { eps, offset }: Numbers,
) -> Result<Written<T>, BindError> {
    #[cfg(feature = "wgpu")]
    if let Route::Shader(shader) = &kernel.route {
        let (device, failed) = (shader.device(), |source| kernel.meta.shader_fault(source));
        let on_gpu = |sample: &Sample<T>| super::number::upload::<T>(device, sample.shape(), &sample.values());
        #[expect(clippy::cast_possible_truncation, reason = "shaders take their numbers in f32")]
        let (eps, offset) = (eps as f32, offset as f32);
        let out = kernel.forward_gpu(&on_gpu(x).map_err(failed)?, &on_gpu(weight).map_err(failed)?, eps, offset)?;
        return Ok(Some(T::from_bytes(&out.download().map_err(failed)?)));
    }
    collect(&kernel.meta, x.shape(), |out| kernel.forward(out, &x.tensor()?, &weight.tensor()?, eps, offset))
}

fn rms_norm_backward<T: Number>(
    kernel: &RmsNormKernel,
    checker: &mut Checker<'_>,
    name: &str,
    (x, weight): (&Sample<T>, &Sample<T>),
    numbers: Numbers,
) -> Result<(), ParityError> {
    let meta = checker.meta;
    let dy = Sample::<T>::new(meta, &mut checker.noise, 1.0, &Layout::contiguous(x.shape()));
    let case = Case::backward(name, "dx");
    let (mut dx, mut dweight) = (Output::<T>::new(meta, x.shape()), Output::<T>::new(meta, weight.shape()));
    let Numbers { eps, offset } = numbers;
    let mut call = || -> Result<(), BindError> {
        let (mut dx, mut dweight) = (dx.tensor()?, dweight.tensor()?);
        kernel.backward(&mut dx, &mut dweight, &dy.tensor()?, &x.tensor()?, &weight.tensor()?, eps, offset)
    };
    let outcome = call();
    checker.written::<T, ()>(&case, outcome.map(|()| Some(Vec::new())))?;
    let gradients = rms_norm_gradients(&x.values(), &weight.values(), &dy.values(), numbers);
    let actual = checker.written::<T, T>(&case, Ok(dx.written()))?;
    checker.compare::<T, T>(&case, &actual, &exact(gradients.0), Vec::new)?;
    let case = case.of_output("dweight");
    let actual = checker.written::<T, T>(&case, Ok(dweight.written()))?;
    checker.compare::<T, T>(&case, &actual, &exact(gradients.1), Vec::new)
}

pub(super) fn add_rms_norm<T: Number>(kernel: &AddRmsNormKernel, checker: &mut Checker<'_>) -> Result<(), ParityError> {
    let (meta, rounding) = (checker.meta, checker.rounding());
    for width in widths::<T>(meta) {
        for layout in Layout::of_rows(width, unit::<T>(meta), false) {
            let x = Sample::<T>::new(meta, &mut checker.noise, 1.0, &layout);
            let residual = Sample::<T>::new(meta, &mut checker.noise, 1.0, &Layout::contiguous(x.shape()));
            let weight = Sample::<T>::new(meta, &mut checker.noise, 1.0, &Layout::contiguous(&[width]));
            for numbers in numbers(takes(meta, "offset")) {
                let Numbers { eps, offset } = numbers;
                let case = Case::forward(&format!("x {:?}, {}, eps {eps}, offset {offset}", x.shape(), layout.name));
                let (mut out, mut sum) = (Output::<T>::new(meta, x.shape()), Output::<T>::new(meta, x.shape()));
                let mut call = || -> Result<(), BindError> {
                    let (mut out, mut sum) = (out.tensor()?, sum.tensor()?);
                    let (x, residual) = (x.tensor()?, residual.tensor()?);
                    kernel.forward(&mut out, &mut sum, &x, &residual, &weight.tensor()?, eps, offset)
                };
                let outcome = call();
                checker.written::<T, ()>(&case, outcome.map(|()| Some(Vec::new())))?;
                let sums = checker.written::<T, T>(&case.of_output("residual_out"), Ok(sum.written()))?;
                let expected = exact(x.values().iter().zip(residual.values()).map(|(x, residual)| x + residual));
                checker.compare::<T, T>(&case.of_output("residual_out"), &sums, &expected, Vec::new)?;
                // What is normalised is the sum as it was rounded, which was just found to be right.
                let (sums, weights): (Vec<f64>, _) = (sums.iter().map(|sum| sum.wide()).collect(), weight.values());
                let actual = checker.written::<T, T>(&case, Ok(out.written()))?;
                let expected = rms_norm_of::<T>(&sums, &weights, numbers, rounding);
                checker
                    .compare::<T, T>(&case, &actual, &expected, || instead::<T>(&sums, &weights, numbers, rounding))?;
            }
        }
    }
    Ok(())
}

/// LayerNorm of row-major rows, in a rounding order of `T`.
fn layer_norm_of<T: Number>(
    x: &[f64],
    weight: &[f64],
    bias: Option<&[f64]>,
    eps: f64,
    rounding: Rounding,
) -> Vec<Bounds> {
    let of_row = |row: &[f64]| {
        let middle = mean(row.iter().copied());
        let deviation = (mean(row.iter().map(|x| (x - middle).powi(2))) + eps).sqrt();
        let elements = row.iter().zip(weight).enumerate();
        let bounds = elements.map(|(at, (x, weight))| {
            let (normed, bias) = ((x - middle) / deviation, bias.map_or(0.0, |bias| bias[at]));
            match rounding {
                Rounding::F32WeightDtype => Bounds::of(|[a, b]| round::<T>(round::<T>(normed * a) * weight * b) + bias),
                _ => Bounds::exact(normed * weight + bias),
            }
        });
        bounds.collect::<Vec<_>>()
    };
    x.chunks(weight.len().max(1)).flat_map(of_row).collect()
}

pub(super) fn layer_norm<T: Number>(kernel: &LayerNormKernel, checker: &mut Checker<'_>) -> Result<(), ParityError> {
    let (meta, rounding) = (checker.meta, checker.rounding());
    for width in widths::<T>(meta) {
        for layout in Layout::of_rows(width, unit::<T>(meta), false) {
            let x = Sample::<T>::new(meta, &mut checker.noise, 1.0, &layout);
            let weight = Sample::<T>::new(meta, &mut checker.noise, 1.0, &Layout::contiguous(&[width]));
            let bias = Sample::<T>::new(meta, &mut checker.noise, 1.0, &Layout::contiguous(&[width]));
            let biases: &[bool] = if takes(meta, "bias") { &[false, true] } else { &[false] };
            for (has_bias, eps) in biases.iter().flat_map(|has_bias| [1e-5, 0.5].map(|eps| (*has_bias, eps))) {
                let with = if has_bias { "with" } else { "without" };
                let name = format!("x {:?}, {}, {with} a bias, eps {eps}", x.shape(), layout.name);
                let case = Case::forward(&name);
                let outcome = collect(meta, x.shape(), |out| {
                    let bias = if has_bias { Some(bias.tensor()?) } else { None };
                    kernel.forward(out, &x.tensor()?, &weight.tensor()?, bias.as_ref(), eps)
                });
                let actual = checker.written::<T, T>(&case, outcome)?;
                let (x, weight, bias) = (x.values(), weight.values(), bias.values());
                let of = |has_bias: bool, eps: f64, rounding: Rounding| {
                    layer_norm_of::<T>(&x, &weight, has_bias.then_some(&bias[..]), eps, rounding)
                };
                checker.compare::<T, T>(&case, &actual, &of(has_bias, eps, rounding), || {
                    let order =
                        |order| (format!("its numbers are those of the rounding {order}"), of(has_bias, eps, order));
                    vec![
                        order(Rounding::F32WeightF32),
                        order(Rounding::F32WeightDtype),
                        ("its numbers are those without the bias".to_owned(), of(false, eps, rounding)),
                        ("its numbers are those of eps = 1e-5".to_owned(), of(has_bias, 1e-5, rounding)),
                    ]
                })?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::sample::Noise;
    use super::{Numbers, mean, rms_norm_gradients};

    #[test]
    fn the_gradients_are_those_of_central_differences() {
        let mut noise = Noise::new(1);
        let mut take = |count: usize| (0..count).map(|_| noise.number()).collect::<Vec<f64>>();
        let (x, weight, dy) = (take(10), take(5), take(10));
        let numbers = Numbers { eps: 0.1, offset: 1.0 };
        let loss = |x: &[f64], weight: &[f64]| {
            let rows = x.chunks(5).zip(dy.chunks(5)).map(|(x, dy)| {
                let scale = (mean(x.iter().map(|x| x * x)) + 0.1).sqrt();
                x.iter().zip(weight).zip(dy).map(|((x, weight), dy)| x / scale * (weight + 1.0) * dy).sum::<f64>()
            });
            rows.sum::<f64>()
        };
        let (dx, dweight) = rms_norm_gradients(&x, &weight, &dy, numbers);
        let step = 1e-5;
        let moved = |values: &[f64], at: usize, by: f64| {
            let mut values = values.to_vec();
            values[at] += by;
            values
        };
        for (at, dx) in dx.iter().enumerate() {
            let slope = (loss(&moved(&x, at, step), &weight) - loss(&moved(&x, at, -step), &weight)) / (2.0 * step);
            assert!((slope - dx).abs() < 1e-8, "{at}: {slope}, {dx}");
        }
        for (at, dweight) in dweight.iter().enumerate() {
            let slope = (loss(&x, &moved(&weight, at, step)) - loss(&x, &moved(&weight, at, -step))) / (2.0 * step);
            assert!((slope - dweight).abs() < 1e-8, "{at}: {slope}, {dweight}");
        }
    }
}
