//! A kernel by itself: called by its bound function into memory that is there, without the host's layer around it.

use std::sync::Arc;

use candle_core::{DType, Tensor, WithDType};
use half::{bf16, f16};
use kernelhub::bind::{
    AttentionOptions, BindError, Contract, Element, GatedActivation, LayerKernel, PagedKeys, RotaryStyle, TensorMut,
    TensorRef,
};
use kernelhub_ceiling::{Pages, with_capacity};

use super::error::CallError;
use super::shape::Shape;
use super::sides::{EPS, THRESHOLD};

/// A call into outputs that are used again.
pub(crate) type Call = Box<dyn FnMut() -> Result<(), CallError>>;

/// The kernel over `inputs`, in their dtype; `None` where there is no such call.
pub(crate) fn call(
    kernel: &Arc<LayerKernel>,
    shape: &Shape,
    inputs: &[Tensor],
    dtype: DType,
) -> Result<Option<Call>, CallError> {
    match dtype {
        DType::F32 => of::<f32>(kernel, shape, inputs),
        DType::BF16 => of::<bf16>(kernel, shape, inputs),
        DType::F16 => of::<f16>(kernel, shape, inputs),
        _ => Ok(None),
    }
}

/// A row-major tensor in memory of its own, on huge pages where the system has them: the machine's ceilings are measured
/// on such, and what pages cost is no matter of the kernel.
struct Buffer<T> {
    data: Vec<T>,
    shape: Vec<usize>,
}

impl<T: Element + WithDType> Buffer<T> {
    fn of(tensor: &Tensor) -> Result<Self, CallError> {
        let values: Vec<T> = tensor.flatten_all()?.to_vec1()?;
        let mut data = with_capacity(values.len(), Pages::Huge);
        data.extend_from_slice(&values);
        Ok(Self { data, shape: tensor.dims().to_vec() })
    }

    fn zeros(shape: &[usize]) -> Self {
        let count = shape.iter().product();
        let mut data = with_capacity(count, Pages::Huge);
        data.resize(count, T::from_f64(0.0));
        Self { data, shape: shape.to_vec() }
    }

    fn view(&self) -> Result<TensorRef<'_>, BindError> {
        TensorRef::contiguous(&self.data, &self.shape)
    }

    fn out(&mut self) -> Result<TensorMut<'_>, BindError> {
        TensorMut::contiguous(&mut self.data, &self.shape)
    }
}

/// The kernel's face of a contract, or an error out of the call.
macro_rules! face {
    ($kernel:expr, $variant:ident) => {
        match &*$kernel {
            LayerKernel::$variant(face) => face,
            _ => return Err(CallError::Broken),
        }
    };
}

fn of<T: Element + WithDType>(
    kernel: &Arc<LayerKernel>,
    shape: &Shape,
    inputs: &[Tensor],
) -> Result<Option<Call>, CallError> {
    let kernel = Arc::clone(kernel);
    let input = |at: usize| Buffer::<T>::of(&inputs[at]);
    let call: Call = match kernel.meta().contract {
        Contract::RmsNorm => {
            let (x, weight) = (input(0)?, input(1)?);
            let mut out = Buffer::<T>::zeros(&x.shape);
            Box::new(move || {
                Ok(face!(kernel, RmsNorm).forward(&mut out.out()?, &x.view()?, &weight.view()?, EPS, 0.0)?)
            })
        }
        Contract::AddRmsNorm => {
            let (x, residual, weight) = (input(0)?, input(1)?, input(2)?);
            let (mut out, mut sum) = (Buffer::<T>::zeros(&x.shape), Buffer::<T>::zeros(&x.shape));
            Box::new(move || {
                let (out, sum) = (&mut out.out()?, &mut sum.out()?);
                let (x, residual, weight) = (&x.view()?, &residual.view()?, &weight.view()?);
                Ok(face!(kernel, AddRmsNorm).forward(out, sum, x, residual, weight, EPS, 0.0)?)
            })
        }
        Contract::LayerNorm => {
            let (x, weight, bias) = (input(0)?, input(1)?, input(2)?);
            let mut out = Buffer::<T>::zeros(&x.shape);
            Box::new(move || {
                let bias = bias.view()?;
                let (x, weight) = (&x.view()?, &weight.view()?);
                Ok(face!(kernel, LayerNorm).forward(&mut out.out()?, x, weight, Some(&bias), EPS)?)
            })
        }
        Contract::Activation(_) => {
            let x = input(0)?;
            let mut out = Buffer::<T>::zeros(&x.shape);
            Box::new(move || Ok(face!(kernel, Activation).forward(&mut out.out()?, &x.view()?)?))
        }
        Contract::GatedActivation(activation) => {
            let x = input(0)?;
            let mut out = Buffer::<T>::zeros(&[shape.of("rows"), shape.of("width") / 2]);
            Box::new(move || {
                let (out, x, face) = (&mut out.out()?, &x.view()?, face!(kernel, GatedActivation));
                let outcome = if activation == GatedActivation::Fatrelu {
                    face.forward_with_threshold(out, x, THRESHOLD)
                } else {
                    face.forward(out, x)
                };
                outcome.map_err(CallError::from)
            })
        }
        Contract::Softmax => {
            let x = input(0)?;
            let mut out = Buffer::<T>::zeros(&x.shape);
            Box::new(move || Ok(face!(kernel, Softmax).forward(&mut out.out()?, &x.view()?)?))
        }
        Contract::Linear => {
            let (x, weight) = (input(0)?, input(1)?);
            let mut out = Buffer::<T>::zeros(&[shape.of("rows"), shape.of("out_features")]);
            Box::new(move || Ok(face!(kernel, Linear).forward(&mut out.out()?, &x.view()?, &weight.view()?, None)?))
        }
        Contract::GatedLinear(_) => {
            let (x, weight) = (input(0)?, input(1)?);
            let mut out = Buffer::<T>::zeros(&[shape.of("rows"), shape.of("out_features")]);
            Box::new(move || {
                let (x, weight) = (&x.view()?, &weight.view()?);
                Ok(face!(kernel, GatedLinear).forward(&mut out.out()?, x, weight, None)?)
            })
        }
        Contract::Rotary => rotary::<T>(kernel, [input(0)?, input(1)?, input(2)?, input(3)?]),
        Contract::Attention => {
            let (q, k, v) = (input(0)?, input(1)?, input(2)?);
            let mut out = Buffer::<T>::zeros(&rows_of_heads(&q.shape));
            let options = options(shape);
            Box::new(move || {
                let (q, k, v) = (&q.view()?, &k.view()?, &v.view()?);
                Ok(face!(kernel, Attention).forward(&mut out.out()?, q, k, v, &options)?)
            })
        }
        Contract::AttentionVarlen => varlen::<T>(kernel, shape, [input(0)?, input(1)?, input(2)?]),
        Contract::AttentionPaged => paged::<T>(kernel, shape, input(0)?, [&inputs[1], &inputs[2]])?,
        Contract::Embedding | Contract::CrossEntropy => indexed::<T>(kernel, inputs)?,
        _ => return Ok(None),
    };
    Ok(Some(call))
}

fn options(shape: &Shape) -> AttentionOptions {
    AttentionOptions::new(1.0 / (shape.of("head_dim") as f64).sqrt(), true)
}

/// `[batch, q_len, heads, head_dim]` of `[batch, heads, q_len, head_dim]`.
fn rows_of_heads(q: &[usize]) -> [usize; 4] {
    [q[0], q[2], q[1], q[3]]
}

fn rotary<T: Element + WithDType>(kernel: Arc<LayerKernel>, [q, k, cos, sin]: [Buffer<T>; 4]) -> Call {
    let (mut q_out, mut k_out) = (Buffer::<T>::zeros(&q.shape), Buffer::<T>::zeros(&k.shape));
    Box::new(move || {
        let (cos, sin, face) = (&cos.view()?, &sin.view()?, face!(kernel, Rotary));
        let (mut q_out, mut k_out) = (q_out.out()?, k_out.out()?);
        let tensors = [&q.view()?, &k.view()?];
        Ok(face.forward_pair((&mut q_out, &mut k_out), tensors, cos, sin, RotaryStyle::HalfSplit)?)
    })
}

fn varlen<T: Element + WithDType>(kernel: Arc<LayerKernel>, shape: &Shape, [q, k, v]: [Buffer<T>; 3]) -> Call {
    let mut out = Buffer::<T>::zeros(&q.shape);
    let ends = shape.sequence_lengths().into_iter().scan(0_i32, |end, length| {
        *end += i32::try_from(length).ok()?;
        Some(*end)
    });
    let starts: Vec<i32> = std::iter::once(0).chain(ends).collect();
    let (options, count) = (options(shape), [starts.len()]);
    Box::new(move || {
        let starts = TensorRef::indices(&starts, &count)?;
        let (q, k, v) = (&q.view()?, &k.view()?, &v.view()?);
        let face = face!(kernel, AttentionVarlen);
        Ok(face.forward(&mut out.out()?, q, k, v, [&starts, &starts], &options)?)
    })
}

fn paged<T: Element + WithDType>(
    kernel: Arc<LayerKernel>,
    shape: &Shape,
    q: Buffer<T>,
    keys_and_values: [&Tensor; 2],
) -> Result<Call, CallError> {
    let (batch, kv_len, block_size) = (shape.of("batch"), shape.of("kv_len"), shape.of("block_size"));
    let per_sequence = kv_len.div_ceil(block_size);
    let extents = [batch * per_sequence, block_size, shape.of("kv_heads"), shape.of("head_dim")];
    // Rows of a sequence one after another, and padding to its last block.
    let in_blocks = |x: &Tensor| {
        let rows = x.transpose(1, 2)?.pad_with_zeros(1, 0, per_sequence * block_size - kv_len)?;
        Buffer::<T>::of(&rows.contiguous()?.reshape(&extents)?)
    };
    let [keys, values] = [in_blocks(keys_and_values[0])?, in_blocks(keys_and_values[1])?];
    let table: Vec<i32> = (0..i32::try_from(batch * per_sequence).unwrap_or(i32::MAX)).collect();
    let lengths = vec![i32::try_from(kv_len).unwrap_or(i32::MAX); batch];
    let (table_shape, batch_shape, options) = ([batch, per_sequence], [batch], options(shape));
    let mut out = Buffer::<T>::zeros(&rows_of_heads(&q.shape));
    Ok(Box::new(move || {
        let (keys, values) = (&keys.view()?, &values.view()?);
        let block_table = &TensorRef::indices(&table, &table_shape)?;
        let lengths = &TensorRef::indices(&lengths, &batch_shape)?;
        let paged = PagedKeys { keys, values, block_table, lengths };
        Ok(face!(kernel, AttentionPaged).forward(&mut out.out()?, &q.view()?, &paged, &options)?)
    }))
}

fn indexed<T: Element + WithDType>(kernel: Arc<LayerKernel>, inputs: &[Tensor]) -> Result<Call, CallError> {
    if kernel.meta().contract == Contract::Embedding {
        let (ids, weight) = (inputs[0].to_vec1::<u32>()?, Buffer::<T>::of(&inputs[1])?);
        let rows = [ids.len()];
        let mut out = Buffer::<T>::zeros(&[ids.len(), weight.shape[1]]);
        return Ok(Box::new(move || {
            let ids = TensorRef::indices(&ids, &rows)?;
            Ok(face!(kernel, Embedding).forward(&mut out.out()?, &ids, &weight.view()?)?)
        }));
    }
    let (logits, targets) = (Buffer::<T>::of(&inputs[0])?, inputs[1].to_vec1::<u32>()?);
    let rows = [targets.len()];
    let mut loss = Buffer::<f32>::zeros(&rows);
    Ok(Box::new(move || {
        let targets = TensorRef::indices(&targets, &rows)?;
        Ok(face!(kernel, CrossEntropy).forward(&mut loss.out()?, &logits.view()?, &targets, -100)?)
    }))
}
