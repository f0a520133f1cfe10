//! The limits of `manylinux_2_28`: what a library may need so that every current Linux distribution with glibc loads
//! it.
//!
//! Source: PEP 600, and the published policy of `manylinux_2_28`: the newest version of each family of symbols that
//! `AlmaLinux` 8 has, and the libraries that any such system has. Kernels of the Hub are built to it. Libraries of the
//! framework and the device that a build is for come with them, and are no violation.

use std::collections::BTreeMap;

use super::{Finding, ScanRules, Severity, inspect};
use crate::digest::{Violation, ViolationKind};
use crate::elf::{ElfFacts, split_version};
use crate::variant::Variant;

/// The policy's name.
pub const POLICY: &str = "manylinux_2_28";

/// The newest version of each family, and members of it that have no number.
const CEILINGS: [(&str, &[u32], &[&str]); 5] = [
    ("GLIBC", &[2, 28], &[]),
    ("GLIBCXX", &[3, 4, 24], &[]),
    ("CXXABI", &[1, 3, 11], &["CXXABI_FLOAT128", "CXXABI_TM_1"]),
    ("GCC", &[7, 0, 0], &[]),
    ("ZLIB", &[1, 2, 9], &[]),
];

/// The libraries that every system of the policy has.
const LIBRARIES: [&str; 21] = [
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "libm.so.6",
    "libdl.so.2",
    "librt.so.1",
    "libc.so.6",
    "libnsl.so.1",
    "libutil.so.1",
    "libpthread.so.0",
    "libX11.so.6",
    "libXext.so.6",
    "libXrender.so.1",
    "libICE.so.6",
    "libSM.so.6",
    "libGL.so.1",
    "libgobject-2.0.so.0",
    "libgthread-2.0.so.0",
    "libglib-2.0.so.0",
    "libresolv.so.2",
    "libexpat.so.1",
    "libz.so.1",
];

/// How the names of libraries begin that come with a framework or a device's software, or with the system's loader.
const COME_WITH_A_BUILD: [&str; 20] = [
    "ld-linux-",
    "libtorch",
    "libc10",
    "libtvm_ffi",
    "libcuda.",
    "libcudart.",
    "libcublas",
    "libcudnn",
    "libcufft",
    "libcusolver",
    "libcusparse",
    "libnvrtc",
    "libnvJitLink",
    "libamdhip64.",
    "libhip",
    "librocblas",
    "libsycl.",
    "libze_loader.",
    "libOpenCL.",
    "libdnnl.",
];

/// What a library has that the policy does not allow, and what no build is to have; in a stable order. `variant` is the
/// build that it is of, where its folder says one.
#[must_use]
pub fn check_manylinux(path: &str, facts: &ElfFacts, variant: Option<&Variant>) -> Vec<Violation> {
    let mut found = Vec::new();
    let findings = variant.map(|variant| inspect(path, facts, variant, &ScanRules::default())).unwrap_or_default();
    found.extend(findings.iter().filter(|finding| finding.severity == Severity::Refuse).map(Finding::violation));
    let mut add = |kind, expected, actual: &str| {
        found.push(Violation {
            kind,
            path: path.to_owned(),
            expected: Some(expected),
            actual: Some(actual.to_owned()),
        });
    };
    for library in &facts.needed {
        let is_allowed =
            LIBRARIES.contains(&library.as_str()) || COME_WITH_A_BUILD.iter().any(|start| library.starts_with(start));
        if !is_allowed {
            add(ViolationKind::AbiLibrary, format!("a library of {POLICY}"), library);
        }
    }
    // Of each family that goes too far the furthest is enough.
    let mut newest: BTreeMap<&str, (Vec<u32>, &str, String)> = BTreeMap::new();
    for need in &facts.needed_versions {
        let version = need.version.as_str();
        let Some((family, ceiling, names)) =
            CEILINGS.iter().find(|(family, ..)| version.strip_prefix(family).is_some_and(|rest| rest.starts_with('_')))
        else {
            continue;
        };
        let parts: Vec<_> = ceiling.iter().map(ToString::to_string).collect();
        let limit = format!("{family}_{} at most", parts.join("."));
        match split_version(version).filter(|(of, _)| of == family) {
            Some((_, number)) if number.as_slice() > *ceiling => {
                let known = newest.entry(family).or_insert_with(|| (number.clone(), version, limit.clone()));
                if number > known.0 {
                    *known = (number, version, limit);
                }
            }
            None if !names.contains(&version) => add(ViolationKind::AbiVersion, limit, version),
            _ => {}
        }
    }
    for (_, version, limit) in newest.into_values() {
        add(ViolationKind::AbiVersion, limit, version);
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::check_manylinux;
    use crate::digest::ViolationKind;
    use crate::elf::{ElfFacts, VersionNeed};

    fn needing(needed: &[&str], versions: &[&str]) -> ElfFacts {
        let version = |version: &&str| VersionNeed {
            library: "libc.so.6".to_owned(),
            version: (*version).to_owned(),
            is_weak: false,
        };
        ElfFacts {
            needed: needed.iter().map(ToString::to_string).collect(),
            needed_versions: versions.iter().map(version).collect(),
            ..ElfFacts::default()
        }
    }

    #[test]
    fn the_ceilings_themselves_are_allowed_and_a_step_further_is_not() {
        let libraries = ["libc.so.6", "libtorch_cpu.so", "libcudart.so.12", "ld-linux-x86-64.so.2"];
        let highest =
            ["GLIBC_2.28", "GLIBC_2.9", "GLIBCXX_3.4.24", "CXXABI_1.3.11", "CXXABI_FLOAT128", "GCC_7.0.0", "OWN_99.0"];
        assert_eq!(check_manylinux("x.so", &needing(&libraries, &highest), None), []);
        for (version, limit) in [
            ("GLIBC_2.29", "GLIBC_2.28 at most"),
            ("GLIBC_3.0", "GLIBC_2.28 at most"),
            ("GLIBCXX_3.4.25", "GLIBCXX_3.4.24 at most"),
            ("CXXABI_1.3.12", "CXXABI_1.3.11 at most"),
            ("GCC_12.0.0", "GCC_7.0.0 at most"),
            ("GLIBC_PRIVATE", "GLIBC_2.28 at most"),
            ("GLIBC_ABI_DT_RELR", "GLIBC_2.28 at most"),
        ] {
            let found = check_manylinux("x.so", &needing(&[], &["GLIBC_2.17", version]), None);
            assert_eq!(found.len(), 1, "{version}: {found:?}");
            assert_eq!(found[0].kind, ViolationKind::AbiVersion);
            assert_eq!((found[0].actual.as_deref(), found[0].expected.as_deref()), (Some(version), Some(limit)));
        }
        let found = check_manylinux("x.so", &needing(&[], &["GLIBC_2.30", "GLIBC_2.38", "GLIBC_2.33"]), None);
        assert_eq!(found.len(), 1, "the furthest of a family");
        assert_eq!(found[0].actual.as_deref(), Some("GLIBC_2.38"));
        let found = check_manylinux("x.so", &needing(&["libopenblas.so.0", "libc.musl-x86_64.so.1"], &[]), None);
        assert_eq!(found.iter().map(|violation| violation.kind).collect::<Vec<_>>(), [ViolationKind::AbiLibrary; 2]);
    }
}
