//! In training mode a gradient reaches every input and weight, and is the right one.

use candle_core::{DType, Result, Tensor, Var};
use kernelhub::host::candle::{Attention, GatedMlp, RmsNorm, RotaryEmbedding, RotaryStyle};
use kernelhub::swap::Mode;

use super::{flat, noise, slots};

/// Compares the gradient of a weighted sum of what `run` gives, with respect to `variable`, with central differences.
#[track_caller]
fn check(what: &str, variable: &Var, run: impl Fn() -> Result<Tensor>) {
    const STEP: f64 = 1e-5;
    let loss = || {
        let out = run().unwrap();
        (&out * noise(99, out.dims(), DType::F64)).unwrap().sum_all().unwrap()
    };
    let gradients = loss().backward().unwrap();
    let gradient = gradients.get(variable).unwrap_or_else(|| panic!("{what}: no gradient"));
    assert_eq!(gradient.dims(), variable.dims(), "{what}");
    let (gradient, base) = (flat(gradient), flat(variable));
    assert!(gradient.iter().any(|value| value.abs() > 1e-3), "{what}: the gradient is zero");
    for at in 0..base.len() {
        let shifted = |by: f64| {
            let mut values = base.clone();
            values[at] += by;
            variable.set(&Tensor::from_vec(values, variable.dims(), variable.device()).unwrap()).unwrap();
            loss().to_scalar::<f64>().unwrap()
        };
        let expected = (shifted(STEP) - shifted(-STEP)) / (2.0 * STEP);
        assert!((gradient[at] - expected).abs() < 1e-6, "{what}, element {at}: {} is not {expected}", gradient[at]);
        shifted(0.0);
    }
}

fn variable(seed: u64, shape: &[usize]) -> Var {
    Var::from_tensor(&noise(seed, shape, DType::F64)).unwrap()
}

/// The variable as it lies, and with axes 1 and 2 exchanged.
fn views(variable: &Var) -> [(&'static str, Tensor); 2] {
    [("contiguous", variable.as_tensor().clone()), ("transposed", variable.transpose(1, 2).unwrap())]
}

#[test]
fn rms_norm() {
    let (weight, x) = (variable(1, &[6]), variable(2, &[2, 3, 4, 6]));
    let norm = RmsNorm::new(weight.as_tensor().clone(), 1e-5, &slots(), "norm").unwrap();
    for (layout, view) in views(&x) {
        for (name, variable) in [("input", &x), ("weight", &weight)] {
            check(&format!("{layout} {name}"), variable, || norm.forward_reference(Mode::Training, &view));
        }
    }
}

#[test]
fn rotary_embedding() {
    let (cos, sin) = (noise(1, &[9, 2], DType::F64), noise(2, &[9, 2], DType::F64));
    let (q, k) = (variable(3, &[2, 3, 3, 4]), variable(4, &[2, 3, 3, 4]));
    for style in [RotaryStyle::HalfSplit, RotaryStyle::Interleaved] {
        let rotary = RotaryEmbedding::new(cos.clone(), sin.clone(), style, &slots(), "rotary").unwrap();
        for ((layout, q_view), (_, k_view)) in views(&q).into_iter().zip(views(&k)) {
            let run = || rotary.forward_reference(Mode::Training, &q_view, &k_view, 2);
            check(&format!("{style:?} {layout} q"), &q, || Ok(run()?.0));
            check(&format!("{style:?} {layout} k"), &k, || Ok(run()?.1));
        }
    }
}

#[test]
fn gated_mlp() {
    let (gate_up, down, x) = (variable(1, &[10, 4]), variable(2, &[4, 5]), variable(3, &[2, 3, 4]));
    let mlp = GatedMlp::new(gate_up.as_tensor().clone(), down.as_tensor().clone(), &slots(), "mlp").unwrap();
    let transposed = variable(3, &[2, 4, 3]);
    for (name, variable) in [("input", &x), ("gate_up", &gate_up), ("down", &down)] {
        check(name, variable, || mlp.forward_reference(Mode::Training, &x));
    }
    let view = transposed.transpose(1, 2).unwrap();
    for (name, variable) in [("input", &transposed), ("gate_up", &gate_up), ("down", &down)] {
        check(&format!("transposed {name}"), variable, || mlp.forward_reference(Mode::Training, &view));
    }
}

#[test]
fn attention() {
    let attention = Attention::new(4, 2, 3, 0.6, DType::F64, &slots(), "attention").unwrap();
    let contiguous = [variable(1, &[2, 4, 3, 3]), variable(2, &[2, 2, 5, 3]), variable(3, &[2, 2, 5, 3])];
    let strided = [variable(1, &[2, 3, 4, 3]), variable(2, &[2, 5, 2, 3]), variable(3, &[2, 5, 2, 3])];
    for causal in [false, true] {
        for (at, name) in ["q", "k", "v"].into_iter().enumerate() {
            let [q, k, v] = &contiguous;
            check(&format!("{name} causal {causal}"), &contiguous[at], || {
                attention.forward_reference(Mode::Training, q, k, v, causal)
            });
            let [q, k, v] = strided.each_ref().map(|variable| variable.transpose(1, 2).unwrap());
            check(&format!("transposed {name} causal {causal}"), &strided[at], || {
                attention.forward_reference(Mode::Training, &q, &k, &v, causal)
            });
        }
    }
}

#[test]
fn queries_that_see_no_key_take_no_part_and_the_others_keep_their_gradient() {
    let attention = Attention::new(2, 1, 3, 0.6, DType::F64, &slots(), "attention").unwrap();
    let [q, k, v] = [variable(1, &[1, 2, 4, 3]), variable(2, &[1, 1, 2, 3]), variable(3, &[1, 1, 2, 3])];
    for variable in [&q, &k, &v] {
        check("causal, more queries than keys", variable, || {
            attention.forward_reference(Mode::Training, &q, &k, &v, true)
        });
    }
}

#[test]
fn narrow_types_carry_gradients_too() {
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let input = |seed, shape: &[usize]| Var::from_tensor(&noise(seed, shape, dtype)).unwrap();
        let (x, weight) = (input(1, &[2, 3, 4, 8]), input(2, &[8]));
        let norm = RmsNorm::new(weight.as_tensor().clone(), 1e-5, &slots(), "norm").unwrap();
        let attention = Attention::new(3, 3, 8, 0.4, dtype, &slots(), "attention").unwrap();
        let normed = norm.forward_reference(Mode::Training, &x).unwrap();
        let out = attention.forward_reference(Mode::Training, &normed, &normed, &normed, true).unwrap();
        let (gate_up, down) = (input(3, &[12, 24]), input(4, &[24, 6]));
        let mlp = GatedMlp::new(gate_up.as_tensor().clone(), down.as_tensor().clone(), &slots(), "mlp").unwrap();
        let out = mlp.forward_reference(Mode::Training, &out).unwrap();
        let gradients = out.sqr().unwrap().sum_all().unwrap().backward().unwrap();
        for (name, variable) in [("x", &x), ("norm", &weight), ("gate_up", &gate_up), ("down", &down)] {
            let gradient = gradients.get(variable).unwrap_or_else(|| panic!("{dtype:?}: {name} has no gradient"));
            let values = flat(gradient);
            assert!(values.iter().all(|value| value.is_finite()), "{dtype:?} {name}");
            assert!(values.iter().any(|value| *value != 0.0), "{dtype:?} {name}");
        }
    }
}
