//! Hashes that are believed without hashing again, where a user asks for that.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use kernelhub::digest::ViolationKind;
use kernelhub::hub::HubError;
use kernelhub::variant::DeviceKey;
use kernelhub::verify::VerifyError;

use crate::support::elf::Elf;
use crate::support::native::{NativePack, norm_layer};

/// A library above the size from which hashes are recorded. It has no code: verifying is all that is done with it.
fn pack(name: &str) -> NativePack {
    let library = Elf::default().build(&vec![7; 2 << 20]);
    let pack = NativePack::new(name, &norm_layer("RMSNorm", "rms_norm"), &[("libtrusted.so", &library)]);
    let hub = pack.hub();
    hub.prefetch(&pack.manifest().kernel.repo, 1, kernelhub::hub::Selection::AllVariants).unwrap();
    // A record is made of files that have not changed for a while.
    let library = pack.unpacked().join("libtrusted.so");
    let old = SystemTime::now() - Duration::from_mins(1);
    fs::File::options()
        .write(true)
        .open(&library)
        .unwrap_or_else(|_| fs::File::open(&library).unwrap())
        .set_modified(old)
        .unwrap();
    std::thread::sleep(Duration::from_millis(2100));
    pack
}

fn verify(pack: &NativePack, trust: bool) -> Result<(), Vec<ViolationKind>> {
    let hub = pack.hub_with(|builder| builder.trust_recorded_hashes(trust));
    match hub.prefetch(&pack.manifest().kernel.repo, 1, kernelhub::hub::Selection::AllVariants) {
        Ok(_) => Ok(()),
        Err(HubError::Verify(VerifyError::Violations { violations, .. })) => {
            Err(violations.iter().map(|violation| violation.kind).collect())
        }
        Err(other) => panic!("{other:?}"),
    }
}

/// Changes a byte and gives the file back the time of its content; the time of its entry nobody can give back.
fn change_in_place(library: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let modified = fs::metadata(library).unwrap().modified().unwrap();
    fs::set_permissions(library, fs::Permissions::from_mode(0o644)).unwrap();
    let mut bytes = fs::read(library).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    let mut file = fs::File::options().write(true).open(library).unwrap();
    std::io::Write::write_all(&mut file, &bytes).unwrap();
    file.set_modified(modified).unwrap();
}

#[test]
fn a_record_is_used_and_a_touched_or_replaced_file_is_hashed_again() {
    let trusted = pack("trusted");
    let records = trusted.cache().join("verified");
    verify(&trusted, false).unwrap();
    assert!(!records.exists(), "off by default: nothing is recorded");
    verify(&trusted, true).unwrap();
    let record = fs::read_dir(&records).unwrap().next().unwrap().unwrap().path();
    verify(&trusted, true).unwrap();

    // That it is used, a record of another digest shows: the file is taken for what it says.
    let text = fs::read_to_string(&record).unwrap();
    let at = text.rfind("\"sha256\":\"").unwrap() + 10;
    let other = if &text[at..=at] == "0" { "1" } else { "0" };
    let forged = format!("{}{other}{}", &text[..at], &text[at + 1..]);
    fs::write(&record, &forged).unwrap();
    assert_eq!(verify(&trusted, true), Err(vec![ViolationKind::DigestMismatch]));
    verify(&trusted, false).unwrap();
    // Touched, nothing of it is believed any more.
    let library = trusted.unpacked().join("libtrusted.so");
    fs::File::open(&library).unwrap().set_modified(SystemTime::now() - Duration::from_secs(30)).unwrap();
    verify(&trusted, true).unwrap();

    // A changed byte, with the old time of its content; and another file of the same size and time in its place.
    fs::write(&record, &text).unwrap();
    change_in_place(&library);
    assert_eq!(verify(&trusted, true), Err(vec![ViolationKind::DigestMismatch]));
    let replaced = pack("trusted-replaced");
    verify(&replaced, true).unwrap();
    let library = replaced.unpacked().join("libtrusted.so");
    let modified = fs::metadata(&library).unwrap().modified().unwrap();
    let mut bytes = fs::read(&library).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    let other = library.with_extension("other");
    fs::write(&other, &bytes).unwrap();
    fs::File::open(&other).unwrap().set_modified(modified).unwrap();
    fs::rename(&other, &library).unwrap();
    assert_eq!(verify(&replaced, true), Err(vec![ViolationKind::DigestMismatch]));
}

#[test]
fn a_record_does_not_change_what_is_loaded() {
    // With a record or without, what is loaded is a sealed copy: the kernel that is loaded twice is one.
    let pack = NativePack::kit("trusted-kit", &norm_layer("RMSNorm", "count_rms_norm"));
    let hub = pack.hub_with(|builder| builder.trust_recorded_hashes(true));
    let kernel = hub.get(&pack.manifest().kernel.repo, 1, DeviceKey::Cpu).unwrap();
    assert!(kernel.snapshot().library().unwrap().load_path().starts_with("/proc/self/fd"));
}
