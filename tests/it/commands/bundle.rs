//! `export` and `import`.

use std::fs;
use std::path::PathBuf;

use super::{Machine, commit, locked, start_hub, text};
use crate::support::packs::{Published, VARIANT};

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
