//! Compute shaders on any GPU that wgpu reaches.
//!
//! Owns: the list of adapters, the device with its limits and its faults, tensors in GPU memory, shaders that were
//! checked against their declaration, launches, and graphs of launches that are recorded once and replayed. Refuses:
//! host types (a tensor here is bytes with a dtype and a shape), op contracts (see [`crate::bind`]), trust (the text
//! comes from a verified pack), environment variables.
//!
//! Invariant: every fault of a driver, a device or a shader comes back as a [`GpuError`] from the call that met it.
//! wgpu panics on an error that nobody catches, so each create, write and submit runs inside three error scopes, device
//! loss is a flag that every call checks, and what may still panic inside wgpu or naga is caught. With `panic =
//! "abort"` that last net is gone.
//!
//! The main choice: a shader is held to its `layers.toml` before it reaches a driver. Names, access, element types, the
//! parameter block, the workgroup size and its memory are read from the parsed module and compared. The cost is that
//! the text is parsed twice, here and by wgpu, a few milliseconds per shader and process.
//!
//! Shaders keep wgpu's bounds checks: an index outside its buffer reads something of that buffer or writes nothing, and
//! never reaches other memory.

mod adapter;
mod device;
mod error;
mod features;
mod graph;
mod guard;
mod inspect;
mod kernel;
mod launch;
mod tensor;

pub use adapter::{Adapter, AdapterInfo, AdapterKind, AdapterLimits, adapters, adapters_of};
pub use device::{Device, WAIT_LIMIT};
pub use error::GpuError;
pub use graph::{CommandGraph, Recording};
pub use kernel::{MAX_SOURCE_BYTES, ShaderKernel};
pub use launch::{ParamValue, Recorder};
pub use tensor::GpuTensor;
