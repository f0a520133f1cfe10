//! `layers.toml` against the contracts.

use kernelhub::bind::{BindError, LayerKernel, Rounding, TensorMut, TensorRef};
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
            0.0,
        )
        .unwrap();
    let scale = (12.5_f64 + 0.5).sqrt();
    assert!((f64::from(out[0]) - 30.0 / scale).abs() < 1e-5, "{out:?}");
    assert!((f64::from(out[1]) - 400.0 / scale).abs() < 1e-4, "{out:?}");
}

#[test]
fn arguments_that_are_not_the_contracts_are_refused_by_name() {
    let cases: [(&[&str], &str, Option<&str>); 7] = [
        (&["out", "x", "eps"], "weight is missing", None),
        (&["out", "x", "x", "weight"], "x stands twice", None),
        (&["out", "x", "weight", "eps", "eps"], "eps stands twice", None),
        (&["out", "x", "wieght", "eps"], "wieght is not a parameter", Some("did you mean weight?")),
        (&["out", "x", "weight", "eps", "ofset"], "ofset is not a parameter", Some("did you mean offset?")),
        (&["out", "x", "weight", "eps", "causal"], "causal is not a parameter", None),
        (&["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"], "a is not a parameter", None),
    ];
    for (arguments, expected, hint) in cases {
        let pack = NativePack::kit("arguments", &layer("RMSNorm", "rms_norm", "count_rms_norm", arguments));
        let error = bind_error(pack.layer("RMSNorm"));
        let BindError::Arguments { kernel, function, contract, reason, parameters, optional, .. } = &error else {
            panic!("{error:?}")
        };
        assert_eq!((kernel.as_str(), function.as_str()), ("kernelhub-tests/arguments@v1:RMSNorm", "count_rms_norm"));
        assert_eq!((*contract, reason.as_str()), ("rms_norm", expected));
        assert_eq!((&parameters[..], &optional[..]), (&["out", "x", "weight", "eps"][..], &["offset"][..]));
        let end = "the contract has out, x, weight, eps and may have offset";
        assert!(error.to_string().ends_with(end), "{error}");
        assert_eq!(error.hint().as_deref(), hint);
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

/// An RMSNorm layer with a declared backward function.
fn with_backward(contract: &str, arguments: &[&str], function: &str, backward: &[&str]) -> String {
    let forward = layer("Layer", contract, "count_rms_norm", arguments);
    format!("{forward}backward = {{ function = \"{function}\", args = [\"{}\"] }}\n", backward.join("\", \""))
}

const NORM: &[&str] = &["out", "x", "weight", "eps"];
const NORM_BACKWARD: &[&str] = &["dx", "dweight", "dy", "x", "weight", "eps"];

#[test]
fn a_backward_counts_only_when_its_function_fits_and_is_there() {
    let bind = |layers: &str| NativePack::kit("backward", layers).layer("Layer");
    let kernel = bind(&with_backward("rms_norm", NORM, "norm_backward", NORM_BACKWARD)).unwrap();
    assert!(kernel.meta().has_backward);
    let kernel = bind(&layer("Layer", "rms_norm", "count_rms_norm", NORM)).unwrap();
    assert!(!kernel.meta().has_backward);
    let LayerKernel::RmsNorm(kernel) = &*kernel else { panic!("{kernel:?}") };
    let ones = TensorRef::contiguous(&[1.0_f32; 4], &[1, 4]).unwrap();
    let weight = TensorRef::contiguous(&[1.0_f32; 4], &[4]).unwrap();
    let error = kernel.backward_to_vec::<f32>(&ones, &ones, &[1, 4], &weight, 1e-5, 0.0).unwrap_err();
    assert!(matches!(&error, BindError::NoBackward { kernel } if kernel == "kernelhub-tests/backward@v1:Layer"));

    let error = bind_error(bind(&with_backward("rms_norm", NORM, "norm_backward", NORM)));
    assert!(
        matches!(&error, BindError::Arguments { function, reason, parameters, .. }
        if function == "norm_backward" && reason == "out is not a parameter" && *parameters == NORM_BACKWARD),
        "{error:?}"
    );
    let error = bind_error(bind(&with_backward("rms_norm", NORM, "norm_backwards", NORM_BACKWARD)));
    assert!(matches!(&error, BindError::Load { .. }), "{error:?}");
    let gelu = with_backward("gated_activation.gelu", &["out", "x"], "norm_backward", &["dx", "dy", "x"]);
    let error = bind_error(bind(&gelu));
    assert!(matches!(&error, BindError::BackwardRefused { contract: "gated_activation.gelu", is_own: false, .. }));
    let parameters = ["x1", "x2", "cos", "sin", "out1", "out2", "conj"];
    let error = bind_error(bind(&with_backward("rotary", &parameters, "norm_backward", &parameters)));
    assert!(matches!(&error, BindError::BackwardRefused { is_own: true, .. }), "{error:?}");
    assert!(error.hint().is_some());
    // Turning back is the gradient, so that every rotary kernel has one.
    let rotary = bind(&layer("Layer", "rotary", "count_apply_rotary", &parameters)).unwrap();
    assert!(rotary.meta().has_backward);
}

#[test]
fn an_option_is_passed_to_a_kernel_that_takes_it_and_refused_by_one_that_does_not() {
    let x = [2.0_f32, 2.0, 2.0, 2.0];
    let (x, weight) =
        (TensorRef::contiguous(&x, &[1, 4]).unwrap(), TensorRef::contiguous(&[1.0_f32; 4], &[4]).unwrap());
    let call = |kernel: &LayerKernel, offset: f64| {
        let LayerKernel::RmsNorm(kernel) = kernel else { panic!("{kernel:?}") };
        kernel.forward_to_vec::<f32>(&x, &[1, 4], &weight, 0.0, offset)
    };
    // The function writes the number of its arguments, then its last number.
    let echo = |arguments: &[&str]| {
        NativePack::kit("option", &layer("Layer", "rms_norm", "echo", arguments)).layer("Layer").unwrap()
    };
    let with = echo(&["offset", "out", "x", "weight", "eps"]);
    assert_eq!(with.meta().lacks(&["offset"]), None);
    assert_eq!(with.meta().lacks(&["offset", "softcap"]), Some("softcap"), "a name that the contract does not have");
    assert_eq!(call(&with, 0.75).unwrap()[..2], [5.0, 0.75]);
    let without = echo(&["weight", "out", "x", "eps"]);
    assert_eq!(without.meta().lacks(&["offset"]), Some("offset"));
    assert_eq!(without.meta().lacks(&[]), None);
    assert_eq!(call(&without, 0.0).unwrap()[..1], [4.0]);
    for offset in [1.0, f64::NAN] {
        let error = call(&without, offset).unwrap_err();
        assert!(matches!(&error, BindError::Option { option: "offset", .. }), "{error:?}");
        assert!(error.to_string().ends_with("does not take offset; it computes only with offset = 0.0"), "{error}");
        assert!(error.hint().is_some());
    }
}

#[test]
fn an_unknown_rounding_suggests_the_near_one() {
    let bind = |rounding: &str| {
        let layers = norm_layer("RMSNorm", "count_rms_norm") + &format!("rounding = \"{rounding}\"\n");
        NativePack::kit("rounding", &layers).layer("RMSNorm")
    };
    assert_eq!(bind("f32-weight-dtype").unwrap().meta().identity.rounding, Rounding::F32WeightDtype);
    for (rounding, hint) in [("f32-weigth-f32", Some("did you mean f32-weight-f32?")), ("exact", None)] {
        let error = bind_error(bind(rounding));
        assert!(
            matches!(&error, BindError::Rounding { contract: "rms_norm", rounding: found, .. } if found == rounding)
        );
        assert!(error.to_string().ends_with("it has f32-weight-f32, f32-weight-dtype, dtype"), "{error}");
        assert_eq!(error.hint().as_deref(), hint);
    }
    let unsaid = NativePack::kit("rounding", &norm_layer("RMSNorm", "count_rms_norm")).layer("RMSNorm").unwrap();
    assert_eq!(unsaid.meta().identity.rounding, Rounding::F32WeightF32);
}
