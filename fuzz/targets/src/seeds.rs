//! Real inputs to start from.

use std::fs;
use std::path::Path;

use kernelhub::digest::Sha256Digest;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::archives::packed;
#[path = "../../../tests/it/support/elf.rs"]
#[expect(dead_code, clippy::unwrap_used, reason = "a helper of the tests, which use more of it")]
mod elf;

use elf::{Elf, tag};

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

pub(crate) fn variants() -> Vec<Vec<u8>> {
    texts(&[
        "torch213-cxx11-cu130-x86_64-linux",
        "torch-stable-abi211-cu1210-aarch64-linux",
        "tvm-ffi01-cpu-x86_64-linux",
        "torch29-cxx98-rocm64-x86_64-windows",
        "torch28-metal-aarch64-darwin",
        "torch-cuda",
        "torch-universal",
        "wgsl-xpu",
        "wgsl-universal",
    ])
}

pub(crate) fn builds() -> Vec<Vec<u8>> {
    texts(&[
        "# builds\ntorch213-cxx11-cu130-x86_64-linux\r\n\ttvm-ffi01-cpu-x86_64-linux # ours\nwgsl-universal\nnew\u{1b}form\n",
        r#"["torch-cuda", {"variant": "tvm-ffi01-cpu-x86_64-linux", "archs": ["8.0", "9.0a", "10.0f", "9.0+PTX"],
            "glibc": "2.28", "imports_tvm_ffi": false, "size_bytes": 7}]"#,
    ])
}

pub(crate) fn systems() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/it/fixtures/machines");
    let names =
        ["02-cpu-libraries", "07-h200-cuda-12.8", "15-xpu-2x2-tiles", "16-laptop-intel-igpu", "18-mac-m3-macos-26"];
    let read = |name: &str| fs::read(folder.join(format!("{name}.json"))).ok();
    let mut seeds: Vec<Vec<u8>> = names.into_iter().filter_map(read).collect();
    seeds.extend(texts(&[
        r#"{"os": "linux", "arch": "x86_64"}"#,
        r#"{"os": null, "arch": null, "unprobed": ["cuda"]}"#,
    ]));
    seeds
}

pub(crate) fn names() -> Vec<Vec<u8>> {
    texts(&[
        "kernels-community/activation",
        "build/torch-cuda/sub/file.py",
        "v1",
        "0123456789012345678901234567890123456789",
        "refs/pr/3",
        "../x",
        "C:\\x",
        "a/con.txt",
        "x\u{202e}y",
    ])
}

pub(crate) fn metadata() -> Vec<Vec<u8>> {
    let digest = Sha256Digest::of(b"x").to_base64();
    let whole = format!(
        r#"{{"name": "activation", "id": "activation_cpu_1", "version": 1, "license": "Apache-2.0",
        "python-depends": ["einops"], "kernel-depends": [{{"repo-id": "a/b", "version": 1}}],
        "backend": {{"type": "cuda", "archs": ["8.0", "9.0a"]}},
        "digest": {{"algorithm": "sha256", "files": {{"libx.so": "{digest}", "sub/y.py": "{digest}"}}}},
        "provenance": {{"builder": {{"name": "kernel-builder", "version": "0.13"}}}}}}"#
    );
    vec![
        whole.into_bytes(),
        br#"{"name": "a", "id": "a_1", "version": 1, "python-depends": [], "backend": {"type": "cpu"}}"#.to_vec(),
    ]
}

pub(crate) fn layers() -> Vec<Vec<u8>> {
    texts(&[
        include_str!("../../../kernels/cpu/layers/rmsnorm.toml"),
        include_str!("../../../kernels/cpu/layers/flash-attn2.toml"),
        include_str!("../../../kernels/wgsl/layers/activation.toml"),
    ])
}

pub(crate) fn manifests() -> Vec<Vec<u8>> {
    let digest = Sha256Digest::of(b"x");
    let archive = format!(
        "schema = 1\n\n[kernel]\nrepo = \"kernelhub/rmsnorm\"\nversion = 1\nlicense = \"Apache-2.0\"\nsource = \"archive\"\n\n\
         [[artifact]]\nvariant = \"tvm-ffi01-cpu-x86_64-linux\"\nurl = \"https://host/x.tar.zst\"\nsize = 12\n\
         sha256 = \"{digest}\"\nmetadata_sha256 = \"{digest}\"\n"
    );
    let mut all = texts(&[
        include_str!("../../../kernel-manifests/rmsnorm.toml"),
        include_str!("../../../kernel-manifests/activation.toml"),
    ]);
    all.push(archive.into_bytes());
    all
}

const COMMIT: &str = "0123456789012345678901234567890123456789";

pub(crate) fn locks() -> Vec<Vec<u8>> {
    let digest = Sha256Digest::of(b"x");
    vec![
        format!(
            r#"[{{"repo_id": "a/b", "sha": "{COMMIT}", "variants": {{"torch-cuda": {{"hash": "sha256-{digest}", "hash_type": "git_lfs_concat"}}}}}}]"#
        )
        .into_bytes(),
        format!(r#"[{{"dependency": {{"repo-id": "a/b", "version": 1}}, "lock": {{"commit": "{COMMIT}"}}}}]"#).into_bytes(),
        b"[]".to_vec(),
    ]
}

pub(crate) fn sidecars() -> Vec<Vec<u8>> {
    let digest = Sha256Digest::of(b"x");
    vec![
        format!(
            "schema = 1\n\n[[kernel]]\nrepo = \"a/b\"\nversion = 1\nsource = \"hub\"\ncommit = \"{COMMIT}\"\n\n\
             [[kernel.build]]\nvariant = \"torch-cuda\"\nhash = \"sha256-{digest}\"\nmetadata_sha256 = \"{digest}\"\n\n\
             [[kernel]]\nrepo = \"kernelhub/x\"\nversion = 2\nsource = \"archive\"\nlicense = \"MIT\"\n\n[[kernel.artifact]]\n\
             variant = \"wgsl-universal\"\nurl = \"https://host/x.tar.zst\"\nsize = 1\nsha256 = \"{digest}\"\n\
             metadata_sha256 = \"{digest}\"\n"
        )
        .into_bytes(),
        b"schema = 1\n".to_vec(),
    ]
}

pub(crate) fn configs() -> Vec<Vec<u8>> {
    texts(&[
        include_str!("../../../kernel-manifests/mapping/standard.toml"),
        r#"{"RMSNorm": {"xpu": "org/repo:Layer", "cuda": {"inference": "a/b@v1:L", "training": "a/c@v2:M"}}}"#,
        "[RMSNorm]\ncpu = \"kernelhub/rmsnorm@v1:RMSNorm\"\n",
    ])
}

pub(crate) fn dependencies() -> Vec<Vec<u8>> {
    texts(&[
        "[package.metadata.kernels]\nconfig = \"kernels.toml\"\n\n[package.metadata.kernels.dependencies]\n\"a/b\" = 1\n\"c/d\" = { version = 2, variants = [\"torch-cuda\"] }\n",
        "[tool.kernels.dependencies]\n\"kernels-community/activation\" = 1\n\"a/b\" = \">=0.1,<0.3\"\n",
        "[workspace.metadata.kernels.dependencies]\n\"a/b\" = { revision = \"main\" }\n",
    ])
}

pub(crate) fn grids() -> Vec<Vec<u8>> {
    texts(&["ceil(width / 256)", "rows", "1", "ceil(rows * width / 64)", "((rows))"])
}

pub(crate) fn locations() -> Vec<Vec<u8>> {
    texts(&[
        "https://host:8080/a/b.toml?x=1",
        "oci://registry.example/org/name:v1",
        "file:///a/b",
        "relative/path",
        "oci://h/x@sha256:0000000000000000000000000000000000000000000000000000000000000000",
        "http://user:pass@host/",
    ])
}

pub(crate) fn digests() -> Vec<Vec<u8>> {
    let digest = Sha256Digest::of(b"x");
    vec![digest.to_string().into_bytes(), digest.to_base64().into_bytes(), COMMIT.as_bytes().to_vec()]
}

fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        // A name too long for a header comes by an entry of its own.
        tar.append_data(&mut header, name, *bytes).expect("memory takes it");
    }
    tar.into_inner().expect("memory takes it")
}

/// Each with its first byte, which says how deep it goes.
pub(crate) fn archives() -> Vec<Vec<u8>> {
    let build = "build/tvm-ffi01-cpu-x86_64-linux";
    let long = format!("{build}/{}/x", "deep".repeat(30));
    let plain = tar(&[
        (&format!("{build}/metadata.json"), b"{}"),
        (&format!("{build}/layers.toml"), b"schema = 1\n"),
        (&format!("{build}/sub/libx.so"), &[7; 700]),
    ]);
    let other = tar(&[(&format!("{build}/metadata.json"), b"{}"), (&long, b"x")]);
    let mut all = Vec::new();
    for tar in [plain, other] {
        all.push([&[0], &compress_to_vec(tar.as_slice(), CompressionLevel::Fastest)[..]].concat());
        all.push([&[0], &packed(&tar)[..]].concat());
        all.push([&[2], &tar[..]].concat());
    }
    all
}

pub(crate) fn trees() -> Vec<Vec<u8>> {
    let digest = Sha256Digest::of(b"x");
    vec![
        format!(
            r#"[{{"type": "directory", "path": "build/tvm-ffi01-cpu-x86_64-linux/sub", "oid": "{COMMIT}", "size": 0}},
            {{"type": "file", "path": "build/tvm-ffi01-cpu-x86_64-linux/libx.so", "oid": "{COMMIT}", "size": 7,
            "lfs": {{"oid": "{digest}", "size": 7, "pointerSize": 130}}}},
            {{"type": "file", "path": "build/tvm-ffi01-cpu-x86_64-linux/sub/y.py", "oid": "{COMMIT}", "size": 3}}]"#
        )
        .into_bytes(),
        format!(
            r#"{{"branches": [{{"name": "v1", "ref": "refs/heads/v1", "targetCommit": "{COMMIT}"}}], "tags": [], "converts": []}}"#
        )
        .into_bytes(),
    ]
}

pub(crate) fn elfs() -> Vec<Vec<u8>> {
    let word = |number: u32| number.to_le_bytes();
    // One needed version of the library and the version that the names hold first.
    let need: Vec<u8> =
        [&[1, 0, 1, 0][..], &word(1), &word(16), &word(0), &word(0), &[0, 0, 2, 0], &word(11), &word(0)].concat();
    let definition: Vec<u8> =
        [&[1, 0, 0, 0, 1, 0, 1, 0][..], &word(0), &word(20), &word(0), &word(11), &word(0)].concat();
    // A hash table of one bucket and two symbols, then the symbols: none, and a unique one.
    let symbols: Vec<u8> =
        [&word(1)[..], &word(2), &word(1), &word(0), &word(0), &[0; 4], &[0; 24], &word(1), &[0xa1, 0, 1, 0], &[0; 16]]
            .concat();
    let gnu_hash: Vec<u8> = [
        &word(1)[..],
        &word(1),
        &word(1),
        &word(0),
        &[0; 8],
        &word(1),
        &word(1),
        &[0; 24],
        &word(1),
        &[0xaa, 0, 1, 0],
        &[0; 16],
    ]
    .concat();
    let named = || Elf::default().name(tag::NEEDED, "libc.so.6").name(tag::SONAME, "GLIBC_2.34");
    let mut all = vec![
        named().name(tag::RPATH, "$ORIGIN:/opt").name(tag::FILTER, "f").number(tag::FLAGS, 4).build(b""),
        named().place(tag::VERNEED, 0).build(&need),
        named().place(tag::VERDEF, 0).build(&definition),
        named().place(tag::HASH, 0).place(tag::SYMTAB, 24).build(&symbols),
        named().place(tag::GNU_HASH, 0).place(tag::SYMTAB, 32).build(&gnu_hash),
    ];
    // Small real ones, where the system has them.
    for name in ["libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1"] {
        all.extend(fs::read(Path::new("/lib/x86_64-linux-gnu").join(name)).ok().filter(|file| file.len() < 1 << 16));
    }
    all
}

pub(crate) fn linker_caches() -> Vec<Vec<u8>> {
    let mut cache = b"glibc-ld.so.cache1.1".to_vec();
    cache.extend(1_u32.to_le_bytes());
    cache.resize(48, 0);
    for number in [0x0303_u32, 72, 82, 0, 0, 0] {
        cache.extend(number.to_le_bytes());
    }
    cache.extend(b"libc.so.6\0/lib/libc.so.6\0");
    vec![cache]
}

pub(crate) fn policies() -> Vec<Vec<u8>> {
    let digest = Sha256Digest::of(b"x");
    vec![
        format!(
            "schema = 1\nsignature = \"require\"\n\n[[publisher]]\nname = \"acme\"\nkeys = [\"RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3\"]\n\n\
             [[repo]]\nname = \"a/b\"\n\n[[endpoint]]\nurl = \"https://hub.example\"\naccept_publisher_flags = true\n\n\
             [[folder]]\npath = \"/opt/kernels\"\n\n[elf]\nexec_stack = \"refuse\"\n\n[sigstore_root]\npath = \"root.json\"\nsha256 = \"{digest}\"\n"
        )
        .into_bytes(),
        b"schema = 1\nsignature = \"warn\"\n".to_vec(),
    ]
}

pub(crate) fn signature_bundles() -> Vec<Vec<u8>> {
    texts(&[
        include_str!("../../../tests/it/fixtures/sigstore/rfc8785-0.1.2.whl.sigstore"),
        include_str!("../../../tests/it/fixtures/sigstore/envelope.sigstore"),
    ])
}

pub(crate) fn minisigns() -> Vec<Vec<u8>> {
    texts(&[
        "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3",
        "untrusted comment: signature from minisign secret key\nRUQf6LRCGA9i559r3g7V1qNyJDApGip8MfqcadIgT9CuhV3EMhHoN1mGTkUidF/z7SrlQgXdy8ofjb7bNJJylDOocrCo8KLzZwo=\ntrusted comment: timestamp:1556193335\tfile:test\ny/rUw2y8/hOUYjZU71eHp/Wo1KZ40fGy2VJEDl34XMJM+TX48Ss/17u3IvIfbVR1FkZZSNCisQbuQY+bHwhEBg==\n",
    ])
}
