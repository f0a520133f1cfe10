//! Calls that do not fit a kernel are refused before it is reached. The kernels here fill their output with the number
//! of calls that they had, so that the last, valid call of a test tells how many of the others came through.

use half::{bf16, f16};
use kernelhub::bind::{AttentionOptions, BindError, LayerKernel, RotaryStyle, TensorMut, TensorRef};
use kernelhub::hint::Hint as _;

use crate::support::native::{KIT, NativePack, layer};

const LIMITS: &str = "limits = { last_dim_multiple_of = 4, alignment_bytes = 16, max_head_size = 8 }\n";

const NORM: (&str, &str, &[&str]) = ("rms_norm", "count_rms_norm", &["out", "x", "weight", "eps"]);
const GATED: (&str, &str, &[&str]) = ("gated_activation.silu", "count_silu_and_mul", &["out", "x"]);
const ROTARY: (&str, &str, &[&str]) =
    ("rotary", "count_apply_rotary", &["x1", "x2", "cos", "sin", "out1", "out2", "conj"]);
const ATTENTION: (&str, &str, &[&str]) =
    ("attention", "count_flash_attn", &["out", "q", "k", "v", "softmax_scale", "causal"]);

/// A kernel of its own library, so that no other test counts on it. The function's counter starts at 0.
fn counting(
    (contract, function, arguments): (&str, &str, &[&str]),
    test: &str,
    limits: &str,
) -> std::sync::Arc<LayerKernel> {
    // Other bytes are another library, for what is loaded is interned by digest. Nothing reads the end of the file.
    let mut library = KIT.clone();
    library.extend_from_slice(format!("{contract} {test}").as_bytes());
    let layers = layer("Layer", contract, function, arguments) + limits;
    NativePack::new("counting", &layers, &[("libkit.so", &library)]).layer("Layer").unwrap()
}

/// 16-byte aligned elements to cut views from.
#[repr(align(64))]
struct Aligned<T>([T; 256]);

static ONES: Aligned<f32> = Aligned([1.0; 256]);
static BRAINS: Aligned<bf16> = Aligned([bf16::ONE; 256]);
static HALVES: Aligned<f16> = Aligned([f16::ONE; 256]);

fn ones(shape: &[usize]) -> TensorRef<'_> {
    TensorRef::contiguous(&ONES.0, shape).unwrap()
}

fn strided<'a>(offset: usize, shape: &'a [usize], strides: &'a [usize]) -> TensorRef<'a> {
    TensorRef::new(&ONES.0[offset..], shape, strides).unwrap()
}

fn brains(shape: &[usize]) -> TensorRef<'_> {
    TensorRef::contiguous(&BRAINS.0, shape).unwrap()
}

/// Calls with a new aligned output of f32 and returns its first element.
fn with_output(
    shape: &[usize],
    call: impl FnOnce(&mut TensorMut<'_>) -> Result<(), BindError>,
) -> Result<f32, BindError> {
    let mut out = Aligned([f32::NAN; 256]);
    call(&mut TensorMut::contiguous(&mut out.0, shape).unwrap())?;
    Ok(out.0[0])
}

/// What a refusal must be.
#[derive(Debug, Clone, Copy)]
enum Expected {
    Dtype,
    Shape,
    Layout,
    Limit,
}
use Expected::{Dtype, Layout, Limit, Shape};

#[track_caller]
fn refused(result: Result<f32, BindError>, name: &str, expected: Expected) {
    let error = match result {
        Err(error) => error,
        Ok(count) => panic!("the call went through as number {count}; expected {expected:?} of {name}"),
    };
    let ((BindError::Dtype { kernel, argument, .. }, Dtype)
    | (BindError::Shape { kernel, argument, .. }, Shape)
    | (BindError::Layout { kernel, argument, .. }, Layout)
    | (BindError::Limit { kernel, argument, .. }, Limit)) = (&error, expected)
    else {
        panic!("expected {expected:?} of {name}, got {error:?}")
    };
    assert_eq!((kernel.as_str(), *argument), ("kernelhub-tests/counting@v1:Layer", name), "{error}");
    assert!(error.to_string().starts_with(&format!("{kernel}: {name}")), "{error}");
    assert_eq!(error.hint().is_some(), matches!(expected, Dtype | Layout), "{error:?}");
}

#[test]
fn rms_norm_checks_every_argument() {
    let kernel = counting(NORM, "arguments", LIMITS);
    let LayerKernel::RmsNorm(kernel) = &*kernel else { panic!("{kernel:?}") };
    let run = |out: &[usize], x: TensorRef<'_>, weight: TensorRef<'_>| {
        with_output(out, |out| kernel.forward(out, &x, &weight, 1e-5, 0.0))
    };
    refused(run(&[2, 8], brains(&[2, 8]), ones(&[8])), "x", Dtype);
    refused(run(&[2, 8], TensorRef::contiguous(&HALVES.0, &[2, 8]).unwrap(), ones(&[8])), "x", Dtype);
    refused(run(&[2, 8], ones(&[2, 8]), brains(&[8])), "weight", Dtype);
    let mut wrong = [bf16::ZERO; 16];
    let mut out = TensorMut::contiguous(&mut wrong, &[2, 8]).unwrap();
    refused(kernel.forward(&mut out, &ones(&[2, 8]), &ones(&[8]), 1e-5, 0.0).map(|()| 0.0), "out", Dtype);
    refused(run(&[2, 8], ones(&[]), ones(&[8])), "x", Shape);
    refused(run(&[2, 8], ones(&[2, 1, 8]), ones(&[8])), "out", Shape);
    refused(run(&[3, 8], ones(&[2, 8]), ones(&[8])), "out", Shape);
    refused(run(&[2, 8], ones(&[2, 8]), ones(&[4])), "weight", Shape);
    refused(run(&[2, 8], ones(&[2, 8]), ones(&[1, 8])), "weight", Shape);
    refused(run(&[2, 6], ones(&[2, 6]), ones(&[6])), "x", Limit);
    refused(run(&[2, 12], ones(&[2, 12]), ones(&[12])), "x", Limit);
    refused(run(&[2, 8], strided(0, &[2, 8], &[1, 2]), ones(&[8])), "x", Layout);
    refused(run(&[2, 8], strided(0, &[2, 8], &[8, 0]), ones(&[8])), "x", Layout);
    refused(run(&[2, 8], strided(1, &[2, 8], &[8, 1]), ones(&[8])), "x", Layout);
    refused(run(&[2, 8], strided(0, &[2, 8], &[9, 1]), ones(&[8])), "x", Layout);
    refused(run(&[2, 8], ones(&[2, 8]), strided(0, &[8], &[2])), "weight", Layout);
    refused(run(&[2, 8], ones(&[2, 8]), strided(2, &[8], &[1])), "weight", Layout);

    // What only looks wrong: a stride that is never taken, rows far apart, rows that are one, nothing at all.
    let good = [
        (&[1, 8][..], strided(0, &[1, 8], &[7, 1])),
        (&[2, 8][..], strided(0, &[2, 8], &[32, 1])),
        (&[2, 8][..], strided(0, &[2, 8], &[0, 1])),
        (&[0, 8][..], strided(1, &[0, 8], &[3, 5])),
    ];
    for (calls, (shape, x)) in (1_u8..).zip(good) {
        let first = run(shape, x, ones(&[8])).unwrap();
        assert!(shape[0] == 0 || (first - f32::from(calls)).abs() < 0.5, "call {calls}: the kernel counts {first}");
    }
    assert!(
        (run(&[2, 8], ones(&[2, 8]), ones(&[8])).unwrap() - 5.0).abs() < 0.5,
        "the refused calls never came through"
    );
}

#[test]
fn gated_activation_checks_every_argument() {
    let kernel = counting(GATED, "arguments", LIMITS);
    let LayerKernel::GatedActivation(kernel) = &*kernel else { panic!("{kernel:?}") };
    let run = |out: &[usize], x: TensorRef<'_>| with_output(out, |out| kernel.forward(out, &x));
    refused(run(&[2, 4], brains(&[2, 8])), "x", Dtype);
    refused(run(&[2, 4], ones(&[2, 4])), "x", Shape);
    refused(run(&[2, 4], ones(&[2, 9])), "x", Shape);
    refused(run(&[2, 4], ones(&[3, 8])), "x", Shape);
    refused(run(&[2, 4], ones(&[])), "x", Shape);
    refused(run(&[], ones(&[8])), "x", Shape);
    refused(run(&[2, 3], ones(&[2, 6])), "out", Limit);
    refused(run(&[1, 12], ones(&[1, 24])), "out", Limit);
    refused(run(&[2, 4], strided(0, &[2, 8], &[1, 2])), "x", Layout);
    refused(run(&[2, 4], strided(2, &[2, 8], &[8, 1])), "x", Layout);
    refused(run(&[2, 4], strided(0, &[2, 8], &[10, 1])), "x", Layout);
    assert!((run(&[2, 4], ones(&[2, 8])).unwrap() - 1.0).abs() < 0.5, "the refused calls never came through");
}

#[test]
fn rotary_checks_every_argument() {
    // Heads of 2 are what the counting function fills; no width rule but evenness.
    let kernel = counting(ROTARY, "arguments", "limits = { max_head_size = 8 }\n");
    let LayerKernel::Rotary(kernel) = &*kernel else { panic!("{kernel:?}") };
    let run = |out: &[usize], x: TensorRef<'_>, cos: TensorRef<'_>, sin: TensorRef<'_>| {
        with_output(out, |out| kernel.forward(out, &x, &cos, &sin, RotaryStyle::HalfSplit))
    };
    let (shape, table) = (&[1, 2, 3, 2][..], &[3, 1][..]);
    refused(run(shape, brains(shape), ones(table), ones(table)), "x", Dtype);
    refused(run(shape, ones(shape), brains(table), ones(table)), "cos", Dtype);
    refused(run(shape, ones(shape), ones(table), brains(table)), "sin", Dtype);
    refused(run(shape, ones(&[2, 3, 2]), ones(table), ones(table)), "x", Shape);
    refused(run(&[1, 2, 3, 3], ones(&[1, 2, 3, 3]), ones(table), ones(table)), "x", Shape);
    refused(run(&[1, 3, 2, 2], ones(shape), ones(table), ones(table)), "out", Shape);
    refused(run(shape, ones(shape), ones(&[4, 1]), ones(table)), "cos", Shape);
    refused(run(shape, ones(shape), ones(&[3, 2]), ones(table)), "cos", Shape);
    refused(run(shape, ones(shape), ones(table), ones(&[2, 1])), "sin", Shape);
    refused(run(shape, ones(shape), ones(table), ones(&[3])), "sin", Shape);
    refused(run(&[1, 1, 1, 10], ones(&[1, 1, 1, 10]), ones(&[1, 5]), ones(&[1, 5])), "x", Limit);
    refused(run(shape, strided(0, shape, &[12, 6, 1, 3]), ones(table), ones(table)), "x", Layout);
    let wide = &[1, 1, 2, 4][..];
    refused(run(wide, ones(wide), strided(0, &[2, 2], &[1, 2]), ones(&[2, 2])), "cos", Layout);
    assert!(
        (run(shape, ones(shape), ones(table), ones(table)).unwrap() - 1.0).abs() < 0.5,
        "no refused call came through"
    );
}

#[test]
fn a_pair_is_turned_in_two_calls_by_a_function_of_one_tensor() {
    let kernel = counting(ROTARY, "pair", "");
    let LayerKernel::Rotary(kernel) = &*kernel else { panic!("{kernel:?}") };
    let run = |out: &[usize], x: TensorRef<'_>, y_out: &[usize], y: TensorRef<'_>| {
        let mut second = f32::NAN;
        let first = with_output(out, |out| {
            second = with_output(y_out, |y_out| {
                let (cos, sin) = (ones(&[3, 1]), ones(&[3, 1]));
                kernel.forward_pair((out, y_out), [&x, &y], &cos, &sin, RotaryStyle::HalfSplit)
            })?;
            Ok(())
        })?;
        Ok((first, second))
    };
    let (shape, other) = (&[1, 2, 3, 2][..], &[1, 1, 3, 2][..]);
    let wrong =
        |outcome: Result<(f32, f32), BindError>, name, kind| refused(outcome.map(|(first, _)| first), name, kind);
    wrong(run(shape, ones(shape), other, brains(other)), "y", Dtype);
    wrong(run(shape, ones(shape), &[1, 2, 3, 2], ones(other)), "y_out", Shape);
    wrong(run(shape, ones(shape), &[1, 1, 4, 2], ones(&[1, 1, 4, 2])), "cos", Shape);
    wrong(run(shape, ones(shape), &[2, 1, 3, 2], ones(&[2, 1, 3, 2])), "y", Shape);
    wrong(run(shape, ones(shape), &[1, 3, 2], ones(&[1, 3, 2])), "y", Shape);
    wrong(run(&[1, 3, 2, 2], ones(shape), other, ones(other)), "out", Shape);
    let (first, second) = run(shape, ones(shape), other, ones(other)).unwrap();
    assert_eq!((first, second), (1.0, 2.0), "no refused call came through");
}

#[test]
fn rotary_aligns_the_halves_that_the_kernel_is_given() {
    let kernel = counting(ROTARY, "alignment", "limits = { alignment_bytes = 16 }\n");
    let LayerKernel::Rotary(kernel) = &*kernel else { panic!("{kernel:?}") };
    let run = |width: usize, style| {
        let (shape, table) = ([1, 1, 1, width], [1, width / 2]);
        with_output(&shape, |out| kernel.forward(out, &ones(&shape), &ones(&table), &ones(&table), style))
    };
    // The second half of a head of 4 starts 8 bytes on; of a head of 8, 16.
    refused(run(4, RotaryStyle::HalfSplit), "x", Layout);
    refused(run(8, RotaryStyle::Interleaved), "x", Layout);
    assert!(run(8, RotaryStyle::HalfSplit).is_ok());
}

#[test]
fn attention_checks_every_argument() {
    let kernel = counting(ATTENTION, "arguments", LIMITS);
    let LayerKernel::Attention(kernel) = &*kernel else { panic!("{kernel:?}") };
    let run = |out: &[usize], q: TensorRef<'_>, k: TensorRef<'_>, v: TensorRef<'_>| {
        with_output(out, |out| kernel.forward(out, &q, &k, &v, &AttentionOptions::new(0.5, true)))
    };
    let (out, q, kv) = (&[1, 3, 4, 8][..], &[1, 4, 3, 8][..], &[1, 2, 5, 8][..]);
    refused(run(out, brains(q), ones(kv), ones(kv)), "q", Dtype);
    refused(run(out, ones(q), brains(kv), ones(kv)), "k", Dtype);
    refused(run(out, ones(q), ones(kv), brains(kv)), "v", Dtype);
    refused(run(out, ones(&[4, 3, 8]), ones(kv), ones(kv)), "q", Shape);
    refused(run(out, ones(q), ones(&[2, 5, 8]), ones(kv)), "k", Shape);
    refused(run(out, ones(q), ones(&[1, 3, 5, 8]), ones(&[1, 3, 5, 8])), "k", Shape);
    refused(run(out, ones(q), ones(&[1, 0, 5, 8]), ones(&[1, 0, 5, 8])), "k", Shape);
    refused(run(out, ones(q), ones(&[2, 2, 5, 8]), ones(kv)), "k", Shape);
    refused(run(out, ones(q), ones(&[1, 2, 5, 4]), ones(kv)), "k", Shape);
    refused(run(out, ones(q), ones(kv), ones(&[1, 2, 4, 8])), "v", Shape);
    refused(run(q, ones(q), ones(kv), ones(kv)), "out", Shape);
    let odd = [&[1, 3, 4, 6][..], &[1, 4, 3, 6], &[1, 2, 5, 6]];
    refused(run(odd[0], ones(odd[1]), ones(odd[2]), ones(odd[2])), "k", Layout);
    let wide = [&[1, 1, 4, 12][..], &[1, 4, 1, 12], &[1, 2, 1, 12]];
    refused(run(wide[0], ones(wide[1]), ones(wide[2]), ones(wide[2])), "q", Limit);
    refused(run(out, strided(0, q, &[96, 24, 1, 3]), ones(kv), ones(kv)), "q", Layout);
    refused(run(out, ones(q), strided(1, kv, &[80, 40, 8, 1]), ones(kv)), "k", Layout);
    refused(run(out, ones(q), ones(kv), strided(0, kv, &[80, 41, 8, 1])), "v", Layout);
    assert!((run(out, ones(q), ones(kv), ones(kv)).unwrap() - 1.0).abs() < 0.5, "the refused calls never came through");
}

#[test]
fn a_view_never_reaches_beyond_its_data_and_an_output_beyond_memory() {
    let error = TensorRef::new(&ONES.0[..10], &[2, 4], &[8, 1]).unwrap_err();
    assert!(matches!(&error, BindError::View { len: 10, shape, strides } if *shape == [2, 4] && *strides == [8, 1]));
    assert!(TensorRef::new(&ONES.0[..10], &[2, 4], &[8]).is_err(), "ranks differ");
    assert!(TensorRef::new(&ONES.0[..10], &[usize::MAX, 2], &[usize::MAX, 1]).is_err(), "the extent overflows");
    assert!(TensorRef::new(&ONES.0[..10], &[usize::MAX, 2], &[0, 1]).is_err(), "an extent that no i64 holds");

    let kernel = counting(GATED, "output", "");
    let LayerKernel::GatedActivation(kernel) = &*kernel else { panic!("{kernel:?}") };
    for shape in [&[usize::MAX, 2][..], &[1 << 62][..]] {
        let error = kernel.forward_to_vec::<f32>(&ones(&[8]), shape).unwrap_err();
        assert!(matches!(&error, BindError::OutputTooLarge { shape: found, .. } if found == shape), "{error:?}");
    }
    assert!(kernel.forward_to_vec::<f32>(&ones(&[8]), &[5]).is_err(), "a shape that is not the result's");
}

/// What a kernel that asks for aligned rows is given, is aligned, wherever the view begins; and sizes are checked in 64
/// bits.
#[test]
fn f46_misaligned_views_are_refused_where_the_kernel_asks_and_sizes_do_not_wrap() {
    let aligned = counting(NORM, "aligned", "limits = { alignment_bytes = 16 }\n");
    let any = counting(NORM, "any", "");
    let (LayerKernel::RmsNorm(aligned), LayerKernel::RmsNorm(any)) = (&*aligned, &*any) else { panic!() };
    for offset in [1, 2, 3, 5] {
        let x = strided(offset, &[3, 8], &[8, 1]);
        let run = |kernel: &kernelhub::bind::RmsNormKernel| {
            with_output(&[3, 8], |out| kernel.forward(out, &x, &ones(&[8]), 1e-5, 0.0))
        };
        refused(run(aligned), "x", Layout);
        assert!(run(any).is_ok(), "a kernel that asks for nothing takes any element");
    }
    // 255 * 2 * 2048 * 6144 elements are more than an i32 counts, and not a small number.
    let far = 255 * 2 * 2048 * 6144;
    assert!(i32::try_from(far).is_err());
    assert!(TensorRef::new(&ONES.0, &[2], &[far]).is_err());
    assert!(TensorRef::new(&ONES.0, &[255, 2, 2048, 6144], &[2 * 2048 * 6144, 2048 * 6144, 6144, 1]).is_err());
    assert!(TensorRef::new(&ONES.0, &[255, 2, 2048, 8], &[0, 0, 0, 1]).is_ok(), "the same rows again cost nothing");
}

/// Ids and targets choose rows of memory: what points outside is refused before the kernel is reached.
#[test]
fn indices_outside_of_their_tensor_are_refused() {
    let embedding: (&str, &str, &[&str]) = ("embedding", "count_rms_norm", &["out", "ids", "weight"]);
    let kernel = counting(embedding, "indices", "");
    let LayerKernel::Embedding(kernel) = &*kernel else { panic!("{kernel:?}") };
    let run = |ids: TensorRef<'_>| with_output(&[3, 4], |out| kernel.forward(out, &ids, &ones(&[5, 4])));
    let of = |ids: [i64; 3]| {
        let error = run(TensorRef::indices(&ids, &[3]).unwrap()).unwrap_err();
        let BindError::Index { argument: "ids", position, actual, expected, .. } = &error else { panic!("{error:?}") };
        assert_eq!(expected, "0 <= index < 5", "{error}");
        (*position, *actual)
    };
    assert_eq!((of([0, 5, 1]), of([-1, 0, 0]), of([4, 4, i64::MIN])), ((1, 5), (0, -1), (2, i64::MIN)));
    refused(run(TensorRef::indices(&[0_i32, 1, 2], &[3]).unwrap()), "ids", Dtype);
    refused(run(ones(&[3])), "ids", Dtype);
    refused(run(TensorRef::indices(&[0_u32, 1], &[2]).unwrap()), "out", Shape);
    assert!((run(TensorRef::indices(&[0_u32, 4, 2], &[3]).unwrap()).unwrap() - 1.0).abs() < 0.5);

    let loss: (&str, &str, &[&str]) =
        ("cross_entropy", "count_rms_norm", &["loss", "logits", "targets", "ignore_index"]);
    let kernel = counting(loss, "indices", "");
    let LayerKernel::CrossEntropy(kernel) = &*kernel else { panic!("{kernel:?}") };
    let run = |targets: &[i64; 2]| {
        let targets = TensorRef::indices(targets, &[2]).unwrap();
        with_output(&[2], |loss| kernel.forward(loss, &ones(&[2, 4]), &targets, -100))
    };
    let error = run(&[0, 4]).unwrap_err();
    assert!(matches!(&error, BindError::Index { position: 1, actual: 4, .. }), "{error:?}");
    assert!(error.to_string().ends_with("element 1 of targets is 4; expected 0 <= index < 4, or -100"), "{error}");
    assert!((run(&[-100, 3]).unwrap() - 1.0).abs() < 0.5, "the refused calls never came through");
}

/// A linear layer's bias is passed to a kernel that takes one, and refused by one that does not.
#[test]
fn linear_checks_every_argument() {
    let with: (&str, &str, &[&str]) = ("linear", "count_rms_norm", &["out", "x", "weight", "bias"]);
    let kernel = counting(with, "arguments", "");
    let LayerKernel::Linear(kernel) = &*kernel else { panic!("{kernel:?}") };
    let run = |out: &[usize], x: TensorRef<'_>, weight: TensorRef<'_>, bias: Option<TensorRef<'_>>| {
        with_output(out, |out| kernel.forward(out, &x, &weight, bias.as_ref()))
    };
    let (x, weight, out) = (&[2, 8][..], &[3, 8][..], &[2, 3][..]);
    refused(run(out, brains(x), ones(weight), None), "x", Dtype);
    refused(run(out, ones(x), brains(weight), None), "weight", Dtype);
    refused(run(out, ones(x), ones(weight), Some(brains(&[3]))), "bias", Dtype);
    refused(run(out, ones(&[2, 7]), ones(weight), None), "weight", Shape);
    refused(run(out, ones(x), ones(&[8]), None), "weight", Shape);
    refused(run(&[2, 8], ones(x), ones(weight), None), "out", Shape);
    refused(run(&[3, 3], ones(x), ones(weight), None), "out", Shape);
    refused(run(out, ones(x), ones(weight), Some(ones(&[2]))), "bias", Shape);
    refused(run(out, ones(x), strided(0, weight, &[1, 3]), None), "weight", Layout);
    refused(run(out, strided(0, x, &[1, 2]), ones(weight), None), "x", Layout);
    assert!((run(out, ones(x), ones(weight), Some(ones(&[3]))).unwrap() - 1.0).abs() < 0.5);
    assert!((run(out, ones(x), ones(weight), None).unwrap() - 2.0).abs() < 0.5, "no refused call came through");

    let without: (&str, &str, &[&str]) = ("linear", "count_rms_norm", &["out", "x", "weight"]);
    let kernel = counting(without, "no bias", "");
    let LayerKernel::Linear(kernel) = &*kernel else { panic!("{kernel:?}") };
    let error = with_output(out, |out| kernel.forward(out, &ones(x), &ones(weight), Some(&ones(&[3])))).unwrap_err();
    assert!(matches!(&error, BindError::Option { option: "bias", .. }), "{error:?}");
    assert!(error.to_string().ends_with("does not take bias; it computes only with no bias"), "{error}");
}

/// The rows of a gated linear layer's weight and bias are those of two layers.
#[test]
fn gated_linear_checks_every_argument() {
    let with: (&str, &str, &[&str]) = ("gated_linear.silu", "count_rms_norm", &["out", "x", "weight", "bias"]);
    let kernel = counting(with, "arguments", "");
    let LayerKernel::GatedLinear(kernel) = &*kernel else { panic!("{kernel:?}") };
    let run = |out: &[usize], x: TensorRef<'_>, weight: TensorRef<'_>, bias: Option<TensorRef<'_>>| {
        with_output(out, |out| kernel.forward(out, &x, &weight, bias.as_ref()))
    };
    let (x, weight, out) = (&[2, 8][..], &[6, 8][..], &[2, 3][..]);
    refused(run(out, brains(x), ones(weight), None), "x", Dtype);
    refused(run(out, ones(x), brains(weight), None), "weight", Dtype);
    refused(run(out, ones(x), ones(weight), Some(brains(&[6]))), "bias", Dtype);
    refused(run(out, ones(&[2, 7]), ones(weight), None), "weight", Shape);
    refused(run(out, ones(x), ones(&[7, 8]), None), "weight", Shape);
    refused(run(out, ones(x), ones(&[8]), None), "weight", Shape);
    refused(run(&[2, 6], ones(x), ones(weight), None), "out", Shape);
    refused(run(&[3, 3], ones(x), ones(weight), None), "out", Shape);
    refused(run(out, ones(x), ones(weight), Some(ones(&[3]))), "bias", Shape);
    refused(run(out, ones(x), strided(0, weight, &[1, 6]), None), "weight", Layout);
    refused(run(out, strided(0, x, &[1, 2]), ones(weight), None), "x", Layout);
    assert!((run(out, ones(x), ones(weight), Some(ones(&[6]))).unwrap() - 1.0).abs() < 0.5);
    assert!((run(out, ones(x), ones(weight), None).unwrap() - 2.0).abs() < 0.5, "no refused call came through");

    let without: (&str, &str, &[&str]) = ("gated_linear.silu", "count_rms_norm", &["out", "x", "weight"]);
    let kernel = counting(without, "no bias", "");
    let LayerKernel::GatedLinear(kernel) = &*kernel else { panic!("{kernel:?}") };
    let error = with_output(out, |out| kernel.forward(out, &ones(x), &ones(weight), Some(&ones(&[6])))).unwrap_err();
    assert!(matches!(&error, BindError::Option { option: "bias", .. }), "{error:?}");
}
