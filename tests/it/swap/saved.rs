//! A configuration beside a model's weights.

use std::fs;

use kernelhub::hub::{CONFIG_FILE, ConfigFileError};
use kernelhub::swap::KernelConfig;
use proptest::prelude::{Just, Strategy, prop, prop_assert_eq, prop_oneof, proptest};
use serde_json::{Map, Value, json};

#[test]
fn a_folder_without_one_has_none_and_a_broken_one_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(KernelConfig::load(&folder).unwrap(), None);
    let config = KernelConfig::from_toml("[RMSNorm]\ncpu = 'a/b@v1'", "x").unwrap();
    let path = config.save(&folder).unwrap();
    assert_eq!(path, folder.path().join(CONFIG_FILE));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing else is left there");
    assert_eq!(KernelConfig::load(&folder).unwrap(), Some(config.clone()));
    // Saving replaces.
    let other = KernelConfig::from_toml("inherit = false", "x").unwrap();
    other.save(&folder).unwrap();
    assert_eq!(KernelConfig::load(&folder).unwrap(), Some(other));

    fs::write(&path, "RMSNorm = 'nonsense'").unwrap();
    let error = KernelConfig::load(&folder).unwrap_err();
    assert!(matches!(&error, ConfigFileError::Config(_)), "{error:?}");
    assert!(error.to_string().contains("kernels.toml: RMSNorm: \"nonsense\" names no kernel"), "{error}");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(KernelConfig::load(&folder).unwrap_err(), ConfigFileError::Read { .. }));
    assert!(matches!(config.save(folder.path().join("absent")).unwrap_err(), ConfigFileError::Write { .. }));
    assert!(matches!(config.save(&folder).unwrap_err(), ConfigFileError::Write { .. }), "a folder is in its place");

    fs::write(folder.path().join("k.json"), r#"{"RMSNorm": "a/b@v1"}"#).unwrap();
    assert!(KernelConfig::open(folder.path().join("k.json")).is_ok());
    fs::write(folder.path().join("k.yaml"), "").unwrap();
    assert!(matches!(KernelConfig::open(folder.path().join("k.yaml")).unwrap_err(), ConfigFileError::Kind { .. }));
}

fn kernel() -> impl Strategy<Value = Value> {
    let repo = prop::sample::select(vec!["a/b", "org/Kernel-1.x", "kernelhub/rmsnorm"]);
    let revision = prop::sample::select(vec!["", "@v0", "@v12", "@main", "@ce013625030ba8dba906f756967f9e9ca394464a"]);
    let layer = prop::sample::select(vec!["", ":RMSNorm", ":_x9"]);
    let text =
        (repo.clone(), revision, layer.clone()).prop_map(|(repo, at, layer)| json!(format!("{repo}{at}{layer}")));
    let folder = (prop::sample::select(vec!["/k", "/my folder/k@1", "/k/./é"]), layer.clone());
    let folder = folder.prop_map(|(folder, layer)| json!(format!("{folder}{layer}")));
    let metadata = prop::sample::select(vec![
        json!({"version": 3}),
        json!({"revision": "main", "trust_remote_code": true}),
        json!({"version": 1, "trust_remote_code": true}),
        json!({"trust_remote_code": true}),
    ]);
    let described =
        (repo, layer, metadata).prop_map(|(repo, layer, metadata)| json!([format!("{repo}{layer}"), metadata]));
    prop_oneof![3 => text, 1 => folder, 1 => described]
}

fn choice() -> impl Strategy<Value = Value> {
    let list = prop::collection::vec(kernel(), 1..4).prop_map(|mut kernels| {
        let mut seen = std::collections::BTreeSet::new();
        kernels.retain(|kernel| seen.insert(kernel.to_string()));
        Value::Array(kernels)
    });
    prop_oneof![1 => Just(json!("Disabled")), 3 => kernel(), 1 => list]
}

fn table(keys: &'static [&'static str], value: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let keys = prop::sample::subsequence(keys.to_vec(), 1..=keys.len());
    (keys, prop::collection::vec(value, 10)).prop_map(|(keys, values)| {
        Value::Object(keys.into_iter().map(str::to_owned).zip(values).collect::<Map<_, _>>())
    })
}

fn entry() -> impl Strategy<Value = Value> {
    let modes = &["inference", "INFERENCE|TORCH_COMPILE", "training", "training+compile", "fallback"];
    let by_mode = prop_oneof![choice(), table(modes, choice())];
    let devices = &["*", "cpu", "cuda", "cuda:80-89", "cuda:90-", "hip", "rocm:115-115", "xpu", "gaudi", "wgpu"];
    prop_oneof![choice(), table(devices, by_mode)]
}

fn config() -> impl Strategy<Value = Value> {
    let keys =
        &["RMSNorm", "SiluAndMul", "rotary_pos_emb", "model.layers.*.mlp", "model.layers.0.q-norm", "layer \" 9"];
    let fusion = entry().prop_map(|kernel| json!([{"members": [["A", "m.*.a"], ["B", "m.*.b"]], "kernel": kernel}]));
    let attention = prop::sample::select(vec!["sdpa", "paged|flash_attention_2", "a/b@v1:f"]);
    let options = (prop::option::of(prop::bool::ANY), prop::option::of(fusion), prop::option::of(attention));
    (table(keys, entry()), options).prop_map(|(mut top, (inherit, fusion, attention))| {
        let options = [
            ("inherit", inherit.map(Value::from)),
            ("fusion", fusion),
            ("attn_implementation", attention.map(Value::from)),
        ];
        let table = top.as_object_mut().unwrap();
        table.extend(options.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        top
    })
}

proptest! {
    #[test]
    fn what_is_saved_is_what_is_loaded(value in config()) {
        let config = KernelConfig::from_json(&value.to_string(), "x").unwrap();
        let folder = tempfile::tempdir().unwrap();
        config.save(&folder).unwrap();
        prop_assert_eq!(KernelConfig::load(&folder).unwrap().unwrap(), config.clone());
        prop_assert_eq!(KernelConfig::from_json(&config.to_json().to_string(), "x").unwrap(), config);
    }
}
