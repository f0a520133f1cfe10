//! The two shader kernels, run once for parity with a plain computation.

use kernelhub::hub::Hub;
use serde_json::Value;

#[cfg(not(feature = "wgpu"))]
pub fn check(_hub: &Hub) -> anyhow::Result<Value> {
    println!("compiled without the feature wgpu");
    Ok(Value::Null)
}

#[cfg(feature = "wgpu")]
pub fn check(hub: &Hub) -> anyhow::Result<Value> {
    use kernelhub::variant::DeviceKey;

    let adapters = match kernelhub::gpu::adapters() {
        Ok(adapters) => adapters,
        Err(error) => {
            println!("skipped: {error}");
            return Ok(serde_json::json!({ "skipped": error.to_string() }));
        }
    };
    let info = adapters[0].info();
    println!("adapter: {} ({}, {:?})", info.name, info.backend, info.kind);
    let mut results = serde_json::Map::new();
    for (kernel, layer) in [("kernelhub/rmsnorm@v1", "RMSNorm"), ("kernelhub/activation@v1", "SiluAndMul")] {
        let bound = hub.layer(&kernel.parse()?, layer, DeviceKey::Wgpu)?;
        let device = hub.gpu(DeviceKey::Wgpu).expect("a shader layer was bound, so its device is open");
        let error = parity::largest_error(&bound, &device)?;
        let identity = &bound.meta().identity;
        println!("{identity}  {}  largest relative error {error:.1e}", identity.variant);
        anyhow::ensure!(error < parity::TOLERANCE, "{identity} differs from the plain computation by {error:.1e}");
        results.insert(layer.to_owned(), error.into());
    }
    Ok(serde_json::json!({ "adapter": info.name, "software": info.is_software(), "largest_error": results }))
}

#[cfg(feature = "wgpu")]
mod parity {
    use kernelhub::bind::LayerKernel;
    use kernelhub::dtype::DType;
    use kernelhub::gpu::Device;

    /// For f32, relative to the largest value of the output.
    pub(super) const TOLERANCE: f64 = 1e-5;
    const ROWS: usize = 33;
    const WIDTH: usize = 576;
    const EPS: f32 = 1e-5;

    pub(super) fn largest_error(kernel: &LayerKernel, device: &Device) -> anyhow::Result<f64> {
        match kernel {
            LayerKernel::RmsNorm(kernel) => {
                let (x, weight) = (values(ROWS * WIDTH), values(WIDTH));
                let upload = |shape: &[usize], data: &[f32]| device.upload(DType::F32, shape, &bytes(data));
                let out = kernel.forward_gpu(&upload(&[ROWS, WIDTH], &x)?, &upload(&[WIDTH], &weight)?, EPS, 0.0)?;
                let expected = x.chunks(WIDTH).flat_map(|row| {
                    let mean = row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / WIDTH as f64;
                    let scale = (mean + f64::from(EPS)).sqrt().recip();
                    row.iter().zip(&weight).map(move |(v, w)| f64::from(*v) * scale * f64::from(*w))
                });
                Ok(error(&out.download()?, expected.collect()))
            }
            LayerKernel::GatedActivation(kernel) => {
                let x = values(ROWS * 2 * WIDTH);
                let out = kernel.forward_gpu(&device.upload(DType::F32, &[ROWS, 2 * WIDTH], &bytes(&x))?)?;
                let expected = x.chunks(2 * WIDTH).flat_map(|row| {
                    let (gate, up) = row.split_at(WIDTH);
                    gate.iter().zip(up).map(|(g, u)| {
                        let g = f64::from(*g);
                        g / (1.0 + (-g).exp()) * f64::from(*u)
                    })
                });
                Ok(error(&out.download()?, expected.collect()))
            }
            other => anyhow::bail!("{} is no shader layer of the demo", other.meta().identity),
        }
    }

    /// Numbers between -4 and 4 that repeat nowhere near.
    fn values(count: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 7919) % 8009) as f32 / 8009.0 * 8.0 - 4.0).collect()
    }

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_ne_bytes()).collect()
    }

    fn error(actual: &[u8], expected: Vec<f64>) -> f64 {
        let largest = expected.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
        let actual = actual.chunks_exact(4).map(|b| f64::from(f32::from_ne_bytes([b[0], b[1], b[2], b[3]])));
        actual.zip(expected).fold(0.0_f64, |worst, (a, e)| worst.max((a - e).abs())) / largest
    }
}
