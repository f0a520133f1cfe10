//! Texts that are no shader, or a bad one.

use kernelhub::gpu::{GpuError, MAX_SOURCE_BYTES, ShaderKernel};

use super::{Random, assert_usable, compiled, device, shader};

#[test]
fn a_text_that_is_no_shader_is_an_error_with_the_place_and_the_device_lives_on() {
    let Some(device) = device() else { return };
    for (from, to) in [
        ("sum += value * value;", "sum += value *"),
        ("var sum = 0.0;", "var sum = 0u;"),
        ("let first = row * params.width;", "let first = rwo * params.width;"),
        ("workgroupBarrier();", "workgroupBarrierr();"),
    ] {
        let error = compiled(&device, |_, source| *source = source.replacen(from, to, 1)).unwrap_err();
        let GpuError::Wgsl { file, message } = &error else { panic!("{to}: {error:?}") };
        assert!(file == "rms_norm.wgsl" && message.contains("rms_norm.wgsl:"), "{to}: {message}");
        assert_usable(&device);
    }
    let error = compiled(&device, |_, source| source.insert(0, '\u{1b}')).unwrap_err();
    assert!(!error.to_string().contains('\u{1b}'), "an escape sequence reached the message");
    let error = compiled(&device, |_, source| source.push_str(&" ".repeat(MAX_SOURCE_BYTES))).unwrap_err();
    assert!(matches!(error, GpuError::SourceTooLong { maximum: MAX_SOURCE_BYTES, .. }), "{error}");
}

#[test]
fn no_mutation_of_a_shader_panics_or_ends_the_device() {
    let Some(device) = device() else { return };
    let words = [
        "f32",
        "u32",
        "vec4<f32>",
        "0",
        "-1",
        "x[",
        "]",
        "(",
        ")",
        "{",
        "}",
        "@",
        ";",
        "params",
        "loop",
        "&",
        "*",
        ",",
    ];
    for pack in ["rmsnorm", "activation"] {
        let (binding, source) = shader(pack);
        // Comments are of no interest to a compiler.
        let code: String = source
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .map(|line| line.to_owned() + "\n")
            .collect();
        let mut refused = 0;
        for seed in 0..150 {
            let mut random = Random(seed);
            let mut text = code.clone().into_bytes();
            for _ in 0..=random.below(3) {
                let at = random.below(text.len());
                match random.below(4) {
                    0 => drop(text.remove(at)),
                    1 => text[at] = u8::try_from(32 + random.below(95)).unwrap(),
                    2 => drop(text.splice(at..at, words[random.below(words.len())].bytes())),
                    _ => text.truncate(at.max(40)),
                }
            }
            let text = String::from_utf8(text).unwrap();
            match ShaderKernel::compile(&device, &binding, &text) {
                Ok(_) => {}
                Err(
                    GpuError::Wgsl { .. }
                    | GpuError::Mismatch { .. }
                    | GpuError::MissingEntry { .. }
                    | GpuError::LimitExceeded { .. },
                ) => refused += 1,
                Err(error) => panic!("{pack}, seed {seed}: {error:?}"),
            }
        }
        assert!(refused > 75, "{pack}: only {refused} of 150 mutations were refused");
    }
    assert_usable(&device);
}

#[test]
fn a_text_nested_or_chained_as_deep_as_it_may_be_long_is_survived() {
    let Some(device) = device() else { return };
    let replaced =
        |expression: &str| compiled(&device, |_, source| *source = source.replace("value * value", expression));
    let nested = replaced(&format!("{}value{}", "(".repeat(25_000), ")".repeat(25_000))).unwrap_err();
    assert!(matches!(nested, GpuError::Wgsl { .. }), "{nested}");
    let deep = [
        format!("f32({}lane)", "~".repeat(60_000)),
        format!("f32({}(lane == 1u))", "!".repeat(60_000)),
        format!("{}value", "- ".repeat(30_000)),
        format!("value{}", "+value".repeat(2_000)),
        format!("value{}{}", "/*".repeat(15_000), "*/".repeat(15_000)),
        format!("0.0; if lane == 1u {{}} {}", "else if lane == 2u {} ".repeat(500)),
    ];
    for expression in deep {
        let outcome = replaced(&expression);
        assert!(matches!(outcome, Ok(_) | Err(GpuError::Wgsl { .. })), "{}: {outcome:?}", &expression[..40]);
    }
    let chained = |item: fn(u32, u32) -> String| (0..1500).map(|i| item(i, i + 1)).collect::<Vec<_>>().join("\n");
    let calls = chained(|i, next| format!("fn f{i}(v:f32)->f32{{return f{next}(v);}}"));
    let types = chained(|i, next| format!("struct S{next} {{ a: S{i} }}"));
    let constants = chained(|i, next| format!("const c{i} = c{next} + 1.0;"));
    for (items, expression) in [
        (calls + "fn f1500(v:f32)->f32{return v;}", "f0(value)"),
        (types + "struct S0 { a: f32 } var<private> deep: S1500;", "value * value"),
        (constants + "const c1500 = 1.0;", "value * c0"),
    ] {
        let outcome = compiled(&device, |_, source| {
            *source = source.replace("value * value", expression);
            source.push_str(&items);
        });
        assert!(matches!(outcome, Ok(_) | Err(GpuError::Wgsl { .. })), "{}: {outcome:?}", &items[..40]);
    }
    assert_usable(&device);
}
