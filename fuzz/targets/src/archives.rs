//! Archives: the stream, the tar in it, and the files that come of it.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::kind;

/// The first byte says how deep the rest goes: into the decoders, or past them into the tar reader.
fn stream(data: &[u8]) -> Vec<u8> {
    let Some((mode, rest)) = data.split_first() else { return Vec::new() };
    match mode % 3 {
        0 => rest.to_vec(),
        1 => packed(rest),
        _ => packed(&with_checksums(rest)),
    }
}

/// A gzip member that stores these bytes.
pub(crate) fn packed(tar: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
    encoder.write_all(tar).expect("memory takes it");
    encoder.finish().expect("memory takes it")
}

/// The same tar with right checksums in every block that looks like a header: without them no change gets past it.
fn with_checksums(tar: &[u8]) -> Vec<u8> {
    let mut tar = tar.to_vec();
    for block in tar.chunks_exact_mut(512) {
        if &block[257..262] == b"ustar" {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
    tar
}

/// A folder on a file system in memory, where there is one.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a folder for the archive")
}

fn run(data: &[u8], unpack: impl Fn(&Path, &Path) -> Result<Vec<String>, String>) -> String {
    let folder = folder();
    let (file, into) = (folder.path().join("archive"), folder.path().join("into"));
    fs::write(&file, stream(data)).expect("the archive is written");
    let outcome = unpack(&file, &into);
    let beside: Vec<_> = fs::read_dir(folder.path()).expect("the folder is there").flatten().collect();
    assert!(beside.len() <= 2, "something was written beside the target");
    match outcome {
        Ok(paths) => {
            check(&into);
            kind(format!("accepted {}", paths.len()))
        }
        Err(reason) => {
            if into.exists() {
                check(&into);
            }
            kind(reason)
        }
    }
}

/// Whatever became of an archive, it left files and folders and nothing else.
fn check(folder: &Path) {
    for entry in fs::read_dir(folder).expect("the folder is there").flatten() {
        let found = entry.file_type().expect("its kind");
        assert!(found.is_dir() || found.is_file(), "{}", entry.path().display());
        if found.is_dir() {
            check(&entry.path());
        }
    }
}

pub(crate) fn archive(data: &[u8]) -> String {
    let variant = "tvm-ffi01-cpu-x86_64-linux".parse().expect("a variant");
    run(data, |file, into| kernelhub::fuzzing::unpack(file, into, &variant))
}

pub(crate) fn bundle(data: &[u8]) -> String {
    run(data, kernelhub::fuzzing::unpack_bundle)
}
