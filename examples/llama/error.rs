//! What can be wrong with a model's files or a request.

use std::path::{Path, PathBuf};

/// A model that cannot be read or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    #[error("cannot read {}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot write to standard output")]
    Output {
        #[source]
        source: std::io::Error,
    },
    #[error("{} is not a valid {format} file", path.display())]
    Format {
        path: PathBuf,
        format: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("{origin} has no {key:?}")]
    MissingKey { origin: String, key: String },
    #[error("{origin}: {key:?} must be {expected}, got {actual}")]
    BadValue { origin: String, key: String, expected: String, actual: String },
    #[error("{origin} has no tensor {name:?}")]
    MissingTensor { origin: String, name: String },
    #[error("{origin}: tensor {name:?} must be {expected:?}, got {actual:?}")]
    TensorShape { origin: String, name: String, expected: Vec<usize>, actual: Vec<usize> },
    #[error("{origin}: tensor {name:?} cannot be read")]
    Tensor {
        origin: String,
        name: String,
        #[source]
        source: Box<candle_core::Error>,
    },
    #[error("{origin}: {what}")]
    Unsupported { origin: String, what: String },
    #[error("the tokenizer failed")]
    Tokenizer(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("{0}")]
    Request(String),
    #[error("the model's computation failed")]
    Compute(#[from] candle_core::Error),
}

pub type Result<T> = std::result::Result<T, ModelError>;

impl ModelError {
    pub fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }

    pub fn unsupported(origin: &str, what: impl Into<String>) -> Self {
        Self::Unsupported { origin: origin.to_owned(), what: what.into() }
    }
}
