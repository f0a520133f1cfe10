//! The hash of a variant's files, as `kernels` 0.16 computes it.

use sha2::{Digest as _, Sha256};

use crate::digest::{BlobId, Sha256Digest};
use crate::fetch::TreeFile;
use crate::manifest::VariantHash;

/// sha256 over each file's path and the bytes of its object id, in the order of the paths' bytes. Bytecode that a
/// Python interpreter left in a repo counts nothing.
pub(super) fn variant_hash(files: &[TreeFile]) -> VariantHash {
    let mut listed: Vec<(&[u8], BlobId)> = files
        .iter()
        .filter(|file| !is_bytecode(file.path.as_str()))
        .map(|file| (file.path.as_str().as_bytes(), file.blob()))
        .collect();
    listed.sort_unstable();
    let mut hasher = Sha256::new();
    for (path, blob) in listed {
        hasher.update(path);
        match &blob {
            BlobId::Git(oid) => hasher.update(oid.as_bytes()),
            BlobId::Sha256(digest) => hasher.update(digest.as_bytes()),
        }
    }
    VariantHash(Sha256Digest::from_bytes(hasher.finalize().into()))
}

#[expect(clippy::case_sensitive_file_extension_comparisons, reason = "as the Python tool compares")]
fn is_bytecode(path: &str) -> bool {
    path.ends_with(".pyc") || path.split('/').any(|part| part == "__pycache__")
}

#[cfg(test)]
mod tests {
    use super::variant_hash;
    use crate::digest::{GitOid, Sha256Digest};
    use crate::fetch::TreeFile;

    #[test]
    fn the_hash_is_the_one_that_the_python_tool_writes() {
        let file = |path: &str, content: &[u8]| TreeFile {
            path: path.parse().unwrap(),
            size: content.len() as u64,
            oid: GitOid::of_blob(content),
            lfs: (content.len() > 4096).then(|| Sha256Digest::of(content)),
        };
        let files = [
            file("sub/a.py", b"a\n"),
            file("sub.py", b"b\n"),
            file("__pycache__/x.pyc", b"zz"),
            file("__init__.py", b"x=1\n"),
            file("big.bin", &[1; 9000]),
        ];
        // What `kernels lock` of `kernels` 0.16.2 writes for a repo with these files.
        let expected = "sha256-3047c92e7668b904c274ad915e069e5a4e15cb8e83ff6b3d5b10324fbbe995c7";
        assert_eq!(variant_hash(&files).to_string(), expected);
    }
}
