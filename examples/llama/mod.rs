//! A Llama-family language model on candle, built from layers that kernels can take over.
//!
//! Copy this folder to start a program of your own: `model.rs` is the model, and the rest reads its files, turns text
//! into tokens and runs it. The layers come from `kernelhub::host::candle`; nothing else here knows about kernels.

#![allow(dead_code, reason = "each program that includes these files uses a part of them")]
#![allow(clippy::cast_possible_truncation, reason = "numbers computed in f64 are rounded to f32 on purpose")]
#![allow(unreachable_pub, reason = "these files are a private module of each program that includes them")]

pub mod config;
pub mod error;
pub mod generate;
pub mod model;
pub mod options;
pub mod perplexity;
pub mod rope;
pub mod sampler;
pub mod tokenizer;
pub mod weights;
