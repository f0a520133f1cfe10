//! Whether a build has code for a device: the `backend.archs` of `metadata.json`.

use crate::system::Capability;

/// One entry of a CUDA build's list.
///
/// `8.0` is machine code for that capability and the later minors of its major; `9.0a` for exactly that one; `10.0f`
/// for its family; `+PTX` adds code that any later device can compile, unless it is of the `a` or `f` kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CudaArch {
    capability: Capability,
    kind: Kind,
    ptx: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Exact,
    Family,
}

/// Families of devices that share code of the `f` kind. A capability that is not listed is alone in its family.
///
/// Source: CUDA Programming Guide, appendix "Compute Capabilities", family-specific feature sets: `compute_100f` runs
/// on 10.0 and 10.3, `compute_120f` on 12.0 and 12.1.
const FAMILIES: [&[Capability]; 2] = [
    &[Capability { major: 10, minor: 0 }, Capability { major: 10, minor: 3 }],
    &[Capability { major: 12, minor: 0 }, Capability { major: 12, minor: 1 }],
];

impl CudaArch {
    fn parse(text: &str) -> Option<Self> {
        let (text, ptx) = text.strip_suffix("+PTX").map_or((text, false), |text| (text, true));
        let (text, kind) = match text.strip_suffix(['a', 'f']) {
            None => (text, Kind::Plain),
            Some(rest) if text.ends_with('a') => (rest, Kind::Exact),
            Some(rest) => (rest, Kind::Family),
        };
        Some(Self { capability: text.parse().ok()?, kind, ptx })
    }

    fn serves(self, device: Capability) -> bool {
        let built = self.capability;
        match self.kind {
            Kind::Plain => {
                (built.major == device.major && built.minor <= device.minor) || (self.ptx && built <= device)
            }
            Kind::Exact => built == device,
            Kind::Family => {
                let shared = FAMILIES.iter().any(|family| family.contains(&built) && family.contains(&device));
                built == device || (shared && built <= device)
            }
        }
    }
}

/// Whether a CUDA build with these entries has code for the device. An entry that is not understood serves none.
pub(super) fn cuda_serves(archs: &[String], device: Capability) -> bool {
    archs.iter().filter_map(|arch| CudaArch::parse(arch)).any(|arch| arch.serves(device))
}

/// Whether a `ROCm` build with these entries has code for the device: the same name, and no feature that the device
/// lacks. `gfx90a` serves `gfx90a:sramecc+:xnack-`; `gfx90a:xnack+` does not.
pub(super) fn rocm_serves(archs: &[String], device: &str) -> bool {
    let mut device = device.split(':');
    let name = device.next().unwrap_or_default();
    let features: Vec<&str> = device.collect();
    archs.iter().any(|arch| {
        let mut arch = arch.split(':');
        arch.next() == Some(name) && arch.all(|feature| features.contains(&feature))
    })
}

#[cfg(test)]
mod tests {
    use super::{cuda_serves, rocm_serves};

    fn list(archs: &[&str]) -> Vec<String> {
        archs.iter().map(|&arch| arch.to_owned()).collect()
    }

    #[test]
    fn f03_cuda_lists_are_compared_with_the_capability() {
        let cases: [(&[&str], &str, bool); 18] = [
            (&["8.0", "9.0a"], "10.0", false),
            (&["7.0", "9.0+PTX"], "10.0", true),
            (&["8.0"], "8.6", true),
            (&["8.6"], "8.0", false),
            (&["8.0"], "9.0", false),
            (&["9.0a"], "9.0", true),
            (&["9.0a"], "9.1", false),
            (&["9.0a+PTX"], "10.0", false),
            (&["9.0+PTX"], "8.9", false),
            (&["10.0f"], "10.0", true),
            (&["10.0f"], "10.3", true),
            (&["10.0f"], "10.1", false),
            (&["10.3f"], "10.0", false),
            (&["12.0f"], "12.1", true),
            (&["11.0f"], "11.0", true),
            (&["10.0f"], "12.0", false),
            (&["sm_90", "9", "", "a", "9.0x", "+PTX", "é"], "9.0", false),
            (&["8.0", "nonsense"], "8.0", true),
        ];
        for (archs, device, serves) in cases {
            assert_eq!(cuda_serves(&list(archs), device.parse().unwrap()), serves, "{archs:?} on {device}");
        }
    }

    #[test]
    fn f04_rocm_names_are_compared_whole() {
        assert!(!rocm_serves(&list(&["gfx942"]), "gfx1151"));
        assert!(!rocm_serves(&list(&["gfx115"]), "gfx1151"));
        assert!(rocm_serves(&list(&["gfx942", "gfx1151"]), "gfx1151"));
        assert!(rocm_serves(&list(&["gfx90a"]), "gfx90a:sramecc+:xnack-"));
        assert!(!rocm_serves(&list(&["gfx90a:xnack+"]), "gfx90a:sramecc+:xnack-"));
        assert!(rocm_serves(&list(&["gfx90a:xnack-"]), "gfx90a:sramecc+:xnack-"));
    }
}
