//! The scan of a native library before it is loaded.
//!
//! Loading a library runs code of it, and a library that is wrong for this machine fails late and with few words, or
//! takes the process down. So its file is read first, from the very bytes that will be loaded. What the file alone
//! tells (`inspect`) is found out with verifying; what this machine and process tell (`fit`), right before loading,
//! where both are held to. All of it is reported at once, each as a [`Finding`] that the [`ScanRules`] warn of or
//! refuse.
//!
//! Only builds for Linux are scanned. Those for other systems have other formats, and are passed by.

mod finding;
mod fit;
mod inspect;
mod manylinux;
mod rules;

pub use finding::{Finding, FindingKind};
pub use manylinux::{POLICY, check_manylinux};
pub use rules::{ScanRules, Severity};

pub(crate) use fit::{fit, shared_symbols};
pub(super) use inspect::{inspect, is_scanned};
