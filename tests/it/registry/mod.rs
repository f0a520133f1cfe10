//! Manifests, archives, the cache and verification.

mod fetch;
mod hostile;
mod hostile_texts;
mod lies;
mod manifests;
mod packing;
mod publishing;
mod verify;
