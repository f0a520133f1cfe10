//! Host adapters.
