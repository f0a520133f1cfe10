//! Intel GPUs, by Level Zero and by sysfs.
//!
//! The cards come from the kernel (`/sys/class/drm`), which lists all of them; what of them this process sees, and what
//! it can do, from the Level Zero drivers. Where no driver answers, the cards are listed by what the kernel tells, with
//! `sysfs` as their API, and a note says what to install: such a device cannot be used natively yet.
//!
//! A driver that hangs is left behind after a while. One that crashes takes the process with it, as it does every
//! program's that uses the GPU; the one setting that is known to make Intel's do so is not shown to it ([`mask`]).
//!
//! Level Zero is tested against a driver library of the tests' own behind the real loader; sysfs on described trees. An
//! Intel GPU was never at hand.
//!
//! For a described machine ([`Environment::root`]) no driver is asked, since those of this machine would answer, unless
//! its description names one (`ZE_ENABLE_ALT_DRIVERS`, which the loader reads from the process's environment).

mod describe;
mod machine;
mod mask;
mod settings;
mod sycl;
mod sysfs;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use super::Found;
use super::watch::Watch;
use crate::system::SystemInfo;
use crate::system::environment::Environment;
use crate::system::ffi::level_zero::{self, Driver, LevelZeroError};
use crate::variant::DeviceKey;
use sysfs::Card;

/// How long the drivers may take to answer. Starting them takes seconds where each of many cards is woken first.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Names the drivers that the loader takes in the place of those that it finds.
const ALTERNATIVES: &str = "ZE_ENABLE_ALT_DRIVERS";
/// The most that it may name: the loader opens each, and an environment has room for tens of thousands.
const MAX_ALTERNATIVES: usize = 64;

const INSTALL: &str = "install the Level Zero loader (libze1, or level-zero) and Intel's driver (libze-intel-gpu1, or \
                       intel-level-zero-gpu), and join the group of /dev/dri/renderD* (render)";

pub(super) fn probe(environment: &Environment) -> Option<Found> {
    if !cfg!(any(target_os = "linux", target_os = "windows")) {
        return None;
    }
    let mut notes = Vec::new();
    let cards = sysfs::cards(environment);
    for address in sysfs::without_driver(environment) {
        notes.push(format!("the Intel GPU at {address} has no kernel driver: i915 or xe is needed"));
    }
    let mut settings = settings::read(environment);
    let drivers = drivers(environment, &cards, &settings, &mut notes);
    if !cards.is_empty()
        || drivers.as_ref().is_some_and(|drivers| drivers.iter().any(|driver| !driver.devices.is_empty()))
    {
        let runtime = sycl::runtime(environment);
        settings.backend_version = runtime.as_ref().and_then(|runtime| runtime.version);
        notes
            .extend(runtime.filter(|runtime| runtime.version.is_none()).map(|runtime| sycl::unknown_version(&runtime)));
    }
    let machine = machine::assemble(cards, drivers, &settings);
    let masks = settings::masks(environment, &settings, &machine);
    if !machine.devices.is_empty() {
        notes.extend(settings::hierarchy_note(&settings, &machine));
    }
    notes.extend(machine.notes);
    // A driver fails in the same way for every device.
    let mut said = BTreeSet::new();
    notes.retain(|note| said.insert(note.clone()));
    Some(Found { devices: machine.devices, masks, notes })
}

/// What the drivers of this machine tell; `None` where none was asked or none answered.
fn drivers(
    environment: &Environment,
    cards: &[Card],
    settings: &machine::Settings,
    notes: &mut Vec<String>,
) -> Option<Vec<Driver>> {
    let alternatives = environment.setting(ALTERNATIVES).unwrap_or_default();
    let named = !alternatives.is_empty();
    // Linux under Windows has its GPUs behind this device, and no cards.
    let likely = !cards.is_empty() || cfg!(windows) || environment.path("dev/dxg").exists();
    if !named && (environment.root.is_some() || !likely) {
        return None;
    }
    let count = alternatives.split(',').count();
    if count > MAX_ALTERNATIVES {
        notes.push(format!(
            "{ALTERNATIVES} names {count} libraries, each of which the Level Zero loader would try: it was not asked, \
             for more than {MAX_ALTERNATIVES} are no list of drivers"
        ));
        return None;
    }
    if settings.mask.as_ref().is_some_and(mask::AffinityMask::fatal) {
        // The row of the mask says it.
        return None;
    }
    match ask() {
        Ok((drivers, said)) => {
            notes.extend(said);
            Some(drivers)
        }
        // A driver whose mask hides all that it has says that there is none.
        Err(Unanswered::LevelZero(LevelZeroError::NoDriver(_))) if machine::hides_all(cards, settings) => {
            Some(Vec::new())
        }
        Err(error) if !cards.is_empty() => {
            notes.push(match error {
                Unanswered::LevelZero(LevelZeroError::Loader(_) | LevelZeroError::NoDriver(_)) => {
                    let closed = cfg!(target_os = "linux") && !environment.path("dev/dri").exists();
                    let container = if closed { "; /dev/dri is not here: a container has to be given it" } else { "" };
                    format!("{error}; the GPUs are listed by what the kernel tells. To use them, {INSTALL}{container}")
                }
                error => error.to_string(),
            });
            None
        }
        // No Intel GPU, so nothing is missing.
        Err(Unanswered::LevelZero(LevelZeroError::Loader(_) | LevelZeroError::NoDriver(_))) => None,
        Err(error) => {
            notes.push(error.to_string());
            None
        }
    }
}

/// Why the drivers told nothing.
#[derive(Debug, thiserror::Error)]
enum Unanswered {
    #[error(transparent)]
    LevelZero(LevelZeroError),
    #[error(
        "the Level Zero driver did not answer within {} s and was left behind in a thread; the GPUs are listed by what \
         the kernel tells",
        TIME_LIMIT.as_secs()
    )]
    Hung,
}

fn ask() -> Result<(Vec<Driver>, Vec<String>), Unanswered> {
    static WATCH: Watch = Watch::new();
    let answer = WATCH.within(TIME_LIMIT, || level_zero::ask(&loader()));
    answer.map_or(Err(Unanswered::Hung), |answer| answer.map_err(Unanswered::LevelZero))
}

/// The loader, for the dynamic linker to find.
fn loader() -> PathBuf {
    PathBuf::from(if cfg!(windows) { "ze_loader.dll" } else { "libze_loader.so.1" })
}

impl SystemInfo {
    /// Whether an Intel GPU can be used natively: one that no mask hides and that a Level Zero driver shows.
    ///
    /// Transformers' `is_torch_xpu_available` asks `torch.xpu.is_available()`, which is true when the SYCL runtime that
    /// PyTorch was built with finds a Level Zero GPU. This asks no Python and no SYCL: it is true on a machine without
    /// PyTorch, and it does not follow `ONEAPI_DEVICE_SELECTOR`, which is SYCL's. Speaks of the devices in this
    /// description: [`SystemInfo::probe_native`] looks for them.
    #[must_use]
    pub fn is_xpu_available(&self) -> bool {
        use crate::system::device::Route;
        self.visible(DeviceKey::Xpu).any(|device| device.route == Route::Native && device.has_driver())
    }
}
