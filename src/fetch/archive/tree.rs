//! The names that an archive has used so far, as a file system that ignores case would see them.

use std::collections::HashMap;

use super::ArchiveError;
use crate::names::RelativePath;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    /// A folder with an entry of its own.
    Folder,
    /// A folder that only the names of files imply.
    Implied,
}

/// Every name in use, and every folder above it, by its case-folded form.
#[derive(Debug, Default)]
pub(super) struct Tree {
    used: HashMap<String, (String, Kind)>,
}

impl Tree {
    /// Takes a name into use.
    pub(super) fn claim(&mut self, path: &RelativePath, is_folder: bool) -> Result<(), ArchiveError> {
        let text = path.as_str();
        for (end, _) in text.match_indices('/') {
            self.place(path, &text[..end], Kind::Implied)?;
        }
        self.place(path, text, if is_folder { Kind::Folder } else { Kind::File })
    }

    fn place(&mut self, path: &RelativePath, part: &str, kind: Kind) -> Result<(), ArchiveError> {
        let path = path.to_string();
        let Some((earlier, earlier_kind)) = self.used.get_mut(&RelativePath::fold(part)) else {
            self.used.insert(RelativePath::fold(part), (part.to_owned(), kind));
            return Ok(());
        };
        if earlier != part {
            return Err(ArchiveError::CaseCollision { path, earlier: earlier.clone() });
        }
        match (*earlier_kind, kind) {
            (Kind::Folder | Kind::Implied, Kind::Implied) => Ok(()),
            (Kind::Implied, Kind::Folder) => {
                *earlier_kind = Kind::Folder;
                Ok(())
            }
            (Kind::File, Kind::Implied) => Err(ArchiveError::BelowFile { path, file: earlier.clone() }),
            _ => Err(ArchiveError::Duplicate { path }),
        }
    }
}
