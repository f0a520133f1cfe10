//! The three projections of attention.

use candle_core::{D, DType, Result, Tensor};

use super::spec::{Claim, check_plan, exact_shape, float_dtype, same_dtype};
use super::{LayerError, Linear, call, linear};
use crate::bind::{Contract, Rounding};
use crate::swap::{GroupSpec, Plan, Slot, Slots};

const LAYER: &str = "QKVLinear";
const NAMES: [&str; 3] = ["q_proj", "k_proj", "v_proj"];

/// A weight `[out, in]` and a bias `[out]`.
pub type Projection = (Tensor, Option<Tensor>);

/// `x · weightᵀ + bias` for the queries, the keys and the values of attention.
///
/// Each projection is a [`Linear`] with a slot of its own, and the three are a group: one `linear` kernel mapped to
/// `QKVLinear` runs them as one product. The merged weight shares its memory with the three, so that fusing costs none.
/// Variables are not merged, since an optimizer would step the parts and not the whole: they keep their three products.
///
/// # Shapes
/// The projections have one `in`; the input is `[..., in]` of any strides, the outputs are `[..., out]` each, and views
/// of one tensor where a kernel made them.
///
/// # Element types
/// As [`Linear`].
#[derive(Debug, Clone)]
pub struct QkvLinear {
    parts: [Linear; 3],
    merged: Option<Projection>,
    slot: Slot,
}

impl QkvLinear {
    /// The projections of queries, keys and values, in the slots `path.q_proj`, `path.k_proj` and `path.v_proj` of the
    /// model, and in the group `path.qkv`. The group's width is `in`.
    ///
    /// # Errors
    /// A [`LayerError`] when a projection is none by itself, or they differ in `in` or element type, or only some of
    /// them have a bias.
    pub fn new(projections: [Projection; 3], slots: &Slots, path: &str) -> Result<Self> {
        let [first, ..] = &projections;
        float_dtype(LAYER, "q_proj", first.0.dtype())?;
        let inputs = first.0.dims().last().copied().unwrap_or_default();
        for (name, (weight, bias)) in NAMES.into_iter().zip(&projections) {
            if weight.rank() != 2 || weight.dims().last() != Some(&inputs) {
                let (expected, actual) = (format!("[out, {inputs}] like q_proj"), weight.dims().to_vec());
                return Err(LayerError::Shape { layer: LAYER, tensor: name, expected, actual }.into());
            }
            same_dtype(LAYER, ("q_proj", &first.0), (name, weight))?;
            if bias.is_some() != first.1.is_some() {
                let expected = if first.1.is_some() { "a bias [out], like q_proj" } else { "no bias, like q_proj" };
                let actual = bias.as_ref().map(|bias| bias.dims().to_vec()).unwrap_or_default();
                let expected = expected.to_owned();
                return Err(LayerError::Shape { layer: LAYER, tensor: name, expected, actual }.into());
            }
        }
        let trains =
            projections.iter().any(|(weight, bias)| weight.track_op() || bias.as_ref().is_some_and(Tensor::track_op));
        let (parts, merged) = if trains { (projections, None) } else { merge(&projections)? };
        Self::of_parts(parts, merged, slots, path)
    }

    /// The projections as rows of one weight `[q + k + v, in]`, and of one bias, in the order of `widths`; the rest as
    /// [`new`](Self::new). A variable stays one: the three are views of it, which an optimizer steps with the whole.
    ///
    /// # Errors
    /// A [`LayerError`] when the weight does not have as many rows as `widths` add up to, or the bias does not go with
    /// it.
    pub fn of_merged((weight, bias): Projection, widths: [usize; 3], slots: &Slots, path: &str) -> Result<Self> {
        let rows = widths.iter().sum::<usize>();
        if weight.rank() != 2 || weight.dim(0)? != rows {
            let (expected, actual) = (format!("[{rows}, in], the sum of {widths:?}"), weight.dims().to_vec());
            return Err(LayerError::Shape { layer: LAYER, tensor: "weight", expected, actual }.into());
        }
        float_dtype(LAYER, "weight", weight.dtype())?;
        if let Some(bias) = &bias {
            exact_shape(LAYER, ("bias", bias), &[rows], "[q + k + v]")?;
            same_dtype(LAYER, ("the weight", &weight), ("bias", bias))?;
        }
        let merged = (weight, bias);
        Self::of_parts(parts_of(&merged, widths)?, Some(merged), slots, path)
    }

    fn of_parts(parts: [Projection; 3], merged: Option<Projection>, slots: &Slots, path: &str) -> Result<Self> {
        let [(weight, bias), ..] = &parts;
        let (dtype, inputs, has_bias) = (float_dtype(LAYER, "q_proj", weight.dtype())?, weight.dim(1)?, bias.is_some());
        let mut layers = Vec::with_capacity(3);
        for (name, (weight, bias)) in NAMES.into_iter().zip(parts) {
            layers.push(Linear::new(weight, bias, slots, format!("{path}.{name}"))?);
        }
        let claim = Claim {
            layer: LAYER,
            contract: Contract::Linear,
            dtype,
            width: inputs,
            weights: &[],
            options: if has_bias { &["bias"] } else { &[] },
            rounding: if has_bias { Rounding::Dtype } else { Rounding::F32 },
        };
        let members = layers.iter().map(|layer| layer.slot().clone()).collect();
        let slot =
            slots.group(GroupSpec { fused: claim.spec(format!("{path}.qkv")), members }).map_err(LayerError::from)?;
        let parts = <[Linear; 3]>::try_from(layers)
            .map_err(|_| candle_core::Error::Msg("internal: there are three projections".to_owned()))?;
        Ok(Self { parts, merged, slot })
    }

    /// The projections of queries, keys and values.
    #[must_use]
    pub fn projections(&self) -> &[Linear; 3] {
        &self.parts
    }

    /// Queries, keys and values of `x`, under the plan of the scope that the thread is in, or else the current one.
    ///
    /// # Errors
    /// When the last axis of `x` is not the weights', or its type differs.
    pub fn forward(&self, x: &Tensor) -> Result<[Tensor; 3]> {
        self.slot.with_plan(|plan| self.forward_in(plan, x))
    }

    /// Queries, keys and values of `x`, under the plan that the model pinned.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_in(&self, plan: &Plan, x: &Tensor) -> Result<[Tensor; 3]> {
        match self.projected(plan, x)? {
            Projected::Joined(out) => self.split(&out),
            Projected::Apart(parts) => Ok(parts),
        }
    }

    /// Queries, keys and values of `x` `[batch, seq, in]` as attention takes them, each
    /// `[batch, its heads, seq, head_dim]`: views of what was projected, without a copy. Under the plan that the model
    /// pinned.
    ///
    /// # Errors
    /// As [`forward`](Self::forward), and when `x` has not three axes, or a projection is no whole number of heads.
    pub fn forward_heads_in(&self, plan: &Plan, x: &Tensor, head_dim: usize) -> Result<[Tensor; 3]> {
        let (batch, seq, _) = x.dims3()?;
        for (part, tensor) in self.parts.iter().zip(NAMES) {
            let shape = part.weight().dims();
            if head_dim == 0 || shape[0] % head_dim != 0 {
                let (expected, actual) = (format!("[heads * {head_dim}, in]"), shape.to_vec());
                return Err(LayerError::Shape { layer: LAYER, tensor, expected, actual }.into());
            }
        }
        let by_head = |out: &Tensor| out.reshape((batch, seq, out.dim(D::Minus1)? / head_dim, head_dim));
        match self.projected(plan, x)? {
            Projected::Apart(parts) => {
                let [q, k, v] = parts.each_ref().map(|part| by_head(part)?.transpose(1, 2));
                Ok([q?, k?, v?])
            }
            Projected::Joined(out) => {
                // Split by heads and not by elements: what has lost its neighbours would be copied to get its heads.
                let (out, mut start) = (by_head(&out)?, 0);
                let [q, k, v] = self.parts.each_ref().map(|part| {
                    let heads = part.weight().dim(0)? / head_dim;
                    start += heads;
                    out.narrow(2, start - heads, heads)?.transpose(1, 2)
                });
                Ok([q?, k?, v?])
            }
        }
    }

    fn projected(&self, plan: &Plan, x: &Tensor) -> Result<Projected> {
        check_plan(plan, &self.slot)?;
        self.parts[0].check(x)?;
        if let Some((weight, bias)) = &self.merged
            && let Some(out) = call::linear(plan, &self.slot, x, weight, bias.as_ref())?
        {
            return Ok(Projected::Joined(out));
        }
        let [q, k, v] = &self.parts;
        let is_alone = self.parts.iter().all(|part| plan.kernel(part.slot()).is_none());
        match &self.merged {
            Some(merged) if is_alone => self.products(x, merged),
            _ => Ok(Projected::Apart([q.forward_in(plan, x)?, k.forward_in(plan, x)?, v.forward_in(plan, x)?])),
        }
    }

    /// Queries, keys and values of `x` by candle's own products, which are differentiable in every mode.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_reference(&self, x: &Tensor) -> Result<[Tensor; 3]> {
        self.parts[0].check(x)?;
        match &self.merged {
            Some(merged) => match self.products(x, merged)? {
                Projected::Joined(out) => self.split(&out),
                Projected::Apart(parts) => Ok(parts),
            },
            None => self.apart(x),
        }
    }

    fn products(&self, x: &Tensor, (weight, bias): &Projection) -> Result<Projected> {
        if x.dtype() == DType::BF16 && x.device().is_cpu() {
            // candle widens the whole memory under a bf16 operand, which would be the merged weight for each part.
            return linear::product(x, weight, bias.as_ref()).map(Projected::Joined);
        }
        self.apart(x).map(Projected::Apart)
    }

    fn apart(&self, x: &Tensor) -> Result<[Tensor; 3]> {
        // Neighbouring rows once for the three products.
        let x = x.contiguous()?;
        let [q, k, v] = self.parts.each_ref().map(|part| linear::product(&x, part.weight(), part.bias()));
        Ok([q?, k?, v?])
    }

    fn split(&self, out: &Tensor) -> Result<[Tensor; 3]> {
        let mut start = 0;
        let [q, k, v] = self.parts.each_ref().map(|part| {
            let width = part.weight().dim(0)?;
            start += width;
            out.narrow(D::Minus1, start - width, width)
        });
        Ok([q?, k?, v?])
    }
}

/// What the projections gave.
enum Projected {
    /// `[..., q + k + v]`.
    Joined(Tensor),
    Apart([Tensor; 3]),
}

/// One weight and one bias for all, and the parts as views of them.
fn merge(projections: &[Projection; 3]) -> Result<([Projection; 3], Option<Projection>)> {
    let weight = Tensor::cat(&projections.each_ref().map(|(weight, _)| weight), 0)?;
    let biases: Vec<_> = projections.iter().filter_map(|(_, bias)| bias.as_ref()).collect();
    let bias = if biases.is_empty() { None } else { Some(Tensor::cat(&biases, 0)?) };
    let [(q, _), (k, _), (v, _)] = projections;
    let merged = (weight, bias);
    Ok((parts_of(&merged, [q.dim(0)?, k.dim(0)?, v.dim(0)?])?, Some(merged)))
}

/// Views of `widths` rows each.
fn parts_of((weight, bias): &Projection, widths: [usize; 3]) -> Result<[Projection; 3]> {
    let mut start = 0;
    let [q, k, v] = widths.map(|width| {
        start += width;
        let rows = |whole: &Tensor| whole.narrow(0, start - width, width);
        Ok::<_, candle_core::Error>((rows(weight)?, bias.as_ref().map(rows).transpose()?))
    });
    Ok([q?, k?, v?])
}
