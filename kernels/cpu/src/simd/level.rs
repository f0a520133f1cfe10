//! The choice of an instruction level, made once per process.

use core::sync::atomic::{AtomicU8, Ordering};

use super::portable::Portable;
use super::{Kernel, Simd};

/// An instruction level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Level {
    /// Plain Rust, for any CPU.
    Portable,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ and VL, with all of [`Level::Avx2`].
    Avx512,
    /// [`Level::Avx512`] with the dot products of AVX-512 BF16.
    Avx512Bf16,
}

const UNKNOWN: u8 = 0;
/// The level in use plus one, or [`UNKNOWN`] before the first call.
static CURRENT: AtomicU8 = AtomicU8::new(UNKNOWN);

/// The best level of this CPU.
fn detect() -> Level {
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        if avx2 && avx512 {
            return if is_x86_feature_detected!("avx512bf16") { Level::Avx512Bf16 } else { Level::Avx512 };
        }
        if avx2 {
            return Level::Avx2;
        }
    }
    Level::Portable
}

/// The levels that this CPU has, best last.
#[must_use]
pub fn available() -> &'static [Level] {
    match detect() {
        Level::Portable => &[Level::Portable],
        Level::Avx2 => &[Level::Portable, Level::Avx2],
        Level::Avx512 => &[Level::Portable, Level::Avx2, Level::Avx512],
        Level::Avx512Bf16 => &[Level::Portable, Level::Avx2, Level::Avx512, Level::Avx512Bf16],
    }
}

/// Makes all later calls in the process use `level`, or the CPU's best one for `None`. For tests and measurements.
///
/// Returns whether the level is set: false, and no change, where the CPU lacks it.
pub fn force_level(level: Option<Level>) -> bool {
    let level = level.unwrap_or_else(detect);
    if !available().contains(&level) {
        return false;
    }
    CURRENT.store(level as u8 + 1, Ordering::Relaxed);
    true
}

/// The level that calls use now.
pub(crate) fn current() -> Level {
    match CURRENT.load(Ordering::Relaxed) {
        1 => Level::Portable,
        2 => Level::Avx2,
        3 => Level::Avx512,
        4 => Level::Avx512Bf16,
        _ => {
            let level = detect();
            CURRENT.store(level as u8 + 1, Ordering::Relaxed);
            level
        }
    }
}

/// Runs `kernel` at `level`, which comes from [`current`].
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "a level's token asserts that the CPU has the level"))]
pub(crate) fn dispatch<K: Kernel>(level: Level, kernel: K) {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512Bf16 => {
            // SAFETY: `current` answers this level only after detection found it.
            let simd = unsafe { super::avx512::Avx512::<true>::assume() };
            simd.call(kernel);
        }
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => {
            // SAFETY: `current` answers this level only after detection found it.
            let simd = unsafe { super::avx512::Avx512::<false>::assume() };
            simd.call(kernel);
        }
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => {
            // SAFETY: `current` answers this level only after detection found it.
            let simd = unsafe { super::avx2::Avx2::assume() };
            simd.call(kernel);
        }
        _ => Portable.call(kernel),
    }
}
