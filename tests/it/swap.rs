//! Configurations, plans and their publication.

mod attention;
mod chains;
mod config;
mod field_cases;
mod forms;
mod gradients;
mod groups;
mod hot;
mod overrides;
mod plans;
mod saved;
mod scopes;
mod sources;

use std::sync::Arc;

use kernelhub::bind::LayerKernel;
use kernelhub::swap::{KernelConfig, KernelProvider, KernelRef, ProvideError};
use kernelhub::variant::DeviceKey;

/// A configuration for the processor.
fn config(entries: &[(&str, &str)]) -> KernelConfig {
    entries
        .iter()
        .fold(KernelConfig::builder().inherit(false), |builder, (layer, kernel)| {
            builder.kernel(layer, DeviceKey::Cpu, kernel).unwrap()
        })
        .build()
}

/// A source of kernels that has none.
struct NoKernels;

impl KernelProvider for NoKernels {
    fn provide(&self, kernel: &KernelRef, _: &str, _: DeviceKey) -> Result<Arc<LayerKernel>, ProvideError> {
        let source = std::io::Error::other(format!("there is no {kernel}"));
        Err(ProvideError { hint: Some("look elsewhere".to_owned()), source: Box::new(source) })
    }
}
