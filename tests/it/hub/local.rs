//! Kernels in folders of this machine, which nothing anchors.

use std::fs;

use kernelhub::bind::Code;
use kernelhub::fetch::Anchor;
use kernelhub::hub::{Hub, HubError};
use kernelhub::variant::DeviceKey::Cpu;
use kernelhub::verify::VerifyError;
use serde_json::Value;

use crate::support::native::{NativePack, VARIANT, norm_layer};
use crate::support::trust;

#[test]
fn a_folder_without_a_digest_loads_and_is_said_to_have_none() {
    let pack = NativePack::kit("undigested", &norm_layer("RMSNorm", "count_rms_norm"));
    let kernel = pack.get().unwrap();
    let (checkout, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = checkout.path().join(VARIANT);
    fs::create_dir(&folder).unwrap();
    for entry in fs::read_dir(kernel.snapshot().root()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    let metadata = folder.join("metadata.json");
    let mut value: Value = serde_json::from_slice(&fs::read(&metadata).unwrap()).unwrap();
    value.as_object_mut().unwrap().remove("digest").unwrap();
    fs::write(&metadata, value.to_string()).unwrap();

    let repo = pack.manifest().kernel.repo.clone();
    let hub = || {
        Hub::builder()
            .policy(trust::policy())
            .cache(cache.path())
            .offline(true)
            .local(repo.clone(), checkout.path())
            .build()
            .unwrap()
    };
    let local = hub().get(&repo, 1, Cpu).unwrap();
    assert_eq!((local.snapshot().anchor(), local.snapshot().has_digest()), (&Anchor::Local, false));
    assert_eq!(local.snapshot().layers().layers.len(), 1);
    assert!(matches!(local.code(), Code::Native(_)), "{:?}", local.code());

    // What is no regular file is refused there, too.
    fs::remove_file(folder.join("libkit.so")).unwrap();
    std::os::unix::fs::symlink(kernel.snapshot().root().join("libkit.so"), folder.join("libkit.so")).unwrap();
    let error = hub().get(&repo, 1, Cpu).unwrap_err();
    assert!(matches!(error, HubError::Verify(VerifyError::Violations { .. })), "{error}");
}
