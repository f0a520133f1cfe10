//! The op contracts: what each kind of layer promises and demands.

use std::fmt;

/// An activation function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
}

/// The kind of computation that a layer hands to a kernel.
///
/// Each contract fixes names, roles, shapes and rounding of its parameters. A `layers.toml` says in which order a
/// kernel's function takes them. All tensors of a call are on one device; floating-point work is accumulated in `f32`
/// whatever the dtype.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Contract {
    /// `out = x / sqrt(mean(x^2, last axis) + eps) * weight`, rounded to the dtype once, at the end.
    ///
    /// `out`, `x`: `[..., hidden]`; `weight`: `[hidden]`, of `x`'s dtype.
    RmsNorm,
    /// Rotary position embedding on halves of the last axis:
    /// `out1 = x1 * cos - x2 * sin`, `out2 = x1 * sin + x2 * cos`; with `conj` the sine is negated.
    ///
    /// `x1`, `x2`, `out1`, `out2`: `[batch, seq, heads, head_dim / 2]`, strided; `cos`, `sin`: the same shape with
    /// stride 0 where they do not vary. Half-split and interleaved styles differ in the strides of the halves alone.
    Rotary,
    /// `out = activation(x[..., :d]) * x[..., d:]`, rounded once.
    ///
    /// `out`: `[..., d]`; `x`: `[..., 2 * d]`.
    GatedActivation(Activation),
    /// `out = softmax(q k^T * softmax_scale) v` with an online softmax.
    ///
    /// `out`, `q`: `[batch, q_len, heads, head_dim]`; `k`, `v`: `[batch, kv_len, kv_heads, head_dim]`, `heads` a
    /// multiple of `kv_heads`. With `causal`, query `i` sees keys `0 ..= kv_len - q_len + i` (aligned at the bottom
    /// right); a query that sees no key gives zeros.
    Attention,
}

impl Contract {
    /// Every contract of this version.
    pub const ALL: [Self; 4] = [Self::RmsNorm, Self::Rotary, Self::GatedActivation(Activation::Silu), Self::Attention];

    /// The name in `layers.toml`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RmsNorm => "rms_norm",
            Self::Rotary => "rotary",
            Self::GatedActivation(Activation::Silu) => "gated_activation.silu",
            Self::Attention => "attention",
        }
    }

    /// The contract of a name, or `None`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|contract| contract.as_str() == name)
    }

    /// The forward function's parameters, in the order in which this crate keeps their values. A binding lists each
    /// of them once, in its own order.
    #[must_use]
    pub const fn parameters(self) -> &'static [&'static str] {
        match self {
            Self::RmsNorm => &["out", "x", "weight", "eps"],
            Self::Rotary => &["x1", "x2", "cos", "sin", "out1", "out2", "conj"],
            Self::GatedActivation(_) => &["out", "x"],
            Self::Attention => &["out", "q", "k", "v", "softmax_scale", "causal"],
        }
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
