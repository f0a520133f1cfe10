//! What can go wrong on a GPU.

use std::time::Duration;

use crate::dtype::DType;
use crate::hint::{Hint, nearest};
use crate::manifest::{GridError, SignatureError};

/// Longest compiler message kept, in characters: a message quotes the shader, whose lines can be of any length.
const MAX_MESSAGE_CHARS: usize = 4000;

/// A fault of an adapter, a device, a shader or a launch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// No adapter was found.
    #[error("no GPU adapter was found (asked for: {backends})")]
    NoAdapter {
        /// The graphics APIs that were asked.
        backends: String,
    },
    /// The adapter gave no device.
    #[error("adapter {adapter:?} gave no device")]
    Open {
        /// The adapter's name.
        adapter: String,
        /// wgpu's reason.
        #[source]
        source: wgpu::RequestDeviceError,
    },
    /// wgpu refused an operation as invalid.
    #[error("{operation} was refused: {message}")]
    Validation {
        /// What was being done.
        operation: String,
        /// wgpu's description.
        message: String,
    },
    /// The device has no memory left.
    #[error("{operation}: the device is out of memory")]
    OutOfMemory {
        /// What was being done.
        operation: String,
    },
    /// The driver failed in a way that nobody foresaw.
    #[error("{operation} failed in the driver: {message}")]
    Internal {
        /// What was being done.
        operation: String,
        /// wgpu's description.
        message: String,
    },
    /// wgpu or its shader compiler panicked; the panic was caught.
    #[error("{operation} made the shader runtime panic: {message}")]
    Panicked {
        /// What was being done.
        operation: String,
        /// The panic's message.
        message: String,
    },
    /// The device is gone. Nothing works on it any more.
    #[error("{operation}: device {adapter:?} is lost: {reason}")]
    Lost {
        /// What was being done.
        operation: String,
        /// The adapter's name.
        adapter: String,
        /// Why, as far as the driver says.
        reason: String,
    },
    /// The device did not finish in time.
    #[error("{operation}: the device did not finish within {} s", .waited.as_secs())]
    Timeout {
        /// What was being waited for.
        operation: String,
        /// How long.
        waited: Duration,
    },
    /// More was asked of the device than it has.
    #[error("{subject}: {limit} of {requested} {unit} was requested; {adapter:?} has at most {maximum}")]
    LimitExceeded {
        /// What asked for it, such as a tensor or a shader's file.
        subject: String,
        /// The limit's name.
        limit: &'static str,
        /// The unit of both numbers.
        unit: &'static str,
        /// What was asked.
        requested: u64,
        /// What there is.
        maximum: u64,
        /// The adapter's name.
        adapter: String,
    },
    /// A shape whose size in bytes exceeds 64 bits.
    #[error("a {dtype} tensor of shape {shape:?} exceeds 2^64 bytes")]
    TooLarge {
        /// The element type.
        dtype: DType,
        /// The shape.
        shape: Vec<usize>,
    },
    /// The bytes given for a tensor are not as many as its shape says.
    #[error("a {dtype} tensor of shape {shape:?} takes {expected} bytes; {actual} were given")]
    SizeMismatch {
        /// The element type.
        dtype: DType,
        /// The shape.
        shape: Vec<usize>,
        /// Bytes that the shape takes.
        expected: u64,
        /// Bytes given.
        actual: u64,
    },
    /// The `shader` table's strings are malformed.
    #[error("{file}: the shader's declaration is malformed")]
    Declaration {
        /// The shader's file.
        file: String,
        /// Which string.
        #[source]
        source: SignatureError,
    },
    /// The text is longer than any shader may be.
    #[error("{file}: a shader of {bytes} bytes; at most {maximum} are accepted")]
    SourceTooLong {
        /// The shader's file.
        file: String,
        /// The text's length, in bytes.
        bytes: usize,
        /// [`super::MAX_SOURCE_BYTES`].
        maximum: usize,
    },
    /// The text is not valid WGSL.
    #[error("{file}: not a valid shader: {message}")]
    Wgsl {
        /// The shader's file.
        file: String,
        /// The compiler's message, with the place.
        message: String,
    },
    /// The shader has no such compute entry point.
    #[error("{file}: no compute entry point {entry:?}; there are: {}", .found.join(", "))]
    MissingEntry {
        /// The shader's file.
        file: String,
        /// The entry point declared.
        entry: String,
        /// Compute entry points of the text.
        found: Vec<String>,
    },
    /// The shader is not what its declaration says.
    #[error("{file}: {what} is declared as {declared}, and the shader has {actual}")]
    Mismatch {
        /// The shader's file.
        file: String,
        /// What differs, such as "the workgroup size" or "binding 1".
        what: String,
        /// By `layers.toml`.
        declared: String,
        /// By the WGSL.
        actual: String,
    },
    /// The shader needs a feature that kernelhub does not know.
    #[error("{file}: unknown feature {name:?}")]
    UnknownFeature {
        /// The shader's file.
        file: String,
        /// The feature.
        name: String,
    },
    /// The shader needs a feature that the adapter lacks.
    #[error("{file}: needs the feature {name}, which {adapter:?} lacks")]
    FeatureUnsupported {
        /// The shader's file.
        file: String,
        /// The feature.
        name: String,
        /// The adapter's name.
        adapter: String,
    },
    /// A launch lacks a tensor or a parameter.
    #[error("{kernel}: the {kind} {name:?} was not given")]
    MissingArgument {
        /// The shader's file and entry point.
        kernel: String,
        /// "tensor" or "parameter".
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A launch gave a tensor or a parameter that the shader does not have.
    #[error("{kernel}: there is no {kind} {name:?}; it takes: {}", .expected.join(", "))]
    UnknownArgument {
        /// The shader's file and entry point.
        kernel: String,
        /// "tensor" or "parameter".
        kind: &'static str,
        /// The name given.
        name: String,
        /// The names that there are.
        expected: Vec<String>,
    },
    /// A launch gave a tensor or a parameter twice.
    #[error("{kernel}: the {kind} {name:?} was given twice")]
    RepeatedArgument {
        /// The shader's file and entry point.
        kernel: String,
        /// "tensor" or "parameter".
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A tensor or parameter of another type than the shader reads.
    #[error("{kernel}: {name:?} is {actual}; the shader takes {expected}")]
    WrongType {
        /// The shader's file and entry point.
        kernel: String,
        /// The tensor or parameter.
        name: String,
        /// What the shader takes.
        expected: String,
        /// What was given.
        actual: String,
    },
    /// A tensor or shader of another device.
    #[error("{kernel}: {name:?} belongs to another device")]
    ForeignDevice {
        /// The shader's file and entry point.
        kernel: String,
        /// The tensor, or "the recorder".
        name: String,
    },
    /// One tensor is both written and bound a second time.
    #[error("{kernel}: {written:?} is written and is the same tensor as {other:?}")]
    Aliased {
        /// The shader's file and entry point.
        kernel: String,
        /// The binding that writes it.
        written: String,
        /// The other binding.
        other: String,
    },
    /// Something that a replay cannot repeat was asked for while a graph is recorded.
    #[error("{operation} while a graph is recorded, which a replay could not repeat")]
    Recording {
        /// What was asked for.
        operation: String,
    },
    /// A kernel whose launches must not be recorded.
    #[error("{kernel} does not promise that its launches can be recorded and replayed")]
    NotRecordable {
        /// The shader's file and entry point.
        kernel: String,
    },
    /// The grid has no value for these parameters.
    #[error("{kernel}: no grid for these parameters")]
    Grid {
        /// The shader's file and entry point.
        kernel: String,
        /// The expression and its fault.
        #[source]
        source: GridError,
    },
}

impl Hint for GpuError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoAdapter { .. } => {
                "install the GPU's Vulkan driver; Debian's package mesa-vulkan-drivers has one for \
                AMD and Intel and a software one for machines without a GPU"
                    .to_owned()
            }
            Self::OutOfMemory { .. } => "free tensors on the device or use a smaller batch".to_owned(),
            Self::Lost { .. } => "open the device again and upload its tensors anew; if it is lost again, update the \
                GPU's driver"
                .to_owned(),
            Self::LimitExceeded { .. } => "use a smaller batch, or another adapter".to_owned(),
            Self::MissingEntry { entry, found, .. } => did_you_mean(entry, found)?,
            Self::UnknownArgument { name, expected, .. } => did_you_mean(name, expected)?,
            Self::UnknownFeature { name, .. } => nearest(name, super::features::names()).map_or_else(
                || format!("known features: {}", super::features::names().collect::<Vec<_>>().join(", ")),
                |near| format!("did you mean {near:?}?"),
            ),
            Self::Recording { .. } => {
                "make tensors before the recording, and read results after a replay; launch on the recording".to_owned()
            }
            Self::NotRecordable { .. } => {
                "launch it without a recording; a kernel promises it by can_compile in its layers.toml".to_owned()
            }
            Self::Aliased { .. } => "give the output a tensor of its own".to_owned(),
            Self::SourceTooLong { .. }
            | Self::Panicked { .. }
            | Self::Wgsl { .. }
            | Self::Mismatch { .. }
            | Self::Declaration { .. } => {
                "the pack's shader is at fault: report it to its publisher, or use another version".to_owned()
            }
            _ => return None,
        })
    }
}

fn did_you_mean(name: &str, known: &[String]) -> Option<String> {
    nearest(name, known.iter().map(String::as_str)).map(|near| format!("did you mean {near:?}?"))
}

/// A compiler's message without control characters that a hostile text could smuggle into a terminal.
pub(super) fn printable(message: &str) -> String {
    let clean = |c: char| if c.is_control() && c != '\n' { char::REPLACEMENT_CHARACTER } else { c };
    message.trim().chars().take(MAX_MESSAGE_CHARS).map(clean).collect()
}
