//! What is measured: layers, shapes and element types.

use kernelhub::bind::Contract;
use kernelhub::dtype::DType;
use kernelhub::manifest::{LayerSpec, LayersFile};

use super::error::BenchmarkError;
use super::run::Task;
use super::shape::Shape;

/// What the command line asks for; nothing: everything.
pub(crate) struct Wanted<'a> {
    pub(crate) layers: &'a [String],
    pub(crate) dtypes: &'a [DType],
    pub(crate) shapes: &'a [String],
}

impl Wanted<'_> {
    /// The tasks for a kernel's layers, in the order of its file.
    pub(crate) fn tasks(&self, kernel: &str, file: &LayersFile) -> Result<Vec<Task>, BenchmarkError> {
        let known = || file.layers.iter().map(|spec| spec.name.clone()).collect();
        let is_there = |layer: &&String| file.layers.iter().any(|spec| spec.name == **layer);
        if let Some(layer) = self.layers.iter().find(|layer| !is_there(layer)) {
            return Err(BenchmarkError::Layer { kernel: kernel.to_owned(), layer: layer.clone(), known: known() });
        }
        let is_wanted = |spec: &&LayerSpec| self.layers.is_empty() || self.layers.contains(&spec.name);
        let mut tasks = Vec::new();
        for spec in file.layers.iter().filter(is_wanted) {
            self.of_layer(kernel, spec, &mut tasks)?;
        }
        Ok(tasks)
    }

    fn of_layer(&self, kernel: &str, spec: &LayerSpec, tasks: &mut Vec<Task>) -> Result<(), BenchmarkError> {
        let layer = &spec.name;
        let contract = Contract::from_name(&spec.contract)
            .ok_or_else(|| BenchmarkError::Contract { layer: layer.clone(), contract: spec.contract.clone() })?;
        // The types that a host of this version passes.
        let known: Vec<DType> = spec
            .dtypes
            .iter()
            .copied()
            .filter(|dtype| matches!(dtype, DType::F32 | DType::Bf16 | DType::F16))
            .collect();
        if let Some(dtype) = self.dtypes.iter().find(|dtype| !known.contains(dtype)) {
            let (kernel, layer) = (kernel.to_owned(), layer.clone());
            return Err(BenchmarkError::DType { kernel, layer, dtype: *dtype, known });
        }
        let mut add = |shape: &Shape, of: &[DType]| {
            let dtypes = of.iter().filter(|dtype| self.dtypes.is_empty() || self.dtypes.contains(dtype));
            tasks.extend(dtypes.map(|dtype| Task {
                layer: layer.clone(),
                contract,
                shape: shape.clone(),
                dtype: *dtype,
            }));
        };
        if !self.shapes.is_empty() {
            let mut shapes: Vec<Shape> = Vec::new();
            for text in self.shapes {
                let shape = Shape::parse(layer, contract, text)?;
                if shapes.contains(&shape) {
                    return Err(BenchmarkError::Twice { layer: layer.clone(), text: text.clone() });
                }
                shapes.push(shape);
            }
            for shape in &shapes {
                add(shape, &known);
            }
        } else if spec.benchmark.is_empty() {
            Shape::usual(layer, contract)?.iter().for_each(|shape| add(shape, &known));
        } else {
            for benchmark in &spec.benchmark {
                let shape = Shape::from_table(layer, contract, &benchmark.shape)?;
                let of = benchmark.dtypes.as_ref().unwrap_or(&spec.dtypes);
                let of: Vec<DType> = of.iter().copied().filter(|dtype| known.contains(dtype)).collect();
                add(&shape, &of);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use kernelhub::dtype::DType;
    use kernelhub::hint::Hint as _;
    use kernelhub::manifest::LayersFile;

    use super::Wanted;
    use crate::benchmark::error::BenchmarkError;

    const FILE: &str = "schema = 1\n[[layer]]\nname = \"RMSNorm\"\ncontract = \"rms_norm\"\ndtypes = [\"f32\", \"bf16\"]\n\
        forward = { function = \"f\", args = [\"out\"] }\n\
        [[layer.benchmark]]\nshape = { rows = 3, hidden = 8 }\n\
        [[layer.benchmark]]\nshape = { rows = 4, hidden = 8 }\ndtypes = [\"bf16\"]\n\
        [[layer]]\nname = \"Linear\"\ncontract = \"linear\"\ndtypes = [\"f32\"]\n\
        forward = { function = \"f\", args = [\"out\"] }\n";

    fn tasks(layers: &[&str], dtypes: &[DType], shapes: &[&str]) -> Result<Vec<String>, BenchmarkError> {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let (layers, shapes) = (owned(layers), owned(shapes));
        let file = LayersFile::parse(FILE, "layers.toml").unwrap();
        let tasks = Wanted { layers: &layers, dtypes, shapes: &shapes }.tasks("a/b@v1", &file)?;
        Ok(tasks.iter().map(|task| format!("{} {} {}", task.layer, task.shape, task.dtype)).collect())
    }

    #[test]
    fn a_kernel_is_measured_at_its_own_shapes_and_else_at_the_usual_ones() {
        let all = tasks(&[], &[], &[]).unwrap();
        assert_eq!(all[..3], ["RMSNorm 3x8 f32", "RMSNorm 3x8 bf16", "RMSNorm 4x8 bf16"]);
        assert!(all.len() > 3 && all[3..].iter().all(|task| task.starts_with("Linear") && task.ends_with("f32")));
        assert_eq!(tasks(&["RMSNorm"], &[DType::F32], &[]).unwrap(), ["RMSNorm 3x8 f32"]);
        assert_eq!(
            tasks(&["RMSNorm"], &[DType::F32], &["5x6", "7x8"]).unwrap(),
            ["RMSNorm 5x6 f32", "RMSNorm 7x8 f32"]
        );
    }

    #[test]
    fn what_there_is_not_is_named_with_what_there_is() {
        let hint = |error: &BenchmarkError| error.hint().unwrap();
        let layer = tasks(&["RmsNorm"], &[], &[]).unwrap_err();
        assert!(layer.to_string().contains("a/b@v1 has no layer \"RmsNorm\""), "{layer}");
        assert!(hint(&layer).contains("did you mean \"RMSNorm\""), "{}", hint(&layer));
        let layer = tasks(&["Softmax"], &[], &[]).unwrap_err();
        assert!(hint(&layer).contains("RMSNorm, Linear"), "{}", hint(&layer));
        let dtype = tasks(&["RMSNorm"], &[DType::F16], &[]).unwrap_err();
        assert!(dtype.to_string().contains("does not compute f16") && hint(&dtype).contains("f32, bf16"), "{dtype}");
        let twice = tasks(&["RMSNorm"], &[], &["3x8", "4x8", "03x8"]).unwrap_err();
        assert!(matches!(&twice, BenchmarkError::Twice { text, .. } if text == "03x8") && twice.hint().is_some());
        let shape = tasks(&[], &[], &["32x576"]).unwrap_err();
        assert!(shape.to_string().contains("Linear: \"32x576\" is no shape of linear"), "{shape}");
        assert!(hint(&shape).contains("rows, in_features, out_features, such as 64x64x64"), "{}", hint(&shape));
    }

    #[test]
    fn the_shapes_of_our_own_packs_are_of_their_contracts() {
        for folder in ["kernels/cpu/layers", "kernels/wgsl/layers"] {
            for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap() {
                let path = entry.unwrap().path();
                let text = std::fs::read_to_string(&path).unwrap();
                let file = LayersFile::parse(&text, &path.display().to_string()).unwrap();
                let tasks = Wanted { layers: &[], dtypes: &[], shapes: &[] }.tasks("a/b@v1", &file).unwrap();
                assert!(tasks.len() >= file.layers.len(), "{}", path.display());
            }
        }
    }
}
