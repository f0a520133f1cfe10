//! A model file's tensors for candle's builder, by their Hugging Face names.

use candle_core::{DType, Device, Error, Result, Shape, Tensor};
use candle_nn::{Init, VarBuilder, var_builder::SimpleBackend};

use super::llama::weights::Weights;
use super::plain;

/// candle's builder over the tensors of `weights`.
pub fn builder(weights: Weights) -> VarBuilder<'static> {
    let (dtype, device) = (weights.dtype(), weights.device().clone());
    VarBuilder::from_backend(Box::new(Backend(weights)), dtype, device)
}

/// What the plain model wants to know of the file's configuration.
pub fn config(weights: &Weights, positions: usize) -> plain::Config {
    let config = weights.config();
    plain::Config {
        hidden: config.hidden,
        intermediate: config.intermediate,
        layers: config.layers,
        heads: config.heads,
        kv_heads: config.kv_heads,
        head_dim: config.head_dim,
        vocabulary: config.vocabulary,
        positions,
        eps: f64::from(config.rms_norm_eps),
        theta: config.rope_theta,
    }
}

struct Backend(Weights);

impl SimpleBackend for Backend {
    fn get(&self, shape: Shape, name: &str, _: Init, dtype: DType, device: &Device) -> Result<Tensor> {
        self.0.tensor(name, shape.dims()).map_err(Error::wrap)?.to_dtype(dtype)?.to_device(device)
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> Result<Tensor> {
        Err(Error::Msg(format!("{name}: tensors are read by their shape")))
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}
