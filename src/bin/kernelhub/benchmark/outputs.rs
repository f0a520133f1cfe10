//! Whether what a run is to write can be written, asked before anything is measured: a wrong path is not worth a minute.

use std::fs::{self, File};
use std::path::Path;

use super::error::BenchmarkError;

/// A file that is made and taken away again, to see whether a folder takes any.
const PROBE: &str = ".kernelhub-benchmark";

/// That the file for the JSON and files in the folder for plots can be written. Makes the folder.
pub(crate) fn check(json: Option<&Path>, plots: Option<&Path>) -> Result<(), BenchmarkError> {
    let fault = |action, path: &Path| {
        let path = path.to_path_buf();
        move |source| BenchmarkError::File { action, path, source }
    };
    if let Some(path) = json {
        let is_new = fs::symlink_metadata(path).is_err();
        // What it holds stays until there is something else to hold.
        File::options().append(true).create(true).open(path).map_err(fault("write", path))?;
        if is_new {
            fs::remove_file(path).map_err(fault("write", path))?;
        }
    }
    if let Some(folder) = plots {
        fs::create_dir_all(folder).map_err(fault("make", folder))?;
        let probe = folder.join(PROBE);
        File::create(&probe).map_err(fault("write into", folder))?;
        fs::remove_file(&probe).map_err(fault("write into", folder))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::check;
    use crate::benchmark::error::BenchmarkError;

    #[test]
    fn what_can_be_written_is_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new, plots) =
            (folder.path().join("old.json"), folder.path().join("new.json"), folder.path().join("a/b"));
        fs::write(&old, "{}").unwrap();
        check(Some(&old), Some(&plots)).unwrap();
        check(Some(&new), None).unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "{}");
        assert!(!new.exists() && fs::read_dir(&plots).unwrap().next().is_none());
    }

    #[test]
    fn what_cannot_be_written_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let within = file.join("x");
        let of = |json: Option<&Path>, plots: Option<&Path>| match check(json, plots) {
            Err(BenchmarkError::File { action, .. }) => action,
            other => panic!("{other:?}"),
        };
        assert_eq!(of(Some(&within), None), "write");
        assert_eq!(of(Some(folder.path()), None), "write");
        assert_eq!(of(None, Some(&within)), "make");
    }
}
