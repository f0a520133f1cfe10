//! The program's commands, run as a user runs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::hub::{self, FakeHub};
use crate::support::packs::{Published, VARIANT};
use crate::support::server::Server;
use crate::support::trust;

/// A machine of its own: a cache, a project, and nothing of the user's environment.
pub(crate) struct Machine {
    folder: TempDir,
    endpoint: String,
}

impl Machine {
    pub(crate) fn new() -> Self {
        // A wrong turn must fail, not ask the world.
        Self::at("http://127.0.0.1:9")
    }

    pub(crate) fn at(endpoint: &str) -> Self {
        let machine = Self { folder: tempfile::tempdir().unwrap(), endpoint: endpoint.to_owned() };
        fs::create_dir(machine.project()).unwrap();
        machine
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn declare(&self, dependencies: &str) {
        let text = format!("[package]\nname = \"app\"\n[package.metadata.kernels.dependencies]\n{dependencies}\n");
        fs::write(self.project().join("Cargo.toml"), text).unwrap();
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kernelhub"));
        command.env_clear().env("HF_HOME", self.home()).env("HOME", self.folder.path());
        command.env("HF_ENDPOINT", &self.endpoint).env("KERNELHUB_POLICY", trust::file(&self.endpoint));
        command.current_dir(self.project()).args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The standard output of a run that succeeds.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}\n{stderr}");
        assert!(!output.stdout.contains(&0x1b) && !stderr.contains('\u{1b}'), "colours without a terminal");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        serde_json::from_str(&self.ok(&arguments)).unwrap()
    }

    /// The standard error of a run that fails with this code.
    pub(crate) fn fails(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{stderr}");
        assert_eq!(output.stdout, b"", "{arguments:?}");
        stderr
    }
}

pub(crate) fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// A machine whose project locks the published kernel.
fn locked(published: &Published) -> Machine {
    let machine = Machine::new();
    machine.declare("\"kernelhub/rmsnorm\" = 1");
    machine.ok(&["lock", "--manifest", &text(&published.manifest_path())]);
    machine
}

#[test]
fn archives_are_locked_downloaded_and_held_to_the_lock() {
    let published = Published::new();
    let server = Server::folder(published.folder.path());
    let machine = Machine::new();
    machine.declare("\"kernelhub/rmsnorm\" = 1");
    let locked = machine.json(&["lock", "--manifest", &server.url("rmsnorm.toml")]);
    assert_eq!(locked["changed"], true);
    assert_eq!(locked["kernels"][0]["source"], "archive");
    assert_eq!(locked["kernels"][0]["variants"][0], VARIANT);
    // The Python tool cannot fetch archives: its own file says nothing about them.
    assert!(!machine.project().join("kernels.lock").exists());
    let sidecar = fs::read_to_string(machine.project().join("kernelhub.lock")).unwrap();
    assert!(sidecar.contains(&published.artifact().sha256.to_string()), "{sidecar}");
    assert!(sidecar.contains(&server.url(&published.archive_name())), "{sidecar}");

    // Locking again changes nothing, byte for byte.
    assert_eq!(machine.json(&["lock", "--manifest", &server.url("rmsnorm.toml")])["changed"], false);
    machine.ok(&["lock", "--check", "--manifest", &server.url("rmsnorm.toml")]);

    // Another machine needs the lock alone, and brings it once.
    let other = Machine::new();
    fs::write(other.project().join("kernelhub.lock"), &sidecar).unwrap();
    let rows = other.json(&["download"]);
    assert_eq!((&rows[0]["variant"], &rows[0]["from_cache"]), (&VARIANT.into(), &false.into()));
    let before = server.requests().len();
    let rows = other.json(&["download", "--all-variants"]);
    assert_eq!((rows.as_array().unwrap().len(), &rows[0]["from_cache"]), (1, &true.into()));
    assert_eq!(server.requests().len(), before, "a warm download asks nobody");
    other.ok(&["download", "--offline"]);

    // A lock that says something else about the metadata is not met, whatever the cache holds.
    let metadata = published.artifact().metadata_sha256.to_string();
    let third = Machine::new();
    fs::write(third.project().join("kernelhub.lock"), sidecar.replace(&metadata, &"0".repeat(64))).unwrap();
    let error = third.fails(1, &["download"]);
    assert!(error.contains("metadata.json") && error.contains(&metadata), "{error}");
    let digest = published.artifact().sha256.to_string();
    fs::write(third.project().join("kernelhub.lock"), sidecar.replace(&digest, &"0".repeat(64))).unwrap();
    let error = third.fails(1, &["download"]);
    assert!(error.contains(&digest), "{error}");
}

#[test]
fn a_project_that_carries_its_archives_can_be_moved() {
    let published = Published::new();
    let machine = Machine::new();
    let registry = machine.project().join("registry");
    fs::create_dir(&registry).unwrap();
    for entry in fs::read_dir(published.folder.path()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), registry.join(entry.file_name())).unwrap();
    }
    machine.declare("\"kernelhub/rmsnorm\" = 1");
    machine.ok(&["lock", "--manifest", "registry"]);
    let lock = fs::read_to_string(machine.project().join("kernelhub.lock")).unwrap();
    assert!(lock.contains("url = \"registry/"), "{lock}");
    let other = Machine::new();
    fs::rename(machine.project(), other.project().join("moved")).unwrap();
    assert_eq!(other.json(&["download", "moved/Cargo.toml"])[0]["from_cache"], false);
    assert!(other.fails(1, &["download", "nowhere"]).contains("nowhere"));
}

#[test]
fn a_lock_of_a_few_builds_hides_none_of_the_others() {
    let machine = Machine::new();
    let files = machine.folder.path().join("files");
    fs::create_dir(&files).unwrap();
    crate::support::packs::write_files(&files);
    let builds = [VARIANT, "tvm-ffi01-cpu-aarch64-linux"].map(|variant| format!("{variant}={}", text(&files)));
    let about = ["--repo", "kernelhub/rmsnorm", "--version", "1", "--license", "MIT", "--description", "a test"];
    let pack: Vec<&str> = ["pack"].into_iter().chain(builds.iter().map(String::as_str)).chain(about).collect();
    machine.ok(&[&pack[..], &["--out", "registry"]].concat());
    machine.ok(&["fetch", "--manifest", "registry", "--all-variants"]);
    machine.declare(&format!("\"kernelhub/rmsnorm\" = {{ version = 1, variants = [\"{VARIANT}\"] }}"));
    machine.ok(&["lock"]);
    assert_eq!(machine.json(&["download", "--all-variants"]).as_array().unwrap().len(), 1);
    machine.ok(&["export", "b.tar"]);
    machine.ok(&["import", "b.tar"]);
    let info = machine.json(&["info", "kernelhub/rmsnorm@v1"]);
    assert_eq!((&info["description"], info["variants"].as_array().unwrap().len()), (&"a test".into(), 2));
}

#[test]
fn what_is_declared_wrongly_changes_no_file() {
    let published = Published::new();
    let manifest = text(&published.manifest_path());
    let machine = locked(&published);
    let before = fs::read(machine.project().join("kernelhub.lock")).unwrap();
    for (dependencies, expected) in [
        ("\"kernelhub/rmsnorm\" = 2", "v2"),
        (
            "\"kernelhub/rmsnorm\" = { version = 1, variants = [\"tvm-ffi01-cpu-aarch64-linux\"] }",
            "did you mean tvm-ffi01-cpu-x86_64-linux?",
        ),
        ("\"kernelhub/rmsnorm\" = { verison = 1 }", "did you mean `version`?"),
        ("\"nobody/nothing\" = 1", "nobody/nothing"),
        ("", "no kernels are declared"),
    ] {
        machine.declare(dependencies);
        let error = machine.fails(1, &["lock", "--offline", "--manifest", &manifest]);
        assert!(error.contains(expected), "{dependencies}\n{error}");
        assert_eq!(fs::read(machine.project().join("kernelhub.lock")).unwrap(), before);
    }
    // A KernelConfig declares kernels, too.
    fs::write(machine.project().join("k.toml"), "RMSNorm = \"kernelhub/rmsnorm@v1:RMSNorm\"\n").unwrap();
    machine.ok(&["lock", "k.toml", "--manifest", &manifest]);
    assert_eq!(fs::read(machine.project().join("kernelhub.lock")).unwrap(), before);
    // A project that is not locked, and one whose files disagree.
    let bare = Machine::new();
    assert!(bare.fails(1, &["download"]).contains("hint: run `kernelhub lock`"));
    assert!(bare.fails(1, &["lock"]).contains("neither a Cargo.toml nor a pyproject.toml"));
    machine.declare("\"kernelhub/rmsnorm\" = 1");
    fs::write(machine.project().join("kernelhub.lock"), "schema = 1\n").unwrap();
    assert!(machine.fails(1, &["lock", "--check", "--manifest", &manifest]).contains("out of date"));
}

#[test]
fn a_bundle_carries_locked_kernels_to_a_machine_without_a_network() {
    let published = Published::new();
    let machine = locked(&published);
    for name in ["kernels.tar", "kernels.tar.zst"] {
        let exported = machine.json(&["export", name]);
        let file = text(&machine.project().join(name));
        let digest = exported["sha256"].as_str().unwrap();
        assert_eq!(exported["bytes"], fs::metadata(&file).unwrap().len());
        // The same locks and files give the same bytes.
        assert_eq!(machine.json(&["export", "again.tar.zst"])["bytes"] == exported["bytes"], name.ends_with("zst"));

        let island = Machine::new();
        let imported = island.json(&["import", &file, "--sha256", digest, "--offline"]);
        assert_eq!((&imported["anchored"], &imported["present"]), (&true.into(), &0.into()));
        assert_eq!(imported["builds"][0]["variant"], VARIANT);
        let again = island.json(&["import", &file, "--offline"]);
        assert_eq!((&again["anchored"], &again["present"]), (&false.into(), &1.into()));
        // The kernel is a hit by its name, offline, and by the lock.
        fs::copy(machine.project().join("kernelhub.lock"), island.project().join("kernelhub.lock")).unwrap();
        assert_eq!(island.json(&["download", "--offline"])[0]["from_cache"], true);
        island.ok(&["import", &file, "--project", "."]);

        // The project's own lock decides.
        let lock = fs::read_to_string(island.project().join("kernelhub.lock")).unwrap();
        let other = lock.replace(&published.artifact().metadata_sha256.to_string(), &"0".repeat(64));
        fs::write(island.project().join("kernelhub.lock"), other).unwrap();
        assert!(island.fails(1, &["import", &file, "--project", "."]).contains("not locked as the project locks it"));
        assert!(island.fails(1, &["import", &file, "--sha256", &"0".repeat(64)]).contains("expected sha256 000"));
    }
}

/// The entries of a tar, in order.
fn entries(tar: &[u8]) -> Vec<(String, Vec<u8>)> {
    use std::io::Read as _;
    let mut archive = tar::Archive::new(tar);
    let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (name, content)
    };
    archive.entries().unwrap().map(read).collect()
}

fn tar_of(entries: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, name, content.as_slice()).unwrap();
    }
    builder.into_inner().unwrap()
}

type Entries = Vec<(String, Vec<u8>)>;

#[test]
fn a_bundle_that_is_not_as_exported_places_nothing() {
    let published = Published::new();
    let machine = locked(&published);
    machine.ok(&["export", "kernels.tar"]);
    let good = fs::read(machine.project().join("kernels.tar")).unwrap();
    let position = |entries: &Entries, end: &str| entries.iter().position(|(name, _)| name.ends_with(end)).unwrap();
    let changed = |change: &dyn Fn(&mut Entries)| {
        let mut list = entries(&good);
        change(&mut list);
        tar_of(&list)
    };
    let flip = |end: &'static str| {
        changed(&move |list: &mut Entries| {
            let at = position(list, end);
            list[at].1[10] ^= 1;
        })
    };
    let without = |end: &'static str| changed(&move |list: &mut Entries| drop(list.remove(position(list, end))));
    let metadata = published.artifact().metadata_sha256.to_string();
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("a byte of the library", flip("librmsnorm.so"), "librmsnorm.so"),
        ("a byte of the metadata", flip("metadata.json"), "metadata.json"),
        (
            "a broken lock",
            changed(&|list| {
                let at = position(list, "kernelhub.lock");
                list[at].1 = b"schema = 1\ntrusted = true\n".to_vec();
            }),
            "kernelhub.lock: not a valid",
        ),
        ("no library", without("librmsnorm.so"), "librmsnorm.so"),
        ("no metadata", without("metadata.json"), "metadata.json"),
        ("no lock", without("kernelhub.lock"), "neither a kernels.lock"),
        ("no index", without("bundle.json"), "bundle.json"),
        ("an empty index", changed(&|list| list[0].1 = br#"{"schema":1,"builds":[]}"#.to_vec()), "no kernels"),
        ("a newer index", changed(&|list| list[0].1 = br#"{"schema":2,"builds":[]}"#.to_vec()), "schema 1"),
        ("a stranger", changed(&|list| list.push(("x".to_owned(), vec![1]))), "belongs to none"),
        (
            "a stranger in the build",
            changed(&|list| {
                let name = list[position(list, "metadata.json")].0.replace("metadata.json", "evil.so");
                list.push((name, vec![1]));
            }),
            "evil.so",
        ),
        (
            "a build that is not locked",
            changed(&|list| {
                let index = String::from_utf8(list[0].1.clone()).unwrap();
                list[0].1 = index.replace(VARIANT, "wgsl-universal").into_bytes();
            }),
            "its lock does not hold",
        ),
        (
            "another lock",
            changed(&|list| {
                let at = position(list, "kernelhub.lock");
                let lock = String::from_utf8(list[at].1.clone()).unwrap();
                list[at].1 = lock.replace(&metadata, &"0".repeat(64)).into_bytes();
            }),
            "not as locked",
        ),
        ("a name twice", changed(&|list| list.push(list[2].clone())), "the bundle is refused"),
        ("a cut", good[..good.len() / 2].to_vec(), "the bundle is refused"),
        ("no end", good[..good.len() - 1024].to_vec(), "the bundle is refused"),
        ("bytes after the end", [good.as_slice(), b"x"].concat(), "the bundle is refused"),
        ("no tar", b"hello".to_vec(), "the bundle is refused"),
        ("nothing", Vec::new(), "the bundle is refused"),
    ];
    for (what, bytes, expected) in cases {
        let island = Machine::new();
        let file = island.project().join("bundle.tar");
        fs::write(&file, bytes).unwrap();
        let error = island.fails(1, &["import", &text(&file), "--offline"]);
        assert!(error.contains(expected), "{what}\n{error}");
        let left = island.home().join("kernelhub");
        for folder in ["archives", "manifests"] {
            let count = fs::read_dir(left.join(folder)).map_or(0, Iterator::count);
            assert_eq!(count, 0, "{what} left something in {folder}");
        }
        assert_eq!(fs::read_dir(left.join("tmp")).map_or(0, Iterator::count), 0, "{what} left its work");
    }
    // A name that leaves the folder, by a header that the tar crate would not write.
    let mut hostile = good.clone();
    hostile[..11].copy_from_slice(b"../x\0\0\0\0\0\0\0");
    let sum: u32 =
        hostile[..512].iter().enumerate().map(|(i, b)| if (148..156).contains(&i) { 32 } else { u32::from(*b) }).sum();
    hostile[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let island = Machine::new();
    fs::write(island.project().join("bundle.tar"), hostile).unwrap();
    assert!(island.fails(1, &["import", "bundle.tar"]).contains("the bundle is refused"));
    assert!(!island.home().join("kernelhub/tmp/x").exists());
}

#[test]
fn a_bundle_repairs_what_is_damaged_and_exports_nothing_that_is() {
    let published = Published::new();
    let machine = locked(&published);
    machine.ok(&["export", "kernels.tar.zst"]);
    let path = PathBuf::from(machine.json(&["download"])[0]["path"].as_str().unwrap());
    let library = path.join("librmsnorm.so");
    let mut bytes = fs::read(&library).unwrap();
    bytes[7] ^= 1;
    fs::write(&library, bytes).unwrap();
    assert!(machine.fails(1, &["export", "b.tar"]).contains("librmsnorm.so"));
    assert!(!machine.project().join("b.tar").exists());
    assert_eq!(machine.json(&["import", "kernels.tar.zst"])["present"], 0);
    machine.ok(&["download", "--offline"]);
    fs::remove_dir_all(machine.home()).unwrap();
    assert!(machine.fails(1, &["export", "b.tar"]).contains("not in the cache"));
}

#[test]
fn exit_codes_and_completions_are_what_the_help_says() {
    let machine = Machine::new();
    let help = machine.ok(&["--help"]);
    for code in ["0  what was asked for is there and whole", "1  it is not", "2  the command line is wrong"] {
        assert!(help.contains(code), "{help}");
    }
    for wrong in [&["lokc"][..], &["lock", "--editon", "0.17"], &["export"], &["import", "x", "--sha256", "00"]] {
        machine.fails(2, wrong);
    }
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(machine.ok(&["completions", shell]).contains("kernelhub"), "{shell}");
    }
}

/// A Hub with `o/rmsnorm` in versions 1 and 2, where a build of version 1 needs `o/helper@v1`, which needs this.
fn start_hub(needs: &[Value]) -> FakeHub {
    let mut first = hub::Published::new("o/rmsnorm", 1);
    first.add_build(VARIANT, 1, &hub::files(), &[json!({"repo-id": "o/helper", "version": 1})]);
    first.add_build("tvm-ffi01-cpu-aarch64-linux", 1, &hub::files(), &[]);
    let mut helper = hub::Published::new("o/helper", 1);
    helper.add_build(VARIANT, 1, &hub::files(), needs);
    FakeHub::start(vec![first, hub::Published::new("o/rmsnorm", 2), helper])
}

fn commit(repo: &str, version: u32) -> String {
    hub::Published::new(repo, version).commit
}

#[test]
fn kernels_of_the_hub_are_locked_with_what_they_need_and_held_to_the_lock() {
    let hub = start_hub(&[]);
    let machine = Machine::at(&hub.endpoint());
    machine.declare("\"o/rmsnorm\" = 1");
    let locked = machine.json(&["lock"]);
    let revisions: Vec<_> =
        locked["kernels"].as_array().unwrap().iter().map(|k| (&k["repo"], &k["revision"])).collect();
    let (helper, rmsnorm) = (commit("o/helper", 1), commit("o/rmsnorm", 1));
    assert_eq!(
        revisions,
        [
            (&Value::from("o/helper"), &Value::from(helper.as_str())),
            (&Value::from("o/rmsnorm"), &Value::from(rmsnorm.as_str())),
        ]
    );
    assert_eq!(locked["kernels"][1]["variants"].as_array().unwrap().len(), 2);
    // Of each build the metadata alone was read.
    assert!(!hub.paths().iter().any(|path| path.contains("librmsnorm.so")), "{:?}", hub.paths());
    let lock = fs::read(machine.project().join("kernels.lock")).unwrap();
    let parsed = kernelhub::manifest::KernelsLock::parse(&lock, "kernels.lock").unwrap();
    assert_eq!(parsed.edition, kernelhub::manifest::LockEdition::Dependency);
    assert_eq!(parsed.kernels.len(), 2);

    // The download brings what fits, follows the lock when the branch moves, and asks nobody when warm.
    let first = hub.paths().len();
    let (from, to) = (rmsnorm.clone(), commit("o/rmsnorm", 2));
    hub.lie(move |request, mut reply| {
        if request.path.ends_with("/refs") {
            reply.body = String::from_utf8(reply.body).unwrap().replace(&from, &to).into_bytes();
        }
        reply
    });
    let rows = machine.json(&["download"]);
    let brought: Vec<_> = rows.as_array().unwrap().iter().map(|row| (&row["variant"], &row["revision"])).collect();
    assert_eq!(
        brought,
        [
            (&Value::from(VARIANT), &Value::from(helper.as_str())),
            (&Value::from(VARIANT), &Value::from(rmsnorm.as_str())),
        ]
    );
    let paths = hub.paths();
    let files = paths[first..].iter().filter(|path| path.contains("librmsnorm.so")).count();
    assert_eq!(files, 2, "{paths:?}");
    let warm = hub.paths().len();
    assert!(machine.json(&["download"]).as_array().unwrap().iter().all(|row| row["from_cache"] == true));
    assert_eq!(hub.paths().len(), warm, "a warm download asks nobody: {:?}", &hub.paths()[warm..]);
    let all = machine.json(&["download", "--all-variants"]);
    assert_eq!(all.as_array().unwrap().len(), 3);

    // A lock that names other bytes is not met, whatever the Hub says, and before any library is fetched.
    let sidecar = fs::read_to_string(machine.project().join("kernelhub.lock")).unwrap();
    let other = Machine::at(&hub.endpoint());
    fs::write(other.project().join("kernels.lock"), &lock).unwrap();
    let digest = sidecar.split("metadata_sha256 = \"").nth(1).unwrap().split('"').next().unwrap();
    fs::write(other.project().join("kernelhub.lock"), sidecar.replace(digest, &"0".repeat(64))).unwrap();
    let before = hub.paths().len();
    let error = other.fails(1, &["download", "--all-variants"]);
    assert!(error.contains("not as locked") && error.contains(digest), "{error}");
    assert!(!hub.paths()[before..].iter().any(|path| path.contains("librmsnorm.so")));
    // A commit of another version is not what the lock says, even alone.
    let bare = Machine::at(&hub.endpoint());
    let text = String::from_utf8(lock.clone()).unwrap();
    fs::write(bare.project().join("kernels.lock"), text.replace(&rmsnorm, &commit("o/rmsnorm", 2))).unwrap();
    let error = bare.fails(1, &["download"]);
    assert!(error.contains("expected version 1") && error.contains("version 2"), "{error}");
    // Two files that disagree are no lock.
    fs::write(other.project().join("kernelhub.lock"), sidecar.replace(&rmsnorm, &helper)).unwrap();
    assert!(other.fails(1, &["download"]).contains("stands there twice"));
    fs::write(other.project().join("kernels.lock"), "[]").unwrap();
    assert!(other.fails(1, &["download"]).contains("not about the same kernels"));
}

#[test]
fn a_lock_of_either_edition_is_enough_alone() {
    let hub = start_hub(&[]);
    let machine = Machine::at(&hub.endpoint());
    machine.declare("\"o/rmsnorm\" = { version = 1, variants = [\"tvm-ffi01-cpu-x86_64-linux\"] }");
    for edition in ["0.17", "0.16"] {
        machine.ok(&["lock", "--edition", edition]);
        let lock = fs::read_to_string(machine.project().join("kernels.lock")).unwrap();
        assert_eq!(lock.contains("git_lfs_concat"), edition == "0.16", "{lock}");
        assert!(!lock.contains("aarch64"), "{lock}");
        let other = Machine::at(&hub.endpoint());
        fs::write(other.project().join("kernels.lock"), &lock).unwrap();
        assert_eq!(other.json(&["download"]).as_array().unwrap().len(), 2);
        if edition == "0.16" {
            let hash = lock.split("sha256-").nth(1).unwrap().split('"').next().unwrap();
            let third = Machine::at(&hub.endpoint());
            fs::write(third.project().join("kernels.lock"), lock.replace(hash, &"0".repeat(64))).unwrap();
            assert!(third.fails(1, &["download"]).contains("not as locked"));
        }
        // Without digests there is nothing to hold a bundle to.
        assert!(other.fails(1, &["export", "b.tar"]).contains("without the digests"));
    }
}

#[test]
fn kernels_that_need_each_other_are_not_locked() {
    let hub = start_hub(&[json!({"repo-id": "o/rmsnorm", "version": 1})]);
    let machine = Machine::at(&hub.endpoint());
    machine.declare("\"o/rmsnorm\" = 1");
    let error = machine.fails(1, &["lock"]);
    assert!(error.contains("o/rmsnorm@v1 -> o/helper@v1 -> o/rmsnorm@v1"), "{error}");
    assert!(!machine.project().join("kernels.lock").exists());
}

#[test]
fn a_bundle_carries_kernels_of_the_hub_into_the_shared_layout() {
    let hub = start_hub(&[]);
    let machine = Machine::at(&hub.endpoint());
    machine.declare("\"o/rmsnorm\" = 1");
    machine.ok(&["lock"]);
    assert!(machine.fails(1, &["export", "b.tar"]).contains("not in the cache"));
    machine.ok(&["download", "--all-variants"]);
    let exported = machine.json(&["export", "b.tar.zst", "--all-variants"]);
    assert_eq!(exported["builds"].as_array().unwrap().len(), 3);
    let file = text(&machine.project().join("b.tar.zst"));

    let island = Machine::new();
    let imported = island.json(&["import", &file, "--sha256", exported["sha256"].as_str().unwrap()]);
    assert_eq!((imported["builds"].as_array().unwrap().len(), &imported["present"]), (3, &0.into()));
    let commit = commit("o/rmsnorm", 1);
    let place = island.home().join(format!("hub/kernels--o--rmsnorm/snapshots/{commit}/build/{VARIANT}"));
    assert!(place.join("librmsnorm.so").is_file());
    assert_eq!(fs::read_to_string(island.home().join("hub/kernels--o--rmsnorm/refs/v1")).unwrap(), commit);
    // Offline, by the lock and by the version; and all of it is what the commit's tree says.
    for name in ["kernels.lock", "kernelhub.lock"] {
        fs::copy(machine.project().join(name), island.project().join(name)).unwrap();
    }
    let rows = island.json(&["download", "--all-variants", "--offline"]);
    assert!(rows.as_array().unwrap().iter().all(|row| row["from_cache"] == true), "{rows}");
    let checked = island.json(&["cache", "verify"]);
    assert_eq!((&checked["clean"], &checked["verified"]), (&true.into(), &3.into()));
    assert_eq!(island.json(&["import", &file])["present"], 3);
    assert_eq!(island.json(&["info", "o/rmsnorm@v1", "--offline"])["commit"], commit.as_str());
    let left: Vec<_> = fs::read_dir(island.home().join("kernelhub/tmp")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_bundle_of_which_one_build_cannot_be_placed_leaves_none() {
    let hub = start_hub(&[]);
    let machine = Machine::at(&hub.endpoint());
    machine.declare("\"o/rmsnorm\" = 1");
    machine.ok(&["lock"]);
    machine.ok(&["download"]);
    machine.ok(&["export", "b.tar"]);
    let file = text(&machine.project().join("b.tar"));
    let island = Machine::new();
    let in_the_way = island.home().join("hub/kernels--o--rmsnorm");
    fs::create_dir_all(in_the_way.parent().unwrap()).unwrap();
    fs::write(&in_the_way, "not a folder").unwrap();
    assert!(island.fails(1, &["import", &file]).contains("kernels--o--rmsnorm"));
    let helper = island.home().join(format!("hub/kernels--o--helper/snapshots/{}/build", commit("o/helper", 1)));
    assert_eq!(fs::read_dir(helper).map_or(0, Iterator::count), 0, "what was placed before is taken out again");
    fs::remove_file(in_the_way).unwrap();
    assert_eq!(island.json(&["import", &file])["builds"].as_array().unwrap().len(), 2);

    // A listing that is not the locked one would make another tree's anchor.
    let good = fs::read(&file).unwrap();
    let mut list = entries(&good);
    let listing = list
        .iter_mut()
        .find(|(name, _)| name.contains(".json") && name.contains("/build/tvm") && !name.ends_with("metadata.json"))
        .unwrap();
    listing.1 = String::from_utf8(listing.1.clone()).unwrap().replace("layers.toml", "layerz.toml").into_bytes();
    let other = Machine::new();
    fs::write(other.project().join("b.tar"), tar_of(&list)).unwrap();
    assert!(other.fails(1, &["import", "b.tar"]).contains("not the listing that is locked"));
}

#[test]
fn versions_and_info_show_what_there_is_and_what_fits() {
    let hub = start_hub(&[]);
    let machine = Machine::at(&hub.endpoint());
    let versions = machine.json(&["versions", "o/rmsnorm"]);
    let rows = versions["versions"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row["version"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(rows[0]["commit"], commit("o/rmsnorm", 1).as_str());
    assert_eq!((&rows[0]["fits"], rows[0]["variants"].as_array().unwrap().len()), (&Value::from(VARIANT), 2));
    assert!(!hub.paths().iter().any(|path| path.contains("/resolve/")), "a listing reads no file");
    let shown = machine.ok(&["versions", "o/rmsnorm"]);
    assert!(shown.contains("v2 at ") && shown.contains(&format!("{VARIANT} fits this machine")), "{shown}");
    let info = machine.json(&["info", "o/rmsnorm@v1"]);
    assert_eq!((&info["license"], &info["metadata"]["name"]), (&"Apache-2.0".into(), &"rmsnorm".into()));
    assert_eq!(info["metadata"]["kernel_depends"][0]["repo-id"], "o/helper");
    assert!(machine.ok(&["info", "o/rmsnorm"]).starts_with("o/rmsnorm@v2"), "the newest version is described");
    assert!(!hub.paths().iter().any(|path| path.contains("librmsnorm.so")));
    assert!(machine.fails(1, &["versions", "o/nothing"]).contains("o/nothing"));
    assert!(machine.fails(1, &["info", "o/rmsnorm@v9"]).contains("v9"));
    machine.fails(2, &["versions", "nothing"]);
}

#[test]
fn f58_the_cache_is_listed_checked_and_cleaned() {
    let hub = start_hub(&[]);
    let machine = Machine::at(&hub.endpoint());
    let published = Published::new();
    machine.ok(&["fetch", "--manifest", &text(&published.manifest_path())]);
    machine.declare("\"o/rmsnorm\" = 1");
    machine.ok(&["lock"]);
    machine.ok(&["download"]);
    fs::create_dir_all(machine.home().join("hub/models--o--other/blobs")).unwrap();
    let listed = machine.json(&["cache", "ls"]);
    let states: Vec<_> = listed["entries"].as_array().unwrap().iter().map(|e| e["state"].as_str().unwrap()).collect();
    // The other machine's build, of which the lock read the metadata alone, is partial.
    assert_eq!(
        ["complete", "partial", "foreign"].map(|state| states.iter().filter(|s| **s == state).count()),
        [3, 1, 1]
    );
    let sum: u64 = listed["entries"].as_array().unwrap().iter().map(|entry| entry["bytes"].as_u64().unwrap()).sum();
    assert_eq!(listed["bytes"], sum);
    assert!(machine.ok(&["cache", "ls"]).contains("KiB ("));
    let place = machine.json(&["cache", "where"]);
    assert_eq!(
        (&place["hub"], &place["archives"]),
        (&text(&machine.home().join("hub")).into(), &text(&machine.home().join("kernelhub")).into())
    );

    assert_eq!(machine.json(&["cache", "verify"])["verified"], 3);
    let would = machine.json(&["cache", "prune", "--dry-run"]);
    let done = machine.json(&["cache", "prune"]);
    assert_eq!((&would["bytes"], &would["removed"], &done["removed"]), (&done["bytes"], &false.into(), &true.into()));
    assert!(!machine.json(&["cache", "ls"]).to_string().contains("partial"));
    assert_eq!(machine.json(&["cache", "verify"])["verified"], 3);

    let library = PathBuf::from(machine.json(&["download"])[0]["path"].as_str().unwrap()).join("librmsnorm.so");
    let blob = library.canonicalize().unwrap();
    let mut bytes = fs::read(&blob).unwrap();
    bytes[9] ^= 1;
    fs::write(&blob, bytes).unwrap();
    let output = machine.run(&["cache", "verify", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["clean"], report["damaged"].as_u64().unwrap() > 0), (&false.into(), true));
    assert!(String::from_utf8(output.stderr).unwrap().contains("not as published"));
    // While online the next download repairs it.
    assert!(machine.json(&["download"]).as_array().unwrap().iter().any(|row| row["repaired"] == true));
    assert_eq!(machine.json(&["cache", "verify"])["clean"], true);
}

#[test]
fn the_environment_is_shown_without_its_secrets() {
    let machine = Machine::new();
    let mut command = machine.command(&["env", "--json"]);
    command.env("ZE_AFFINITY_MASK", "0,2").env("CUDA_VISIBLE_DEVICES", "").env("HSA_OVERRIDE_GFX_VERSION_1", "10.3.0");
    command.env("HF_TOKEN", "hf_hunter2").env("HTTPS_PROXY", "http://me:hunter2@proxy:1").env("NO_COLOR", "1");
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && !text.contains("hunter2"), "{text}");
    let rows: Vec<Value> = serde_json::from_str(&text).unwrap();
    let effective = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap()["effective"].clone();
    assert_eq!(effective("HF_TOKEN"), "(set)");
    assert_eq!(effective("HTTPS_PROXY"), "(set)");
    assert_eq!(effective("ZE_AFFINITY_MASK"), "0,2");
    assert_eq!(effective("CUDA_VISIBLE_DEVICES"), "(empty)");
    assert_eq!(effective("HSA_OVERRIDE_GFX_VERSION_1"), "10.3.0");
    assert_eq!(effective("KERNELHUB_TVM_FFI"), "searched for");
    assert_eq!(effective("HF_ENDPOINT"), "http://127.0.0.1:9");
    assert_eq!(effective("HF_HUB_CACHE"), machine.home().join("hub").to_str().unwrap());
    for name in ["HF_HUB_OFFLINE", "KERNELS_CACHE", "LOCAL_KERNELS", "USE_HUB_KERNELS", "KERNELHUB_LOG", "NO_COLOR"] {
        assert!(effective(name).is_string(), "{name}");
    }
    assert!(machine.ok(&["env"]).contains("HF_TOKEN"));
    let mut broken = machine.command(&["env"]);
    assert_eq!(broken.env("HF_HUB_DOWNLOAD_TIMEOUT", "soon").status().unwrap().code(), Some(1));
}

#[test]
fn builds_are_fetched_by_name_and_by_device() {
    let published = Published::new();
    let manifest = text(&published.manifest_path());
    let machine = Machine::new();
    for arguments in [["--variant", VARIANT], ["--backend", "cpu"]] {
        assert_eq!(
            machine.json(&[&["fetch", "--manifest", &manifest], &arguments[..]].concat())[0]["variant"],
            VARIANT
        );
    }
    for arguments in [["--variant", "wgsl-universal"], ["--backend", "cuda"]] {
        let error = machine.fails(1, &[&["fetch", "--manifest", &manifest], &arguments[..]].concat());
        assert!(error.contains("no such build"), "{error}");
    }
    machine.fails(2, &["fetch", "--manifest", &manifest, "--variant", "nonsense"]);
    machine.fails(2, &["fetch", "--manifest", &manifest, "--backend", "gpu"]);
    machine.fails(2, &["fetch", "--manifest", &manifest, "--backend", "cpu", "--all-variants"]);
}

#[test]
fn options_that_would_have_no_effect_beside_no_kernels_are_refused() {
    let machine = Machine::new();
    for option in ["--config", "--manifest"] {
        let output =
            machine.run(&["generate", "--model", "m", "--prompt", "p", "--no-kernels", option, "kernels.toml"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("--no-kernels") && error.contains("cannot be used with"), "{error}");
    }
}
