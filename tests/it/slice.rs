//! The host over plain slices: its own arithmetic, kernels in its place, and that neither allocates.

use kernelhub::bind::{Activation as Kind, BindError, GatedActivation as Gated};
use kernelhub::hint::Hint as _;
use kernelhub::host::slice::{
    Activation, Array, ArrayMut, Attention, AttentionOptions, Embedding, GatedActivation, LayerNorm, Linear, Number,
    RmsNorm, RotaryEmbedding, RotaryStyle, SliceError, Window,
};
use kernelhub::swap::{KernelConfig, Outcome, Slots};
use kernelhub::variant::DeviceKey;

use crate::support::allocations::allocations;
use crate::support::embedded;

/// Numbers that differ from each other, from -1 to 1.
fn ramp<T: Number>(count: usize) -> Vec<T> {
    (0..count).map(|i| T::from_f32(((i * 37 % 101) as f32 - 50.0) / 50.0)).collect()
}

/// Runs a layer into fresh memory.
fn run<T: Number>(shape: &[usize], forward: impl FnOnce(&mut ArrayMut<'_, T>) -> Result<(), SliceError>) -> Vec<f32> {
    let mut out = vec![T::from_f32(f32::NAN); shape.iter().product()];
    forward(&mut ArrayMut::new(&mut out, shape).unwrap()).unwrap();
    out.into_iter().map(T::to_f32).collect()
}

#[track_caller]
fn assert_near(actual: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(actual.len(), expected.len());
    for (index, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let error = (actual - expected).abs();
        assert!(error <= tolerance * expected.abs().max(1.0), "element {index}: {actual} instead of {expected}");
    }
}

fn slots() -> Slots {
    Slots::new(DeviceKey::Cpu)
}

#[test]
fn the_reference_is_the_formula() {
    let slots = slots();
    let x = [1.0_f32, -2.0, 3.0, -4.0, 0.5, 0.0, -0.5, 1.0];
    let x = Array::new(&x, &[2, 4]).unwrap();

    let norm = LayerNorm::new(vec![1.0, 2.0, 1.0, 1.0], Some(vec![0.0, 0.0, 10.0, 0.0]), 0.0, &slots, "norm").unwrap();
    // Means -0.5 and 0.25; variances 7.25 and 0.3125.
    let (a, b) = (7.25_f32.sqrt(), 0.3125_f32.sqrt());
    let expected = [1.5 / a, -3.0 / a, 3.5 / a + 10.0, -3.5 / a, 0.25 / b, -0.5 / b, -0.75 / b + 10.0, 0.75 / b];
    assert_near(&run(&[2, 4], |out| norm.forward(out, &x)), &expected, 1e-6);

    let linear = Linear::new(vec![1.0, 0.0, 2.0, 0.0, 0.0, 1.0, 0.0, -1.0], [2, 4], Some(vec![0.5, 0.0]), &slots, "l");
    let expected = [7.5, 2.0, 0.0, -1.0];
    assert_near(&run(&[2, 2], |out| linear.as_ref().unwrap().forward(out, &x)), &expected, 1e-6);

    let table = Embedding::new((0..6).map(|value| value as f32).collect(), [3, 2], &slots, "table").unwrap();
    let ids = Array::new(&[2, 0, 2], &[3]).unwrap();
    assert_eq!(run(&[3, 2], |out| table.forward(out, &ids)), [4.0, 5.0, 0.0, 1.0, 4.0, 5.0]);

    // GELU of 1 and of -1 by the normal distribution: 0.841345 and -0.158655.
    let x = Array::new(&[1.0_f32, -1.0], &[1, 2]).unwrap();
    for (kind, expected) in [
        (Kind::Silu, [0.731_058_6, -0.268_941_43]),
        (Kind::Gelu, [0.841_344_8, -0.158_655_26]),
        (Kind::GeluTanh, [0.841_192, -0.158_808]),
        (Kind::GeluFast, [0.841_192, -0.158_808]),
        (Kind::GeluNew, [0.841_192, -0.158_808]),
        (Kind::GeluQuick, [0.845_795_8, -0.154_204_2]),
    ] {
        let layer = Activation::new::<f32>(kind, 2, &slots, "activation");
        assert_near(&run(&[1, 2], |out| layer.forward(out, &x)), &expected, 1e-6);
    }
    for (kind, expected) in [
        (Gated::Silu, -0.731_058_6),
        (Gated::MulAndSilu, -0.268_941_43),
        (Gated::Gelu, -0.841_344_8),
        (Gated::GeluTanh, -0.841_192),
        (Gated::Fatrelu, -1.0),
    ] {
        let layer = GatedActivation::new::<f32>(kind, 0.5, 1, &slots, "gated");
        assert_near(&run(&[1, 1], |out| layer.forward(out, &x)), &[expected], 1e-6);
    }
    let layer = GatedActivation::new::<f32>(Gated::Fatrelu, 1.0, 1, &slots, "gated");
    assert_near(&run(&[1, 1], |out| layer.forward(out, &x)), &[0.0], 0.0);

    for (style, expected) in
        [(RotaryStyle::HalfSplit, [-3.0, 2.0, 1.0, 4.0]), (RotaryStyle::Interleaved, [-2.0, 1.0, 3.0, 4.0])]
    {
        // Position 1: a quarter turn of the first pair, none of the second.
        let tables = (vec![9.0, 9.0, 0.0, 1.0], vec![9.0, 9.0, 1.0, 0.0]);
        let layer = RotaryEmbedding::new(tables.0, tables.1, [2, 2], style, &slots, "rotary").unwrap();
        let x = Array::new(&[1.0_f32, 2.0, 3.0, 4.0], &[1, 1, 1, 4]).unwrap();
        let actual = run(&[1, 1, 1, 4], |out| layer.forward(out, &x, 1));
        assert_eq!(actual, expected, "{style:?}");
    }
}

/// Equal scores weigh all keys alike, so that each query gives the mean of the values that it sees.
#[test]
fn attention_sees_what_its_options_say() {
    let (q_len, kv_len) = (3_usize, 5_usize);
    let (q, k) = (vec![0.0_f32; 2 * q_len], vec![1.0_f32; kv_len]);
    let v: Vec<f32> = (0..kv_len).map(|key| key as f32).collect();
    let shapes = ([1, 2, q_len, 1], [1, 1, kv_len, 1]);
    let (q, k, v) = (Array::new(&q, &shapes.0), Array::new(&k, &shapes.1), Array::new(&v, &shapes.1));
    let (q, k, v) = (q.unwrap(), k.unwrap(), v.unwrap());
    let plain = AttentionOptions::new(1.0, false);
    let window = |left, right| AttentionOptions { window: Window { left, right }, ..plain };
    for (options, means) in [
        (plain, [2.0, 2.0, 2.0]),
        (AttentionOptions::new(1.0, true), [1.0, 1.5, 2.0]),
        (window(Some(1), None), [2.5, 3.0, 3.5]),
        (window(None, Some(1)), [1.5, 2.0, 2.0]),
        (AttentionOptions { causal: true, ..window(Some(1), Some(1)) }, [1.5, 2.5, 3.5]),
    ] {
        let layer = Attention::new::<f32>(options, 1, &slots(), "attention");
        let expected: Vec<f32> = means.iter().flat_map(|mean| [*mean; 2]).collect();
        assert_near(&run(&[1, q_len, 2, 1], |out| layer.forward(out, &q, &k, &v)), &expected, 1e-6);
    }
    // More queries than keys: the first sees nothing.
    let (q, k) = ([0.0_f32; 2], [1.0_f32]);
    let (q, k) = (Array::new(&q, &[1, 1, 2, 1]).unwrap(), Array::new(&k, &[1, 1, 1, 1]).unwrap());
    let layer = Attention::new::<f32>(AttentionOptions::new(1.0, true), 1, &slots(), "attention");
    assert_eq!(run(&[1, 2, 1, 1], |out| layer.forward(out, &q, &k, &k)), [0.0, 1.0]);
    // A softcap flattens what a large score would choose.
    let (q, k) = ([100.0_f32], [1.0_f32, -1.0]);
    let (q, k) = (Array::new(&q, &[1, 1, 1, 1]).unwrap(), Array::new(&k, &[1, 1, 2, 1]).unwrap());
    let capped = AttentionOptions { softcap: 0.5, ..plain };
    let layer = Attention::new::<f32>(capped, 1, &slots(), "attention");
    let weight = 1.0 / (1.0 + (-1.0_f32).exp());
    assert_near(&run(&[1, 1, 1, 1], |out| layer.forward(out, &q, &k, &k)), &[2.0 * weight - 1.0], 1e-5);
}

/// A small model of the layers whose kernels the registry has.
struct Block<T> {
    slots: Slots,
    norm: RmsNorm<T>,
    silu: GatedActivation,
    rotary: RotaryEmbedding<T>,
    attention: Attention,
}

const SHAPE: [usize; 4] = [1, 2, 3, 16];

impl<T: Number> Block<T> {
    fn new() -> Self {
        let slots = slots();
        let rotary = RotaryEmbedding::new(ramp(40), ramp(40), [5, 8], RotaryStyle::HalfSplit, &slots, "rotary");
        let options = AttentionOptions::new(0.25, true);
        Self {
            norm: RmsNorm::new(ramp(16), 1e-5, &slots, "norm"),
            silu: GatedActivation::new::<T>(Gated::Silu, 0.0, 8, &slots, "mlp"),
            rotary: rotary.unwrap(),
            attention: Attention::new::<T>(options, 16, &slots, "attention"),
            slots,
        }
    }

    /// Runs every layer on `x` under one plan, each into memory of its own.
    fn forward(&self, x: &[T], outs: &mut [Vec<T>; 4]) {
        let x = Array::new(x, &SHAPE).unwrap();
        let [norm, silu, rotary, attention] = outs;
        let to = |out| ArrayMut::new(out, &SHAPE).unwrap();
        self.slots.scope(|_| {
            self.norm.forward(&mut to(norm), &x).unwrap();
            self.silu.forward(&mut ArrayMut::new(silu, &[1, 2, 3, 8]).unwrap(), &x).unwrap();
            self.rotary.forward(&mut to(rotary), &x, 2).unwrap();
            self.attention.forward(&mut ArrayMut::new(attention, &[1, 3, 2, 16]).unwrap(), &x, &x, &x).unwrap();
        });
    }

    fn outs() -> [Vec<T>; 4] {
        [96, 48, 96, 96].map(|count| vec![T::from_f32(f32::NAN); count])
    }
}

fn kernels_give_what_the_reference_gives<T: Number>(tolerance: f32) {
    let Some(hub) = embedded::hub() else { return };
    let (block, x) = (Block::<T>::new(), ramp::<T>(96));
    let [mut off, mut on] = [Block::<T>::outs(), Block::<T>::outs()];
    block.forward(&x, &mut off);
    let report = block.slots.use_kernels(hub, &KernelConfig::standard().unwrap()).unwrap();
    assert!(report.layers.iter().all(|line| matches!(line.outcome, Outcome::Kernel(_))), "{report}");
    block.forward(&x, &mut on);
    for (off, on) in off.iter().zip(&on) {
        let [off, on] = [off, on].map(|values| values.iter().map(|value| value.to_f32()).collect::<Vec<_>>());
        assert_near(&on, &off, tolerance);
    }
    // With kernels and without: a forward after the first allocates nothing.
    assert_eq!(allocations(|| block.forward(&x, &mut on)), 0);
    block.slots.disable_kernels();
    assert_eq!(allocations(|| block.forward(&x, &mut off)), 0);
}

#[test]
fn kernels_give_what_the_reference_gives_and_nothing_allocates() {
    kernels_give_what_the_reference_gives::<f32>(1e-5);
    kernels_give_what_the_reference_gives::<half::bf16>(1e-2);
    kernels_give_what_the_reference_gives::<half::f16>(2e-3);
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let slots = slots();
    let length = Array::new(&[0.0_f32; 3], &[2, 2]).unwrap_err();
    assert_eq!(length.to_string(), "3 elements do not fill the shape [2, 2]");
    assert!(Array::new(&[0.0_f32; 0], &[0, usize::MAX, 2]).is_ok());
    assert!(Array::new(&[0.0_f32; 4], &[usize::MAX, 2]).is_err());

    let x = Array::new(&[0.0_f32; 6], &[2, 3]).unwrap();
    let mut out = [0.0; 6];
    let refused = |result: Result<(), SliceError>, expected: &str| {
        assert_eq!(result.unwrap_err().to_string(), expected);
    };
    let norm = RmsNorm::new(vec![1.0; 4], 1e-5, &slots, "norm");
    refused(
        norm.forward(&mut ArrayMut::new(&mut out, &[2, 3]).unwrap(), &x),
        "RMSNorm: x must be [..., 4], got [2, 3]",
    );
    let norm = RmsNorm::new(vec![1.0; 3], 1e-5, &slots, "norm");
    let mut flat = ArrayMut::new(&mut out, &[6]).unwrap();
    refused(norm.forward(&mut flat, &x), "RMSNorm: out must be [2, 3] like x, got [6]");
    assert!(LayerNorm::new(vec![1.0; 3], Some(vec![0.0; 2]), 0.0, &slots, "norm").is_err());
    assert!(Linear::new(vec![1.0_f32; 5], [2, 3], None, &slots, "linear").is_err());

    let table = Embedding::new(vec![1.0_f32; 6], [2, 3], &slots, "table").unwrap();
    let ids = Array::new(&[1, 2], &[2]).unwrap();
    let mut out = [7.0; 6];
    let result = table.forward(&mut ArrayMut::new(&mut out, &[2, 3]).unwrap(), &ids);
    refused(result, "Embedding: index 2 at position 1 is outside a table of 2 rows");
    assert!(out.iter().all(|value| value.to_bits() == 7.0_f32.to_bits()), "nothing was written: {out:?}");

    let rotary =
        RotaryEmbedding::new(vec![1.0_f32; 4], vec![0.0; 4], [2, 2], RotaryStyle::HalfSplit, &slots, "rotary").unwrap();
    let x = Array::new(&[0.0_f32; 8], &[1, 1, 2, 4]).unwrap();
    let mut out = [0.0; 8];
    let mut out = ArrayMut::new(&mut out, &[1, 1, 2, 4]).unwrap();
    rotary.forward(&mut out, &x, 0).unwrap();
    for offset in [1, usize::MAX] {
        assert!(matches!(rotary.forward(&mut out, &x, offset), Err(SliceError::Shape { array: "x", .. })), "{offset}");
    }
}

/// What a kernel refuses reaches the caller with its cause.
#[test]
fn a_kernels_refusal_names_the_layer_and_has_its_cause() {
    let Some(hub) = embedded::hub() else { return };
    let slots = slots();
    let norm = RmsNorm::new(vec![1.0_f32; 4], 1e-5, &slots, "norm");
    slots.use_kernels(hub, &KernelConfig::standard().unwrap()).unwrap();
    let mut out = [0.0; 6];
    let x = Array::new(&[0.0_f32; 6], &[2, 3]).unwrap();
    let error = norm.forward(&mut ArrayMut::new(&mut out, &[2, 3]).unwrap(), &x).unwrap_err();
    assert!(
        matches!(&error, SliceError::Kernel { layer: "RMSNorm", source } if matches!(**source, BindError::Shape { argument: "weight", .. })),
        "{error:?}"
    );
    assert!(std::error::Error::source(&error).is_some() && error.hint().is_none());
}
