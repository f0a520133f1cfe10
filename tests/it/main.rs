//! Integration tests, one module per room.

mod resolve;
