//! Whether what a run is to write can be written, asked before anything is measured: a wrong path is not worth a minute.

use std::fs::{self, File};
use std::path::Path;

use super::error::BenchmarkError;

/// That the file for the JSON and files in the folder for plots can be written. Makes the folder.
pub(crate) fn check(json: Option<&Path>, plots: Option<&Path>) -> Result<(), BenchmarkError> {
    let fault = |action, path: &Path| {
        let path = path.to_path_buf();
        move |source| BenchmarkError::File { action, path, source }
    };
    // A pipe or a device is opened once, to be written into: for whoever reads a pipe its first end is the end, and
    // without a reader to open it is to wait.
    let is_stream = |path: &&Path| fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir());
    if let Some(path) = json.filter(|path| !is_stream(path)) {
        let is_new = fs::symlink_metadata(path).is_err();
        // What it holds stays until there is something else to hold.
        File::options().append(true).create(true).open(path).map_err(fault("write", path))?;
        if is_new {
            fs::remove_file(path).map_err(fault("write", path))?;
        }
    }
    if let Some(folder) = plots {
        fs::create_dir_all(folder).map_err(fault("make", folder))?;
        // Of a name that nothing has, so that no file and nothing that a link leads to is emptied.
        let probe = tempfile::NamedTempFile::new_in(folder).map_err(fault("write into", folder))?;
        probe.close().map_err(fault("write into", folder))?;
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

    /// Bounded by the test runner alone: an open of a pipe that nobody reads does not return.
    #[test]
    #[cfg(unix)]
    fn a_pipe_is_not_opened_before_there_is_something_to_write() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        check(Some(&pipe), None).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn no_link_in_the_folder_for_plots_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (precious, plots) = (folder.path().join("precious"), folder.path().join("plots"));
        fs::write(&precious, "text").unwrap();
        fs::create_dir(&plots).unwrap();
        std::os::unix::fs::symlink(&precious, plots.join(".kernelhub-benchmark")).unwrap();
        check(None, Some(&plots)).unwrap();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "text");
        assert_eq!(fs::read_dir(&plots).unwrap().count(), 1);
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
