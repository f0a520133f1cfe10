//! Google TPU.

use super::Found;
use crate::system::environment::Environment;

pub(super) fn probe(_environment: &Environment) -> Option<Found> {
    None
}
