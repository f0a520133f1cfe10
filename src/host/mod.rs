//! Host adapters: the only rooms that name a framework's types, and one that needs no framework.

#[cfg(feature = "candle")]
pub mod candle;
pub mod slice;
