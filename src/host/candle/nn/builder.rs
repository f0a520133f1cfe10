//! Where a model's layers get their weights, their slots and their names.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use candle_core::{DType, Device, Result, Shape, Tensor};
use candle_nn::var_builder::{Renamer, SimpleBackend};
use candle_nn::{Init, VarMap};

use super::super::spec::{any_dtype, device_key_of};
use crate::bind::{Contract, Rounding};
use crate::swap::{Slot, SlotSpec, Slots};

/// candle's `VarBuilder` with the model's [`Slots`] beside it.
///
/// Has the methods of `candle_nn::VarBuilder` under their names, so that a model file takes it by its import alone.
/// What the layers of [`nn`](super) read from it beside their weights is the path that they stand at, which becomes the
/// name of their slot.
///
/// Two methods of candle's are absent. `set_device` would put layers of one model on a device that its plan isn't made
/// for: set it before [`wrap`](Self::wrap). The constructor from memory-mapped files is unsafe in candle: call it there
/// and wrap the result.
///
/// # Examples
/// ```
/// use candle_core::{DType, Device, Module, Tensor};
/// use kernelhub::host::candle::nn::{self, VarBuilder};
///
/// # fn main() -> candle_core::Result<()> {
/// let vb = VarBuilder::wrap(candle_nn::VarBuilder::zeros(DType::F32, &Device::Cpu));
/// let norm = nn::rms_norm(8, 1e-5, vb.pp("model").pp("norm"))?;
/// norm.forward(&Tensor::ones((1, 8), DType::F32, &Device::Cpu)?)?;
/// assert_eq!(vb.slots().report().layers[0].path, "model.norm");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct VarBuilder<'a> {
    inner: candle_nn::VarBuilder<'a>,
    slots: Slots,
}

impl fmt::Debug for VarBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (prefix, dtype, device) = (self.prefix(), self.dtype(), self.device());
        f.debug_struct("VarBuilder")
            .field("prefix", &prefix)
            .field("dtype", &dtype)
            .field("device", &device)
            .finish_non_exhaustive()
    }
}

/// What is kernelhub's own.
impl<'a> VarBuilder<'a> {
    /// A builder of a new model, with the weights, the path, the dtype and the device of candle's.
    #[must_use]
    pub fn wrap(inner: candle_nn::VarBuilder<'a>) -> Self {
        let slots = Slots::new(device_key_of(inner.device()));
        Self { inner, slots }
    }

    /// A builder of further parts of a model that has slots already.
    #[must_use]
    pub fn wrap_with(inner: candle_nn::VarBuilder<'a>, slots: &Slots) -> Self {
        Self { inner, slots: slots.clone() }
    }

    /// The model's slots, which every builder made from this one shares.
    #[must_use]
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// candle's builder at this path, for a part that is no layer of kernelhub's.
    #[must_use]
    pub fn candle(&self) -> candle_nn::VarBuilder<'a> {
        self.inner.clone()
    }

    /// Claims the slot of a layer of your own at this path: the one line that makes it extensible.
    ///
    /// `layer` is the name that kernel mappings know it by, `contract` how it calls a kernel, `width` the extent of the
    /// axis that the kernel's width rules apply to (the last of the contract's first input, or of its output where that
    /// is narrower), in elements. `weights` are the tensors that the layer trains: where one is a variable, only a
    /// kernel with a backward takes the layer. The layer then calls [`call`](super::super::call).
    ///
    /// # Errors
    /// [`LayerError::DType`](super::super::LayerError::DType) when the builder's dtype is none that the hub knows.
    ///
    /// # Examples
    /// ```
    /// use candle_core::{DType, Device, Module, Result, Tensor};
    /// use kernelhub::bind::Contract;
    /// use kernelhub::host::candle::{call, nn};
    /// use kernelhub::swap::Slot;
    ///
    /// struct MyNorm {
    ///     weight: Tensor,
    ///     slot: Slot,
    /// }
    ///
    /// impl MyNorm {
    ///     fn new(width: usize, vb: nn::VarBuilder) -> Result<Self> {
    ///         let weight = vb.get(width, "weight")?;
    ///         let slot = vb.slot("RMSNorm", Contract::RmsNorm, width, &[&weight])?;
    ///         Ok(Self { weight, slot })
    ///     }
    /// }
    ///
    /// impl Module for MyNorm {
    ///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
    ///         let kernel = self.slot.with_plan(|plan| call::rms_norm(plan, &self.slot, x, &self.weight, 1e-5, 0.0))?;
    ///         kernel.map_or_else(|| candle_nn::ops::rms_norm_slow(x, &self.weight, 1e-5), Ok)
    ///     }
    /// }
    ///
    /// # fn main() -> Result<()> {
    /// let vb = nn::VarBuilder::zeros(DType::F32, &Device::Cpu);
    /// let norm = MyNorm::new(4, vb.pp("norm"))?;
    /// assert_eq!(norm.forward(&Tensor::ones((2, 4), DType::F32, &Device::Cpu)?)?.dims(), [2, 4]);
    /// assert_eq!(vb.slots().report().total(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn slot(&self, layer: &str, contract: Contract, width: usize, weights: &[&Tensor]) -> Result<Slot> {
        let dtype = any_dtype("VarBuilder::slot", "dtype", self.dtype())?;
        Ok(self.slots.slot(SlotSpec {
            path: self.prefix(),
            layer: layer.to_owned(),
            contract,
            dtype,
            last_dim: width,
            trainable: weights.iter().any(|weight| weight.track_op()),
            options: Vec::new(),
            rounding: Rounding::Dtype,
        }))
    }

    fn with(&self, inner: candle_nn::VarBuilder<'a>) -> Self {
        Self { inner, slots: self.slots.clone() }
    }
}

/// candle's.
impl<'a> VarBuilder<'a> {
    /// From a custom source of tensors.
    #[must_use]
    pub fn from_backend(backend: Box<dyn SimpleBackend + 'a>, dtype: DType, device: Device) -> Self {
        Self::wrap(candle_nn::VarBuilder::from_backend(backend, dtype, device))
    }

    /// Zeros for every tensor.
    #[must_use]
    pub fn zeros(dtype: DType, device: &Device) -> Self {
        Self::wrap(candle_nn::VarBuilder::zeros(dtype, device))
    }

    /// From tensors by name.
    #[must_use]
    pub fn from_tensors(tensors: HashMap<String, Tensor>, dtype: DType, device: &Device) -> Self {
        Self::wrap(candle_nn::VarBuilder::from_tensors(tensors, dtype, device))
    }

    /// Variables of `map`, made as they are asked for: what training starts from.
    #[must_use]
    pub fn from_varmap(map: &VarMap, dtype: DType, device: &Device) -> Self {
        Self::wrap(candle_nn::VarBuilder::from_varmap(map, dtype, device))
    }

    /// From the bytes of a safetensors file.
    ///
    /// # Errors
    /// When they are no such file.
    pub fn from_buffered_safetensors(data: Vec<u8>, dtype: DType, device: &Device) -> Result<Self> {
        candle_nn::VarBuilder::from_buffered_safetensors(data, dtype, device).map(Self::wrap)
    }

    /// From borrowed bytes of a safetensors file.
    ///
    /// # Errors
    /// When they are no such file.
    pub fn from_slice_safetensors(data: &'a [u8], dtype: DType, device: &Device) -> Result<Self> {
        candle_nn::VarBuilder::from_slice_safetensors(data, dtype, device).map(Self::wrap)
    }

    /// From a numpy file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn from_npz<P: AsRef<Path>>(path: P, dtype: DType, device: &Device) -> Result<Self> {
        candle_nn::VarBuilder::from_npz(path, dtype, device).map(Self::wrap)
    }

    /// From a `PyTorch` file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn from_pth<P: AsRef<Path>>(path: P, dtype: DType, device: &Device) -> Result<Self> {
        candle_nn::VarBuilder::from_pth(path, dtype, device).map(Self::wrap)
    }

    /// From a `PyTorch` file that has the tensors under `state_key`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn from_pth_with_state<P: AsRef<Path>>(
        path: P,
        dtype: DType,
        state_key: &str,
        device: &Device,
    ) -> Result<Self> {
        candle_nn::VarBuilder::from_pth_with_state(path, dtype, state_key, device).map(Self::wrap)
    }

    /// The path, its parts joined by dots.
    #[must_use]
    pub fn prefix(&self) -> String {
        self.inner.prefix()
    }

    /// The builder at the model's root.
    #[must_use]
    pub fn root(&self) -> Self {
        self.with(self.inner.root())
    }

    /// The builder at `prefix`, counted from the root.
    #[must_use]
    pub fn set_prefix(&self, prefix: impl ToString) -> Self {
        self.with(self.inner.set_prefix(prefix))
    }

    /// The builder one step further along the path.
    #[must_use]
    pub fn push_prefix<S: ToString>(&self, part: S) -> Self {
        self.with(self.inner.push_prefix(part))
    }

    /// Short for [`push_prefix`](Self::push_prefix).
    #[must_use]
    pub fn pp<S: ToString>(&self, part: S) -> Self {
        self.push_prefix(part)
    }

    /// Where the tensors will be.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.inner.device()
    }

    /// The element type that the tensors will have.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.inner.dtype()
    }

    /// The builder with another dtype.
    #[must_use]
    pub fn to_dtype(&self, dtype: DType) -> Self {
        self.with(self.inner.to_dtype(dtype))
    }

    /// This builder with another dtype.
    #[must_use]
    pub fn set_dtype(self, dtype: DType) -> Self {
        Self { inner: self.inner.set_dtype(dtype), slots: self.slots }
    }

    /// Whether there is a tensor `name` at this path.
    #[must_use]
    pub fn contains_tensor(&self, name: &str) -> bool {
        self.inner.contains_tensor(name)
    }

    /// The tensor `name` at this path, which must have `shape`.
    ///
    /// # Errors
    /// When it is absent or has another shape.
    pub fn get<S: Into<Shape>>(&self, shape: S, name: &str) -> Result<Tensor> {
        self.inner.get(shape, name)
    }

    /// As [`get`](Self::get); `hints` say how to start it when it is a new variable.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_with_hints<S: Into<Shape>>(&self, shape: S, name: &str, hints: Init) -> Result<Tensor> {
        self.inner.get_with_hints(shape, name, hints)
    }

    /// As [`get_with_hints`](Self::get_with_hints), in another dtype.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_with_hints_dtype<S: Into<Shape>>(
        &self,
        shape: S,
        name: &str,
        hints: Init,
        dtype: DType,
    ) -> Result<Tensor> {
        self.inner.get_with_hints_dtype(shape, name, hints, dtype)
    }

    /// The tensor `name` at this path, of whatever shape.
    ///
    /// # Errors
    /// When it is absent, or the source makes tensors by their shape.
    pub fn get_unchecked(&self, name: &str) -> Result<Tensor> {
        self.inner.get_unchecked(name)
    }

    /// As [`get_unchecked`](Self::get_unchecked), in another dtype.
    ///
    /// # Errors
    /// As [`get_unchecked`](Self::get_unchecked).
    pub fn get_unchecked_dtype(&self, name: &str, dtype: DType) -> Result<Tensor> {
        self.inner.get_unchecked_dtype(name, dtype)
    }

    /// The builder that asks for tensors by the names that `rename` gives theirs. Slots keep the names of the model.
    #[must_use]
    pub fn rename_f<F: Fn(&str) -> String + Sync + Send + 'static>(self, rename: F) -> Self {
        Self { inner: self.inner.rename_f(rename), slots: self.slots }
    }

    /// As [`rename_f`](Self::rename_f).
    #[must_use]
    pub fn rename<R: Renamer + Send + Sync + 'a>(self, renamer: R) -> Self {
        Self { inner: self.inner.rename(renamer), slots: self.slots }
    }
}
