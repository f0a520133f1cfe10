//! Launching shaders: arguments by name, checked before anything reaches the queue.

use std::fmt;

use super::{Device, GpuError, GpuTensor, ShaderKernel};
use crate::manifest::{Access, ParamType};

/// The uniform block is sized in multiples of this many bytes.
const BLOCK_UNIT: usize = 16;

/// The value of a shader parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ParamValue {
    /// For a `u32` parameter.
    U32(u32),
    /// For an `f32` parameter.
    F32(f32),
}

impl ParamValue {
    fn kind(self) -> ParamType {
        match self {
            Self::U32(_) => ParamType::U32,
            Self::F32(_) => ParamType::F32,
        }
    }

    fn to_le_bytes(self) -> [u8; 4] {
        match self {
            Self::U32(value) => value.to_le_bytes(),
            Self::F32(value) => value.to_le_bytes(),
        }
    }
}

/// Launches that are recorded to be submitted together, in order: each sees what the earlier ones wrote.
///
/// A submission costs far more than a launch, so a host that knows its next launches records them into one. Dropping a
/// recorder drops its launches.
pub struct Recorder {
    device: Device,
    encoder: wgpu::CommandEncoder,
    launches: usize,
}

impl Device {
    /// Starts recording.
    ///
    /// # Errors
    /// [`GpuError::Lost`], or another fault of the device; [`GpuError::Recording`] while this thread records a graph,
    /// which takes launches of its own ([`super::Recording::launch`]).
    pub fn recorder(&self) -> Result<Recorder, GpuError> {
        self.check_not_recording("launching outside of the graph")?;
        let encoder = self.guarded("starting to record", |device, _| {
            device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
        })?;
        Ok(Recorder { device: self.clone(), encoder, launches: 0 })
    }
}

/// One launch with all that it needs, to be dispatched any number of times.
pub(super) struct Launch {
    pipeline: wgpu::ComputePipeline,
    /// Keeps the tensors and the parameter block.
    group: wgpu::BindGroup,
    grid: [u32; 3],
}

impl Launch {
    pub(super) fn dispatch(&self, pass: &mut wgpu::ComputePass<'_>) {
        let [x, y, z] = self.grid;
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.group, &[]);
        pass.dispatch_workgroups(x, y, z);
    }
}

impl Recorder {
    /// How many launches are recorded. A launch with an empty grid is not one.
    #[must_use]
    pub fn launches(&self) -> usize {
        self.launches
    }

    /// Submits the recorded launches and returns without waiting for them.
    ///
    /// # Errors
    /// [`GpuError::Lost`], or another fault of the device; then none of the launches ran.
    pub fn submit(self) -> Result<(), GpuError> {
        if self.launches == 0 {
            return Ok(());
        }
        let operation = format!("submitting {} launches", self.launches);
        self.device.submit(&operation, self.encoder)
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("launches", &self.launches).finish_non_exhaustive()
    }
}

impl ShaderKernel {
    /// Launches the shader once and returns without waiting; [`GpuTensor::download`] and [`Device::wait`] wait.
    ///
    /// `tensors` and `params` are the declared ones by name, all of them, in any order. Where the grid has an axis of
    /// 0, nothing is launched. Shapes are the caller's to check: the grid and the parameters come from the op contract.
    ///
    /// # Errors
    /// - [`GpuError::MissingArgument`], [`GpuError::UnknownArgument`], [`GpuError::RepeatedArgument`];
    /// - [`GpuError::WrongType`] for a dtype that the shader does not read or a parameter of another type;
    /// - [`GpuError::ForeignDevice`] for a tensor of another device;
    /// - [`GpuError::Aliased`] where a written tensor is bound twice;
    /// - [`GpuError::Grid`], [`GpuError::LimitExceeded`] for a grid without a value or above the device's limit;
    /// - a fault of the device.
    pub fn launch(&self, tensors: &[(&str, &GpuTensor)], params: &[(&str, ParamValue)]) -> Result<(), GpuError> {
        let mut recorder = self.device.recorder()?;
        self.record(&mut recorder, tensors, params)?;
        recorder.submit()
    }

    /// Records one launch, as [`ShaderKernel::launch`] makes it. A launch that fails leaves the recorder as it was.
    ///
    /// # Errors
    /// As [`ShaderKernel::launch`]; [`GpuError::ForeignDevice`] also for a recorder of another device.
    pub fn record(
        &self,
        recorder: &mut Recorder,
        tensors: &[(&str, &GpuTensor)],
        params: &[(&str, ParamValue)],
    ) -> Result<(), GpuError> {
        let Some(launch) = self.prepare(&recorder.device, tensors, params)? else { return Ok(()) };
        self.device.guarded(&self.recording(), |_, _| {
            launch.dispatch(&mut recorder.encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default()));
        })?;
        recorder.launches += 1;
        Ok(())
    }

    /// Checks the arguments of one launch and makes everything that it needs; nothing for a grid with an axis of 0.
    pub(super) fn prepare(
        &self,
        device: &Device,
        tensors: &[(&str, &GpuTensor)],
        params: &[(&str, ParamValue)],
    ) -> Result<Option<Launch>, GpuError> {
        if !device.is_same(&self.device) {
            return Err(self.foreign("the recorder"));
        }
        let tensors = self.tensors_in_order(tensors)?;
        let params = self.params_in_order(params)?;
        let grid = self.grid(&params)?;
        if grid.contains(&0) {
            return Ok(None);
        }
        let group = device.guarded(&self.recording(), |device, queue| self.bind(device, queue, &tensors, &params))?;
        Ok(Some(Launch { pipeline: self.pipeline.clone(), group, grid }))
    }

    fn recording(&self) -> String {
        format!("recording {}", self.label)
    }

    /// The grid for these parameters, in the signature's order.
    fn grid(&self, params: &[ParamValue]) -> Result<[u32; 3], GpuError> {
        let value_of = |name: &str| {
            let slot = self.signature.params.iter().position(|param| param.name == name)?;
            match params.get(slot)? {
                ParamValue::U32(value) => Some(u64::from(*value)),
                ParamValue::F32(_) => None,
            }
        };
        let maximum = self.device.limits().max_compute_workgroups_per_dimension;
        let mut grid = [0; 3];
        for (axis, expression) in grid.iter_mut().zip(&self.signature.grid) {
            let value = expression
                .evaluate(&value_of)
                .map_err(|source| GpuError::Grid { kernel: self.label.clone(), source })?;
            let limit = ("max_compute_workgroups_per_dimension", "workgroups");
            self.device.check_limit(&self.label, limit, value, u64::from(maximum))?;
            // Below the limit, which is a u32.
            *axis = u32::try_from(value).unwrap_or(maximum);
        }
        Ok(grid)
    }

    fn bind(
        &self,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        tensors: &[&GpuTensor],
        params: &[ParamValue],
    ) -> wgpu::BindGroup {
        let mut resources: Vec<_> = tensors.iter().map(|tensor| tensor.buffer.as_entire_binding()).collect();
        let mut block: Vec<u8> = params.iter().flat_map(|param| param.to_le_bytes()).collect();
        block.resize(block.len().next_multiple_of(BLOCK_UNIT), 0);
        let uniform = (!block.is_empty()).then(|| {
            let buffer = device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: block.len() as u64,
                usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            });
            queue.write_buffer(&buffer, 0, &block);
            buffer
        });
        resources.extend(uniform.as_ref().map(wgpu::Buffer::as_entire_binding));
        let entries: Vec<_> =
            (0_u32..).zip(resources).map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource }).collect();
        device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(&self.label),
            layout: &self.layout,
            entries: &entries,
        })
    }

    fn tensors_in_order<'a>(&self, given: &[(&str, &'a GpuTensor)]) -> Result<Vec<&'a GpuTensor>, GpuError> {
        let declared: Vec<&str> = self.signature.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        let tensors = self.in_order("tensor", &declared, given)?;
        for ((name, tensor), element) in declared.iter().zip(&tensors).zip(&self.elements) {
            if !tensor.device().is_same(&self.device) {
                return Err(self.foreign(name));
            }
            if !element.accepts(tensor.dtype()) {
                let (expected, actual) = (element.accepted(), tensor.dtype().to_string());
                return Err(self.wrong_type(name, expected, actual));
            }
        }
        for (slot, declaration) in self.signature.tensors.iter().enumerate() {
            let twin = |other: usize| other != slot && tensors[other].buffer == tensors[slot].buffer;
            if declaration.access == Access::Write
                && let Some(other) = (0..tensors.len()).find(|other| twin(*other))
            {
                return Err(GpuError::Aliased {
                    kernel: self.label.clone(),
                    written: declaration.name.clone(),
                    other: declared[other].to_owned(),
                });
            }
        }
        Ok(tensors)
    }

    fn params_in_order(&self, given: &[(&str, ParamValue)]) -> Result<Vec<ParamValue>, GpuError> {
        let declared: Vec<&str> = self.signature.params.iter().map(|param| param.name.as_str()).collect();
        let params = self.in_order("parameter", &declared, given)?;
        for (declaration, param) in self.signature.params.iter().zip(&params) {
            if declaration.kind != param.kind() {
                let (expected, actual) = (declaration.kind.as_str().to_owned(), param.kind().as_str().to_owned());
                return Err(self.wrong_type(&declaration.name, expected, actual));
            }
        }
        Ok(params)
    }

    /// The arguments in the declared order: every name once, and no other.
    fn in_order<T: Copy>(
        &self,
        kind: &'static str,
        declared: &[&str],
        given: &[(&str, T)],
    ) -> Result<Vec<T>, GpuError> {
        let kernel = || self.label.clone();
        for (index, (name, _)) in given.iter().enumerate() {
            if !declared.contains(name) {
                let expected = declared.iter().map(|&name| name.to_owned()).collect();
                return Err(GpuError::UnknownArgument { kernel: kernel(), kind, name: (*name).to_owned(), expected });
            }
            if given[..index].iter().any(|(earlier, _)| earlier == name) {
                return Err(GpuError::RepeatedArgument { kernel: kernel(), kind, name: (*name).to_owned() });
            }
        }
        let find = |name: &&str| {
            let value = given.iter().find(|(given, _)| given == name).map(|(_, value)| *value);
            value.ok_or_else(|| GpuError::MissingArgument { kernel: kernel(), kind, name: (*name).to_owned() })
        };
        declared.iter().map(find).collect()
    }

    fn foreign(&self, name: &str) -> GpuError {
        GpuError::ForeignDevice { kernel: self.label.clone(), name: name.to_owned() }
    }

    fn wrong_type(&self, name: &str, expected: String, actual: String) -> GpuError {
        GpuError::WrongType { kernel: self.label.clone(), name: name.to_owned(), expected, actual }
    }
}
