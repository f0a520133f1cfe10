//! Launches that are recorded once and replayed: what "compile" means for shaders.
//!
//! A graph is a list of launches on fixed tensors with fixed parameters. Everything that a launch needs is made while
//! it is recorded: checked arguments, grid, parameter block, bind group. A replay encodes the list again and submits
//! it, because wgpu's command buffers can be submitted only once; it allocates no buffer, checks no argument and waits
//! for nothing. New input is written into the tensors that the graph reads, with [`GpuTensor::write`].
//!
//! While a graph is recorded, what could not be replayed is an error on the recording thread: allocating a tensor,
//! copying to or from the host, waiting, and launches that go to the device at once. A kernel is recorded only if its
//! publisher promises that it bears it (`can_compile` in `layers.toml`).

use std::cell::Cell;
use std::fmt;

use super::launch::Launch;
use super::{Device, GpuError, GpuTensor, ParamValue, ShaderKernel};

thread_local! {
    /// The number of the device for which this thread records a graph.
    static RECORDING: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A graph while it is recorded; see [`Device::record_graph`].
pub struct Recording {
    device: Device,
    launches: Vec<Launch>,
}

/// Launches to be replayed in order: each sees what the earlier ones wrote. Keeps the tensors alive.
pub struct CommandGraph {
    device: Device,
    launches: Box<[Launch]>,
}

impl Device {
    /// Records the launches that `record` makes on the recording that it is given. None of them runs before
    /// [`CommandGraph::replay`].
    ///
    /// # Errors
    /// What `record` returns; [`GpuError::Recording`] when this thread records a graph of this device already.
    pub fn record_graph<E: From<GpuError>>(
        &self,
        record: impl FnOnce(&mut Recording) -> Result<(), E>,
    ) -> Result<CommandGraph, E> {
        struct Stop(Option<usize>);
        impl Drop for Stop {
            fn drop(&mut self) {
                RECORDING.set(self.0);
            }
        }
        self.check_not_recording("recording a graph")?;
        let _stop = Stop(RECORDING.replace(Some(self.number())));
        let mut recording = Recording { device: self.clone(), launches: Vec::new() };
        record(&mut recording)?;
        Ok(CommandGraph { device: self.clone(), launches: recording.launches.into() })
    }

    /// Refuses what a replay could not repeat while this thread records a graph of this device.
    pub(super) fn check_not_recording(&self, operation: &str) -> Result<(), GpuError> {
        if RECORDING.get() == Some(self.number()) {
            return Err(GpuError::Recording { operation: operation.to_owned() });
        }
        Ok(())
    }
}

impl Recording {
    /// Records one launch, with the arguments of [`ShaderKernel::launch`]. One that fails leaves the recording as it
    /// was.
    ///
    /// # Errors
    /// [`GpuError::NotRecordable`] for a kernel without that promise, otherwise as [`ShaderKernel::launch`].
    pub fn launch(
        &mut self,
        kernel: &ShaderKernel,
        tensors: &[(&str, &GpuTensor)],
        params: &[(&str, ParamValue)],
    ) -> Result<(), GpuError> {
        if !kernel.can_compile() {
            return Err(GpuError::NotRecordable { kernel: kernel.label.clone() });
        }
        self.launches.extend(kernel.prepare(&self.device, tensors, params)?);
        Ok(())
    }

    /// The device whose graph it is.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// How many launches are recorded. A launch with an empty grid is not one.
    #[must_use]
    pub fn launches(&self) -> usize {
        self.launches.len()
    }
}

impl CommandGraph {
    /// How many launches a replay makes.
    #[must_use]
    pub fn launches(&self) -> usize {
        self.launches.len()
    }

    /// Submits the launches and returns without waiting for them.
    ///
    /// # Errors
    /// [`GpuError::Lost`], or another fault of the device; then none of the launches ran. [`GpuError::Recording`] while
    /// this thread records a graph of this device.
    pub fn replay(&self) -> Result<(), GpuError> {
        if self.launches.is_empty() {
            return Ok(());
        }
        let operation = "replaying a graph";
        self.device.check_not_recording(operation)?;
        let encoder = self.device.guarded(operation, |device, _| {
            let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            self.launches.iter().for_each(|launch| launch.dispatch(&mut pass));
            drop(pass);
            encoder
        })?;
        self.device.submit(operation, encoder)
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").field("launches", &self.launches.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for CommandGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandGraph").field("launches", &self.launches.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Device, GpuError, ParamValue, ShaderKernel, adapters};
    use crate::dtype::DType;
    use crate::manifest::LayersFile;

    /// Buffers and bytes that the driver's allocator holds for the device; `None` where it does not tell.
    fn memory(device: &Device) -> Option<(usize, u64)> {
        let report = device.guarded("asking the allocator", |device, _| device.generate_allocator_report()).unwrap();
        report.map(|report| (report.allocations.len(), report.total_allocated_bytes))
    }

    #[test]
    fn a_replay_allocates_nothing_on_the_device() {
        let Ok(found) = adapters() else { return };
        let device = Device::open(&found[0]).unwrap();
        let text = include_str!("../../kernels/wgsl/layers/activation.toml");
        let binding = LayersFile::parse(text, "activation.toml").unwrap().layers.remove(0).shader.unwrap();
        let source = include_str!("../../kernels/wgsl/silu_and_mul.wgsl");
        let kernel = ShaderKernel::compile(&device, &binding, source).unwrap().with_can_compile(true);
        let [x, out] = [8, 4].map(|width| device.empty(DType::F32, &[1, width]).unwrap());
        let params = [("rows", ParamValue::U32(1)), ("width", ParamValue::U32(4))];
        let graph = device.record_graph::<GpuError>(|recording| {
            recording.launch(&kernel, &[("x", &x), ("out", &out)], &params)?;
            recording.launch(&kernel, &[("x", &x), ("out", &out)], &params)
        });
        let graph = graph.unwrap();
        // The first submission clears fresh buffers, which takes memory for a while.
        let replay = || {
            graph.replay().unwrap();
            device.wait().unwrap();
        };
        replay();
        let before = memory(&device);
        (0..100).for_each(|_| replay());
        assert_eq!(memory(&device), before);
        // The measure is able to tell.
        let more = device.empty(DType::F32, &[1 << 20]).unwrap();
        assert!(before.is_none() || memory(&device) != before);
        drop(more);
    }
}
