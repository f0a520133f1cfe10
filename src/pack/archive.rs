//! Tar.
