//! Integration tests, one module per room.

mod registry;
mod support;
