//! Why a file is not read as an ELF file.

/// A file that is no ELF file, or one that no linker should be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElfError {
    /// It does not begin as an ELF file does.
    #[error("it is no ELF file")]
    NotElf,
    /// The file ends before something that it promises, or cannot be read there.
    #[error("it is cut off: {what} is not in the file")]
    Truncated {
        /// What is missing.
        what: &'static str,
    },
    /// Something in it contradicts the format.
    #[error("it is malformed: {what}")]
    Malformed {
        /// What is wrong.
        what: &'static str,
    },
    /// It has more of something than any library of a kernel has.
    #[error("it has too many {what}: more than {maximum}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The bound.
        maximum: usize,
    },
}
