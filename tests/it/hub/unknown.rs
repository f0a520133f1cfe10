//! Kernels that are not to be had, and what is said about them.

use std::error::Error as _;

use kernelhub::hint::Hint as _;
use kernelhub::hub::{Hub, HubError};
use kernelhub::resolve::ResolveError;
use kernelhub::swap::KernelRef;
use kernelhub::variant::DeviceKey::{Cpu, Cuda};

use crate::support::native::{KIT, NativePack, norm_layer};
use crate::support::trust;

fn empty() -> (tempfile::TempDir, Hub) {
    let cache = tempfile::tempdir().unwrap();
    let hub = Hub::builder().policy(trust::policy()).cache(cache.path()).offline(true).build().unwrap();
    (cache, hub)
}

/// The kernels of this project, by name.
const OWN: &str = "activation, cross-entropy, embedding, flash-attn2, layer-norm, linear, rmsnorm, rotary, softmax";

#[test]
fn an_unknown_kernel_says_how_to_make_it_known() {
    let (_cache, hub) = empty();
    // Our own kernels are never asked for at the Hub; others are, which takes being online.
    let error = hub.get(&"kernelhub/rmsnorm".parse().unwrap(), 1, Cpu).unwrap_err();
    assert!(matches!(&error, HubError::Unknown { known, .. } if known.is_empty()), "{error:?}");
    assert_eq!(error.to_string(), "kernelhub/rmsnorm@v1 is not known here; no version of it is");
    assert!(error.hint().unwrap().contains("run `cargo xtask fetch-kernels`"));
    let slip = hub.get(&"kernelhub/rmsnrom".parse().unwrap(), 1, Cpu).unwrap_err();
    assert!(slip.hint().unwrap().starts_with("did you mean kernelhub/rmsnorm?"), "{:?}", slip.hint());
    let stranger = hub.get(&"kernelhub/conv2d".parse().unwrap(), 1, Cpu).unwrap_err();
    assert!(stranger.hint().unwrap().ends_with(OWN), "{:?}", stranger.hint());
    let error = hub.get(&"somebody/kernel".parse().unwrap(), 1, Cpu).unwrap_err();
    assert!(matches!(&error, HubError::Fetch(kernelhub::fetch::FetchError::Offline { .. })), "{error:?}");
    assert!(error.to_string().contains("somebody/kernel@v1"), "{error}");
    assert!(error.hint().unwrap().contains("online"));
}

#[test]
fn an_unknown_version_lists_the_known_ones() {
    let layers = norm_layer("RMSNorm", "count_rms_norm");
    let packs = [10, 3, 7].map(|version| NativePack::version("many", version, &layers, &[("libkit.so", &KIT)]));
    let (cache, hub) = empty();
    drop(hub);
    let repo = packs[0].manifest().kernel.repo.clone();
    let with = |packs: &[&NativePack]| {
        let builder = Hub::builder().policy(trust::policy()).cache(cache.path()).offline(true);
        let builder =
            packs.iter().fold(builder, |builder, pack| builder.manifest(pack.manifest().clone(), pack.location()));
        builder.build().unwrap()
    };
    // One is in the cache, two were given.
    with(&[&packs[0]]).get(&repo, 10, Cpu).unwrap();
    let hub = with(&[&packs[1], &packs[2]]);
    let error = hub.get(&repo, 4, Cpu).unwrap_err();
    assert!(
        matches!(&error, HubError::Unknown { revision, known, .. } if *revision == 4.into() && *known == [3, 7, 10]),
        "{error:?}"
    );
    assert_eq!(error.to_string(), "kernelhub-tests/many@v4 is not known here; known: v3, v7, v10");
    assert_eq!(error.hint().as_deref(), Some("ask for one of the known versions"));

    // Without a version: the newest that was given, else none is chosen for the user.
    assert_eq!(hub.default_version(&repo).unwrap(), 7);
    let reference: KernelRef = "kernelhub-tests/many".parse().unwrap();
    let error = with(&[]).layer(&reference, "RMSNorm", Cpu).unwrap_err();
    assert!(matches!(&error, HubError::NoVersion { known, .. } if *known == [10]), "{error:?}");
    assert_eq!(error.hint().as_deref(), Some("write kernelhub-tests/many@v10"));
}

#[test]
fn a_kernel_of_the_hub_is_asked_for_there() {
    let (_cache, hub) = empty();
    let shipped: Vec<_> = kernelhub::manifest::hub_manifests().collect();
    assert!(!shipped.is_empty());
    for manifest in shipped {
        let (repo, version) = (&manifest.kernel.repo, manifest.kernel.version);
        let error = hub.get(repo, version, Cpu).unwrap_err();
        assert!(matches!(&error, HubError::Fetch(_)), "{error:?}");
        assert!(error.to_string().contains(&repo.to_string()), "{error}");
        assert!(error.hint().unwrap().contains("online"), "{:?}", error.hint());
        assert_eq!(hub.default_version(repo).unwrap(), version);
    }
}

#[test]
fn a_kernel_without_a_build_for_the_device_shows_the_trace() {
    let pack = NativePack::kit("trace", &norm_layer("RMSNorm", "count_rms_norm"));
    let error = pack.hub().get(&pack.manifest().kernel.repo, 1, Cuda).unwrap_err();
    let HubError::Resolve { source: ResolveError::NothingFits { resolution, .. }, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(resolution.decisions.len(), 1);
    assert_eq!(error.to_string(), "no build of kernelhub-tests/trace@v1 fits");
    let cause = error.source().unwrap().to_string();
    assert!(cause.contains("tvm-ffi01-cpu-x86_64-linux") && cause.contains("cuda"), "{cause}");
    assert!(
        error
            .hint()
            .unwrap()
            .ends_with("`kernelhub versions kernelhub-tests/trace` shows whether another version fits")
    );
}
