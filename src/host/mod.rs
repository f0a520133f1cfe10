//! Host adapters: the only rooms that name a framework's types.

#[cfg(feature = "candle")]
pub mod candle;
