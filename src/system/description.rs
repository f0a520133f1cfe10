//! Descriptions of machines in JSON, by hand or from another machine.

use std::collections::HashSet;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{CpuInfo, DeviceInfo, LibraryFound, Mask, Route, SystemInfo};
use crate::hint::{Hint, nearest};
use crate::variant::{Arch, DeviceKey, Os};

/// Largest description that is read, in bytes.
pub const MAX_SYSTEM_BYTES: u64 = 1 << 20;
/// Most devices, and most masks and notes each, of one description. No server has a quarter as many, and every build is
/// compared with every device.
pub const MAX_DEVICES: usize = 256;

/// A text that describes no machine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptionError {
    /// It is longer than any description.
    #[error("{origin}: more than {maximum} bytes; a description has at most as many")]
    TooLong {
        /// The file.
        origin: String,
        /// The most that is read.
        maximum: u64,
    },
    /// It is no JSON, or has a key twice.
    #[error("{origin}: not JSON")]
    Json {
        /// The file.
        origin: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// It has a key that means nothing.
    #[error("{origin}: {place} has the unknown key {key:?}")]
    UnknownKey {
        /// The file.
        origin: String,
        /// Where: `the description`, `cpu`, `devices[2]`.
        place: String,
        /// The key.
        key: String,
        /// The keys that are known there.
        known: Vec<String>,
    },
    /// A value is not what it should be.
    #[error("{origin}: {place}: {fault}")]
    Value {
        /// The file.
        origin: String,
        /// Where: `os`, `devices[2]`.
        place: String,
        /// What is wrong with it.
        fault: String,
    },
}

impl Hint for DescriptionError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownKey { key, known, .. } => {
                Some(nearest(key, known.iter().map(String::as_str)).map_or_else(
                    || format!("known keys: {}", known.join(", ")),
                    |near| format!("did you mean {near:?}?"),
                ))
            }
            _ => Some(
                "`kernelhub devices --json` prints this machine's description; the least is {\"os\": \"linux\", \
                 \"arch\": \"x86_64\"}"
                    .to_owned(),
            ),
        }
    }
}

/// What is read, with the file's name for errors.
struct Reader<'a> {
    origin: &'a str,
}

impl SystemInfo {
    /// Reads a description of a machine, as `kernelhub devices --json` prints it. `origin` names the file in errors.
    ///
    /// `os` and `arch` have to be there (`null` for one that no build is published for); whatever else is left out is
    /// unknown or absent.
    ///
    /// # Errors
    /// [`DescriptionError`] for a text that is too long or no JSON, a key that is unknown or stands twice, and values
    /// that are none or that contradict each other: devices of the processor, a native device of `wgpu`, two devices
    /// of one name that are both visible, a native type that is emulated too, the C library of Linux elsewhere,
    /// devices or a processor that nobody has looked for.
    pub fn from_json(bytes: &[u8], origin: &str) -> Result<Self, DescriptionError> {
        let reader = Reader { origin };
        if bytes.len() as u64 > MAX_SYSTEM_BYTES {
            return Err(DescriptionError::TooLong { origin: origin.to_owned(), maximum: MAX_SYSTEM_BYTES });
        }
        // Some editors put a mark of their own before a text.
        let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        let root = crate::manifest::parse_json_strict(bytes)
            .map_err(|source| DescriptionError::Json { origin: origin.to_owned(), source })?;
        let Value::Object(root) = &root else { return Err(reader.fault("the description", "expected an object")) };
        reader.known_keys("the description", root, &SystemInfo::described(Os::Linux, Arch::X86_64))?;
        for key in ["os", "arch"] {
            if !root.contains_key(key) {
                return Err(reader.fault(key, "is missing"));
            }
        }
        reader.part(root, "cpu", &CpuInfo::default())?;
        let library = LibraryFound { path: "/".into(), version: None };
        reader.part(root, "tvm_ffi", &library)?;
        reader.part(root, "torch", &library)?;
        reader.list(root, "devices", &DeviceInfo::new(DeviceKey::Cuda, 0, "", Route::Native))?;
        reader.list(root, "masks", &Mask::new(DeviceKey::Cuda, "", "", ""))?;
        reader.bounded(root, "notes")?;
        for key in root.keys() {
            // Each value by itself first, so that an error names its place.
            let alone: Map<String, Value> = [(key.clone(), root[key].clone())]
                .into_iter()
                .chain(["os", "arch"].map(|key| (key.to_owned(), Value::Null)).into_iter().filter(|(k, _)| k != key))
                .collect();
            reader.value::<Self>(key, &Value::Object(alone))?;
        }
        let system: Self = reader.value("the description", &Value::Object(root.clone()))?;
        reader.consistent(&system)?;
        Ok(system)
    }
}

impl Reader<'_> {
    fn fault(&self, place: &str, fault: impl Into<String>) -> DescriptionError {
        DescriptionError::Value { origin: self.origin.to_owned(), place: place.to_owned(), fault: fault.into() }
    }

    fn value<T: DeserializeOwned>(&self, place: &str, value: &Value) -> Result<T, DescriptionError> {
        serde_json::from_value(value.clone()).map_err(|error| self.fault(place, error.to_string()))
    }

    /// Holds the keys of an object to those that a whole value of its kind is written with.
    fn known_keys(
        &self,
        place: &str,
        fields: &Map<String, Value>,
        whole: &impl Serialize,
    ) -> Result<(), DescriptionError> {
        let whole = serde_json::to_value(whole).ok();
        let known: Vec<String> =
            whole.as_ref().and_then(Value::as_object).into_iter().flat_map(Map::keys).cloned().collect();
        match fields.keys().find(|key| !known.contains(key)) {
            None => Ok(()),
            Some(key) => Err(DescriptionError::UnknownKey {
                origin: self.origin.to_owned(),
                place: place.to_owned(),
                key: key.clone(),
                known,
            }),
        }
    }

    /// One value of a kind, or none.
    fn part<T: Serialize + DeserializeOwned>(
        &self,
        root: &Map<String, Value>,
        place: &str,
        whole: &T,
    ) -> Result<(), DescriptionError> {
        match root.get(place) {
            None | Some(Value::Null) => Ok(()),
            Some(value) => self.object(place, value, whole),
        }
    }

    fn list<T: Serialize + DeserializeOwned>(
        &self,
        root: &Map<String, Value>,
        place: &str,
        whole: &T,
    ) -> Result<(), DescriptionError> {
        let values = self.bounded(root, place)?;
        values.iter().enumerate().try_for_each(|(index, value)| self.object(&format!("{place}[{index}]"), value, whole))
    }

    fn bounded<'v>(&self, root: &'v Map<String, Value>, place: &str) -> Result<&'v [Value], DescriptionError> {
        match root.get(place) {
            None => Ok(&[]),
            Some(Value::Array(values)) if values.len() <= MAX_DEVICES => Ok(values),
            Some(Value::Array(_)) => Err(self.fault(place, format!("more than {MAX_DEVICES}"))),
            Some(_) => Err(self.fault(place, "expected a list")),
        }
    }

    fn object<T: Serialize + DeserializeOwned>(
        &self,
        place: &str,
        value: &Value,
        whole: &T,
    ) -> Result<(), DescriptionError> {
        let Value::Object(fields) = value else { return Err(self.fault(place, "expected an object")) };
        self.known_keys(place, fields, whole)?;
        self.value::<T>(place, value).map(drop)
    }

    /// Refuses what no machine can have, and what would make the choice of a device ambiguous.
    fn consistent(&self, system: &SystemInfo) -> Result<(), DescriptionError> {
        if system.unprobed.contains(&DeviceKey::Cpu) {
            return Err(self.fault("unprobed", "the processor is always looked at"));
        }
        if system.libc.is_some() && !matches!(system.os, None | Some(Os::Linux)) {
            return Err(self.fault("libc", "only a Linux system has one that builds depend on"));
        }
        let mut names = HashSet::new();
        for (index, device) in system.devices.iter().enumerate() {
            let place = format!("devices[{index}]");
            let name = format!("{}:{}", device.key, device.index);
            if device.key == DeviceKey::Cpu {
                return Err(self.fault(&place, "the processor is described by \"arch\" and \"cpu\", not as a device"));
            }
            if device.key == DeviceKey::Wgpu && device.route == Route::Native {
                return Err(self.fault(&place, "a wgpu device is reached as an \"adapter\""));
            }
            let native = device.dtypes.as_deref().unwrap_or_default();
            if let Some(both) = native.iter().find(|dtype| device.emulated.contains(dtype)) {
                return Err(self.fault(&place, format!("{both} is among its \"dtypes\" and \"emulated\" too")));
            }
            if device.route == Route::Native && system.unprobed.contains(&device.key) {
                return Err(self.fault("unprobed", format!("{name} is among the devices")));
            }
            if device.masked_by.is_none() && !names.insert((device.key, device.route, device.index)) {
                return Err(self.fault(&place, format!("{name} is described twice, and both are visible")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{DescriptionError, MAX_DEVICES, SystemInfo};
    use crate::hint::Hint as _;
    use crate::variant::{Arch, Os};

    fn read(text: &str) -> Result<SystemInfo, DescriptionError> {
        SystemInfo::from_json(text.as_bytes(), "a machine")
    }

    fn with(rest: &str) -> String {
        format!(r#"{{"os": "linux", "arch": "x86_64", {rest}}}"#)
    }

    #[test]
    fn the_least_and_a_whole_machine_are_read() {
        let least = read(r#"{"os": "linux", "arch": "x86_64"}"#).unwrap();
        assert_eq!(least, SystemInfo::described(Os::Linux, Arch::X86_64));
        assert_eq!(read(r#"{"os": null, "arch": null}"#).unwrap().os, None);
        assert_eq!(read("\u{feff}{\"os\": \"linux\", \"arch\": \"x86_64\"}").unwrap(), least);
        let probed = SystemInfo::probe();
        assert_eq!(read(&serde_json::to_string(&probed).unwrap()).unwrap(), probed);
        let masked = r#""devices": [{"key": "cuda", "index": 0, "name": "a", "route": "native"},
            {"key": "cuda", "index": 0, "name": "b", "route": "native", "masked_by": "CUDA_VISIBLE_DEVICES=1"}]"#;
        assert_eq!(read(&with(masked)).unwrap().devices.len(), 2);
    }

    #[test]
    fn a_slip_is_named_with_its_place_and_the_near_key() {
        for (text, said, hint) in [
            (with(r#""devises": []"#), "the description has the unknown key \"devises\"", "\"devices\""),
            (with(r#""cpu": {"modle": "x"}"#), "cpu has the unknown key \"modle\"", "\"model\""),
            (with(r#""torch": {"path": "/x", "versoin": "2"}"#), "torch has", "\"version\""),
            (with(r#""devices": [{"key": "cuda", "idx": 0}]"#), "devices[0] has the unknown key \"idx\"", "index"),
            (with(r#""masks": [{"vraiable": "x"}]"#), "masks[0] has", "\"variable\""),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
            assert!(error.hint().unwrap().contains(hint), "{:?}", error.hint());
        }
    }

    #[test]
    fn hostile_and_contradictory_descriptions_are_refused() {
        let device = r#"{"key": "cuda", "index": 0, "name": "a", "route": "native"}"#;
        let many = vec![r#""a note""#; MAX_DEVICES + 1].join(",");
        for (text, said) in [
            (String::new(), "not JSON"),
            ("[]".to_owned(), "expected an object"),
            ("{} {}".to_owned(), "not JSON"),
            ("[".repeat(100_000), "not JSON"),
            (" ".repeat((1 << 20) + 1), "more than 1048576 bytes"),
            (r#"{"os": "linux", "os": "darwin", "arch": "x86_64"}"#.to_owned(), "not JSON"),
            (r#"{"os": "linux"}"#.to_owned(), "arch: is missing"),
            (r#"{"arch": "x86_64"}"#.to_owned(), "os: is missing"),
            (r#"{"os": "Linux", "arch": "x86_64"}"#.to_owned(), "os: unknown variant"),
            (r#"{"os": "linux", "arch": 64}"#.to_owned(), "arch: "),
            (with(r#""libc": "glibc""#), "libc: "),
            (with(r#""libc": {"glibc": "2"}"#), "libc: not a version"),
            (with(r#""unprobed": ["gpu"]"#), "unprobed: unknown device key"),
            (with(r#""devices": {}"#), "devices: expected a list"),
            (with(r#""devices": [null]"#), "devices[0]: expected an object"),
            (with(r#""devices": [{"key": "cuda"}]"#), "devices[0]: missing field `index`"),
            (with(&format!(r#""devices": [{}]"#, device.replace('0', "-1"))), "devices[0]: "),
            (with(&format!(r#""devices": [{}]"#, device.replace('0', "1e9"))), "devices[0]: "),
            (with(&format!(r#""devices": [{}]"#, device.replace("cuda", "cpu"))), "devices[0]: the processor"),
            (with(&format!(r#""devices": [{}]"#, device.replace("cuda", "wgpu"))), "devices[0]: a wgpu device"),
            (with(&format!(r#""devices": [{device}, {device}]"#)), "devices[1]: cuda:0 is described twice"),
            (with(&format!(r#""devices": [{device}], "unprobed": ["cuda"]"#)), "unprobed: cuda:0 is among the devices"),
            (with(r#""unprobed": ["cpu"]"#), "unprobed: the processor"),
            (
                with(&format!(
                    r#""devices": [{}, "dtypes": ["bf16"], "emulated": ["bf16"]}}]"#,
                    &device[..device.len() - 1]
                )),
                "devices[0]: bf16 is among",
            ),
            (r#"{"os": "darwin", "arch": "aarch64", "libc": {"glibc": "2.36"}}"#.to_owned(), "libc: only a Linux"),
            (with(&format!(r#""notes": [{many}]"#)), "notes: more than 256"),
            (with(r#""notes": "x""#), "notes: expected a list"),
        ] {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
