//! candle's other constructors that take a builder: layers without a contract, and so without a slot.
#![expect(clippy::needless_pass_by_value, reason = "builders are passed as candle's are")]

use candle_core::Result;
use candle_nn::{
    BatchNorm, BatchNormConfig, Conv1d, Conv1dConfig, Conv2d, Conv2dConfig, ConvTranspose1d, ConvTranspose1dConfig,
    ConvTranspose2d, ConvTranspose2dConfig, GRU, GRUConfig, GroupNorm, LSTM, LSTMConfig, PReLU,
};

use super::VarBuilder;

/// Declares functions that hand candle its own builder.
macro_rules! candles {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $layer:ty;)*) => {
        $(
            #[doc = concat!("`candle_nn::", stringify!($name), "`: a layer that no kernel takes.")]
            ///
            /// # Errors
            /// As candle's.
            pub fn $name($($argument: $kind,)* vb: VarBuilder) -> Result<$layer> {
                candle_nn::$name($($argument,)* vb.candle())
            }
        )*
    };
}

candles! {
    conv1d(in_channels: usize, out_channels: usize, kernel_size: usize, config: Conv1dConfig) -> Conv1d;
    conv1d_no_bias(in_channels: usize, out_channels: usize, kernel_size: usize, config: Conv1dConfig) -> Conv1d;
    conv_transpose1d(in_channels: usize, out_channels: usize, kernel_size: usize, config: ConvTranspose1dConfig)
        -> ConvTranspose1d;
    conv_transpose1d_no_bias(in_channels: usize, out_channels: usize, kernel_size: usize, config: ConvTranspose1dConfig)
        -> ConvTranspose1d;
    conv2d(in_channels: usize, out_channels: usize, kernel_size: usize, config: Conv2dConfig) -> Conv2d;
    conv2d_no_bias(in_channels: usize, out_channels: usize, kernel_size: usize, config: Conv2dConfig) -> Conv2d;
    conv_transpose2d(in_channels: usize, out_channels: usize, kernel_size: usize, config: ConvTranspose2dConfig)
        -> ConvTranspose2d;
    conv_transpose2d_no_bias(in_channels: usize, out_channels: usize, kernel_size: usize, config: ConvTranspose2dConfig)
        -> ConvTranspose2d;
    group_norm(num_groups: usize, num_channels: usize, eps: f64) -> GroupNorm;
    prelu(num_channels: Option<usize>) -> PReLU;
    lstm(in_dim: usize, hidden_dim: usize, config: LSTMConfig) -> LSTM;
    gru(in_dim: usize, hidden_dim: usize, config: GRUConfig) -> GRU;
}

/// `candle_nn::batch_norm`: a layer that no kernel takes.
///
/// # Errors
/// As candle's.
pub fn batch_norm<C: Into<BatchNormConfig>>(num_features: usize, config: C, vb: VarBuilder) -> Result<BatchNorm> {
    candle_nn::batch_norm(num_features, config, vb.candle())
}
