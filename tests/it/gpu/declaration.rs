//! Shaders and arguments, held to their declaration.

use kernelhub::dtype::DType;
use kernelhub::gpu::{self, Device, GpuError, ParamValue, ShaderKernel};
use kernelhub::hint::Hint;
use kernelhub::manifest::ShaderBinding;

use super::{Change, assert_usable, compiled, device, kernel, shader, u32_of, upload};

#[test]
fn a_shader_is_held_to_its_declaration() {
    let Some(device) = device() else { return };
    let entry = compiled(&device, |binding, _| "rms_nrom".clone_into(&mut binding.entry)).unwrap_err();
    assert!(matches!(&entry, GpuError::MissingEntry { found, .. } if found == &["rms_norm"]), "{entry}");
    assert_eq!(entry.hint().as_deref(), Some("did you mean \"rms_norm\"?"));

    let workgroup = compiled(&device, |binding, _| binding.workgroup = [128, 1, 1]).unwrap_err();
    assert!(matches!(&workgroup, GpuError::Mismatch { what, .. } if what == "the workgroup size"), "{workgroup}");
    assert_eq!(
        workgroup.to_string(),
        "rms_norm.wgsl: the workgroup size is declared as [128, 1, 1], and the shader has [256, 1, 1]"
    );
    let params = compiled(&device, |binding, _| binding.params.swap(0, 1)).unwrap_err();
    assert_eq!(
        params.to_string(),
        "rms_norm.wgsl: group 0, binding 3 is declared as var<uniform> struct { width: u32, rows: u32, eps: f32 }, and \
         the shader has var<uniform> struct { rows: u32, width: u32, eps: f32 }"
    );
    let moved = compiled(&device, |_, source| *source = source.replacen("@group(0)", "@group(1)", 1)).unwrap_err();
    assert!(matches!(&moved, GpuError::Mismatch { what, .. } if what == "group 1, binding 0"), "{moved}");

    let changes: [(&str, Change); 9] = [
        ("group 0, binding 0", |binding, _| binding.bindings.swap(0, 1)),
        ("group 0, binding 1", |binding, _| binding.bindings[1] = "weight:write".to_owned()),
        ("group 0, binding 2", |binding, _| binding.bindings[2] = "result:write".to_owned()),
        ("group 0, binding 3", |binding, _| binding.params.swap(0, 1)),
        ("group 0, binding 3", |binding, _| binding.params[2] = "eps:u32".to_owned()),
        ("group 0, binding 3", |_, source| {
            *source = source.replace("    eps: f32", "    @size(8) gap: u32,\n    eps: f32");
        }),
        ("group 0, binding 3", |binding, _| binding.bindings.push("bias:read".to_owned())),
        ("group 0, binding 1", |_, source| {
            *source = source.replace("weight: array<f32>", "weight: f32").replace("weight[column]", "weight");
        }),
        ("what the host sets", |_, source| source.push_str("override speed: f32 = 1.0;\n")),
    ];
    for (named, change) in changes {
        let error = compiled(&device, change).unwrap_err();
        assert!(matches!(&error, GpuError::Mismatch { what, .. } if what == named), "{named}: {error}");
    }
    let (binding, source) = copy_shader("vec3<f32>", "", &[]);
    let gaps = ShaderKernel::compile(&device, &binding, &source).unwrap_err();
    assert!(matches!(&gaps, GpuError::Mismatch { what, .. } if what == "group 0, binding 0"), "{gaps}");
    let unused = compiled(&device, |_, source| *source = source.replace(" * weight[column]", "")).unwrap_err();
    assert!(matches!(&unused, GpuError::Mismatch { actual, .. } if actual == "no use of it"), "{unused}");
    let declaration = compiled(&device, |binding, _| binding.grid[0] = "columns".to_owned()).unwrap_err();
    assert!(matches!(declaration, GpuError::Declaration { .. }), "{declaration}");
    assert_usable(&device);
}

#[test]
fn features_and_limits_are_checked_before_the_driver_is_asked() {
    let Some(device) = device() else { return };
    let unknown = compiled(&device, |binding, _| binding.features = vec!["SUBGROUPS".to_owned()]).unwrap_err();
    assert!(matches!(&unknown, GpuError::UnknownFeature { name, .. } if name == "SUBGROUPS"), "{unknown}");
    assert_eq!(unknown.hint().as_deref(), Some("did you mean \"SUBGROUP\"?"));
    for name in ["SHADER_F16", "SHADER_F64", "SUBGROUP"] {
        let outcome = compiled(&device, |binding, _| binding.features = vec![name.to_owned()]);
        if device.info().features.contains(&name) {
            outcome.unwrap();
        } else {
            assert!(matches!(outcome.unwrap_err(), GpuError::FeatureUnsupported { name: named, .. } if named == name));
        }
    }

    let most = device.info().limits.max_workgroup_invocations;
    let large = compiled(&device, |binding, source| {
        binding.workgroup = [most + 1, 1, 1];
        *source = source.replace("LANES: u32 = 256u", &format!("LANES: u32 = {}u", most + 1));
    })
    .unwrap_err();
    assert!(matches!(large, GpuError::LimitExceeded { unit: "invocations", .. }), "{large}");

    let memory = device.info().limits.max_workgroup_storage_bytes;
    let words = memory / 4 + 1;
    let greedy = compiled(&device, |_, source| {
        *source = source.replace("sums: array<f32, LANES>", &format!("sums: array<f32, {words}>"));
    })
    .unwrap_err();
    assert!(
        matches!(greedy, GpuError::LimitExceeded { limit: "max_compute_workgroup_storage_size", maximum, .. } if maximum == u64::from(memory)),
        "{greedy}"
    );
    assert_usable(&device);
}

#[test]
fn arguments_are_matched_by_name_type_and_device() {
    let Some(device) = device() else { return };
    let norm = kernel(&device, "rmsnorm");
    let x = upload(&device, &[1, 2], &[1.0, 2.0]);
    let weight = upload(&device, &[2], &[1.0, 1.0]);
    let out = device.empty(DType::F32, &[1, 2]).unwrap();
    let half = device.empty(DType::Bf16, &[1, 2]).unwrap();
    let params = [("rows", u32_of(1)), ("width", u32_of(2)), ("eps", ParamValue::F32(0.0))];
    let tensors = [("x", &x), ("weight", &weight), ("out", &out)];

    let error = norm.launch(&tensors[..2], &params).unwrap_err();
    assert!(matches!(&error, GpuError::MissingArgument { kind: "tensor", name, .. } if name == "out"), "{error}");
    let error = norm.launch(&tensors, &params[1..]).unwrap_err();
    assert!(matches!(&error, GpuError::MissingArgument { kind: "parameter", name, .. } if name == "rows"), "{error}");
    let error = norm.launch(&[("x", &x), ("weigth", &weight), ("out", &out)], &params).unwrap_err();
    assert!(matches!(&error, GpuError::UnknownArgument { name, .. } if name == "weigth"), "{error}");
    assert_eq!(error.hint().as_deref(), Some("did you mean \"weight\"?"));
    let error = norm.launch(&[tensors[0], tensors[0], tensors[1], tensors[2]], &params).unwrap_err();
    assert!(matches!(error, GpuError::RepeatedArgument { .. }), "{error}");
    let error = norm.launch(&[("x", &half), tensors[1], tensors[2]], &params).unwrap_err();
    assert!(matches!(&error, GpuError::WrongType { expected, actual, .. } if expected == "f32" && actual == "bf16"));
    let error = norm.launch(&tensors, &[params[0], params[1], ("eps", u32_of(1))]).unwrap_err();
    assert!(matches!(&error, GpuError::WrongType { name, .. } if name == "eps"), "{error}");
    let error = norm.launch(&[("x", &out), tensors[1], tensors[2]], &params).unwrap_err();
    assert!(matches!(&error, GpuError::Aliased { written, other, .. } if written == "out" && other == "x"), "{error}");

    let second = Device::open(&gpu::adapters().unwrap()[0]).unwrap();
    let foreign = upload(&second, &[1, 2], &[1.0, 2.0]);
    let error = norm.launch(&[("x", &foreign), tensors[1], tensors[2]], &params).unwrap_err();
    assert!(matches!(&error, GpuError::ForeignDevice { name, .. } if name == "x"), "{error}");
    let error = norm.record(&mut second.recorder().unwrap(), &tensors, &params).unwrap_err();
    assert!(matches!(error, GpuError::ForeignDevice { .. }), "{error}");

    let (mut binding, source) = shader("rmsnorm");
    binding.grid = ["rows".to_owned(), "1".to_owned(), "1".to_owned()];
    let flat = ShaderKernel::compile(&device, &binding, &source).unwrap();
    let most = usize::try_from(device.info().limits.max_workgroups_per_axis).unwrap();
    let error = flat.launch(&tensors, &[("rows", u32_of(most + 1)), params[1], params[2]]).unwrap_err();
    assert!(matches!(error, GpuError::LimitExceeded { unit: "workgroups", .. }), "{error}");
    assert_usable(&device);
}

/// A shader that copies `x` to `out`, word by word.
fn copy_shader(word: &str, prelude: &str, features: &[&str]) -> (ShaderBinding, String) {
    let (mut binding, _) = shader("activation");
    "copy".clone_into(&mut binding.entry);
    binding.workgroup = [64, 1, 1];
    binding.params.clear();
    binding.grid = ["1".to_owned(), "1".to_owned(), "1".to_owned()];
    binding.features = features.iter().map(|&name| name.to_owned()).collect();
    let source = format!(
        "{prelude}
        @group(0) @binding(0) var<storage, read> x: array<{word}>;
        @group(0) @binding(1) var<storage, read_write> out: array<{word}>;
        @compute @workgroup_size(64) fn copy(@builtin(local_invocation_index) lane: u32) {{
            if (lane < arrayLength(&out)) {{ out[lane] = x[lane]; }}
        }}"
    );
    (binding, source)
}

#[test]
fn tensors_bind_to_the_words_that_hold_them() {
    let Some(device) = device() else { return };
    let native_half = device.info().features.contains(&"SHADER_F16");
    for (word, prelude, features, accepted) in [
        ("f32", "", &[] as &[_], &[DType::F32] as &[_]),
        ("vec4<f32>", "", &[], &[DType::F32]),
        ("i32", "", &[], &[DType::I32]),
        ("u32", "", &[], &[DType::U32, DType::Bf16, DType::F16, DType::I8, DType::U8]),
        ("f16", "enable f16;", &["SHADER_F16"], &[DType::F16]),
    ] {
        if word == "f16" && !native_half {
            println!("skipped {word}: the adapter lacks SHADER_F16");
            continue;
        }
        let (binding, source) = copy_shader(word, prelude, features);
        let copy = ShaderKernel::compile(&device, &binding, &source).unwrap();
        for dtype in DType::ALL {
            let count = 16;
            let bytes: Vec<u8> = (1..).take(count * dtype.size_in_bytes()).collect();
            let x = device.upload(dtype, &[count], &bytes).unwrap();
            let out = device.empty(dtype, &[count]).unwrap();
            let outcome = copy.launch(&[("x", &x), ("out", &out)], &[]);
            if accepted.contains(&dtype) {
                outcome.unwrap();
                assert_eq!(out.download().unwrap(), bytes, "{dtype} as {word}");
            } else {
                assert!(matches!(outcome, Err(GpuError::WrongType { .. })), "{dtype} as {word}: {outcome:?}");
            }
        }
    }
}

#[test]
fn a_text_that_needs_an_undeclared_device_feature_is_refused() {
    let Some(device) = device() else { return };
    for prelude in ["enable wgpu_cooperative_matrix;", "enable wgpu_ray_query;", "enable no_such_thing;"] {
        let (binding, source) = copy_shader("f32", prelude, &[]);
        let outcome = ShaderKernel::compile(&device, &binding, &source);
        assert!(matches!(outcome, Err(GpuError::Wgsl { .. })), "{prelude}: {outcome:?}");
    }
    assert_usable(&device);
}
