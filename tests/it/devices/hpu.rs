//! Gaudi.
