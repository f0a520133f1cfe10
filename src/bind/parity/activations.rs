//! Activations, alone and gated.

use super::ParityError;
use super::compare::{Bounds, Case, Checker, Instead, exact};
use super::number::{Number, round};
use super::sample::{Layout, Sample, Written, collect, unit, widths};
#[cfg(feature = "wgpu")]
use crate::bind::kernel::Route;
use crate::bind::{
    Activation, ActivationKernel, BindError, Contract, GatedActivation, GatedActivationKernel, Rounding,
};

pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The error function, by a series whose terms all have the sign of `x`, so that none cancel out.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut odd) = (x, x, 1.0);
    while term.abs() > sum.abs() * 1e-17 {
        odd += 2.0;
        term *= 2.0 * x * x / odd;
        sum += term;
    }
    sum * (-x * x).exp() * std::f64::consts::FRAC_2_SQRT_PI
}

fn activate(activation: Activation, x: f64) -> f64 {
    let by_tanh = |scale: f64| 0.5 * x * (1.0 + (scale * (x + 0.044_715 * x.powi(3))).tanh());
    match activation {
        Activation::Silu => x * sigmoid(x),
        Activation::Gelu => 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        Activation::GeluTanh | Activation::GeluNew => by_tanh((2.0 / std::f64::consts::PI).sqrt()),
        Activation::GeluFast => by_tanh(0.797_884_560_8),
        Activation::GeluQuick => x * sigmoid(1.702 * x),
    }
}

/// The slope of `SiLU`.
fn silu_slope(x: f64) -> f64 {
    let gate = sigmoid(x);
    gate * (1.0 + x * (1.0 - gate))
}

pub(super) fn activation<T: Number>(kernel: &ActivationKernel, checker: &mut Checker<'_>) -> Result<(), ParityError> {
    let meta = checker.meta;
    let Contract::Activation(activation) = meta.contract else { return Ok(()) };
    let is_shader = kernel.route.is_shader();
    for width in widths::<T>(meta) {
        for layout in Layout::of_rows(width, unit::<T>(meta), is_shader) {
            // Into the tails, where the curves part.
            let x = Sample::<T>::new(meta, &mut checker.noise, 2.5, &layout);
            let case = Case::forward(&format!("x {:?}, {}", x.shape(), layout.name));
            let actual = checker.written::<T, T>(&case, run(kernel, &x))?;
            let of = |activation: Activation| exact(x.values().into_iter().map(|x| activate(activation, x)));
            checker.compare::<T, T>(&case, &actual, &of(activation), || {
                let name = |activation: Activation| Contract::Activation(activation).as_str();
                let all = Activation::ALL.into_iter();
                all.map(|other| (format!("its numbers are those of {}", name(other)), of(other))).collect()
            })?;
        }
    }
    Ok(())
}

fn run<T: Number>(kernel: &ActivationKernel, x: &Sample<T>) -> Result<Written<T>, BindError> {
    #[cfg(feature = "wgpu")]
    if let Route::Shader(shader) = &kernel.route {
        let failed = |source| kernel.meta.shader_fault(source);
        let x = super::number::upload::<T>(shader.device(), x.shape(), &x.values()).map_err(failed)?;
        return Ok(Some(T::from_bytes(&kernel.forward_gpu(&x)?.download().map_err(failed)?)));
    }
    collect(&kernel.meta, x.shape(), |out| kernel.forward(out, &x.tensor()?))
}

/// A gated activation of row-major rows `[..., 2 * d]`, in a rounding order of `T`.
fn gated_of<T: Number>(
    activation: GatedActivation,
    x: &[f64],
    d: usize,
    threshold: f64,
    rounding: Rounding,
) -> Vec<Bounds> {
    let by = |activation: Activation, x: f64, gate: f64| match rounding {
        Rounding::Dtype => Bounds::of(|[a, _]| round::<T>(activate(activation, x) * a) * gate),
        _ => Bounds::exact(activate(activation, x) * gate),
    };
    let element = |first: f64, second: f64| match activation {
        GatedActivation::Silu => by(Activation::Silu, first, second),
        GatedActivation::MulAndSilu => by(Activation::Silu, second, first),
        GatedActivation::Gelu => by(Activation::Gelu, first, second),
        GatedActivation::GeluTanh => by(Activation::GeluTanh, first, second),
        GatedActivation::Fatrelu => Bounds::exact(if first > threshold { first * second } else { 0.0 }),
    };
    let rows = x.chunks(2 * d);
    rows.flat_map(|row| (0..d).map(|at| element(row[at], row[d + at])).collect::<Vec<_>>()).collect()
}

pub(super) fn gated<T: Number>(kernel: &GatedActivationKernel, checker: &mut Checker<'_>) -> Result<(), ParityError> {
    let (meta, rounding) = (checker.meta, checker.rounding());
    let Contract::GatedActivation(activation) = meta.contract else { return Ok(()) };
    let thresholds: &[f64] = if activation == GatedActivation::Fatrelu { &[0.0, 0.5] } else { &[0.0] };
    let is_shader = kernel.route.is_shader();
    for d in widths::<T>(meta) {
        for layout in Layout::of_rows(2 * d, unit::<T>(meta), is_shader) {
            let x = Sample::<T>::new(meta, &mut checker.noise, 2.0, &layout);
            let values = x.values();
            for threshold in thresholds {
                let of = |activation| gated_of::<T>(activation, &values, d, *threshold, rounding);
                let name = format!("x {:?}, {}", x.shape(), layout.name);
                let name = match activation {
                    GatedActivation::Fatrelu => format!("{name}, threshold {threshold}"),
                    _ => name,
                };
                let case = Case::forward(&name);
                let actual = checker.written::<T, T>(&case, run_gated(kernel, activation, &x, *threshold))?;
                checker.compare::<T, T>(&case, &actual, &of(activation), || {
                    let name = |activation| Contract::GatedActivation(activation).as_str();
                    let others = GatedActivation::ALL.into_iter();
                    let mut all: Vec<Instead> =
                        others.map(|other| (format!("its numbers are those of {}", name(other)), of(other))).collect();
                    for order in [Rounding::F32, Rounding::Dtype] {
                        let numbers = gated_of::<T>(activation, &values, d, *threshold, order);
                        all.push((format!("its numbers are those of the rounding {order}"), numbers));
                    }
                    let without = gated_of::<T>(activation, &values, d, 0.0, rounding);
                    all.push(("its numbers are those of threshold = 0".to_owned(), without));
                    all
                })?;
                if meta.has_backward {
                    gated_backward(kernel, checker, &name, &x)?;
                }
            }
        }
    }
    Ok(())
}

fn half_shape(shape: &[usize]) -> Vec<usize> {
    let mut shape = shape.to_vec();
    if let Some(last) = shape.last_mut() {
        *last /= 2;
    }
    shape
}

fn run_gated<T: Number>(
    kernel: &GatedActivationKernel,
    activation: GatedActivation,
    x: &Sample<T>,
    threshold: f64,
) -> Result<Written<T>, BindError> {
    let has_threshold = activation == GatedActivation::Fatrelu;
    #[cfg(feature = "wgpu")]
    if let Route::Shader(shader) = &kernel.route {
        let failed = |source| kernel.meta.shader_fault(source);
        let x = super::number::upload::<T>(shader.device(), x.shape(), &x.values()).map_err(failed)?;
        #[expect(clippy::cast_possible_truncation, reason = "shaders take their numbers in f32")]
        let threshold = threshold as f32;
        let out = if has_threshold { kernel.forward_with_threshold_gpu(&x, threshold) } else { kernel.forward_gpu(&x) };
        return Ok(Some(T::from_bytes(&out?.download().map_err(failed)?)));
    }
    collect(&kernel.meta, &half_shape(x.shape()), |out| {
        if has_threshold {
            kernel.forward_with_threshold(out, &x.tensor()?, threshold)
        } else {
            kernel.forward(out, &x.tensor()?)
        }
    })
}

/// `dx` of `silu(a) * b`: `dy * b * silu'(a)` and `dy * silu(a)`.
fn gated_gradient(x: &[f64], dy: &[f64], d: usize) -> Vec<f64> {
    let rows = x.chunks(2 * d).zip(dy.chunks(d));
    rows.flat_map(|(x, dy)| {
        let first = (0..d).map(|at| dy[at] * x[d + at] * silu_slope(x[at]));
        let second = (0..d).map(|at| dy[at] * activate(Activation::Silu, x[at]));
        first.chain(second).collect::<Vec<_>>()
    })
    .collect()
}

fn gated_backward<T: Number>(
    kernel: &GatedActivationKernel,
    checker: &mut Checker<'_>,
    name: &str,
    x: &Sample<T>,
) -> Result<(), ParityError> {
    let meta = checker.meta;
    let half = half_shape(x.shape());
    let dy = Sample::<T>::new(meta, &mut checker.noise, 1.0, &Layout::contiguous(&half));
    let case = Case::backward(name, "dx");
    let outcome = collect(meta, x.shape(), |dx| kernel.backward(dx, &dy.tensor()?, &x.tensor()?));
    let actual = checker.written::<T, T>(&case, outcome)?;
    let d = half.last().copied().unwrap_or_default();
    checker.compare::<T, T>(&case, &actual, &exact(gated_gradient(&x.values(), &dy.values(), d)), Vec::new)
}

#[cfg(test)]
mod tests {
    use super::super::sample::Noise;
    use super::{Activation, activate, erf, gated_gradient};

    #[test]
    fn the_error_function_is_the_tables() {
        // Abramowitz and Stegun, table 7.1.
        for (x, expected) in [(0.0, 0.0), (0.5, 0.520_499_877_8), (1.0, 0.842_700_792_9), (2.0, 0.995_322_265_0)] {
            assert!((erf(x) - expected).abs() < 1e-10, "{x}");
            assert!((erf(-x) + expected).abs() < 1e-10, "{x}");
        }
        assert!((erf(5.9) - 1.0).abs() < 1e-15);
    }

    #[test]
    fn the_gradient_is_that_of_central_differences() {
        let mut noise = Noise::new(2);
        let mut take = |count: usize| (0..count).map(|_| noise.number()).collect::<Vec<f64>>();
        let (x, dy) = (take(12), take(6));
        let loss = |x: &[f64]| {
            let rows = x.chunks(6).zip(dy.chunks(3));
            rows.map(|(x, dy)| (0..3).map(|at| activate(Activation::Silu, x[at]) * x[3 + at] * dy[at]).sum::<f64>())
                .sum::<f64>()
        };
        let gradient = gated_gradient(&x, &dy, 3);
        for (at, gradient) in gradient.iter().enumerate() {
            let moved = |by: f64| {
                let mut x = x.clone();
                x[at] += by;
                loss(&x)
            };
            let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!((slope - gradient).abs() < 1e-8, "{at}: {slope}, {gradient}");
        }
    }
}
