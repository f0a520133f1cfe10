//! The words that name builds: devices, backends, frameworks, variants. No I/O.
mod device;
pub use device::{DeviceKey, UnknownDeviceKey};
mod placeholder;
pub use placeholder::Variant;
