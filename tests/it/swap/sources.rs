//! Where configured kernels come from: lists, folders, places in the model, and what stands in a kernel's place.

use std::fs;
use std::path::{Path, PathBuf};

use kernelhub::bind::{Contract, Rounding};
use kernelhub::dtype::DType;
use kernelhub::hint::Hint as _;
use kernelhub::hub::Hub;
use kernelhub::swap::{
    KernelConfig, KernelRef, Mode, Outcome, PreviewOutcome, Reason, SlotSpec, Slots, SwapError, Target,
};
use kernelhub::system::SystemInfo;
use kernelhub::variant::{Arch, DeviceKey, Os};

use crate::support::native::{NativePack, layer, norm_layer};
use crate::support::trust;

/// Norms of these widths, at `layers.<index>.norm`.
fn slots(widths: &[usize]) -> Slots {
    let slots = Slots::new(DeviceKey::Cpu);
    for (index, width) in widths.iter().enumerate() {
        let (path, layer) = (format!("layers.{index}.norm"), "RMSNorm".to_owned());
        let contract = Contract::RmsNorm;
        let spec = SlotSpec {
            path,
            layer,
            contract,
            dtype: DType::F32,
            last_dim: *width,
            trainable: false,
            options: Vec::new(),
            rounding: Rounding::F32WeightF32,
        };
        drop(slots.slot(spec));
    }
    slots
}

fn config(text: &str) -> KernelConfig {
    KernelConfig::from_toml(&format!("inherit = false\n{text}"), "kernels.toml").unwrap()
}

fn took(outcome: &Outcome) -> String {
    outcome.kernel().map_or_else(|| "-".to_owned(), ToString::to_string)
}

#[test]
fn the_next_of_a_list_is_tried_where_the_one_before_cannot_be_had_or_does_not_fit() {
    let wide = norm_layer("Wide", "count_rms_norm") + "limits = { last_dim_multiple_of = 16 }\n";
    let silu = layer("Silu", "gated_activation.silu", "count_silu_and_mul", &["out", "x"]);
    let pack = NativePack::kit("lists", &(wide + &norm_layer("RMSNorm", "count_rms_norm") + &silu));
    let (hub, slots) = (pack.hub(), slots(&[8, 16]));
    let own = "kernelhub-tests/lists@v1";
    let list = format!("RMSNorm = ['kernelhub-tests/absent@v1', '{own}:Silu', '{own}:Wide', '{own}']");
    let report = slots.use_kernels(&hub, &config(&list)).unwrap();
    assert_eq!(
        report.layers.iter().map(|line| took(&line.outcome)).collect::<Vec<_>>(),
        [format!("{own}:RMSNorm"), format!("{own}:Wide"),]
    );
    let tried: Vec<_> =
        report.layers[0].tried.iter().map(|tried| (tried.kernel.as_str(), tried.reason.as_str())).collect();
    assert_eq!(tried.len(), 3);
    assert_eq!(tried[0].0, "kernelhub-tests/absent@v1");
    assert!(
        tried[0].1.contains("cannot be had: offline, and kernelhub-tests/absent@v1 is not in the cache"),
        "{tried:?}"
    );
    assert!(tried[1].1.contains("fulfils the contract gated_activation.silu; the layer needs rms_norm"), "{tried:?}");
    assert!(tried[2].1.contains("a width of 8 elements is no multiple of 16"), "{tried:?}");
    assert_eq!(report.layers[1].tried.len(), 2);
    assert!(report.to_string().contains("before it kernelhub-tests/absent@v1:"), "{report}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["layers"][0]["tried"][0]["kernel"], "kernelhub-tests/absent@v1");

    // None of them: an error, as for one.
    let error = slots
        .use_kernels(&hub, &config(&format!("RMSNorm = ['kernelhub-tests/absent@v1', '{own}:Silu']")))
        .unwrap_err();
    assert!(
        matches!(&error, SwapError::NoneOf { layer, failed } if layer == "RMSNorm" && failed.len() == 2),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(text.starts_with("RMSNorm: none of its kernels can be used: kernelhub-tests/absent@v1: "), "{text}");
    assert!(text.contains("fulfils the contract"), "{text}");
    assert!(error.hint().is_some());
    assert_eq!(slots.report(), report, "the plan that was there stays");
    // Had, and too wide for every layer: no error of its own, as for one.
    let narrow = self::slots(&[8]);
    let error = narrow
        .use_kernels(&hub, &config(&format!("RMSNorm = ['kernelhub-tests/absent@v1', '{own}:Wide']")))
        .unwrap_err();
    assert!(matches!(&error, SwapError::NothingSwapped { .. }), "{error:?}");
}

/// A checkout of the pack's build.
fn checkout(pack: &NativePack, place: &Path) -> PathBuf {
    let folder = place.join("checkout").join("build").join(crate::support::native::VARIANT);
    fs::create_dir_all(&folder).unwrap();
    for entry in fs::read_dir(pack.get().unwrap().snapshot().root()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    place.join("checkout")
}

#[test]
fn a_folder_is_a_kernel_and_is_verified_as_one() {
    let pack = NativePack::kit("in-a-folder", &norm_layer("RMSNorm", "count_rms_norm"));
    let place = tempfile::tempdir().unwrap();
    let folder = checkout(&pack, place.path());
    let hub = || {
        let builder = Hub::builder().cache(place.path().join("cache")).offline(true);
        builder.policy(trust::policy_with_folder(place.path())).build().unwrap()
    };
    let (shared, slots) = (hub(), slots(&[8]));
    let config = config(&format!("RMSNorm = '{}:RMSNorm'", folder.display()));
    // A configuration can lie beside weights that anybody published, so that a path in it is no word of the user's.
    let stranger = Hub::builder().cache(place.path().join("cache")).offline(true).policy(trust::policy());
    let error = slots.use_kernels(&stranger.build().unwrap(), &config).unwrap_err();
    assert!(error.hint().unwrap().contains(&format!("`kernelhub trust folder {}`", folder.display())), "{error:?}");
    let report = slots.use_kernels(&shared, &config).unwrap();
    assert_eq!(took(&report.layers[0].outcome), "local/in-a-folder@v1:RMSNorm");
    let kernel = shared.get_folder(&folder, DeviceKey::Cpu).unwrap();
    assert!(kernel.snapshot().root().starts_with(&folder), "{:?}", kernel.snapshot().root());
    assert_eq!(slots.use_kernels(&shared, &config).unwrap(), report);

    // A file that is not as its metadata says.
    let library = folder.join("build").join(crate::support::native::VARIANT).join("libkit.so");
    let mut bytes = fs::read(&library).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&library, bytes).unwrap();
    let error = slots.use_kernels(&hub(), &config).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("libkit.so"), "{cause}");
    fs::remove_dir_all(&folder).unwrap();
    let error = slots.use_kernels(&hub(), &config).unwrap_err();
    assert!(matches!(&error, SwapError::Kernel { kernel, .. } if kernel.starts_with('/')), "{error:?}");
    assert_eq!(slots.report(), report);
}

#[test]
fn a_folder_in_a_kernels_place_is_told_in_the_report() {
    let pack = NativePack::kit("replaced", &norm_layer("RMSNorm", "count_rms_norm"));
    let place = tempfile::tempdir().unwrap();
    let folder = checkout(&pack, place.path());
    let local = format!("kernelhub-tests/replaced={}", folder.display());
    let lookup = |asked: &str| match asked {
        "HOME" => Some(place.path().as_os_str().to_owned()),
        "LOCAL_KERNELS" => Some((&local).into()),
        _ => None,
    };
    let environment = kernelhub::fetch::Environment::read_with(&lookup).unwrap();
    let hub = Hub::builder().environment(environment).offline(true).policy(trust::policy()).build().unwrap();
    let report = slots(&[8]).use_kernels(&hub, &config("RMSNorm = 'kernelhub-tests/replaced@v9'")).unwrap();
    let note = format!("kernelhub-tests/replaced is taken from the local folder {}", folder.display());
    assert_eq!(report.notes, std::slice::from_ref(&note));
    assert!(report.to_string().contains(&format!("note: {note}\n")), "{report}");
    assert_eq!(report.swapped(), 1);
}

#[test]
fn an_entry_that_asks_for_trust_is_noted_and_gets_none() {
    let pack = NativePack::kit("trusting", &norm_layer("RMSNorm", "count_rms_norm"));
    let text = "RMSNorm = ['kernelhub-tests/trusting', { version = 1, trust_remote_code = true }]";
    let report = slots(&[8]).use_kernels(&pack.hub(), &config(text)).unwrap();
    assert_eq!(report.notes.len(), 1);
    assert!(report.notes[0].contains("kernelhub-tests/trusting@v1 has trust_remote_code"), "{:?}", report.notes);
}

#[test]
fn the_closest_pattern_of_a_layers_path_decides() {
    let pack = NativePack::kit("places", &(norm_layer("A", "count_rms_norm") + &norm_layer("B", "count_rms_norm")));
    let (hub, slots) = (pack.hub(), slots(&[8, 8, 8]));
    let own = "kernelhub-tests/places@v1";
    let text = format!(
        "RMSNorm = '{own}:A'\n'layers.*.norm' = {{ cuda = '{own}:A', cpu = '{own}:B' }}\n'layers.1.norm' = 'Disabled'\n\
         'layers.2.norm' = {{ cuda = '{own}:A' }}"
    );
    let report = slots.use_kernels(&hub, &config(&text)).unwrap();
    let outcomes: Vec<_> = report.layers.iter().map(|line| took(&line.outcome)).collect();
    // The second is switched off; the third's own entry has nothing for the device.
    assert_eq!(outcomes, [format!("{own}:B"), "-".to_owned(), format!("{own}:B")]);
    assert_eq!(report.layers[1].outcome, Outcome::Reference(Reason::Disabled));
    let text = format!("'layers.*.norm' = '{own}:A'\n'layers.1.*' = '{own}:B'\n'layers.1.n*m' = '{own}:B'");
    assert!(slots.use_kernels(&hub, &config(&text)).is_ok());
    let error = slots
        .use_kernels(
            &hub,
            &config(&format!("'layers.*.norm' = '{own}:A'\n'*.norm' = '{own}:A'\n'*.1.norm' = '{own}:B'")),
        )
        .unwrap_err();
    assert!(matches!(&error, SwapError::UnknownPath { pattern, .. } if pattern.as_str() == "*.norm"), "{error:?}");
    let tie = format!("'layers.*1.norm' = '{own}:A'\n'layers.1*.norm' = '{own}:B'");
    let error = slots.use_kernels(&hub, &config(&tie)).unwrap_err();
    assert!(matches!(&error, SwapError::AmbiguousPath { path, .. } if path == "layers.1.norm"), "{error:?}");
    assert!(error.hint().unwrap().contains("layers.1.norm"));
}

#[test]
fn ranges_go_by_the_capability_of_the_machine() {
    let mut machine = SystemInfo::described(Os::Linux, Arch::X86_64);
    let json = r#"{"key": "cuda", "index": 0, "name": "gpu", "route": "native", "capability": "9.0"}"#;
    machine.devices.push(serde_json::from_str(json).unwrap());
    let place = tempfile::tempdir().unwrap();
    let hub = Hub::builder().cache(place.path()).offline(true).policy(trust::policy()).system(machine).build().unwrap();
    assert_eq!((hub.capability(DeviceKey::Cuda), hub.capability(DeviceKey::Rocm)), (Some(90), None));

    let slots = slots(&[8]);
    let config = config("[RMSNorm]\n'cuda:90-90' = 'a/hopper@v1'\ncuda = 'a/any@v1'");
    let preview = |target: Target| slots.preview(&config, target, Mode::Inference).unwrap();
    let cuda = |capability| Target { device: DeviceKey::Cuda, capability };
    let pick = |target| preview(target).layers[0].outcome.clone();
    assert_eq!(pick(cuda(hub.capability(DeviceKey::Cuda))), PreviewOutcome::Picks(vec!["a/hopper@v1".to_owned()]));
    assert_eq!(pick(cuda(Some(86))), PreviewOutcome::Picks(vec!["a/any@v1".to_owned()]));
    let unknown = Reason::CapabilityUnknown { device: DeviceKey::Cuda };
    assert_eq!(pick(cuda(None)), PreviewOutcome::Reference(unknown));
    assert_eq!(preview(cuda(Some(86))).kernels, ["a/any@v1".parse::<KernelRef>().unwrap()].into());
    // Planning for such a machine asks for that kernel.
    let cuda = Slots::new(DeviceKey::Cuda);
    drop(cuda.slot(SlotSpec {
        path: "norm".to_owned(),
        layer: "RMSNorm".to_owned(),
        contract: Contract::RmsNorm,
        dtype: DType::F32,
        last_dim: 8,
        trainable: false,
        options: Vec::new(),
        rounding: Rounding::F32WeightF32,
    }));
    let error = cuda.use_kernels(&hub, &config).unwrap_err();
    assert!(matches!(&error, SwapError::Kernel { kernel, .. } if kernel == "a/hopper@v1"), "{error:?}");
}
