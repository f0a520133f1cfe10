//! What records a compiled model, by its device.

use crate::variant::DeviceKey;

/// The name by which Gaudi's compiler is asked for.
const HPU: &str = "hpu_backend";

/// The compiler of a compiled model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileBackend {
    /// Its name. `None`: nobody asked for one, and the device takes its own.
    pub name: Option<String>,
    /// What a report must say: another one was asked for than the device can have.
    pub warning: Option<String>,
}

impl CompileBackend {
    /// The compiler that `device` takes when `requested` is asked for.
    ///
    /// Gaudi (`hpu`) has two, `eager` and `hpu_backend`: any other, and none, becomes `hpu_backend`, with a warning
    /// where another was named. Every other device takes what is asked for.
    #[must_use]
    pub fn of(device: DeviceKey, requested: Option<&str>) -> Self {
        let unchanged = || Self { name: requested.map(str::to_owned), warning: None };
        match (device, requested) {
            (DeviceKey::Hpu, Some("eager" | HPU)) => unchanged(),
            (DeviceKey::Hpu, other) => Self {
                name: Some(HPU.to_owned()),
                warning: other.map(|other| {
                    format!("the compile backend {other:?} does not serve hpu; {HPU} takes its place (or eager)")
                }),
            },
            _ => unchanged(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CompileBackend;
    use crate::variant::DeviceKey;

    #[test]
    fn gaudi_has_two_backends_and_says_so() {
        let of = |requested| {
            let backend = CompileBackend::of(DeviceKey::Hpu, requested);
            (backend.name.unwrap(), backend.warning.is_some())
        };
        assert_eq!(of(Some("eager")), ("eager".to_owned(), false));
        assert_eq!(of(Some("hpu_backend")), ("hpu_backend".to_owned(), false));
        assert_eq!(of(Some("inductor")), ("hpu_backend".to_owned(), true));
        assert_eq!(of(None), ("hpu_backend".to_owned(), false));
        for device in DeviceKey::all().filter(|device| *device != DeviceKey::Hpu) {
            let backend = CompileBackend::of(device, Some("inductor"));
            assert_eq!((backend.name.as_deref(), backend.warning), (Some("inductor"), None));
            assert_eq!(CompileBackend::of(device, None).name, None);
        }
    }
}
