//! The parity check passes kernels that compute what their contract says and finds every fault of the others.

use std::sync::{Arc, LazyLock};

use kernelhub::bind::{BindError, LayerKernel, ParityError};
use kernelhub::hint::Hint as _;
use kernelhub::hub::{Hub, HubError};
use kernelhub::variant::DeviceKey;

use crate::support::native::{NativePack, bind_error, compile, layer};

static LIBRARY: LazyLock<Vec<u8>> = LazyLock::new(|| compile("parity", "", &["-C", "opt-level=2"]));

const NORM: &[&str] = &["out", "x", "weight", "eps", "offset"];
const ATTENTION: &[&str] = &["out", "q", "k", "v", "softmax_scale", "causal", "window_left", "window_right", "softcap"];

fn norm(function: &str) -> String {
    layer("Layer", "rms_norm", function, NORM).replace("\"f32\"", "\"f32\", \"bf16\"")
}

fn pack(layers: &str) -> NativePack {
    NativePack::new("parity", layers, &[("libparity.so", &LIBRARY)])
}

fn bound(layers: &str) -> Arc<LayerKernel> {
    pack(layers).layer("Layer").unwrap()
}

/// The mismatch that the check finds, as its text without the kernel's name.
#[track_caller]
fn mismatch(layers: &str) -> (String, Option<String>) {
    let error = bound(layers).parity().cloned().expect_err("the fault is found");
    let ParityError::Mismatch { kernel, error: distance, allowed, explanation, .. } = &*error else {
        panic!("{error:?}")
    };
    assert_eq!(kernel, "kernelhub-tests/parity@v1:Layer");
    assert!(distance.is_nan() || distance > allowed, "{error}");
    let text = error.to_string();
    assert!(text.contains("expected ") && text.contains("allowed ") && error.hint().is_some(), "{text}");
    (text, explanation.clone())
}

#[test]
fn a_kernel_that_computes_its_contract_passes_once_for_all() {
    let kernel = bound(&norm("norm"));
    let report = kernel.parity().unwrap();
    // 4 widths, of 7 or 8 layouts each, 2 values of eps and of the offset, 2 dtypes.
    assert_eq!(report.calls, (4 * 7 + 1) * 4 * 2, "{report:?}");
    assert_eq!(report.dtypes.len(), 2);
    assert!(report.skipped.is_empty() && report.worst > 0.0 && report.worst <= 1.0, "{report:?}");
    assert!(std::ptr::eq(report, kernel.parity().unwrap()), "the second call answers what the first found");

    let with_backward = norm("norm")
        + "backward = { function = \"norm_backward\", args = [\"dx\", \"dweight\", \"dy\", \"x\", \"weight\", \"eps\", \"offset\"] }\n";
    let report = bound(&with_backward).parity().cloned().unwrap();
    assert_eq!(report.calls, (4 * 7 + 1) * 4 * 2 * 3, "each forward, and two gradients");
    let attention = bound(&layer("Layer", "attention", "attention", ATTENTION)).parity().cloned().unwrap();
    let plain = bound(&layer("Layer", "attention", "attention", &ATTENTION[..6])).parity().cloned().unwrap();
    assert!(attention.calls > 2 * plain.calls && plain.calls > 0, "{attention:?}, {plain:?}");
}

/// The order in which a bfloat16 norm rounds, of 0.125 at values of 16 to 32: one is accepted, and the other is named.
#[test]
fn a_norm_that_rounds_in_another_order_than_it_declares_is_named() {
    let declared = |function: &str, rounding: &str| norm(function) + &format!("rounding = \"{rounding}\"\n");
    assert!(bound(&declared("norm", "f32-weight-f32")).parity().is_ok());
    assert!(bound(&declared("norm_rounds_first", "f32-weight-dtype")).parity().is_ok());
    for (function, wrong, right) in [
        ("norm", "f32-weight-dtype", "f32-weight-f32"),
        ("norm_rounds_first", "f32-weight-f32", "f32-weight-dtype"),
        ("norm", "dtype", "f32-weight-f32"),
    ] {
        let (text, explanation) = mismatch(&declared(function, wrong));
        assert!(text.contains("not at parity with rms_norm in bf16: forward, "), "{text}");
        assert_eq!(explanation.unwrap(), format!("its numbers are those of the rounding {right}"));
    }
}

#[test]
fn an_option_that_a_kernel_ignores_is_found_and_named() {
    let (text, explanation) = mismatch(&norm("norm_ignores_eps"));
    assert!(text.contains("eps 0.5, offset 0: element "), "{text}");
    assert_eq!(explanation.as_deref(), Some("its numbers are those of eps = 1e-5"));
    let (text, explanation) = mismatch(&norm("norm_ignores_offset"));
    assert!(text.contains("offset 1: element "), "{text}");
    assert_eq!(explanation.as_deref(), Some("its numbers are those without the offset"));
    // A kernel whose binding says that it takes no offset is asked for none.
    let without = layer("Layer", "rms_norm", "norm_ignores_offset", &NORM[..4]);
    assert!(bound(&without).parity().is_ok());

    for (function, words) in [
        ("attention_ignores_causal", "it ignores causal"),
        ("attention_window_is_exclusive", "its window is one key shorter on the left"),
        ("attention_ignores_softcap", "it ignores softcap"),
    ] {
        let (_, explanation) = mismatch(&layer("Layer", "attention", function, ATTENTION));
        assert_eq!(explanation.as_deref(), Some(words));
    }
}

#[test]
fn strides_and_the_edges_of_the_output_are_kept() {
    let (text, _) = mismatch(&norm("norm_ignores_strides"));
    assert!(text.contains("rows apart") && text.contains("is NaN"), "{text}");
    let (text, _) = mismatch(&norm("norm_writes_less"));
    assert!(text.contains("is NaN, expected "), "{text}");
    let error = bound(&norm("norm_writes_beyond")).parity().cloned().unwrap_err();
    assert!(matches!(&*error, ParityError::Outside { output: "out", .. }), "{error:?}");
    let error = bound(&norm("norm_refuses")).parity().cloned().unwrap_err();
    let ParityError::Call { source, .. } = &*error else { panic!("{error:?}") };
    assert!(matches!(&**source, BindError::Kernel { message, .. } if message == "not on a Sunday"));
}

#[test]
fn a_backward_that_loses_a_term_is_found() {
    let backward = "args = [\"dx\", \"dweight\", \"dy\", \"x\", \"weight\", \"eps\", \"offset\"] }\n";
    let layers = norm("norm") + "backward = { function = \"norm_backward_loses_term\", " + backward;
    let (text, _) = mismatch(&layers);
    assert!(text.contains("in f32: backward, ") && text.contains(" of dx is "), "{text}");
    // The gradients in each other's place.
    let layers = norm("norm")
        + "backward = { function = \"norm_backward\", "
        + &backward.replace("\"x\", \"weight\"", "\"weight\", \"x\"");
    assert!(bound(&layers).parity().is_err());
}

/// The names tell a wrong count and a wrong name; two names in each other's place are right names, and only the numbers
/// tell.
#[test]
fn f38_wrong_counts_names_places_and_dtypes_are_found() {
    let of = |arguments: &[&str]| pack(&layer("Layer", "rms_norm", "norm", arguments)).layer("Layer");
    for wrong in
        [&["out", "x", "weight", "eps", "offset", "bias"][..], &["out", "x", "eps"], &["out", "x", "wight", "eps"]]
    {
        let error = bind_error(of(wrong));
        let BindError::Arguments { kernel, .. } = &error else { panic!("{error:?}") };
        assert_eq!(kernel, "kernelhub-tests/parity@v1:Layer");
    }
    for swapped in [&["weight", "x", "out", "eps"][..], &["out", "weight", "x", "eps"], &["x", "out", "weight", "eps"]]
    {
        let error = of(swapped).unwrap().parity().cloned().expect_err("the places are found out");
        assert!(error.to_string().starts_with("kernelhub-tests/parity@v1:Layer is not at parity"), "{error}");
    }
    // A kernel of f32 that declares f16: its library takes what is no bfloat16 for f32.
    let layers = layer("Layer", "rms_norm", "norm", NORM).replace("\"f32\"", "\"f16\"");
    let error = bound(&layers).parity().cloned().expect_err("the dtype is found out");
    assert!(error.to_string().contains("with rms_norm in f16: "), "{error}");
}

#[test]
fn a_hub_that_asks_for_parity_refuses_a_kernel_without_it() {
    let hub = |pack: &NativePack| {
        let folder = tempfile::tempdir().unwrap();
        let hub =
            Hub::builder().policy(crate::support::trust::policy()).cache(folder.path()).offline(true).parity(true);
        (hub.manifest(pack.manifest().clone(), pack.location()).build().unwrap(), folder)
    };
    let kernel = "kernelhub-tests/parity@v1".parse().unwrap();
    let good = pack(&norm("norm"));
    assert!(hub(&good).0.layer(&kernel, "Layer", DeviceKey::Cpu).is_ok());
    let bad = pack(&norm("norm_ignores_eps"));
    let (hub, _folder) = hub(&bad);
    for _ in 0..2 {
        let error = hub.layer(&kernel, "Layer", DeviceKey::Cpu).unwrap_err();
        assert!(matches!(&error, HubError::Parity(_)) && error.hint().is_some(), "{error:?}");
    }
    // Without the check it is bound as declared.
    assert!(bad.layer("Layer").is_ok());
}
