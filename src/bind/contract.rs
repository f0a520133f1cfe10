//! The op contracts: what each kind of layer promises and demands.

use std::fmt;

mod parameters;

pub(super) use parameters::{
    ADD_RMS_NORM, ATTENTION, ATTENTION_PAGED, ATTENTION_VARLEN, LAYER_NORM, LINEAR, MAX_PARAMETERS, RMS_NORM,
    RMS_NORM_BACKWARD, ROTARY, index_of,
};
pub use parameters::{Parameter, ParameterKind};

use parameters as table;

/// An activation function by itself: `out = f(x)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// `x * Phi(x)` with the normal distribution's `Phi`, by the error function.
    Gelu,
    /// `0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`.
    GeluTanh,
    /// As [`Self::GeluTanh`] with the constant `sqrt(2 / pi)` written `0.7978845608` and multiplied in first:
    /// `0.5 x (1 + tanh(0.7978845608 x (1 + 0.044715 x^2)))`.
    GeluFast,
    /// The same curve as [`Self::GeluTanh`], from GPT-2's code.
    GeluNew,
    /// `x * sigmoid(1.702 x)`.
    GeluQuick,
}

impl Activation {
    /// Every activation of this version.
    pub const ALL: [Self; 6] = [Self::Silu, Self::Gelu, Self::GeluTanh, Self::GeluFast, Self::GeluNew, Self::GeluQuick];
}

/// An activation function whose result is multiplied by a gate. `a` is the first half of the last axis, `b` the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GatedActivation {
    /// `silu(a) * b`.
    Silu,
    /// `a * silu(b)`: the halves stand the other way round.
    MulAndSilu,
    /// `gelu(a) * b`, see [`Activation::Gelu`].
    Gelu,
    /// `gelu_tanh(a) * b`, see [`Activation::GeluTanh`].
    GeluTanh,
    /// `(a if a > threshold, else 0) * b`.
    Fatrelu,
}

impl GatedActivation {
    /// Every gated activation of this version.
    pub const ALL: [Self; 5] = [Self::Silu, Self::MulAndSilu, Self::Gelu, Self::GeluTanh, Self::Fatrelu];
}

/// A pair of linear layers of which one gates the other. `gate` is the first one's result, `up` the second one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GatedLinear {
    /// `silu(gate) * up`.
    Silu,
}

impl GatedLinear {
    /// Every gated linear layer of this version.
    pub const ALL: [Self; 1] = [Self::Silu];
}

/// The kind of computation that a layer hands to a kernel.
///
/// Each contract fixes names, roles, shapes and rounding of its parameters; [`Contract::forward`] and
/// [`Contract::backward`] list them. A `layers.toml` says in which order a kernel's function takes them. All tensors of
/// a call are on one device; floating-point work is accumulated in `f32` whatever the dtype.
///
/// Unless an entry says otherwise, all floating-point tensors of a call have one dtype, outputs are row-major, the rows
/// of an input stand at any distance (a distance of 0 included) and the elements of a row are neighbours. A tensor with
/// an empty axis is valid and has nothing to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Contract {
    /// `out = x / sqrt(mean(x^2, last axis) + eps) * (weight + offset)`.
    ///
    /// `out`, `x`: `[..., hidden]`; `weight`: `[hidden]`. `offset` is 0, or 1 where a model stores `weight - 1`.
    ///
    /// Backward: `dx` like `x`, `dweight` like `weight` (summed over all rows in `f32`), from `dy` like `out`.
    RmsNorm,
    /// `residual_out = x + residual`, rounded to the dtype; `out = rms_norm(residual_out)` by [`Self::RmsNorm`].
    ///
    /// `out`, `residual_out`, `x`, `residual`: `[..., hidden]`; `weight`: `[hidden]`.
    AddRmsNorm,
    /// `out = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias` over the last axis; `var` is the mean of the squared
    /// distances from the mean (no Bessel correction).
    ///
    /// `out`, `x`: `[..., hidden]`; `weight`, `bias`: `[hidden]`. Without a bias, nothing is added.
    LayerNorm,
    /// Rotary position embedding on halves of the last axis:
    /// `out1 = x1 * cos - x2 * sin`, `out2 = x1 * sin + x2 * cos`; with `conj` the sine is negated.
    ///
    /// `x1`, `x2`, `out1`, `out2`: `[batch, seq, heads, head_dim / 2]`, strided; `cos`, `sin`: the same shape with
    /// stride 0 where they do not vary. Half-split and interleaved styles differ in the strides of the halves alone.
    ///
    /// A function may take a second tensor, which the same tables turn, such as keys beside queries: `y1`, `y2`, `y_out1`,
    /// `y_out2`: `[batch, seq, other heads, head_dim / 2]`, all or none of them. It is given the tables as `[seq,
    /// head_dim / 2]`.
    ///
    /// It is its own backward: turning a gradient back (`conj`) is the exact gradient for `x`.
    Rotary,
    /// `out = activation(x)`, element by element.
    ///
    /// `out`, `x`: `[..., width]`.
    Activation(Activation),
    /// `out = activation(x[..., :d]) * x[..., d:]` (see [`GatedActivation`] for each), rounded once.
    ///
    /// `out`: `[..., d]`; `x`: `[..., 2 * d]`.
    ///
    /// Backward (of [`GatedActivation::Silu`] alone): `dx` like `x` from `dy` like `out`.
    GatedActivation(GatedActivation),
    /// `out = e^x / sum(e^x)` over the last axis, with the greatest element taken out of the exponents first.
    ///
    /// `out`, `x`: `[..., width]`. A row with a NaN or an infinity above zero, or of nothing but infinities below, gives
    /// NaNs.
    Softmax,
    /// `out = softmax(q k^T * softmax_scale) v` with an online softmax.
    ///
    /// `out`, `q`: `[batch, q_len, heads, head_dim]`; `k`, `v`: `[batch, kv_len, kv_heads, head_dim]`, `heads` a
    /// multiple of `kv_heads`: query head `h` reads key head `h / (heads / kv_heads)`.
    ///
    /// Query `i` has the position `p = kv_len - q_len + i` (aligned at the bottom right) and sees the keys `j` with
    /// `p - window_left <= j <= p + window_right`, both ends included; -1 means no bound. `causal` is the bound
    /// `window_right = 0`, beside the other two. A query that sees no key gives zeros.
    ///
    /// A `softcap` above 0 turns the scaled scores into `softcap * tanh(score / softcap)`, before the mask.
    Attention,
    /// [`Self::Attention`] over sequences of different lengths that stand one after another.
    ///
    /// `out`, `q`: `[total_q, heads, head_dim]`; `k`, `v`: `[total_k, kv_heads, head_dim]`; `cu_seqlens_q`,
    /// `cu_seqlens_k`: `i32` `[batch + 1]`, ascending from 0: sequence `b` is the rows `cu_seqlens[b] ..
    /// cu_seqlens[b + 1]`. `max_seqlen_q` and `max_seqlen_k` are the longest sequences, in rows.
    AttentionVarlen,
    /// [`Self::Attention`] over a cache of keys and values in blocks.
    ///
    /// `out`, `q`: `[batch, q_len, heads, head_dim]`; `k_cache`, `v_cache`: `[blocks, block_size, kv_heads, head_dim]`;
    /// `block_table`: `i32` `[batch, max_blocks]`; `seqlens_k`: `i32` `[batch]`, keys of each sequence, the rows of `q`
    /// included. Key `j` of sequence `b` is row `j % block_size` of block `block_table[b][j / block_size]`.
    AttentionPaged,
    /// `out = x weight^T + bias`.
    ///
    /// `out`: `[..., out_features]`; `x`: `[..., in_features]`; `weight`: `[out_features, in_features]`; `bias`:
    /// `[out_features]`. Without a bias, nothing is added.
    ///
    /// A quantised weight is one more case of this contract: `weight` then holds its codes, in a dtype of their own, and
    /// what scales them are further optional tensors behind `bias`. A kernel whose `args` lack them takes no such weight,
    /// as with every option.
    Linear,
    /// `out = activation(x gate^T + gate_bias) * (x up^T + up_bias)` (see [`GatedLinear`]), rounded once: gate, up
    /// and what joins them as one layer, whose halves are never written down.
    ///
    /// `out`: `[..., d]`; `x`: `[..., in_features]`; `weight`: `[2 * d, in_features]`, the rows of the gate before those
    /// of up; `bias`: `[2 * d]`, likewise. Without a bias, nothing is added. Quantised weights as in [`Self::Linear`].
    GatedLinear(GatedLinear),
    /// `out = weight[ids]`, rows copied bit for bit.
    ///
    /// `out`: `[..., hidden]`; `ids`: `[...]`, row-major, `u32` or `i64`, each below `vocab`; `weight`: `[vocab,
    /// hidden]`.
    Embedding,
    /// `loss = log(sum(exp(logits))) - logits[target]` for every row; 0 for a row whose target is `ignore_index`.
    ///
    /// `loss`: `f32` `[rows]`; `logits`: `[rows, vocab]`; `targets`: `[rows]`, row-major, `u32` or `i64`, each below
    /// `vocab` or equal to `ignore_index`.
    ///
    /// Backward: `dlogits` like `logits`, `= (softmax(logits) - onehot(target)) * dloss`, 0 for ignored rows, from
    /// `dloss` like `loss`.
    CrossEntropy,
}

impl Contract {
    const ALL: [Self; 23] = [
        Self::RmsNorm,
        Self::Rotary,
        Self::GatedActivation(GatedActivation::Silu),
        Self::Attention,
        Self::AddRmsNorm,
        Self::LayerNorm,
        Self::Activation(Activation::Silu),
        Self::Activation(Activation::Gelu),
        Self::Activation(Activation::GeluTanh),
        Self::Activation(Activation::GeluFast),
        Self::Activation(Activation::GeluNew),
        Self::Activation(Activation::GeluQuick),
        Self::GatedActivation(GatedActivation::MulAndSilu),
        Self::GatedActivation(GatedActivation::Gelu),
        Self::GatedActivation(GatedActivation::GeluTanh),
        Self::GatedActivation(GatedActivation::Fatrelu),
        Self::Softmax,
        Self::AttentionVarlen,
        Self::AttentionPaged,
        Self::Linear,
        Self::Embedding,
        Self::CrossEntropy,
        Self::GatedLinear(GatedLinear::Silu),
    ];

    /// Every contract of this version.
    #[must_use]
    pub const fn all() -> &'static [Self] {
        &Self::ALL
    }

    /// The name in `layers.toml`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RmsNorm => "rms_norm",
            Self::AddRmsNorm => "add_rms_norm",
            Self::LayerNorm => "layer_norm",
            Self::Rotary => "rotary",
            Self::Activation(Activation::Silu) => "activation.silu",
            Self::Activation(Activation::Gelu) => "activation.gelu",
            Self::Activation(Activation::GeluTanh) => "activation.gelu_tanh",
            Self::Activation(Activation::GeluFast) => "activation.gelu_fast",
            Self::Activation(Activation::GeluNew) => "activation.gelu_new",
            Self::Activation(Activation::GeluQuick) => "activation.gelu_quick",
            Self::GatedActivation(GatedActivation::Silu) => "gated_activation.silu",
            Self::GatedActivation(GatedActivation::MulAndSilu) => "gated_activation.mul_and_silu",
            Self::GatedActivation(GatedActivation::Gelu) => "gated_activation.gelu",
            Self::GatedActivation(GatedActivation::GeluTanh) => "gated_activation.gelu_tanh",
            Self::GatedActivation(GatedActivation::Fatrelu) => "gated_activation.fatrelu",
            Self::Softmax => "softmax",
            Self::Attention => "attention",
            Self::AttentionVarlen => "attention.varlen",
            Self::AttentionPaged => "attention.paged",
            Self::Linear => "linear",
            Self::GatedLinear(GatedLinear::Silu) => "gated_linear.silu",
            Self::Embedding => "embedding",
            Self::CrossEntropy => "cross_entropy",
        }
    }

    /// The contract of a name, or `None`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|contract| contract.as_str() == name)
    }

    /// The forward function's parameters, in the order in which this crate keeps their values. A binding lists each
    /// mandatory one once, and those of the optional ones that its function takes, in its own order.
    #[must_use]
    pub const fn forward(self) -> &'static [Parameter] {
        match self {
            Self::RmsNorm => table::RMS_NORM,
            Self::AddRmsNorm => table::ADD_RMS_NORM,
            Self::LayerNorm => table::LAYER_NORM,
            Self::Rotary => table::ROTARY,
            Self::Activation(_) => table::ACTIVATION,
            Self::GatedActivation(GatedActivation::Fatrelu) => table::FATRELU,
            Self::GatedActivation(_) => table::GATED_ACTIVATION,
            Self::Softmax => table::SOFTMAX,
            Self::Attention => table::ATTENTION,
            Self::AttentionVarlen => table::ATTENTION_VARLEN,
            Self::AttentionPaged => table::ATTENTION_PAGED,
            Self::Linear | Self::GatedLinear(_) => table::LINEAR,
            Self::Embedding => table::EMBEDDING,
            Self::CrossEntropy => table::CROSS_ENTROPY,
        }
    }

    /// The backward function's parameters; `None` when the contract has no backward function.
    #[must_use]
    pub const fn backward(self) -> Option<&'static [Parameter]> {
        match self {
            Self::RmsNorm => Some(table::RMS_NORM_BACKWARD),
            Self::GatedActivation(GatedActivation::Silu) => Some(table::GATED_ACTIVATION_BACKWARD),
            Self::CrossEntropy => Some(table::CROSS_ENTROPY_BACKWARD),
            _ => None,
        }
    }

    /// Whether the forward function also computes the gradient, so that every kernel of the contract has a backward.
    #[must_use]
    pub const fn is_own_backward(self) -> bool {
        matches!(self, Self::Rotary)
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Activation, Contract, GatedActivation, GatedLinear, ParameterKind};

    #[test]
    fn every_contract_has_its_own_name() {
        let names: BTreeSet<_> = Contract::all().iter().map(|contract| contract.as_str()).collect();
        assert_eq!(names.len(), Contract::all().len());
        for contract in Contract::all() {
            assert_eq!(Contract::from_name(contract.as_str()), Some(*contract));
        }
        let activations = Activation::ALL.map(Contract::Activation);
        let gated = GatedActivation::ALL.map(Contract::GatedActivation);
        let linears = GatedLinear::ALL.map(Contract::GatedLinear);
        for contract in activations.iter().chain(&gated).chain(&linears) {
            assert!(Contract::all().contains(contract), "{contract}");
        }
        assert_eq!(Contract::from_name("RmsNorm"), None);
    }

    #[test]
    fn tables_list_outputs_first_and_every_name_once() {
        for contract in Contract::all() {
            for table in [Some(contract.forward()), contract.backward()].into_iter().flatten() {
                let names: BTreeSet<_> = table.iter().map(|parameter| parameter.name).collect();
                assert_eq!(names.len(), table.len(), "{contract}");
                assert!(table.iter().any(|parameter| parameter.kind == ParameterKind::Output), "{contract}");
                assert!(table.len() <= super::MAX_PARAMETERS, "{contract}");
                // Mandatory ones may follow optional tensors, as `eps` does; optional scalars stand at the end.
                let optional = table.iter().skip_while(|parameter| !parameter.kind.is_optional_scalar());
                assert!(optional.into_iter().all(|parameter| parameter.kind.is_optional()), "{contract}");
            }
        }
    }
}
