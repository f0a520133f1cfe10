//! Files that commands read whole.

use std::path::Path;

use kernelhub::hint::Hint as _;
use kernelhub::regular;
use kernelhub::resolve::{Target, TargetError};
use kernelhub::system::{MAX_SYSTEM_BYTES, SystemInfo};

use crate::failure::Failure;

/// The machine in a file.
pub(crate) fn described(path: &Path) -> Result<SystemInfo, Failure> {
    Ok(SystemInfo::from_json(&bounded(path, MAX_SYSTEM_BYTES)?, &path.display().to_string())?)
}

/// At most one byte more of a file than its parser takes, so that the parser says what is wrong with it.
pub(crate) fn bounded(path: &Path, maximum: u64) -> Result<Vec<u8>, Failure> {
    let read = regular::open(path).and_then(|file| regular::read_start(file, maximum + 1));
    read.map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display()), None))
}

/// The devices that an option names. The command line shows an error's own words alone: the keys that there are belong
/// to its cause.
pub(crate) fn target(text: &str) -> Result<Target, String> {
    text.parse().map_err(|error: TargetError| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
        format!("{error}{cause}{hint}")
    })
}
