//! Kernel manifests and `metadata.json`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use kernelhub::digest::ViolationKind;
use kernelhub::hint::Hint as _;
use kernelhub::manifest::{KernelManifest, ManifestError, Metadata, Source};

const GOOD: &str = r#"schema = 1

[kernel]
repo = "kernelhub/rmsnorm"
version = 1
license = "Apache-2.0"
source = "archive"

[[artifact]]
variant = "tvm-ffi01-cpu-x86_64-linux"
url = "a.tar.zst"
size = 10
sha256 = "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"
metadata_sha256 = "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"
"#;

fn parse(text: &str) -> Result<KernelManifest, ManifestError> {
    KernelManifest::parse(text, "rmsnorm.toml")
}

/// The message with its causes, and the hint.
fn told(error: &ManifestError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        write!(text, ": {error}").unwrap();
        cause = error.source();
    }
    format!("{text}; hint: {}", error.hint().unwrap_or_default())
}

#[test]
fn a_manifest_reads_back_as_it_was() {
    let manifest = parse(GOOD).unwrap();
    assert_eq!(manifest.kernel.source, Source::Archive);
    assert_eq!(parse(&manifest.to_toml().unwrap()).unwrap(), manifest);
    for url in ["https://example.org/a%20b/c.tar.zst?x=1", "http://127.0.0.1:8/a", "file:///a/b.tar.zst", "a/b.c..d"] {
        let manifest = parse(&GOOD.replace("a.tar.zst", url)).unwrap();
        assert_eq!(manifest.artifacts[0].url.to_string(), url);
        assert_eq!(parse(&manifest.to_toml().unwrap()).unwrap(), manifest);
    }
}

#[test]
fn every_slip_in_a_manifest_is_named() {
    // (what to replace, by what, what the message must say)
    let slips = [
        ("license =", "licence =", "did you mean `license`?"),
        ("sha256 = \"b94d", "sha265 = \"b94d", "unknown field `sha265`"),
        ("[[artifact]]", "[[artefact]]", "did you mean `artifact`?"),
        ("license = \"Apache-2.0\"\n", "", "missing field `license`"),
        ("size = 10\n", "", "missing field `size`"),
        ("schema = 1\n", "", "missing field `schema`"),
        ("schema = 1", "schema = 2\nnew = 3", "schema 2"),
        ("schema = 1", "schema = 2", "update kernelhub"),
        ("\"b94d27b9", "\"B94D27B9", "not a sha256 digest"),
        ("\"b94d27b9", "\"b94d", "not a sha256 digest"),
        ("kernelhub/rmsnorm", "../rmsnorm", "unsafe repo id"),
        ("tvm-ffi01-cpu-x86_64-linux", "..", "variant"),
        ("tvm-ffi01-cpu-x86_64-linux", "../../x", "variant"),
        ("a.tar.zst", "../a.tar.zst", "a component that is . or .."),
        ("a.tar.zst", "/a.tar.zst", "an absolute path"),
        ("a.tar.zst", "https://h/a/../b", "a path component that is . or .."),
        ("a.tar.zst", "https://h/a/%2e%2E/b", "a path component that is . or .."),
        ("a.tar.zst", "https://h/a/..%2fb", "a path component that is . or .."),
        ("a.tar.zst", "file:///a/../../etc/passwd", "a path component that is . or .."),
        ("a.tar.zst", "ftp://h/a", "expected http, https, file"),
        ("a.tar.zst", "data:text/plain,x", "expected http, https, file"),
        ("a.tar.zst", "https://me:secret@h/a", "credentials"),
        ("a.tar.zst", "https://h/a#b", "a fragment"),
        ("a.tar.zst", "C:/a", "a character that a file name cannot hold everywhere"),
        ("a.tar.zst", "", "an empty component"),
        ("size = 10", "size = 0", "no archive is empty"),
        ("size = 10", "size = -1", "invalid value"),
        ("source = \"archive\"", "source = \"hub\"", "the Hub lists"),
        ("source = \"archive\"", "source = \"disk\"", "unknown variant `disk`"),
        ("version = 1", "version = \"1\"", "invalid type"),
        ("schema = 1", "schema = 1\nschema = 1", "duplicate key"),
    ];
    for (from, to, expected) in slips {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{from}");
        let told = told(&parse(&text).expect_err(to));
        assert!(told.contains(expected) && told.contains("rmsnorm.toml"), "{from} -> {to}: {told}");
    }
    let twice = format!("{GOOD}{}", &GOOD[GOOD.find("[[artifact]]").unwrap()..]);
    assert!(told(&parse(&twice).unwrap_err()).contains("artifact[1].variant"));
    let none = &GOOD[..GOOD.find("[[artifact]]").unwrap()];
    assert!(told(&parse(none).unwrap_err()).contains("lists at least one"));
    let hub = none.replace("archive", "hub");
    assert!(told(&parse(&hub).unwrap_err()).contains("serves at least one layer"));
}

#[test]
fn the_embedded_hub_manifests_are_valid_and_named_after_their_kernels() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernel-manifests");
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // The folder beside them holds mappings.
        if path.is_dir() {
            continue;
        }
        let manifest = KernelManifest::parse(&fs::read_to_string(&path).unwrap(), &path.display().to_string()).unwrap();
        assert_eq!(path.file_stem().unwrap().to_str(), Some(manifest.kernel.repo.name()));
        assert_eq!(parse(&manifest.to_toml().unwrap()).unwrap(), manifest);
        if manifest.kernel.source == Source::Hub {
            assert_eq!(manifest.kernel.repo.owner(), "kernels-community");
            assert!(manifest.layers.iter().all(|layer| layer.forward.is_some()));
            names.push((manifest.kernel.repo.name().to_owned(), manifest.kernel.version));
        }
    }
    names.sort();
    let expected = [("activation", 1), ("flash-attn2", 3), ("rmsnorm", 1), ("rotary", 2)];
    assert_eq!(names, expected.map(|(name, version)| (name.to_owned(), version)));
}

const METADATA: &str = r#"{"name":"rmsnorm","id":"_rmsnorm_cpu_1","version":1,"license":"Apache-2.0","python-depends":[],
"kernel-depends":["a/b"],"backend":{"type":"cuda","archs":["9.0a"]},"provenance":{"z":1,"a":{"y":2,"b":3}},
"digest":{"algorithm":"sha256","files":{"a.so":"uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek="}}}"#;

#[test]
fn metadata_lists_every_missing_field_and_ignores_unknown_ones() {
    let error = Metadata::parse(br#"{"version":1,"python-depends":[]}"#, "v1/metadata.json").unwrap_err();
    assert!(
        matches!(&error, ManifestError::MissingFields { fields, .. } if fields == &["name", "id", "backend"]),
        "{error}"
    );
    assert!(error.to_string().contains("v1/metadata.json"));
    let error = Metadata::parse(METADATA.replace("\"type\":\"cuda\",", "").as_bytes(), "x").unwrap_err();
    assert!(error.to_string().contains("backend.type"), "{error}");
    let metadata = Metadata::parse(METADATA.replacen('{', "{\"future\":{},", 1).as_bytes(), "x").unwrap();
    assert_eq!(metadata, Metadata::parse(METADATA.as_bytes(), "x").unwrap());
    assert_eq!(metadata.backend.archs, ["9.0a"]);
    // What was read is written in one form, which reads back.
    let text = metadata.to_json();
    assert_eq!(Metadata::parse(text.as_bytes(), "x").unwrap(), metadata);
    assert_eq!(Metadata::parse(text.as_bytes(), "x").unwrap().to_json(), text);
    assert!(text.find("\"a\"").unwrap() < text.find("\"z\"").unwrap(), "provenance is not sorted: {text}");
}

#[test]
fn metadata_of_another_shape_is_an_error_that_names_the_field() {
    for (from, to, expected) in [
        ("\"version\":1", "\"version\":1,\"version\":2", "not a valid"),
        ("\"z\":1", "\"z\":1,\"z\":1", "not a valid"),
        ("\"version\":1", "\"version\":-1", "version"),
        ("\"version\":1", "\"version\":4294967296", "version"),
        ("\"python-depends\":[]", "\"python-depends\":[1]", "python-depends"),
        ("\"type\":\"cuda\"", "\"type\":7", "type"),
        ("\"name\":\"rmsnorm\"", "\"name\":\"../x\"", "name"),
        ("\"license\":\"Apache-2.0\"", "\"license\":[]", "license"),
        ("\"digest\":{", "\"digest\":7,\"x\":{", "digest"),
    ] {
        let text = METADATA.replacen(from, to, 1);
        assert_ne!(text, METADATA);
        let error = Metadata::parse(text.as_bytes(), "m.json").expect_err(to).to_string();
        assert!(error.contains(expected) && error.contains("m.json"), "{to}: {error}");
    }
    assert!(Metadata::parse(b"[]", "x").is_err());
    assert!(Metadata::parse(b"\xff", "x").is_err());
    let none = METADATA.replace("\"digest\"", "\"other\"");
    let metadata = Metadata::parse(none.as_bytes(), "x").unwrap();
    assert_eq!(metadata.violations(&std::collections::BTreeMap::new())[0].kind, ViolationKind::DigestAbsent);
}

#[test]
fn faults_of_the_digest_table_are_kept_for_the_verifier() {
    let digest = "uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek=";
    let faults = |table: &str| {
        let start = METADATA.find("\"digest\"").unwrap();
        let text = format!("{}\"digest\":{table}}}", &METADATA[..start]);
        let metadata = Metadata::parse(text.as_bytes(), "x").unwrap();
        metadata.digest.unwrap().faults.into_iter().map(|fault| (fault.kind, fault.path)).collect::<Vec<_>>()
    };
    let file = |name: &str, value: &str| format!(r#"{{"algorithm":"sha256","files":{{"{name}":"{value}"}}}}"#);
    for name in ["../x", "/x", "a/../../b", "C:\\\\x", "con", "", "a//b", "metadata.json", "metadata.json.sigstore"] {
        let found = faults(&file(name, digest));
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        assert_eq!(found[0].0, ViolationKind::Malformed);
    }
    for value in
        ["", "AAAA", "not base64", &digest[..43], "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"]
    {
        assert_eq!(faults(&file("a.so", value)), [(ViolationKind::Malformed, "a.so".to_owned())], "{value}");
    }
    let unsupported = [(ViolationKind::AlgorithmUnsupported, "metadata.json".to_owned())];
    for table in [r#"{"algorithm":"sha1","files":{}}"#, r#"{"algorithm":"SHA256","files":{}}"#, r#"{"files":{}}"#] {
        assert_eq!(faults(table), unsupported, "{table}");
    }
    assert_eq!(faults(r#"{"algorithm":"sha256"}"#)[0].0, ViolationKind::Malformed);
    let case = format!(r#"{{"algorithm":"sha256","files":{{"a.so":"{digest}","A.so":"{digest}"}}}}"#);
    assert_eq!(faults(&case).len(), 1);
    assert_eq!(faults(&file("a.so", digest)), []);
}

#[test]
fn a_backend_is_recognised_in_the_variants_name() {
    let identity = |kind: &str, variant: &str| {
        let text = METADATA.replace("\"cuda\"", &format!("\"{kind}\""));
        let metadata = Metadata::parse(text.as_bytes(), "x").unwrap();
        metadata.identity_violations(&"kernelhub/rmsnorm".parse().unwrap(), 1, &variant.parse().unwrap()).is_empty()
    };
    for (kind, variant) in [
        ("cuda", "torch213-cxx11-cu130-x86_64-linux"),
        ("cuda", "torch-cuda"),
        ("cpu", "tvm-ffi01-cpu-x86_64-linux"),
        ("xpu", "torch211-cxx11-xpu20253-x86_64-linux"),
        ("rocm", "torch211-cxx11-rocm63-x86_64-linux"),
        ("universal", "wgsl-universal"),
        ("xpu", "wgsl-xpu"),
        ("metal", "wgsl-mps"),
    ] {
        assert!(identity(kind, variant), "{kind} in {variant}");
    }
    for (kind, variant) in [
        ("cuda", "tvm-ffi01-cpu-x86_64-linux"),
        ("cpu", "torch213-cxx11-cu130-x86_64-linux"),
        ("rocm", "torch213-cxx11-cu130-x86_64-linux"),
        ("universal", "wgsl-xpu"),
        ("linux", "tvm-ffi01-cpu-x86_64-linux"),
        ("x86_64", "tvm-ffi01-cpu-x86_64-linux"),
        ("", "tvm-ffi01-cpu-x86_64-linux"),
    ] {
        assert!(!identity(kind, variant), "{kind} in {variant}");
    }
}
