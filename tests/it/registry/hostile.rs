//! Archives that break a rule: each is refused whole, by its own error, and nothing of it is anywhere afterwards.

use std::fs;
use std::sync::LazyLock;

use kernelhub::digest::Sha256Digest;
use kernelhub::fetch::{
    ArchiveError, Cache, FetchError, FetchOptions, Fetcher, Location, MAX_ENTRIES, MAX_FILE_BYTES, NoProgress, Reuse,
};
use kernelhub::manifest::KernelManifest;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::support::packs::{Published, VARIANT};
use crate::support::tree;

/// A tar written header by header, so that it can say anything.
struct Tar(Vec<u8>);

impl Tar {
    /// Starts as a decent archive does.
    fn new() -> Self {
        Self(Vec::new()).file(&inside("metadata.json"), b"{}").file(&inside("layers.toml"), b"schema = 1")
    }

    fn raw(mut self, name: &[u8], edit: impl FnOnce(&mut tar::Header), content: &[u8]) -> Self {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(content.len() as u64);
        header.set_entry_type(tar::EntryType::Regular);
        edit(&mut header);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn file(self, name: &str, content: &[u8]) -> Self {
        self.raw(name.as_bytes(), |_| {}, content)
    }

    fn folder(self, name: &str) -> Self {
        self.typed(name, tar::EntryType::Directory)
    }

    fn typed(self, name: &str, kind: tar::EntryType) -> Self {
        self.raw(name.as_bytes(), |header| header.set_entry_type(kind), b"")
    }

    fn link(self, name: &str, kind: tar::EntryType, target: &str) -> Self {
        let edit = |header: &mut tar::Header| {
            header.set_entry_type(kind);
            header.set_link_name_literal(target).unwrap();
        };
        self.raw(name.as_bytes(), edit, b"")
    }

    fn header(self, kind: tar::EntryType, content: &[u8]) -> Self {
        self.raw(b"././@Extended", |header| header.set_entry_type(kind), content)
    }

    fn pax(self, key: &str, value: &str) -> Self {
        let body = format!(" {key}={value}\n");
        let mut length = body.len();
        while format!("{length}{body}").len() != length {
            length += 1;
        }
        self.header(tar::EntryType::XHeader, format!("{length}{body}").as_bytes())
    }

    fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }

    fn packed(self) -> Vec<u8> {
        pack(&self.end())
    }
}

fn pack(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

fn inside(name: &str) -> String {
    format!("build/{VARIANT}/{name}")
}

/// Fetches these bytes as an archive, from a manifest that anchors them, and checks that nothing stays anywhere.
fn fetch(name: &str, archive: &[u8]) -> FetchError {
    static PUBLISHED: LazyLock<Published> = LazyLock::new(Published::new);
    let published = &*PUBLISHED;
    COUNT.with(|count| count.set(count.get() + 1));
    // `outside` stands where a path with `..` would land, `cache` below it; the surroundings must stay as they are.
    let surroundings = tempfile::tempdir().unwrap();
    let world = surroundings.path().join("a/world");
    fs::create_dir_all(world.join("outside")).unwrap();
    for (path, text) in [("above", "above"), ("a/beside", "beside"), ("a/world/outside/x", "kept")] {
        fs::write(surroundings.path().join(path), text).unwrap();
    }
    let source = tempfile::tempdir().unwrap();
    fs::write(source.path().join("x.tar.zst"), archive).unwrap();
    let mut manifest: KernelManifest = published.manifest.clone();
    let artifact = &mut manifest.artifacts[0];
    artifact.url = "x.tar.zst".parse().unwrap();
    artifact.size = archive.len() as u64;
    artifact.sha256 = Sha256Digest::of(archive);
    artifact.metadata_sha256 = Sha256Digest::of(b"{}");
    let cache = Cache::at(world.join("cache")).unwrap();
    let base = Location::from(source.path());
    let error = Fetcher::new(FetchOptions::default())
        .fetch_artifact(&cache, &manifest, &manifest.artifacts[0], &base, &NoProgress, Reuse::IfPresent)
        .expect_err(name);
    let allowed = [
        "",
        "/cache",
        "/cache/locks",
        "/cache/tmp",
        "/outside",
        "/outside/x",
        &format!("/cache/locks/{}.lock", Sha256Digest::of(archive)),
    ]
    .map(|path| format!("a/world{path}"));
    let found = tree::list(surroundings.path());
    let stayed = |path: &String| allowed.contains(path) || ["a", "above", "a/beside"].contains(&path.as_str());
    assert!(found.iter().all(stayed), "{name}: left behind: {found:?}");
    for (path, text) in [("above", "above"), ("a/beside", "beside"), ("a/world/outside/x", "kept")] {
        assert_eq!(fs::read_to_string(surroundings.path().join(path)).unwrap(), text, "{name}: {path}");
    }
    error
}

thread_local! {
    /// How many archives this thread has tried.
    static COUNT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// All the tables of this file together are the hostile set.
#[test]
fn the_hostile_set_has_more_than_sixty_archives() {
    let before = COUNT.get();
    links_devices_and_other_kinds_are_refused();
    names_that_leave_their_folder_are_refused();
    names_that_meet_are_refused();
    extended_headers_that_disagree_are_refused();
    archives_end_where_they_end();
    let tried = COUNT.get() - before;
    assert!(tried >= 60, "{tried}");
}

fn refused(name: &str, archive: &[u8]) -> ArchiveError {
    match fetch(name, archive) {
        FetchError::Archive { source, .. } => source,
        other => panic!("{name}: {other:?}"),
    }
}

macro_rules! refused {
    ($name:expr, $archive:expr, $($pattern:tt)+) => {
        let error = refused($name, &$archive);
        assert!(matches!(&error, $($pattern)+), "{}: {error:?}", $name);
        assert!(!error.to_string().is_empty());
    };
}

#[test]
fn links_devices_and_other_kinds_are_refused() {
    use tar::EntryType;
    let x = inside("x");
    refused!(
        "a link out, then a file through it",
        Tar::new().link(&x, EntryType::Symlink, "../../../../outside").file(&inside("x/y"), b"!").packed(),
        ArchiveError::SymbolicLink { path } if path.ends_with("/x")
    );
    refused!(
        "a link to a sibling",
        Tar::new().link(&x, EntryType::Symlink, "layers.toml").packed(),
        ArchiveError::SymbolicLink { .. }
    );
    refused!(
        "a hard link",
        Tar::new().link(&x, EntryType::Link, "/etc/passwd").packed(),
        ArchiveError::HardLink { .. }
    );
    refused!("a character device", Tar::new().typed(&x, EntryType::Char).packed(), ArchiveError::Device { .. });
    refused!("a block device", Tar::new().typed(&x, EntryType::Block).packed(), ArchiveError::Device { .. });
    refused!("a named pipe", Tar::new().typed(&x, EntryType::Fifo).packed(), ArchiveError::Fifo { .. });
    refused!("a sparse file", Tar::new().typed(&x, EntryType::GNUSparse).packed(), ArchiveError::Sparse { .. });
    refused!("a contiguous file", Tar::new().typed(&x, EntryType::Continuous).packed(), ArchiveError::EntryType { .. });
    refused!(
        "an unknown kind",
        Tar::new().typed(&x, EntryType::new(b'Z')).packed(),
        ArchiveError::EntryType { kind: b'Z', .. }
    );
    refused!(
        "a volume label",
        Tar::new().typed(&x, EntryType::new(b'V')).packed(),
        ArchiveError::EntryType { kind: b'V', .. }
    );
}

#[test]
fn names_that_leave_their_folder_are_refused() {
    let absolute = std::env::temp_dir().join(format!("kernelhub-escape-{}", std::process::id()));
    for name in [
        &inside("../../../../outside/x"),
        &inside("a/../x"),
        absolute.to_str().unwrap(),
        "../x",
        "./x",
        &inside("./x"),
        &inside(""),
        &inside("a//x"),
        "C:\\x",
        "C:x",
        "\\\\host\\share\\x",
        &inside("a\\..\\x"),
        &inside("con"),
        &inside("nul.txt"),
        &inside("x."),
        &inside("x\n"),
        "",
    ] {
        refused!(name, Tar::new().file(name, b"!").packed(), ArchiveError::UnsafePath { .. });
    }
    assert!(!absolute.exists());
    let name = [inside("").as_bytes(), b"\xff\xfe"].concat();
    refused!("not UTF-8", Tar::new().raw(&name, |_| {}, b"!").packed(), ArchiveError::NotUtf8 { .. });
    for name in
        ["x", "build/x", "build/other/x", &format!("build/{VARIANT}"), &format!("build/{VARIANT}2/x"), "Build/x"]
    {
        refused!(
            name,
            Tar::new().file(name, b"!").packed(),
            ArchiveError::Outside { .. } | ArchiveError::CaseCollision { .. }
        );
    }
    refused!("a folder beside", Tar::new().folder("build/other/").packed(), ArchiveError::Outside { .. });
}

#[test]
fn names_that_meet_are_refused() {
    refused!(
        "twice",
        Tar::new().file(&inside("x"), b"1").file(&inside("x"), b"2").packed(),
        ArchiveError::Duplicate { .. }
    );
    refused!(
        "a folder twice",
        Tar::new().folder(&inside("d/")).folder(&inside("d/")).packed(),
        ArchiveError::Duplicate { .. }
    );
    refused!(
        "a folder over a file",
        Tar::new().file(&inside("x"), b"1").folder(&inside("x/")).packed(),
        ArchiveError::Duplicate { .. }
    );
    refused!(
        "a file over a folder",
        Tar::new().file(&inside("d/x"), b"1").file(&inside("d"), b"2").packed(),
        ArchiveError::Duplicate { .. }
    );
    refused!(
        "below a file",
        Tar::new().file(&inside("x"), b"1").file(&inside("x/y"), b"2").packed(),
        ArchiveError::BelowFile { .. }
    );
    refused!(
        "case",
        Tar::new().file(&inside("x.so"), b"1").file(&inside("X.so"), b"2").packed(),
        ArchiveError::CaseCollision { .. }
    );
    refused!(
        "case of a folder",
        Tar::new().file(&inside("d/x"), b"1").file(&inside("D/y"), b"2").packed(),
        ArchiveError::CaseCollision { .. }
    );
    refused!(
        "long s",
        Tar::new().file(&inside("s"), b"1").file(&inside("\u{17f}"), b"2").packed(),
        ArchiveError::CaseCollision { .. }
    );
    refused!(
        "metadata twice",
        Tar::new().file(&inside("METADATA.json"), b"{}").packed(),
        ArchiveError::CaseCollision { .. }
    );
}

#[test]
fn modes_and_sizes_are_bounded() {
    let x = inside("x");
    for mode in [0o4755, 0o2755, 0o1755] {
        refused!(
            "special bits",
            Tar::new().raw(x.as_bytes(), |header| header.set_mode(mode), b"!").packed(),
            ArchiveError::SpecialBits { .. }
        );
    }
    let setgid_folder = |header: &mut tar::Header| {
        header.set_entry_type(tar::EntryType::Directory);
        header.set_mode(0o2755);
    };
    refused!(
        "a set-id folder",
        Tar::new().raw(inside("d/").as_bytes(), setgid_folder, b"").packed(),
        ArchiveError::SpecialBits { .. }
    );
    // Sizes are only declared here: nothing may be allocated or read for them.
    for size in [MAX_FILE_BYTES + 1, u64::MAX >> 1, u64::MAX] {
        let archive = Tar::new().raw(x.as_bytes(), |header| header.set_size(size), b"").packed();
        refused!("a declared size", archive, ArchiveError::FileTooLarge { .. } | ArchiveError::Header { .. });
    }
    refused!(
        "1 GiB that is not there",
        Tar::new().raw(x.as_bytes(), |header| header.set_size(1 << 30), b"!").packed(),
        ArchiveError::Truncated
    );
    let big_metadata = vec![b' '; (4 << 20) + 1];
    refused!(
        "metadata",
        Tar(Vec::new()).file(&inside("metadata.json"), &big_metadata).packed(),
        ArchiveError::FileTooLarge { .. }
    );
    let content = |header: &mut tar::Header| header.set_entry_type(tar::EntryType::Directory);
    refused!(
        "a folder with content",
        Tar::new().raw(inside("d/").as_bytes(), content, b"!").packed(),
        ArchiveError::FolderWithContent { .. }
    );
    let many = (0..=MAX_ENTRIES).fold(Tar::new(), |tar, index| tar.file(&inside(&format!("f{index}")), b""));
    refused!("entries", many.packed(), ArchiveError::TooManyEntries { maximum: MAX_ENTRIES });
    refused!("a bomb", Tar::new().file(&x, &vec![0; 200 << 20]).packed(), ArchiveError::Ratio { .. });
    refused!("no metadata", Tar(Vec::new()).file(&x, b"!").packed(), ArchiveError::NoMetadata { .. });
    refused!("nothing", Tar(Vec::new()).packed(), ArchiveError::NoMetadata { .. });
}

#[test]
fn extended_headers_that_disagree_are_refused() {
    use tar::EntryType;
    let x = inside("x");
    for (key, value) in [
        ("size", "1"),
        ("linkpath", "/etc/passwd"),
        ("GNU.sparse.name", "y"),
        ("SCHILY.xattr.user.a", "b"),
        ("comment", "c"),
    ] {
        refused!(key, Tar::new().pax(key, value).file(&x, b"!").packed(), ArchiveError::ExtendedHeader { .. });
    }
    refused!(
        "a path by pax",
        Tar::new().pax("path", "../../../outside/x").file(&x, b"!").packed(),
        ArchiveError::UnsafePath { .. }
    );
    refused!(
        "a path by GNU",
        Tar::new().header(EntryType::GNULongName, b"/etc/x\0").file(&x, b"!").packed(),
        ArchiveError::UnsafePath { .. }
    );
    refused!(
        "two paths",
        Tar::new().pax("path", &x).header(EntryType::GNULongName, b"y\0").file(&x, b"!").packed(),
        ArchiveError::StrayHeader { .. }
    );
    refused!(
        "a long link name",
        Tar::new().header(EntryType::GNULongLink, b"/etc/x\0").file(&x, b"!").packed(),
        ArchiveError::ExtendedHeader { .. }
    );
    refused!(
        "global",
        Tar::new().header(EntryType::XGlobalHeader, b"11 path=xy\n").file(&x, b"!").packed(),
        ArchiveError::ExtendedHeader { .. }
    );
    refused!(
        "damaged",
        Tar::new().header(EntryType::XHeader, b"99 path=x\n").file(&x, b"!").packed(),
        ArchiveError::StrayHeader { .. }
    );
    refused!(
        "too long",
        Tar::new().header(EntryType::XHeader, &vec![b'1'; 20 << 10]).file(&x, b"!").packed(),
        ArchiveError::StrayHeader { .. }
    );
    refused!("for no entry", Tar::new().pax("path", &x).packed(), ArchiveError::StrayHeader { .. });
}

#[test]
fn archives_end_where_they_end() {
    let good = Tar::new().end();
    refused!("no end mark", pack(&good[..good.len() - 1024]), ArchiveError::Truncated);
    refused!("half an end mark", pack(&good[..good.len() - 512]), ArchiveError::Truncated);
    refused!("a cut header", pack(&good[..700]), ArchiveError::Header { .. } | ArchiveError::Truncated);
    refused!("a second tar", pack(&[good.as_slice(), &good].concat()), ArchiveError::TrailingData);
    refused!("endless padding", pack(&[good.as_slice(), &vec![0; 2 << 20]].concat()), ArchiveError::TrailingData);
    let packed = pack(&good);
    refused!("bytes after the frame", [packed.as_slice(), b"x"].concat(), ArchiveError::TrailingCompressed);
    refused!("a second frame", [packed.as_slice(), &packed].concat(), ArchiveError::TrailingCompressed);
    refused!("a cut frame", packed[..packed.len() - 6], ArchiveError::Zstd { .. } | ArchiveError::Truncated);
    let mut wrong = packed.clone();
    *wrong.last_mut().unwrap() ^= 1;
    refused!("a wrong checksum", wrong, ArchiveError::Checksum { .. });
    refused!("no zstd", *b"PK\x03\x04 something else entirely", ArchiveError::Frame { .. });
    refused!("a plain tar", good.clone(), ArchiveError::Frame { .. });
    // A frame header that asks for a window of 2 GiB.
    refused!("a huge window", [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00], ArchiveError::Frame { .. });
    let mut header = good.clone();
    header[0] ^= 1;
    refused!("a header checksum", pack(&header), ArchiveError::Header { index: 0, .. });
}

#[test]
fn no_damage_to_a_good_archive_panics_or_passes() {
    let published = Published::new();
    let mixed = fs::read(&published.packed.archive).unwrap();
    // Text exercises the entropy coders and the matches of the decoder more than noise does.
    let lines: Vec<String> =
        (0..400).map(|line| format!("layer {line} takes x{} and y{}", line % 7, line * line)).collect();
    let text = Tar::new().file(&inside("notes.json"), lines.join("\n").as_bytes()).packed();
    // A fixed sequence of flips over the whole archive, most of them in the first kilobyte, where the headers are.
    let mut state = 1_u64;
    for round in 0..200 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut damaged = if round % 2 == 0 { mixed.clone() } else { text.clone() };
        let range = if round % 3 == 0 { damaged.len() } else { damaged.len().min(1024) };
        damaged[(state >> 33) as usize % range] ^= 1 << (state >> 60 & 7);
        let error = fetch("damage", &damaged);
        // The metadata of the texts' archive is none, so that even harmless damage would be refused; it must not panic.
        assert!(
            matches!(error, FetchError::Archive { .. } | FetchError::Content { .. } | FetchError::Metadata { .. }),
            "{error:?}"
        );
    }
}
