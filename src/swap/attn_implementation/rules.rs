//! Which kernel a word names on which device, as Transformers has it.
//!
//! Source: Transformers 5.24, `modeling_flash_attention_utils.py` (the kernels that stand in for the flash-attn
//! packages, and the devices that each has builds for).

use super::{AttnKind, FlashGeneration};
use crate::variant::DeviceKey;

/// Why a word names no kernel on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reason: String,
    pub(super) hint: String,
}

/// Our own kernel for the processor, which no generation's word stands for.
const OWN: &str = "kernelhub/flash-attn2@v1";
/// For Apple GPUs; no generation's word stands for it either.
const METAL: &str = "kernels-community/metal-flash-sdpa";

/// The kernel that a generation's word names on a device. Versions are those of the default table.
///
/// On the processor, `flash_attention_2` names the kernel that it names on GPUs, as it does in Transformers, and never
/// ours: whoever asks for a kernel by name gets that one or an error.
pub(super) fn flash(generation: FlashGeneration, device: DeviceKey) -> Result<&'static str, Refusal> {
    use DeviceKey::{Cpu, Cuda, Rocm, Xpu};
    use FlashGeneration::{Four, Three, Two};
    match (generation, device) {
        (Two, Cuda | Xpu | Cpu) => Ok("kernels-community/flash-attn2"),
        (Two, Rocm) => Ok("kernels-community/aiter-flash-attn"),
        (Two, _) => Err(Refusal {
            reason: format!("flash_attention_2 has kernels for cuda, rocm, xpu and cpu, and none for {device}"),
            hint: "use sdpa, or auto, or name a kernel for this device".to_owned(),
        }),
        (Three, Cuda) => Ok("kernels-community/vllm-flash-attn3"),
        (Four, Cuda) => Ok("kernels-community/flash-attn4"),
        (Three | Four, _) => Err(Refusal {
            reason: format!("{} is for NVIDIA GPUs alone, and the model is on {device}", generation.as_str()),
            hint: match device {
                Xpu | Rocm => format!("use flash_attention_2, which has a kernel for {device}, or auto"),
                _ => "use sdpa, or auto".to_owned(),
            },
        }),
    }
}

/// What `auto` tries, best first: a name for the report, and the kernel, or why it is none for the device. Only kernels
/// that are known to have builds for the device are asked for.
pub(super) fn candidates(device: DeviceKey) -> Vec<(String, Result<&'static str, String>)> {
    let word = |generation: FlashGeneration| {
        let kernel = flash(generation, device).map_err(|refusal| refusal.reason);
        (AttnKind::Flash(generation).to_string(), kernel)
    };
    let only = |kernel: &'static str, on: DeviceKey| {
        let fits = if device == on { Ok(kernel) } else { Err(format!("it has builds for {on}")) };
        (kernel.to_owned(), fits)
    };
    let mut all = vec![word(FlashGeneration::Four), word(FlashGeneration::Three)];
    if device == DeviceKey::Cpu {
        let unfit = "on cpu it has packed attention alone".to_owned();
        all.push((AttnKind::Flash(FlashGeneration::Two).to_string(), Err(unfit)));
    } else {
        all.push(word(FlashGeneration::Two));
    }
    all.push(only(OWN, DeviceKey::Cpu));
    all.push(only(METAL, DeviceKey::Mps));
    all
}

/// What to do when the kernel of `flash_attention_2` cannot be had.
pub(super) fn advice(device: DeviceKey) -> String {
    match device {
        DeviceKey::Cpu => format!("name {OWN}:FlashAttention, which is for cpu, or use auto or sdpa"),
        _ => "use auto, which takes another one or sdpa and says why, or sdpa".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{FlashGeneration, candidates, flash};
    use crate::swap::KernelRef;
    use crate::variant::DeviceKey;

    #[test]
    fn generations_three_and_four_are_nvidias_and_the_error_says_so() {
        for generation in [FlashGeneration::Three, FlashGeneration::Four] {
            for device in DeviceKey::all() {
                let kernel = flash(generation, device);
                assert_eq!(kernel.is_ok(), device == DeviceKey::Cuda, "{device}");
                if let Err(refusal) = kernel {
                    assert!(refusal.reason.contains("NVIDIA"), "{}", refusal.reason);
                    assert!(refusal.reason.ends_with(device.as_str()), "{}", refusal.reason);
                }
            }
        }
        let refusal = flash(FlashGeneration::Three, DeviceKey::Xpu).unwrap_err();
        assert_eq!(refusal.hint, "use flash_attention_2, which has a kernel for xpu, or auto");
        assert_eq!(flash(FlashGeneration::Two, DeviceKey::Xpu), Ok("kernels-community/flash-attn2"));
        assert_eq!(flash(FlashGeneration::Two, DeviceKey::Rocm), Ok("kernels-community/aiter-flash-attn"));
    }

    #[test]
    fn every_name_is_a_kernels() {
        for device in DeviceKey::all() {
            for (name, kernel) in candidates(device) {
                if let Ok(kernel) = kernel {
                    assert!(kernel.parse::<KernelRef>().is_ok(), "{device} {name}");
                }
            }
        }
    }
}
