//! Kernels for a while, and what was in force before comes back.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kernelhub::bind::{Contract, Rounding};
use kernelhub::dtype::DType;
use kernelhub::swap::{KernelConfig, Mode, Outcome, Report, SlotSpec, Slots, SwapError};
use kernelhub::variant::DeviceKey;

use super::{NoKernels, config};
use crate::support::native::{NativePack, norm_layer};

fn slots() -> Slots {
    let slots = Slots::new(DeviceKey::Cpu);
    for path in ["first.norm", "second.norm"] {
        let (path, layer) = (path.to_owned(), "RMSNorm".to_owned());
        let contract = Contract::RmsNorm;
        let spec = SlotSpec {
            path,
            layer,
            contract,
            dtype: DType::F32,
            last_dim: 8,
            trainable: false,
            options: Vec::new(),
            rounding: Rounding::F32WeightF32,
        };
        drop(slots.slot(spec));
    }
    slots
}

/// Which kernel took each layer; `-` for none.
fn layers(report: &Report) -> Vec<String> {
    let name = |outcome: &Outcome| outcome.kernel().map_or_else(|| "-".to_owned(), |kernel| kernel.layer.clone());
    report.layers.iter().map(|line| name(&line.outcome)).collect()
}

#[test]
fn what_was_in_force_comes_back_in_whatever_order_overrides_end() {
    let pack = NativePack::kit("overrides", &(norm_layer("A", "count_rms_norm") + &norm_layer("B", "count_rms_norm")));
    let (hub, slots) = (pack.hub(), slots());
    let of = |layer: &str| config(&[("RMSNorm", &format!("kernelhub-tests/overrides@v1:{layer}"))]);
    let only_second = KernelConfig::from_toml("'second.norm' = 'Disabled'", "x").unwrap();

    // Over kernels that were off.
    let off = slots.report();
    assert_eq!(slots.with_kernels(&hub, &of("A"), layers).unwrap(), ["A", "A"]);
    assert_eq!(slots.report(), off);

    let before = slots.use_kernels(&hub, &of("A")).unwrap();
    let outer = slots.override_kernels(&hub, &only_second).unwrap();
    assert_eq!(layers(outer.report()), ["A", "-"], "what it does not name stays as it was");
    let inner = slots.override_kernels(&hub, &of("B")).unwrap();
    assert_eq!(layers(&slots.report()), ["B", "B"], "it does not inherit");
    drop(inner);
    assert_eq!(layers(&slots.report()), ["A", "-"]);
    let inner = slots.override_kernels(&hub, &of("B")).unwrap();
    drop(outer);
    assert_eq!(layers(&slots.report()), ["B", "B"], "the one that was begun last is in force");
    drop(inner);
    assert_eq!(slots.report(), before);

    // In the mode that the model has by then.
    let over = slots.override_kernels(&hub, &of("B")).unwrap();
    slots.train();
    drop(over);
    assert_eq!((slots.report().mode, slots.eval()), (Mode::Training, before.clone()));

    // What begins inside replaces the override's kernels, and ends with it.
    let over = slots.override_kernels(&hub, &only_second).unwrap();
    assert_eq!(layers(&slots.use_kernels(&hub, &of("B")).unwrap()), ["B", "B"]);
    assert_eq!(layers(&slots.disable_kernels()), ["-", "-"]);
    drop(over);
    assert_eq!(slots.report(), before);

    // Whatever happens inside.
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        slots.with_kernels(&hub, &of("B"), |report| assert_eq!(layers(report), ["A"], "on purpose"))
    }));
    assert!(panicked.is_err());
    assert_eq!(slots.report(), before);

    // One that fails changes nothing.
    let error = slots.override_kernels(&NoKernels, &of("B")).unwrap_err();
    assert!(matches!(error, SwapError::Kernel { .. }), "{error:?}");
    assert_eq!(slots.report(), before);
}
