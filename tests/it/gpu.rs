//! The wgpu runtime and our own shaders. Without an adapter each test prints why it did nothing.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests, which fail by panicking and print skips"
)]

mod declaration;
mod device;
mod graphs;
mod hostile;
mod values;

use kernelhub::dtype::DType;
use kernelhub::gpu::{self, Device, GpuError, GpuTensor, ParamValue, ShaderKernel};
use kernelhub::hint::Hint;
use kernelhub::manifest::{LayersFile, ShaderBinding};
use std::fs;
use std::path::Path;

/// The first adapter's device, or `None` with a printed reason.
fn device() -> Option<Device> {
    match gpu::adapters() {
        Ok(adapters) => Some(Device::open(&adapters[0]).unwrap()),
        Err(error @ GpuError::NoAdapter { .. }) => {
            println!("skipped: {error}; {}", error.hint().unwrap());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn pack_file(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/wgsl").join(name)).unwrap()
}

/// The declaration and the text of the only layer of one of our packs.
fn shader(pack: &str) -> (ShaderBinding, String) {
    let origin = format!("layers/{pack}.toml");
    let mut file = LayersFile::parse(&pack_file(&origin), &origin).unwrap();
    let binding = file.layers.remove(0).shader.unwrap();
    let source = pack_file(binding.file.as_str());
    (binding, source)
}

fn kernel(device: &Device, pack: &str) -> ShaderKernel {
    let (binding, source) = shader(pack);
    ShaderKernel::compile(device, &binding, &source).unwrap()
}

fn upload(device: &Device, shape: &[usize], values: &[f32]) -> GpuTensor {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    device.upload(DType::F32, shape, &bytes).unwrap()
}

fn values(tensor: &GpuTensor) -> Vec<f32> {
    let bytes = tensor.download().unwrap();
    bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect()
}

fn u32_of(value: usize) -> ParamValue {
    ParamValue::U32(u32::try_from(value).unwrap())
}

/// Numbers from -4 to 4 that depend on the seed alone.
fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut random = Random(seed);
    (0..count).map(|_| (random.next() >> 40) as f32 / (1 << 21) as f32 - 4.0).collect()
}

/// A fixed sequence, so that a failure can be met again (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }
}

fn rms_norm(device: &Device, x: &[f32], weight: &[f32], rows: usize, eps: f32) -> Vec<f32> {
    let width = weight.len();
    let (x, weight) = (upload(device, &[rows, width], x), upload(device, &[width], weight));
    let out = device.empty(DType::F32, &[rows, width]).unwrap();
    let params = [("rows", u32_of(rows)), ("width", u32_of(width)), ("eps", ParamValue::F32(eps))];
    kernel(device, "rmsnorm").launch(&[("out", &out), ("x", &x), ("weight", &weight)], &params).unwrap();
    values(&out)
}

fn rms_norm_reference(x: &[f32], weight: &[f32], eps: f32) -> Vec<f64> {
    let row = |row: &[f32]| {
        let squares: f64 = row.iter().map(|v| f64::from(*v).powi(2)).sum();
        let scale = (squares / row.len() as f64 + f64::from(eps)).sqrt().recip();
        row.iter().zip(weight).map(|(v, w)| f64::from(*v) * scale * f64::from(*w)).collect::<Vec<_>>()
    };
    x.chunks(weight.len()).flat_map(row).collect()
}

fn silu_and_mul(device: &Device, x: &[f32], rows: usize, width: usize) -> Vec<f32> {
    let x = upload(device, &[rows, 2 * width], x);
    let out = device.empty(DType::F32, &[rows, width]).unwrap();
    let params = [("width", u32_of(width)), ("rows", u32_of(rows))];
    kernel(device, "activation").launch(&[("x", &x), ("out", &out)], &params).unwrap();
    values(&out)
}

fn silu_and_mul_reference(x: &[f32], width: usize) -> Vec<f64> {
    let row = |row: &[f32]| {
        let pairs = row[..width].iter().zip(&row[width..]);
        pairs
            .map(|(gate, up)| f64::from(*gate) / (1.0 + (-f64::from(*gate)).exp()) * f64::from(*up))
            .collect::<Vec<_>>()
    };
    x.chunks(2 * width).flat_map(row).collect()
}

/// Compares with a relative tolerance and the smallest normal `f32` as the absolute one: GPUs may flush subnormals.
fn assert_near(actual: &[f32], expected: &[f64], tolerance: f64, case: &str) {
    assert_eq!(actual.len(), expected.len(), "{case}");
    for (index, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let error = (f64::from(*actual) - expected).abs();
        let allowed = tolerance * expected.abs() + f64::from(f32::MIN_POSITIVE);
        assert!(error <= allowed, "{case}, element {index}: {actual} instead of {expected}");
    }
}

/// f32 sums of a few thousand squares, two roundings each for scale and weight.
const RMS_NORM_TOLERANCE: f64 = 2e-6;

/// WGSL grants exp an error of 3 + 2|x| units in the last place.
const SILU_TOLERANCE: f64 = 4e-6;

type Change = fn(&mut ShaderBinding, &mut String);

/// What compiling a changed `rms_norm.wgsl` gives.
fn compiled(device: &Device, change: impl FnOnce(&mut ShaderBinding, &mut String)) -> Result<ShaderKernel, GpuError> {
    let (mut binding, mut source) = shader("rmsnorm");
    change(&mut binding, &mut source);
    ShaderKernel::compile(device, &binding, &source)
}

fn assert_usable(device: &Device) {
    let actual = rms_norm(device, &[3.0, 4.0], &[1.0, 1.0], 1, 0.0);
    assert_near(&actual, &rms_norm_reference(&[3.0, 4.0], &[1.0, 1.0], 0.0), RMS_NORM_TOLERANCE, "after an error");
}
