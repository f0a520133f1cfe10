#![allow(clippy::all, clippy::pedantic, unused)]
#[path = "llama/mod.rs"]
mod llama;
use candle_core::*;
use kernelhub::host::candle::*;
use kernelhub::hub::Hub;
use kernelhub::swap::*;
use kernelhub::variant::DeviceKey;
use std::time::Instant;
fn hub() -> Hub {
    let mut b = Hub::builder().offline(true).cache("/tmp/wt/e2e/target/e2e-cache");
    let fetcher = kernelhub::fetch::Fetcher::new(kernelhub::fetch::FetchOptions::from_env().unwrap());
    for f in std::fs::read_dir("/tmp/wt/e2e/target/registry").unwrap() {
        let p = f.unwrap().path();
        if p.extension().is_some_and(|e| e == "toml") {
            let location: kernelhub::fetch::Location = p.to_str().unwrap().parse().unwrap();
            b = b.manifest(fetcher.fetch_manifest(&location).unwrap(), location);
        }
    }
    b.build().unwrap()
}
fn faults() -> u64 {
    let t = std::fs::read_to_string("/proc/self/stat").unwrap();
    t.rsplit_once(')').unwrap().1.split_whitespace().nth(7).unwrap().parse().unwrap()
}
fn med(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}
fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args[1] == "kept" {
        kernelhub::system::retain_freed_memory(1 << 30).unwrap();
    }
    let hub = hub();
    let std_ = KernelConfig::standard().unwrap();
    match args[2].as_str() {
        "norm" => {
            let slots = Slots::new(DeviceKey::Cpu);
            let w = Tensor::ones(4096, DType::F32, &Device::Cpu).unwrap();
            let norm = RmsNorm::new(w, 1e-5, &slots, "n").unwrap();
            let x = Tensor::rand(-1f32, 1f32, (2048, 4096), &Device::Cpu).unwrap();
            for on in [false, true, false, true] {
                if on {
                    slots.use_kernels(&hub, &std_).unwrap();
                } else {
                    slots.disable_kernels();
                }
                let mut t = vec![];
                let f0 = faults();
                for _ in 0..30 {
                    let c = Instant::now();
                    std::hint::black_box(norm.forward(&x).unwrap());
                    t.push(c.elapsed().as_secs_f64() * 1e6);
                }
                println!(
                    "{} norm[2048,4096] on={on} {:.0} us, {:.0} faults/call",
                    args[1],
                    med(t),
                    (faults() - f0) as f64 / 30.0
                );
            }
        }
        "model" => {
            let dtype = match args[3].as_str() {
                "f32" => DType::F32,
                "bf16" => DType::BF16,
                _ => DType::F16,
            };
            let n: usize = args[5].parse().unwrap();
            let path = std::path::Path::new("/tmp/wt/e2e/target/models/SmolLM2-135M-Instruct.Q4_1.gguf");
            let weights = llama::weights::Weights::open(path, dtype, &Device::Cpu).unwrap();
            let model = llama::model::Llama::load(&weights).unwrap();
            drop(weights);
            let short: Vec<u32> = (0..32).map(|i| i * 7).collect();
            let long: Vec<u32> = (0..512).map(|i| i * 7).collect();
            let dec: Vec<u32> = (0..n as u32).map(|i| i * 7).collect();
            let sides: &[bool] = match args[4].as_str() {
                "off" => &[false],
                "on" => &[true],
                _ => &[false, true],
            };
            for &on in sides {
                if on {
                    println!("{}", model.use_kernels(&hub, &std_).unwrap());
                } else {
                    model.disable_kernels();
                }
                let mut d = vec![];
                let mut p = vec![];
                let (mut fd, mut fp) = (0, 0);
                for _ in 0..3 {
                    let f = faults();
                    d.push(llama::generate::forced(&model, &short, &dec).unwrap().tokens_per_second().unwrap());
                    fd = faults() - f;
                    if args.len() <= 6 {
                        let f = faults();
                        p.push(llama::generate::forced(&model, &long, &[]).unwrap().prefill.as_secs_f64() * 1e3);
                        fp = faults() - f;
                    }
                }
                println!(
                    "{} {dtype:?} on={on} decode {:?} tok/s ({:.1} faults/token) prefill512 {:?} ms ({fp} faults)",
                    args[1],
                    d.iter().map(|x| (x * 10.0).round() / 10.0).collect::<Vec<_>>(),
                    fd as f64 / n as f64,
                    p.iter().map(|x| x.round()).collect::<Vec<_>>()
                );
            }
        }
        _ => {}
    }
}
