//! `layers.toml` against the contracts.

use kernelhub::bind::{BindError, LayerKernel, TensorMut, TensorRef};
use kernelhub::hint::Hint as _;

use crate::support::native::{NativePack, bind_error, layer, norm_layer};

#[test]
fn a_function_gets_its_arguments_in_its_own_order() {
    let layers = layer("Permuted", "rms_norm", "permuted", &["weight", "eps", "x", "out"]);
    let kernel = NativePack::kit("permuted", &layers).layer("Permuted").unwrap();
    let LayerKernel::RmsNorm(kernel) = &*kernel else { panic!("{kernel:?}") };
    let (x, weight, mut out) = ([3.0_f32, 4.0], [10.0_f32, 100.0], [0.0_f32; 2]);
    kernel
        .forward(
            &mut TensorMut::contiguous(&mut out, &[2]).unwrap(),
            &TensorRef::contiguous(&x, &[2]).unwrap(),
            &TensorRef::contiguous(&weight, &[2]).unwrap(),
            0.5,
        )
        .unwrap();
    let scale = (12.5_f64 + 0.5).sqrt();
    assert!((f64::from(out[0]) - 30.0 / scale).abs() < 1e-5, "{out:?}");
    assert!((f64::from(out[1]) - 400.0 / scale).abs() < 1e-4, "{out:?}");
}

#[test]
fn arguments_that_are_not_the_contracts_are_refused_by_name() {
    let cases: [(&[&str], &str); 6] = [
        (&["out", "x", "eps"], "weight is missing"),
        (&["out", "x", "x", "weight"], "x stands twice"),
        (&["out", "x", "weight", "eps", "eps"], "eps stands twice"),
        (&["out", "x", "weight", "epsilon"], "epsilon is not a parameter"),
        (&["out", "x", "weight", "eps", "causal"], "causal is not a parameter"),
        (&["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"], "a is not a parameter"),
    ];
    for (arguments, expected) in cases {
        let pack = NativePack::kit("arguments", &layer("RMSNorm", "rms_norm", "count_rms_norm", arguments));
        let error = bind_error(pack.layer("RMSNorm"));
        let BindError::Arguments { kernel, function, contract, reason, parameters } = &error else {
            panic!("{error:?}")
        };
        assert_eq!((kernel.as_str(), function.as_str()), ("kernelhub-tests/arguments@v1:RMSNorm", "count_rms_norm"));
        assert_eq!((*contract, reason.as_str()), ("rms_norm", expected));
        assert_eq!(*parameters, ["out", "x", "weight", "eps"]);
        assert!(error.to_string().contains("the contract has out, x, weight, eps"), "{error}");
    }
}

#[test]
fn an_unknown_contract_suggests_the_near_one() {
    for (contract, hint) in
        [("rmsnorm", "did you mean \"rms_norm\"?"), ("conv2d", "a newer version of kernelhub may know it")]
    {
        let pack = NativePack::kit("contract", &layer("RMSNorm", contract, "count_rms_norm", &["out", "x"]));
        let error = bind_error(pack.layer("RMSNorm"));
        assert!(matches!(&error, BindError::UnknownContract { contract: found, known, .. }
            if found == contract && known.contains(&"gated_activation.silu")));
        assert!(error.to_string().contains(&format!("{contract:?} is not known; known: rms_norm, rotary")), "{error}");
        assert_eq!(error.hint().as_deref(), Some(hint));
    }
}

#[test]
fn a_layer_that_is_not_served_suggests_the_near_one() {
    let layers = [
        norm_layer("RMSNorm", "count_rms_norm"),
        layer("SiluAndMul", "gated_activation.silu", "count_silu_and_mul", &["out", "x"]),
    ];
    let pack = NativePack::kit("layers", &layers.concat());
    let error = bind_error(pack.layer("RmsNorm"));
    assert!(matches!(&error, BindError::LayerMissing { kernel, layer, available }
        if kernel == "kernelhub-tests/layers@v1" && layer == "RmsNorm" && *available == ["RMSNorm", "SiluAndMul"]));
    assert!(error.to_string().ends_with("serves no layer RmsNorm; it serves RMSNorm, SiluAndMul"), "{error}");
    assert_eq!(error.hint().as_deref(), Some("did you mean RMSNorm?"));
    assert_eq!(bind_error(pack.layer("Conv2d")).hint(), None);
}

#[test]
fn a_layer_without_a_native_function_is_incomplete_for_native_code() {
    let layers = "[[layer]]\nname = \"RMSNorm\"\ncontract = \"rms_norm\"\ndtypes = [\"f32\"]\n\
        [layer.shader]\nfile = \"x.wgsl\"\nentry = \"x\"\nworkgroup = [1, 1, 1]\nbindings = [\"x:read\", \"out:write\"]\n\
        params = [\"rows:u32\"]\ngrid = [\"rows\", \"1\", \"1\"]\n";
    let error = bind_error(NativePack::kit("shader-only", layers).layer("RMSNorm"));
    assert!(
        matches!(&error, BindError::Incomplete { reason, .. } if reason.contains("no native forward function")),
        "{error:?}"
    );
}
