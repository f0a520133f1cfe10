//! One case: both sides made, held against each other, and timed.

use std::sync::Arc;

use candle_core::{DType as CandleDType, Tensor};
use kernelhub::bind::{Code, Contract, LayerKernel};
use kernelhub::dtype::DType;
use kernelhub::hub::Hub;
use kernelhub::swap::{KernelConfig, Slots};
use kernelhub::variant::DeviceKey;

use super::accuracy::{self, Match};
use super::amounts::{amounts, memory};
use super::clock::{Effort, Side, measure};
use super::error::{BenchmarkError, CallError};
use super::passes::{Passes, Roof};
use super::report::{Case, code};
use super::roof::Ceiling;
use super::shape::Shape;
use super::statistics::{Speedup, Summary};
use super::{alone, inputs, sides};
use crate::failure::Failure;

/// One layer at one shape in one dtype.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) layer: String,
    pub(crate) contract: Contract,
    pub(crate) shape: Shape,
    pub(crate) dtype: DType,
}

/// What tasks are run with.
pub(crate) struct Bench<'a> {
    pub(crate) hub: &'a Hub,
    /// The kernel as it is named in a mapping, without the layer.
    pub(crate) kernel: String,
    pub(crate) device: DeviceKey,
    pub(crate) code: &'a Code,
    pub(crate) effort: Effort,
    pub(crate) roof: Option<Roof>,
}

impl Task {
    /// Refuses what does not fit into the memory that there is.
    pub(crate) fn check_memory(&self, available: Option<u64>) -> Result<(), BenchmarkError> {
        let needed = memory(self.contract, &self.shape, self.dtype);
        match available {
            Some(available) if needed > available => Err(BenchmarkError::TooLarge {
                layer: self.layer.clone(),
                shape: self.shape.to_string(),
                dtype: self.dtype,
                needed: needed >> 20,
                available: available >> 20,
            }),
            _ => Ok(()),
        }
    }

    fn candle_dtype(&self) -> CandleDType {
        match self.dtype {
            DType::Bf16 => CandleDType::BF16,
            DType::F16 => CandleDType::F16,
            _ => CandleDType::F32,
        }
    }

    fn fault(&self, side: &'static str, source: impl Into<CallError>) -> BenchmarkError {
        let (layer, shape) = (self.layer.clone(), self.shape.to_string());
        BenchmarkError::Call { layer, shape, dtype: self.dtype, side, source: Box::new(source.into()) }
    }
}

impl Bench<'_> {
    /// Runs a task.
    pub(crate) fn run(&mut self, task: &Task) -> Result<Case, Failure> {
        let inputs = inputs::inputs(task.contract, &task.shape, task.candle_dtype())
            .map_err(|error| task.fault("making of inputs", error))?;
        match self.code {
            Code::Native(_) => self.run_native(task, &inputs),
            #[cfg(feature = "wgpu")]
            Code::Shader(device) => self.run_shader(task, &inputs, device),
            _ => Err(self.no_device(task, "no host of this version runs such code").into()),
        }
    }

    fn no_device(&self, task: &Task, reason: &str) -> BenchmarkError {
        let (kernel, layer, reason) = (self.kernel.clone(), task.layer.clone(), reason.to_owned());
        BenchmarkError::Device { kernel, layer, device: self.device, reason }
    }

    /// The layer of the kernel, bound.
    fn bound(&self, task: &Task) -> Result<Arc<LayerKernel>, Failure> {
        let kernel = format!("{}:{}", self.kernel, task.layer)
            .parse()
            .map_err(|error: kernelhub::swap::KernelRefError| Failure::plain(error))?;
        Ok(self.hub.layer(&kernel, &task.layer, self.device)?)
    }

    fn run_native(&mut self, task: &Task, inputs: &[Tensor]) -> Result<Case, Failure> {
        let bound = self.bound(task)?;
        let (shape, contract) = (&task.shape, task.contract);
        let slots = self.swapped(task)?;
        let on = |error: candle_core::Error| task.fault("kernel", error);
        let off = |error: candle_core::Error| task.fault("reference", error);
        let call_on = sides::call(contract, shape, inputs, &slots).map_err(on)?;
        self.plan(task, &slots)?;
        let call_off = sides::call(contract, shape, inputs, &Slots::new(self.device)).map_err(off)?;
        let mut call_alone = alone::call(&bound, shape, inputs, task.candle_dtype())
            .map_err(|error| task.fault("kernel by itself", error))?;

        let (out, second) = call_on().map_err(on)?;
        let matched = matched(task, inputs, &[Some(out), second])?;

        let mut kernel = || call_on().map(drop).map_err(CallError::from);
        let mut reference = || call_off().map(drop).map_err(CallError::from);
        // Passes over memory take turns with the sides: its rate is not the same at every time.
        let amounts = amounts(contract, shape, task.dtype);
        let passes = self.roof.as_mut().and_then(|roof| roof.passes(&amounts));
        let mut calls: Vec<_> = passes.iter().flat_map(Passes::calls).map(infallible).collect();
        let mut timed: Vec<Side<'_>> = vec![&mut kernel, &mut reference];
        timed.extend(call_alone.as_deref_mut().map(|call| call as Side<'_>));
        let own = timed.len();
        timed.extend(calls.iter_mut().map(|call| call as Side<'_>));
        let names = ["kernel", "reference", "kernel by itself"];
        let name = |at: usize| names.get(at).copied().unwrap_or("pass over memory");
        let mut times = measure(&mut timed, self.effort).map_err(|(at, error)| task.fault(name(at), error))?;
        let of_passes = times.split_off(own).into_iter().map(|times| times.median_us);
        let memory = passes.as_ref().and_then(|passes| passes.ceiling(of_passes));
        drop(calls);
        self.case(task, &bound, matched, times, memory)
    }

    #[cfg(feature = "wgpu")]
    fn run_shader(&self, task: &Task, inputs: &[Tensor], device: &kernelhub::gpu::Device) -> Result<Case, Failure> {
        let bound = self.bound(task)?;
        let on = |error: CallError| task.fault("kernel", error);
        let off = |error: candle_core::Error| task.fault("reference", error);
        let call_on = super::gpu::call(&bound, device, inputs).map_err(on)?;
        let call_on = call_on.ok_or_else(|| self.no_device(task, "no shader of this version serves its contract"))?;
        let host = Slots::new(DeviceKey::Cpu);
        let call_off = sides::call(task.contract, &task.shape, inputs, &host).map_err(off)?;
        let out = super::gpu::download(&call_on().map_err(on)?).map_err(on)?;
        let matched = matched(task, inputs, &[Some(out), None])?;
        let mut kernel = || call_on().map(drop);
        let mut reference = || call_off().map(drop).map_err(CallError::from);
        let names = ["kernel", "reference"];
        let times = measure(&mut [&mut kernel, &mut reference], self.effort)
            .map_err(|(at, error)| task.fault(names[at], error))?;
        self.case(task, &bound, matched, times, None)
    }

    /// Slots whose layer will get the kernel.
    fn swapped(&self, task: &Task) -> Result<Slots, BenchmarkError> {
        if let Some(switch) = self.hub.switched_off() {
            return Err(BenchmarkError::SwitchedOff { switch });
        }
        if sides::host_layer(task.contract).is_none() {
            let (layer, contract) = (task.layer.clone(), task.contract.as_str().to_owned());
            return Err(BenchmarkError::Contract { layer, contract });
        }
        Ok(Slots::new(self.device))
    }

    /// Gives the layer in `slots` the kernel.
    fn plan(&self, task: &Task, slots: &Slots) -> Result<(), Failure> {
        let layer = sides::host_layer(task.contract).unwrap_or(&task.layer);
        let kernel = format!("{}:{}", self.kernel, task.layer);
        let config = KernelConfig::builder().kernel(layer, self.device, &kernel)?.build();
        let report = slots.use_kernels(self.hub, &config)?;
        if report.swapped() == 0 {
            let (layer, reason) = (layer.to_owned(), report.to_string().trim().replace('\n', "; "));
            return Err(BenchmarkError::NotTaken { kernel, layer, reason }.into());
        }
        Ok(())
    }

    /// `times` of the kernel, the reference, and the kernel by itself where it was called so; `memory` is what passing
    /// over as many bytes takes.
    fn case(
        &self,
        task: &Task,
        bound: &LayerKernel,
        matched: Match,
        times: Vec<Summary>,
        memory: Option<Ceiling>,
    ) -> Result<Case, Failure> {
        let mut times = times.into_iter();
        let (Some(kernel), Some(reference), kernel_alone) = (times.next(), times.next(), times.next()) else {
            return Err(task.fault("kernel", CallError::Broken).into());
        };
        let amounts = amounts(task.contract, &task.shape, task.dtype);
        let ceiling = self.roof.as_ref().zip(memory);
        let ceiling = ceiling.map(|(roof, memory)| roof.ceilings.of(&amounts, task.dtype, memory));
        let part = |microseconds: f64| ceiling.map(|ceiling| ceiling.least_us / microseconds);
        let median = kernel_alone.as_ref().unwrap_or(&kernel).median_us;
        let (function, sha256) = code(&bound.meta().identity);
        Ok(Case {
            layer: task.layer.clone(),
            contract: task.contract.as_str().to_owned(),
            function,
            sha256,
            shape: task.shape.to_string(),
            axes: task.shape.named().map(|(axis, extent)| (axis.to_owned(), extent)).collect(),
            dtype: task.dtype,
            speedup: Speedup::new(&kernel, &reference),
            matched,
            gb_per_s: amounts.bytes() as f64 / median / 1e3,
            gflop_per_s: amounts.flop.map(|flop| flop as f64 / median / 1e3),
            ceiling,
            ceiling_fraction: part(median),
            ceiling_fraction_in_layer: part(kernel.median_us),
            amounts,
            kernel,
            kernel_alone,
            reference,
        })
    }
}

/// A side that cannot fail.
fn infallible(mut call: impl FnMut()) -> impl FnMut() -> Result<(), CallError> {
    move || {
        call();
        Ok(())
    }
}

/// The kernel's outputs against the reference's in f32.
fn matched(task: &Task, inputs: &[Tensor], outputs: &[Option<Tensor>; 2]) -> Result<Match, BenchmarkError> {
    let off = |error: candle_core::Error| task.fault("reference", error);
    let wide = inputs::wide(inputs).map_err(off)?;
    let call = sides::call(task.contract, &task.shape, &wide, &Slots::new(DeviceKey::Cpu)).map_err(off)?;
    let (expected, second) = call().map_err(off)?;
    let expected = [Some(expected), second];
    let pairs =
        outputs.iter().zip(&expected).filter_map(|(actual, expected)| Some((actual.as_ref()?, expected.as_ref()?)));
    let mut all: Option<Match> = None;
    for (actual, expected) in pairs {
        let matched = accuracy::compare(actual, expected, task.candle_dtype()).map_err(off)?;
        all = Some(match all {
            Some(before) => before.and(&matched),
            None => matched,
        });
    }
    all.ok_or_else(|| task.fault("kernel", CallError::Broken))
}
