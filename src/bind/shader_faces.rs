//! The contracts' typed faces for tensors in GPU memory: launched at once into a new tensor, or recorded into a graph.

use super::contract::{RMS_NORM, index_of};
use super::shader::Launch;
use super::{ActivationKernel, BindError, GatedActivationKernel, LayerMeta, RmsNormKernel};
use crate::dtype::DType;
use crate::gpu::{GpuTensor, ParamValue, Recording};

const OFFSET: usize = index_of(RMS_NORM, "offset");

impl LayerMeta {
    /// A new output.
    fn gpu_output(&self, x: &GpuTensor, shape: &[usize]) -> Result<GpuTensor, BindError> {
        x.device().empty(x.dtype(), shape).map_err(|source| self.shader_fault(source))
    }

    fn check_gpu_output(&self, out: &GpuTensor, dtype: DType, shape: &[usize]) -> Result<(), BindError> {
        self.check_gpu_dtype("out", out, &[dtype])?;
        if out.shape() == shape {
            return Ok(());
        }
        Err(self.gpu_shape_fault("out", out, format!("{shape:?}")))
    }
}

impl RmsNormKernel {
    /// [`Self::forward`] on tensors in GPU memory, into a new tensor.
    ///
    /// # Shapes
    /// `x`: `[..., hidden]`; `weight`: `[hidden]`; both row-major, of one dtype. The result is like `x`.
    ///
    /// # Errors
    /// [`BindError`] naming the argument that breaks the contract, or the device's own error.
    pub fn forward_gpu(
        &self,
        x: &GpuTensor,
        weight: &GpuTensor,
        eps: f32,
        offset: f32,
    ) -> Result<GpuTensor, BindError> {
        self.check_gpu(x, weight)?;
        let out = self.meta.gpu_output(x, x.shape())?;
        self.launch_gpu(Launch::Now, &out, x, weight, [eps, offset])?;
        Ok(out)
    }

    /// Records [`Self::forward_gpu`] into `out`, a tensor like `x`. Each replay reads and writes these tensors.
    ///
    /// # Errors
    /// As [`Self::forward_gpu`]; the device's error is [`crate::gpu::GpuError::NotRecordable`] for a kernel that does not
    /// promise `can_compile`.
    pub fn record_gpu(
        &self,
        recording: &mut Recording,
        out: &GpuTensor,
        x: &GpuTensor,
        weight: &GpuTensor,
        eps: f32,
        offset: f32,
    ) -> Result<(), BindError> {
        self.check_gpu(x, weight)?;
        self.launch_gpu(Launch::Recorded(recording), out, x, weight, [eps, offset])
    }

    fn check_gpu(&self, x: &GpuTensor, weight: &GpuTensor) -> Result<(), BindError> {
        let meta = &self.meta;
        self.route.shader(meta)?;
        let Some(&hidden) = x.shape().last() else {
            return Err(meta.gpu_shape_fault("x", x, "[..., hidden]".to_owned()));
        };
        if weight.shape() != [hidden] {
            return Err(meta.gpu_shape_fault("weight", weight, format!("[hidden] = [{hidden}]")));
        }
        meta.check_gpu_dtype("x", x, &meta.dtypes)?;
        meta.check_gpu_dtype("weight", weight, &[x.dtype()])?;
        meta.check_width("x", hidden)
    }

    /// `x` and `weight` were checked.
    fn launch_gpu(
        &self,
        how: Launch<'_>,
        out: &GpuTensor,
        x: &GpuTensor,
        weight: &GpuTensor,
        [eps, offset]: [f32; 2],
    ) -> Result<(), BindError> {
        let meta = &self.meta;
        let shader = self.route.shader(meta)?;
        let has_offset = !shader.absent().has(OFFSET);
        if !has_offset && offset != 0.0 {
            return Err(meta.option_fault(&RMS_NORM[OFFSET]));
        }
        meta.check_gpu_output(out, x.dtype(), x.shape())?;
        let (&hidden, leading) = x.shape().split_last().unwrap_or((&1, &[]));
        let [rows, width] = meta.gpu_extents(x, leading, hidden)?;
        let params =
            [("rows", rows), ("width", width), ("eps", ParamValue::F32(eps)), ("offset", ParamValue::F32(offset))];
        let params = &params[..if has_offset { 4 } else { 3 }];
        shader.launch(meta, how, &[("x", x), ("weight", weight), ("out", out)], params)
    }
}

impl ActivationKernel {
    /// [`Self::forward`] on a tensor in GPU memory, into a new tensor.
    ///
    /// # Shapes
    /// `x`: `[..., width]`, row-major; the result is like `x`.
    ///
    /// # Errors
    /// [`BindError`] naming the argument that breaks the contract, or the device's own error.
    pub fn forward_gpu(&self, x: &GpuTensor) -> Result<GpuTensor, BindError> {
        self.check_gpu(x)?;
        let out = self.meta.gpu_output(x, x.shape())?;
        self.launch_gpu(Launch::Now, &out, x)?;
        Ok(out)
    }

    /// Records [`Self::forward_gpu`] into `out`, a tensor like `x`.
    ///
    /// # Errors
    /// As [`RmsNormKernel::record_gpu`].
    pub fn record_gpu(&self, recording: &mut Recording, out: &GpuTensor, x: &GpuTensor) -> Result<(), BindError> {
        self.check_gpu(x)?;
        self.launch_gpu(Launch::Recorded(recording), out, x)
    }

    fn check_gpu(&self, x: &GpuTensor) -> Result<(), BindError> {
        let meta = &self.meta;
        self.route.shader(meta)?;
        let Some(&width) = x.shape().last() else {
            return Err(meta.gpu_shape_fault("x", x, "[..., width]".to_owned()));
        };
        meta.check_gpu_dtype("x", x, &meta.dtypes)?;
        meta.check_width("x", width)
    }

    /// `x` was checked.
    fn launch_gpu(&self, how: Launch<'_>, out: &GpuTensor, x: &GpuTensor) -> Result<(), BindError> {
        let meta = &self.meta;
        meta.check_gpu_output(out, x.dtype(), x.shape())?;
        let (&width, leading) = x.shape().split_last().unwrap_or((&1, &[]));
        let [rows, width] = meta.gpu_extents(x, leading, width)?;
        let params = [("rows", rows), ("width", width)];
        self.route.shader(meta)?.launch(meta, how, &[("x", x), ("out", out)], &params)
    }
}

impl GatedActivationKernel {
    /// [`Self::forward`] on a tensor in GPU memory, into a new tensor.
    ///
    /// # Shapes
    /// `x`: `[..., 2 * d]`, row-major; the result is `[..., d]`.
    ///
    /// # Errors
    /// [`BindError`] naming the argument that breaks the contract, or the device's own error.
    pub fn forward_gpu(&self, x: &GpuTensor) -> Result<GpuTensor, BindError> {
        self.to_new_tensor(x, None)
    }

    /// [`Self::forward_with_threshold`] on a tensor in GPU memory, into a new tensor.
    ///
    /// # Shapes
    /// As [`Self::forward_gpu`].
    ///
    /// # Errors
    /// As [`Self::forward_gpu`].
    pub fn forward_with_threshold_gpu(&self, x: &GpuTensor, threshold: f32) -> Result<GpuTensor, BindError> {
        self.to_new_tensor(x, Some(threshold))
    }

    /// Records [`Self::forward_gpu`] into `out` `[..., d]`; with a threshold, [`Self::forward_with_threshold_gpu`].
    ///
    /// # Errors
    /// As [`RmsNormKernel::record_gpu`].
    pub fn record_gpu(
        &self,
        recording: &mut Recording,
        out: &GpuTensor,
        x: &GpuTensor,
        threshold: Option<f32>,
    ) -> Result<(), BindError> {
        let shape = self.check_gpu(x, threshold)?;
        self.launch_gpu(Launch::Recorded(recording), out, &shape, x, threshold)
    }

    fn to_new_tensor(&self, x: &GpuTensor, threshold: Option<f32>) -> Result<GpuTensor, BindError> {
        let shape = self.check_gpu(x, threshold)?;
        let out = self.meta.gpu_output(x, &shape)?;
        self.launch_gpu(Launch::Now, &out, &shape, x, threshold)?;
        Ok(out)
    }

    /// Checks all but the output; returns its shape.
    fn check_gpu(&self, x: &GpuTensor, threshold: Option<f32>) -> Result<Vec<usize>, BindError> {
        let meta = &self.meta;
        self.route.shader(meta)?;
        self.check_threshold(threshold.is_some())?;
        let (half, leading) = match x.shape().split_last() {
            Some((double, leading)) if double % 2 == 0 => (double / 2, leading),
            _ => return Err(meta.gpu_shape_fault("x", x, "[..., 2 * d]".to_owned())),
        };
        meta.check_gpu_dtype("x", x, &meta.dtypes)?;
        meta.check_width("out", half)?;
        Ok([leading, &[half]].concat())
    }

    /// `x` was checked, and gives an output of `shape`.
    fn launch_gpu(
        &self,
        how: Launch<'_>,
        out: &GpuTensor,
        shape: &[usize],
        x: &GpuTensor,
        threshold: Option<f32>,
    ) -> Result<(), BindError> {
        let meta = &self.meta;
        meta.check_gpu_output(out, x.dtype(), shape)?;
        let (&half, leading) = shape.split_last().unwrap_or((&1, &[]));
        let [rows, width] = meta.gpu_extents(x, leading, half)?;
        let threshold = threshold.map(|threshold| ("threshold", ParamValue::F32(threshold)));
        let params: Vec<_> = [("rows", rows), ("width", width)].into_iter().chain(threshold).collect();
        self.route.shader(meta)?.launch(meta, how, &[("x", x), ("out", out)], &params)
    }
}
