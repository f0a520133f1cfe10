//! Linear layers: rows times a transposed weight.
//!
//! Few rows (decoding) take dot products with the weight's rows as they lie, which reads the weight once and is bound
//! by memory. More rows multiply in register tiles: panels of the weight are transposed to f32 on the stack, so that
//! all dtypes share one inner loop, and each panel serves many rows.

mod few;
mod tiles;

use half::{bf16, f16};

use self::few::Few;
use self::tiles::Tiles;
use crate::call::{Args, DType, Failed, MAX_RANK, RowMap, Tensor, launch};
use crate::simd::Element;

/// What both ways need. Rows of all tensors are dense.
#[derive(Clone, Copy)]
struct Linear<E> {
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

/// Checks the arguments and runs the kernel.
pub(crate) fn call(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    let (mut tensors, mut bias) = ([Tensor::EMPTY; 3], Tensor::EMPTY);
    let [out, x, weight] = args.tensors(&mut tensors)?;
    let bias = args.optional_tensor(3, &mut bias)?;
    x.expect_rank(1..=MAX_RANK, "[.., in]")?;
    weight.expect_rank(2..=2, "[out, in]")?;
    let columns = weight.shape()[0];
    weight.expect_shape(&[columns, x.last()], "[out, in], in as in `x`")?;
    let mut expected = [columns; MAX_RANK];
    let axes = x.shape().len();
    expected[..axes - 1].copy_from_slice(&x.shape()[..axes - 1]);
    out.expect_shape(&expected[..axes], "[.., out], the leading axes as `x`, out as in `weight`")?;
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
        bias.expect_shape(&[columns], "[out], out as in `weight`")?;
        bias.expect_dtype(x.dtype, "as `x`")?;
        bias.expect_dense_last()?;
        out.expect_apart(bias)?;
    }
    if out.is_empty() {
        return Ok(());
    }
    match x.dtype {
        DType::F32 => run::<f32>(function, [out, x, weight], bias),
        DType::Bf16 => run::<bf16>(function, [out, x, weight], bias),
        DType::F16 => run::<f16>(function, [out, x, weight], bias),
    }
}

fn run<E: Element>(
    function: &'static str,
    [out, x, weight]: [&Tensor; 3],
    bias: Option<&Tensor>,
) -> Result<(), Failed> {
    let linear = Linear::<E> {
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
    let elements = linear.depth as u64 * linear.columns as u64;
    // About 25 multiply-adds, or 15 bytes of the weight, per nanosecond, whichever takes longer.
    let cost = (elements.saturating_mul(rows as u64) / 25).max(elements.saturating_mul(size_of::<E>() as u64) / 15);
    if rows <= few::MAX_ROWS {
        let job = Few { linear };
        launch(function, &job, job.items(), cost)
    } else {
        let job = Tiles { linear };
        launch(function, &job, job.items(), cost)
    }
}
