//! An open device, and the one way by which every call reaches wgpu.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::adapter::{Adapter, AdapterInfo};
use super::error::printable;
use super::guard::caught;
use super::{GpuError, features};

/// How long a call waits for the device to finish its work.
pub const WAIT_LIMIT: Duration = Duration::from_mins(5);

/// An open GPU. Cloning shares it; it may be used from several threads at once.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

struct Inner {
    device: wgpu::Device,
    queue: wgpu::Queue,
    info: AdapterInfo,
    limits: wgpu::Limits,
    faults: Arc<Faults>,
}

/// What reached no error scope.
#[derive(Default)]
struct Faults {
    /// Why the device is lost, once it is.
    lost: Mutex<Option<String>>,
    /// The first error that no scope caught since the last call.
    uncaught: Mutex<Option<String>>,
}

impl Faults {
    fn set(slot: &Mutex<Option<String>>, text: String) {
        slot.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(text);
    }

    fn mark_lost(&self, reason: String) {
        Self::set(&self.lost, reason);
    }
}

impl Device {
    /// Opens an adapter with all of its limits and every feature that a shader can ask for.
    ///
    /// # Errors
    /// [`GpuError::Open`] where the driver refuses, [`GpuError::Panicked`] where wgpu panicked on it.
    pub fn open(adapter: &Adapter) -> Result<Self, GpuError> {
        let info = adapter.info().clone();
        // wgpu's default limits would cap a tensor at 128 MiB.
        let limits = adapter.handle.limits();
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("kernelhub"),
            required_features: features::usable(adapter.handle.features()),
            required_limits: limits.clone(),
            ..wgpu::DeviceDescriptor::default()
        };
        let opened = caught("opening a device", || pollster::block_on(adapter.handle.request_device(&descriptor)))?;
        let (device, queue) = opened.map_err(|source| GpuError::Open { adapter: info.name.clone(), source })?;
        let faults = Arc::new(Faults::default());
        device.set_device_lost_callback({
            let faults = Arc::clone(&faults);
            move |reason, message| {
                // wgpu also reports the plain end of a device here.
                if reason != wgpu::DeviceLostReason::Destroyed {
                    tracing::warn!(message, "the device is lost");
                }
                faults.mark_lost(if message.is_empty() { format!("{reason:?}") } else { message });
            }
        });
        device.on_uncaptured_error({
            let faults = Arc::clone(&faults);
            Arc::new(move |error| {
                tracing::error!(%error, "a GPU error reached no error scope");
                Faults::set(&faults.uncaught, error.to_string());
            })
        });
        tracing::debug!(adapter = info.name, backend = info.backend, software = info.is_software(), "opened a device");
        Ok(Self { inner: Arc::new(Inner { device, queue, info, limits, faults }) })
    }

    /// The adapter that it was opened on.
    #[must_use]
    pub fn info(&self) -> &AdapterInfo {
        &self.inner.info
    }

    /// Whether `other` is this device, and not merely one like it.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Waits until everything submitted so far is done.
    ///
    /// # Errors
    /// [`GpuError::Timeout`] after [`WAIT_LIMIT`], [`GpuError::Lost`], or what the device met on the way;
    /// [`GpuError::Recording`] while this thread records a graph.
    pub fn wait(&self) -> Result<(), GpuError> {
        let operation = "waiting for the device";
        self.check_not_recording(operation)?;
        let poll = wgpu::PollType::Wait { submission_index: None, timeout: Some(WAIT_LIMIT) };
        let polled = self.guarded(operation, |device, _| device.poll(poll));
        if let Err(error @ GpuError::Panicked { .. }) = &polled {
            // wgpu gave up half-way through its own bookkeeping.
            self.inner.faults.mark_lost(error.to_string());
        }
        match polled? {
            Ok(_) => Ok(()),
            Err(wgpu::PollError::Timeout) => {
                Err(GpuError::Timeout { operation: operation.to_owned(), waited: WAIT_LIMIT })
            }
            Err(error) => Err(GpuError::Internal { operation: operation.to_owned(), message: error.to_string() }),
        }
    }

    /// Tells this device from others while it lives.
    pub(super) fn number(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }

    pub(super) fn limits(&self) -> &wgpu::Limits {
        &self.inner.limits
    }

    pub(super) fn features(&self) -> wgpu::Features {
        self.inner.device.features()
    }

    /// The error for a demand above a limit, or nothing.
    pub(super) fn check_limit(
        &self,
        subject: &str,
        (limit, unit): (&'static str, &'static str),
        requested: u64,
        maximum: u64,
    ) -> Result<(), GpuError> {
        if requested <= maximum {
            return Ok(());
        }
        let adapter = self.inner.info.name.clone();
        Err(GpuError::LimitExceeded { subject: subject.to_owned(), limit, unit, requested, maximum, adapter })
    }

    /// Submits recorded work. A panic on the way leaves the device lost.
    pub(super) fn submit(&self, operation: &str, encoder: wgpu::CommandEncoder) -> Result<(), GpuError> {
        let submitted = self.guarded(operation, |_, queue| {
            queue.submit([encoder.finish()]);
        });
        if let Err(error @ GpuError::Panicked { .. }) = &submitted {
            self.inner.faults.mark_lost(error.to_string());
        }
        submitted
    }

    /// Runs `call` inside three error scopes, with the device checked before and after.
    ///
    /// Error scopes belong to a thread, so `call` must not hand its work to another one.
    pub(super) fn guarded<T>(
        &self,
        operation: &str,
        call: impl FnOnce(&wgpu::Device, &wgpu::Queue) -> T,
    ) -> Result<T, GpuError> {
        let device = &self.inner.device;
        self.check_alive(operation)?;
        let (value, errors) = caught(operation, || {
            let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
            let internal = device.push_error_scope(wgpu::ErrorFilter::Internal);
            let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
            let value = call(device, &self.inner.queue);
            let validation = pollster::block_on(validation.pop());
            let internal = pollster::block_on(internal.pop());
            let memory = pollster::block_on(memory.pop());
            // The causes come first: what failed for memory or in the driver is then found invalid by the next call.
            (value, [memory, internal, validation])
        })?;
        self.check_alive(operation)?;
        let operation = operation.to_owned();
        match errors.into_iter().flatten().next() {
            Some(wgpu::Error::OutOfMemory { .. }) => Err(GpuError::OutOfMemory { operation }),
            Some(wgpu::Error::Internal { description, .. }) => {
                Err(GpuError::Internal { operation, message: printable(&description) })
            }
            Some(wgpu::Error::Validation { description, .. }) => {
                Err(GpuError::Validation { operation, message: printable(&description) })
            }
            None => match self.inner.faults.uncaught.lock().unwrap_or_else(PoisonError::into_inner).take() {
                Some(message) => Err(GpuError::Internal { operation, message }),
                None => Ok(value),
            },
        }
    }

    fn check_alive(&self, operation: &str) -> Result<(), GpuError> {
        let lost = self.inner.faults.lost.lock().unwrap_or_else(PoisonError::into_inner);
        match &*lost {
            Some(reason) => Err(GpuError::Lost {
                operation: operation.to_owned(),
                adapter: self.inner.info.name.clone(),
                reason: reason.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Frees the device and all of its memory at once, without waiting for its last clone to go. Every later call on
    /// it, its tensors and its shaders is [`GpuError::Lost`].
    pub fn destroy(&self) {
        self.inner.faults.mark_lost("it was destroyed on request".to_owned());
        if let Err(error) = caught("destroying the device", || self.inner.device.destroy()) {
            tracing::warn!(%error, "the device's memory may stay in use until the process ends");
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("adapter", &self.inner.info.name).finish_non_exhaustive()
    }
}
