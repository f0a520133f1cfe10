//! Linear layers: rows times a transposed weight, and pairs of them of which one gates the other.
//!
//! Few rows (decoding) take dot products with the weight's rows as they lie, which reads the weight once and is bound
//! by memory. More rows multiply in register tiles: panels of the weight are transposed on the stack, and each panel
//! serves many rows. A panel holds f32, so that all dtypes share one inner loop; or, where the level multiplies them,
//! pairs of bf16. The kernel of a gated pair is the same, with the rows of both halves in one panel.
//!
//! Three decisions, with what decided them (two threads of a Zen 4 with AVX-512 BF16, both sides in one run):
//!
//! - **Weights are not packed beforehand**, so that there is no second copy of them, no cache of copies, and nothing to
//!   do when a weight changes. With panels that were ready in memory, 512 rows of bf16 took 2 to 3% less time, 32 rows 7
//!   to 11%, and few rows have no use for them: they read the weight's rows as they lie. A layout that is worth its
//!   memory, as one of quantised weights is, comes as a function of its own, with a weight of its own dtype or rank.
//! - **The multiplication is our own.** At 512 rows and 576 to 4,096 columns the crate `gemm` reached 150 to 213 GFLOP/s
//!   in f32 where this reaches 208 to 216, in f16 125 to 139 against 205 to 211, and at 32 rows of f32 33 to 111 against
//!   141 to 186; it has no bf16, takes memory for each call, and brings its own threads. `examples/products` measures it.
//! - **Few rows read the weight in several streams** of rows that follow each other. One stream reaches two thirds of
//!   what eight do; and eight rows side by side, each shorter than a page, half.

mod buffer;
mod few;
mod finish;
mod panel;
mod product;
mod tiles;
mod words;

use half::{bf16, f16};

use self::few::Few;
use self::product::Product;
use self::tiles::Tiles;
use crate::call::{Args, DType, Failed, MAX_RANK, RowMap, Tensor, launch};

/// What both ways need. Rows of all tensors are dense. Where `GATED`, the weight and the bias have twice as many rows
/// as the outputs have columns: those of the gate, and then those of what it gates.
#[derive(Clone, Copy)]
struct Linear<E, const GATED: bool> {
    /// Of the outputs and the inputs.
    rows: RowMap<2>,
    out: *mut E,
    x: *const E,
    weight: *const E,
    /// Between rows of the weight, in elements.
    weight_stride: isize,
    bias: Option<*const E>,
    /// The length of the inputs' rows.
    depth: usize,
    /// The length of the outputs' rows.
    columns: usize,
}

/// `linear(out, x, weight, bias)`: checks the arguments and runs the kernel.
pub(crate) fn linear(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    call::<false>(function, args)
}

/// `silu_gated_linear(out, x, weight, bias)`: checks the arguments and runs the kernel.
pub(crate) fn silu_gated_linear(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    call::<true>(function, args)
}

/// How the axes of a function's tensors are told.
struct Axes {
    weight: &'static str,
    weight_of_x: &'static str,
    out: &'static str,
    bias: &'static str,
}

const PLAIN: Axes = Axes {
    weight: "[out, in]",
    weight_of_x: "[out, in], in as in `x`",
    out: "[.., out], the leading axes as `x`, out as in `weight`",
    bias: "[out], out as in `weight`",
};
const PAIR: Axes = Axes {
    weight: "[2 * out, in]",
    weight_of_x: "[2 * out, in], in as in `x`",
    out: "[.., out], the leading axes as `x`, 2 * out as in `weight`",
    bias: "[2 * out], as in `weight`",
};

fn call<const GATED: bool>(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    let axes = if GATED { &PAIR } else { &PLAIN };
    let (mut tensors, mut bias) = ([Tensor::EMPTY; 3], Tensor::EMPTY);
    let [out, x, weight] = args.tensors(&mut tensors)?;
    let bias = args.optional_tensor(3, &mut bias)?;
    x.expect_rank(1..=MAX_RANK, "[.., in]")?;
    weight.expect_rank(2..=2, axes.weight)?;
    let rows = weight.shape()[0];
    weight.expect_shape(&[rows, x.last()], axes.weight_of_x)?;
    if GATED && !rows.is_multiple_of(2) {
        return Err(weight.invalid_shape(format_args!("expected an even number of rows {}", axes.weight)));
    }
    let columns = if GATED { rows / 2 } else { rows };
    let mut expected = [columns; MAX_RANK];
    let rank = x.shape().len();
    expected[..rank - 1].copy_from_slice(&x.shape()[..rank - 1]);
    out.expect_shape(&expected[..rank], axes.out)?;
    for tensor in [out, weight] {
        tensor.expect_dtype(x.dtype, "as `x`")?;
    }
    for tensor in [out, x, weight] {
        tensor.expect_dense_last()?;
    }
    out.expect_writable()?;
    out.expect_apart(x)?;
    out.expect_apart(weight)?;
    if let Some(bias) = bias {
        bias.expect_shape(&[rows], axes.bias)?;
        bias.expect_dtype(x.dtype, "as `x`")?;
        bias.expect_dense_last()?;
        out.expect_apart(bias)?;
    }
    if out.is_empty() {
        return Ok(());
    }
    match x.dtype {
        DType::F32 => run::<f32, GATED>(function, [out, x, weight], bias),
        DType::Bf16 => run::<bf16, GATED>(function, [out, x, weight], bias),
        DType::F16 => run::<f16, GATED>(function, [out, x, weight], bias),
    }
}

fn run<E: Product, const GATED: bool>(
    function: &'static str,
    [out, x, weight]: [&Tensor; 3],
    bias: Option<&Tensor>,
) -> Result<(), Failed> {
    let linear = Linear::<E, GATED> {
        rows: RowMap::new([out, x]),
        out: out.data(),
        x: x.data(),
        weight: weight.data(),
        weight_stride: weight.strides()[0],
        bias: bias.map(|bias| bias.data::<E>().cast_const()),
        depth: x.last(),
        columns: out.last(),
    };
    let rows = linear.rows.len();
    let elements = linear.depth as u64 * weight.shape()[0] as u64;
    // About 50 multiply-adds, or 15 bytes of the weight, per nanosecond, whichever takes longer.
    let cost = (elements.saturating_mul(rows as u64) / 50).max(elements.saturating_mul(size_of::<E>() as u64) / 15);
    if rows <= few::MAX_ROWS {
        let job = Few { linear };
        launch(function, &job, job.items(), cost)
    } else {
        let job = Tiles::new(linear);
        launch(function, &job, job.items(), cost)
    }
}
