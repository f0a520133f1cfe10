//! One plan for every layer that a thread calls inside a forward.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use kernelhub::bind::{Contract, Rounding};
use kernelhub::swap::{Mode, Plan, Slot, SlotSpec, Slots};
use kernelhub::variant::DeviceKey;
use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};

/// A model with two layers.
fn model() -> (Slots, [Slot; 2]) {
    let slots = Slots::new(DeviceKey::Cpu);
    let layers = ["first", "second"].map(|path| {
        slots.slot(SlotSpec {
            path: path.to_owned(),
            layer: "RMSNorm".to_owned(),
            contract: Contract::RmsNorm,
            dtype: kernelhub::dtype::DType::F32,
            last_dim: 8,
            trainable: false,
            options: Vec::new(),
            rounding: Rounding::F32WeightF32,
        })
    });
    (slots, layers)
}

/// Which plan a layer that is called without one runs under.
fn plan_of(slot: &Slot) -> usize {
    slot.with_plan(|plan| std::ptr::from_ref(plan).addr())
}

fn address(plan: &Arc<Plan>) -> usize {
    Arc::as_ptr(plan).addr()
}

#[test]
fn layers_read_the_plan_of_their_forward() {
    let (slots, [first, second]) = model();
    slots.scope(|plan| {
        assert_eq!(plan_of(&first), address(plan));
        slots.set_mode(Mode::Training);
        assert_eq!((plan_of(&first), plan_of(&second)), (address(plan), address(plan)));
        assert_ne!(address(&slots.pin()), address(plan), "another was published meanwhile");
        assert_eq!(second.with_plan(Plan::mode), Mode::Inference);
        // A forward inside a forward is part of it.
        slots.scope(|inner| assert!(Arc::ptr_eq(plan, inner)));
        assert_eq!(plan_of(&second), address(plan));
    });
    assert_eq!(first.with_plan(Plan::mode), Mode::Training, "outside, the current one");
}

#[test]
fn each_model_has_a_scope_of_its_own() {
    let ((outer, [layer, _]), (inner, [inner_layer, _])) = (model(), model());
    let check = |plan: &Arc<Plan>| {
        outer.set_mode(Mode::Training);
        let alone = plan_of(&inner_layer);
        assert_eq!(alone, address(&inner.pin()), "the outer model's scope says nothing about the inner model");
        inner.scope(|inner_plan| {
            inner.set_mode(Mode::Training);
            assert_eq!(plan_of(&inner_layer), address(inner_plan));
            assert_eq!(plan_of(&layer), address(plan));
            // The outer model again, below the inner one.
            outer.scope(|again| assert!(Arc::ptr_eq(plan, again)));
        });
        assert_eq!(inner_layer.with_plan(Plan::mode), Mode::Training);
        assert_eq!(plan_of(&layer), address(plan));
    };
    outer.scope(check);
}

#[test]
fn a_plan_has_nothing_for_another_models_layer() {
    let (slots, [layer, _]) = model();
    let (other, [theirs, _]) = model();
    assert!(slots.pin().is_for(&layer) && !slots.pin().is_for(&theirs) && !other.pin().is_for(&layer));
    assert!(slots.clone().pin().is_for(&layer));
}

#[test]
fn a_scope_ends_with_a_panic() {
    let (slots, [layer, _]) = model();
    let result = catch_unwind(AssertUnwindSafe(|| {
        slots.scope(|_| {
            slots.set_mode(Mode::Training);
            std::panic::resume_unwind(Box::new("on purpose"));
        });
    }));
    assert!(result.is_err());
    assert_eq!(layer.with_plan(Plan::mode), Mode::Training);
    slots.scope(|plan| assert_eq!(plan.mode(), Mode::Training));
}

#[test]
fn a_plan_lives_as_long_as_its_scope_and_no_longer() {
    let (slots, _) = model();
    let plan = slots.scope(|plan| {
        slots.set_mode(Mode::Training);
        Arc::downgrade(plan)
    });
    assert!(plan.upgrade().is_none(), "the thread keeps no plan of a forward that ended");
}

/// Work on another thread sees nothing of the scope, unless it is handed the plan.
#[test]
fn other_threads_are_given_the_plan_or_pin_for_themselves() {
    let (slots, [layer, _]) = model();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    slots.scope(|plan| {
        slots.set_mode(Mode::Training);
        pool.install(|| {
            (0..64).into_par_iter().for_each(|_| {
                assert_eq!(layer.with_plan(Plan::mode), Mode::Training, "the current plan");
                plan.scope(|| assert_eq!(plan_of(&layer), address(plan)));
                assert_eq!(layer.with_plan(Plan::mode), Mode::Training, "the worker's scope has ended");
            });
        });
    });
}

#[test]
fn no_forward_mixes_two_plans_while_another_thread_swaps() {
    let (slots, [first, second]) = model();
    let is_over = AtomicBool::new(false);
    let forwards = std::thread::scope(|threads| {
        let forwards: Vec<_> = (0..4)
            .map(|_| {
                threads.spawn(|| {
                    let mut seen = std::collections::BTreeSet::new();
                    while !is_over.load(SeqCst) || seen.len() < 2 {
                        slots.scope(|plan| {
                            let mode = first.with_plan(Plan::mode);
                            std::thread::yield_now();
                            assert_eq!(plan_of(&first), plan_of(&second));
                            assert_eq!((plan.mode(), second.with_plan(Plan::mode)), (mode, mode));
                            seen.insert(mode);
                        });
                    }
                })
            })
            .collect();
        for _ in 0..10_000 {
            slots.set_mode(Mode::Training);
            slots.set_mode(Mode::Inference);
        }
        is_over.store(true, SeqCst);
        // Whoever has seen one mode alone goes on until the other comes.
        while !forwards.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            slots.set_mode(Mode::Training);
            slots.set_mode(Mode::Inference);
        }
        forwards.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>()
    });
    assert!(forwards.iter().all(Result::is_ok));
}
