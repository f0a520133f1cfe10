//! `trust`, `sign` and `verify-signature`, as a user's shell runs them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::native::{KIT, VARIANT, norm_layer};

/// A user with a home, a cache, and a project in the current folder.
struct User {
    home: TempDir,
}

impl User {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("project")).unwrap();
        Self { home }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn policy(&self) -> PathBuf {
        self.at("config/kernelhub/policy.toml")
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kernelhub"));
        for name in ["KERNELHUB_POLICY", "KERNELHUB_LOG", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "LOCAL_KERNELS"] {
            command.env_remove(name);
        }
        command.env("HF_ENDPOINT", "http://127.0.0.1:1").env("XDG_CONFIG_HOME", self.at("config"));
        command.env("KERNELS_CACHE", self.at("cache")).env("XDG_RUNTIME_DIR", self.home.path());
        command.current_dir(self.at("project")).args(arguments).output().unwrap()
    }

    #[track_caller]
    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(!text.contains("panicked"), "{text}");
        text
    }

    /// Packs a kernel of `acme`, signed or not, and returns its manifest.
    fn pack(&self, key: Option<&Path>) -> String {
        let (files, out) = (self.at("files"), self.at(if key.is_some() { "signed" } else { "unsigned" }));
        std::fs::create_dir_all(&files).unwrap();
        std::fs::write(files.join("libkit.so"), &*KIT).unwrap();
        let layers = format!("schema = 1\n\n{}", norm_layer("RMSNorm", "count_rms_norm"));
        std::fs::write(files.join("layers.toml"), layers).unwrap();
        let build = format!("{VARIANT}={}", files.display());
        let mut line = vec!["pack", "--repo", "acme/norm", "--version", "1", "--license", "MIT"];
        line.extend(["--out", out.to_str().unwrap(), &build]);
        if let Some(key) = key {
            line.extend(["--key", key.to_str().unwrap()]);
        }
        self.ok(&line);
        out.join("norm.toml").to_str().unwrap().to_owned()
    }
}

#[test]
fn an_unsigned_archive_is_refused_until_the_user_says_that_it_is_trusted() {
    let user = User::new();
    let manifest = user.pack(None);
    let get = ["get", "acme/norm@v1", "--json", "--manifest", &manifest];
    let refusal = user.refused(&get);
    let policy = user.policy();
    for part in [
        "\"acme\" is not trusted",
        policy.to_str().unwrap(),
        "hint: ",
        "`kernelhub trust repo acme/norm --from archive`",
    ] {
        assert!(refusal.contains(part), "{part} in {refusal}");
    }
    assert!(!user.at("cache/kernelhub/archives").exists(), "something was fetched");
    let info: Value =
        serde_json::from_str(&user.ok(&["info", "acme/norm@v1", "--json", "--manifest", &manifest])).unwrap();
    assert_eq!((&info["trust"]["admitted"], &info["trust"]["publisher"]), (&false.into(), &"acme".into()), "{info:#}");

    // Trust on the Hub is none in an archive; the words of the hint are what helps.
    user.ok(&["trust", "publisher", "acme"]);
    user.refused(&get);
    let added = user.ok(&["trust", "repo", "acme/norm", "--from", "archive"]);
    assert!(
        added.starts_with("added to ") && added.contains("[[repo]]\nname = \"acme/norm\"\ntrust = true"),
        "{added}"
    );
    let kernel: Value = serde_json::from_str(&user.ok(&get)).unwrap();
    assert_eq!(kernel["trust"]["signature"]["is_right"], false);
    assert!(kernel["trust"]["basis"].as_str().unwrap().contains(policy.to_str().unwrap()), "{kernel:#}");
    let again = user.ok(&["trust", "repo", "acme/norm", "--from", "archive"]);
    assert!(again.starts_with("stands already in "), "{again}");
    let shown = user.ok(&["trust", "show"]);
    assert!(shown.contains("repo acme/norm: trusted from archive") && shown.contains("signature  warn"), "{shown}");

    // A refusal outweighs it, the project's own too; and a project cannot trust anybody.
    let project = user.at("project/kernelhub-policy.toml");
    std::fs::write(&project, "schema = 1\n[[publisher]]\nname = \"acme\"\ntrust = false\n").unwrap();
    assert!(user.refused(&get).contains("is refused by"));
    std::fs::write(&project, "schema = 1\nsignature = \"require\"\n").unwrap();
    assert!(user.refused(&get).contains("needs a signature"));
    std::fs::write(&project, "schema = 1\n[[publisher]]\nname = \"acme\"\ntrust = true\n").unwrap();
    assert!(user.refused(&get).contains("a repository could then trust itself"));
    std::fs::remove_file(&project).unwrap();
    user.ok(&["trust", "refuse", "acme"]);
    assert!(user.refused(&get).contains("publisher acme has trust = false"));
    // A policy that cannot be read admits nothing.
    std::fs::write(&policy, "schema = 1\nsignatur = \"off\"\n").unwrap();
    assert!(user.refused(&get).contains("did you mean `signature`?"));
}

#[test]
fn a_key_signs_builds_and_is_all_that_trusts_them() {
    let user = User::new();
    let (key, public) = (user.at("keys/acme.key"), user.at("keys/acme.pub"));
    let made = user.ok(&["sign", "--new", "--key", key.to_str().unwrap()]);
    let line = std::fs::read_to_string(&public).unwrap().lines().last().unwrap().to_owned();
    assert!(made.contains(&line), "{made}");
    let error = user.refused(&["sign", "--new", "--key", key.to_str().unwrap()]);
    assert!(error.contains("hint: it is not replaced"), "{error}");
    // Nor is a public key whose secret half is elsewhere, and no secret key is made that would be overwritten by its
    // own.
    let beside = user.at("elsewhere.pub");
    std::fs::write(&beside, "the key of another").unwrap();
    let error = user.refused(&["sign", "--new", "--key", user.at("elsewhere.key").to_str().unwrap()]);
    assert!(error.contains("elsewhere.pub"), "{error}");
    assert_eq!(std::fs::read_to_string(&beside).unwrap(), "the key of another");
    assert!(!user.at("elsewhere.key").exists());
    let error = user.refused(&["sign", "--new", "--key", user.at("both.pub").to_str().unwrap()]);
    assert!(error.contains("its public key would stand in the same file"), "{error}");
    assert!(!user.at("both.pub").exists());
    let manifest = user.pack(Some(&key));
    let get = ["get", "acme/norm@v1", "--json", "--manifest", &manifest];
    user.refused(&get);
    user.ok(&["trust", "key", "acme", public.to_str().unwrap()]);
    let kernel: Value = serde_json::from_str(&user.ok(&get)).unwrap();
    assert_eq!(kernel["trust"]["signature"]["is_right"], true, "{kernel:#}");
    assert_eq!(kernel["trust"]["signature"]["mode"], "require");
    let human = user.ok(&["get", "acme/norm@v1", "--offline"]);
    assert!(human.contains("\ntrusted   publisher acme: by its signature alone\nsigned    by the key "), "{human}");

    // Another's key; a damaged signature, which a repair brings back while online; and a changed metadata.
    let build = PathBuf::from(kernel["path"].as_str().unwrap());
    let build_text = build.to_str().unwrap();
    let verify = ["verify-signature", build_text, "--key", &line];
    assert!(user.ok(&verify).starts_with("signed by the key "));
    let other = user.at("keys/other.key");
    user.ok(&["sign", "--new", "--key", other.to_str().unwrap()]);
    let stranger =
        ["verify-signature", build_text, "--key", user.at("keys/other.pub").to_str().unwrap()].map(str::to_owned);
    let stranger: Vec<&str> = stranger.iter().map(String::as_str).collect();
    assert!(user.refused(&stranger).contains("by a key that the policy does not name"));
    crate::support::tree::overwrite(&build.join("metadata.json.minisig"), b"nothing");
    assert!(user.refused(&["get", "acme/norm@v1", "--offline"]).contains("not a minisign signature"));
    let repaired: Value = serde_json::from_str(&user.ok(&get)).unwrap();
    assert_eq!((&repaired["repaired"], &repaired["trust"]["signature"]["is_right"]), (&true.into(), &true.into()));
    crate::support::tree::overwrite(&build.join("metadata.json"), b"{}");
    assert!(user.refused(&verify).contains("does not hold for the key"));

    // A folder that another tool built is signed where it stands, under the name of its variant.
    let folder = user.at("signed-here").join(VARIANT);
    std::fs::create_dir_all(&folder).unwrap();
    user.ok(&get);
    std::fs::copy(build.join("metadata.json"), folder.join("metadata.json")).unwrap();
    let sign = ["sign", folder.to_str().unwrap(), "--key", key.to_str().unwrap(), "--repo", "acme/norm"];
    user.ok(&sign);
    user.ok(&["verify-signature", folder.to_str().unwrap(), "--key", &line]);
    let wrong = ["sign", folder.to_str().unwrap(), "--key", key.to_str().unwrap(), "--repo", "acme/other"];
    assert!(user.refused(&wrong).contains("is not of acme/other"));
}

#[test]
fn a_bundle_passes_the_gate_where_it_arrives() {
    let sender = User::new();
    let (key, public) = (sender.at("keys/acme.key"), sender.at("keys/acme.pub"));
    sender.ok(&["sign", "--new", "--key", key.to_str().unwrap()]);
    let declared = "[package]\nname = \"p\"\n[package.metadata.kernels.dependencies]\n\"acme/norm\" = 1\n";
    std::fs::write(sender.at("project/Cargo.toml"), declared).unwrap();
    sender.ok(&["trust", "key", "acme", public.to_str().unwrap()]);
    sender.ok(&["trust", "repo", "acme/norm", "--from", "archive"]);
    for (name, manifest) in [("signed", sender.pack(Some(&key))), ("unsigned", sender.pack(None))] {
        sender.ok(&["lock", "--manifest", &manifest]);
        sender.ok(&["download"]);
        let bundle = sender.at(&format!("{name}.tar.zst"));
        sender.ok(&["export", bundle.to_str().unwrap()]);
        let receiver = User::new();
        let import = ["import", bundle.to_str().unwrap()];
        assert!(receiver.refused(&import).contains("\"acme\" is not trusted"));
        receiver.ok(&["trust", "key", "acme", public.to_str().unwrap()]);
        if name == "unsigned" {
            assert!(receiver.refused(&import).contains("not signed"));
            assert!(!receiver.at("cache/kernelhub/archives").exists());
            continue;
        }
        receiver.ok(&import);
        receiver.ok(&["get", "acme/norm@v1", "--offline"]);
    }
    // The sender who trusts nobody any more exports nothing.
    std::fs::remove_file(sender.policy()).unwrap();
    let refused = sender.refused(&["export", sender.at("again.tar").to_str().unwrap()]);
    assert!(refused.contains("\"acme\" is not trusted"), "{refused}");
}
