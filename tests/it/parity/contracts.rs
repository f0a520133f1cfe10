//! Every layer of the project's own kernels passes the library's own check, natively and as a shader.

use kernelhub::bind::LayerKernel;
use kernelhub::variant::DeviceKey;

use crate::support::embedded;

fn check(device: DeviceKey) -> usize {
    let (Some(registry), Some(hub)) = (embedded::registry(), embedded::hub()) else { return 0 };
    let mut checked = 0;
    for name in embedded::NAMES.into_iter().chain(embedded::newer(&registry)) {
        let reference: kernelhub::swap::KernelRef = format!("kernelhub/{name}@v1").parse().unwrap();
        let repo = reference.repo().unwrap();
        // Not every kernel has shaders.
        let Ok(kernel) = hub.get(repo, kernelhub::fetch::Revision::Version(1), device) else {
            assert_ne!(device, DeviceKey::Cpu, "{name}");
            continue;
        };
        for spec in &kernel.snapshot().layers().layers {
            let bound = hub.layer(&reference, &spec.name, device).unwrap();
            let report = bound.parity().unwrap_or_else(|error| panic!("{error}"));
            assert!(report.skipped.is_empty() && report.dtypes == spec.dtypes, "{name}: {report:?}");
            assert!(report.calls >= 16 && report.worst <= 1.0, "{name}: {report:?}");
            checked += 1;
        }
    }
    checked
}

#[test]
fn every_native_layer_is_at_parity() {
    assert!(check(DeviceKey::Cpu) >= 4 || embedded::registry().is_none());
}

#[cfg(feature = "wgpu")]
#[test]
fn every_shader_layer_is_at_parity() {
    if kernelhub::gpu::adapters().is_ok() {
        assert!(check(DeviceKey::Wgpu) >= 2 || embedded::registry().is_none());
    }
}

/// A shader layer says which code it is, so that no native function passed in its place.
#[cfg(feature = "wgpu")]
#[test]
fn a_shader_is_checked_on_its_device() {
    let Some(hub) = embedded::hub().filter(|_| kernelhub::gpu::adapters().is_ok()) else { return };
    let kernel = hub.layer(&"kernelhub/rmsnorm@v1".parse().unwrap(), "RMSNorm", DeviceKey::Wgpu).unwrap();
    let LayerKernel::RmsNorm(norm) = &*kernel else { panic!("{kernel:?}") };
    assert!(norm.meta().identity.handshake.is_none());
    // 4 widths, 4 row-major layouts, 2 values of eps: a shader takes no view.
    assert_eq!(kernel.parity().unwrap().calls, 4 * 4 * 2);
}
