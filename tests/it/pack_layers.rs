//! The `layers.toml` of the CPU packs against the contracts and the functions that the pack exports: what binding
//! would refuse is found without building a pack.

use std::collections::BTreeSet;
use std::path::Path;

use kernelhub::bind::{Contract, Parameter, Rounding};
use kernelhub::manifest::{FunctionBinding, LayersFile};

const EXPORTS: &str = include_str!("../../kernels/cpu/src/exports.rs");

fn check(name: &str, binding: &FunctionBinding, table: &[Parameter]) {
    let args: Vec<&str> = binding.args.iter().map(String::as_str).collect();
    let listed: BTreeSet<&str> = args.iter().copied().collect();
    assert_eq!(listed.len(), args.len(), "{name}: a parameter twice in {args:?}");
    // The packs' functions take every option.
    let known: BTreeSet<&str> = table.iter().map(|parameter| parameter.name).collect();
    assert_eq!(listed, known, "{name}: {}", binding.function);
    let quoted: Vec<String> = args.iter().map(|arg| format!("\"{arg}\"")).collect();
    let symbol = format!("\"__tvm_ffi_{}\",", binding.function);
    let export = EXPORTS.split("export!(").find(|part| part.contains(&symbol));
    let export: String = export.unwrap_or_else(|| panic!("{name}: no export {symbol}")).split_whitespace().collect();
    assert!(export.contains(&format!("[{}]", quoted.join(","))), "{name}: the order of {args:?}");
}

#[test]
fn every_layer_of_the_cpu_packs_fulfils_its_contract() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/cpu/layers");
    let mut contracts = BTreeSet::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let file = LayersFile::parse(&text, &path.display().to_string()).unwrap();
        for layer in &file.layers {
            let name = &layer.name;
            let contract = Contract::from_name(&layer.contract).unwrap_or_else(|| panic!("{name}: no such contract"));
            contracts.insert(contract.as_str());
            check(name, layer.forward.as_ref().unwrap(), contract.forward());
            assert_eq!(layer.backward.is_some(), contract.backward().is_some(), "{name}: a backward");
            if let (Some(binding), Some(table)) = (&layer.backward, contract.backward()) {
                check(name, binding, table);
            }
            let rounding = layer.rounding.as_deref().unwrap();
            let known: Vec<&str> = contract.roundings().iter().copied().map(Rounding::as_str).collect();
            assert!(known.contains(&rounding), "{name}: {rounding} is none of {known:?}");
        }
    }
    let all: BTreeSet<&str> = Contract::all().iter().map(|contract| contract.as_str()).collect();
    assert_eq!(contracts, all, "every contract has a kernel for the CPU");
}
