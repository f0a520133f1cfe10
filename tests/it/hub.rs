//! A kernel's whole path: by manifest, over HTTP or from files, into a cache, checked, and loaded.

mod cache;
mod local;
#[cfg(feature = "wgpu")]
mod shaders;
mod together;
mod unknown;
