//! One plan for every layer that a thread calls while a model's forward runs.
//!
//! A model whose layers take the plan as an argument needs none of this. A model that was built from drop-in layers,
//! whose `forward` has no such argument, enters a scope once per forward: the plan is pinned there, and each layer of
//! that model which the thread calls inside reads it from the thread's own memory. Per layer that costs a look into a
//! thread-local and a count that no other thread shares; per forward, one pin. The memory of a scope is kept for the
//! thread's next one, so that entering allocates once per thread and depth.
//!
//! Scopes nest: a model that calls another one's forward has a scope for each, told apart by the model's number. A
//! scope is the calling thread's alone. Work that a forward hands to other threads enters it there anew, with the same
//! plan: see [`Plan::scope`]. A rayon worker that waits inside a scope may take up other work meanwhile; a forward of
//! the same model that it takes up so runs under the waiting forward's plan: one plan still, if not the newest.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{PinnedPlan, Plan};

/// Tells the models of a process apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ModelNumber(u64);

impl ModelNumber {
    /// A number that no other model of this process has.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A plan as a scope holds it.
#[derive(Debug)]
pub(super) enum Held {
    /// As the model's own forward pinned it.
    Pinned(PinnedPlan),
    /// As it was handed to another thread.
    Handed(Arc<Plan>),
}

impl Held {
    fn plan(&self) -> &Arc<Plan> {
        match self {
            Self::Pinned(plan) => plan,
            Self::Handed(plan) => plan,
        }
    }
}

/// One scope of a thread. Left empty when the scope ends, and filled again by the next at this depth.
#[derive(Debug)]
struct Frame {
    model: Cell<ModelNumber>,
    held: RefCell<Option<Held>>,
}

#[derive(Debug)]
struct Scopes {
    depth: usize,
    frames: Vec<Rc<Frame>>,
}

thread_local! {
    static SCOPES: RefCell<Scopes> = const { RefCell::new(Scopes { depth: 0, frames: Vec::new() }) };
}

/// Runs `run` with the plan that the thread's innermost scope of `model` holds; gives `run` back where there is none.
#[inline]
pub(super) fn with_current<R, F: FnOnce(&Arc<Plan>) -> R>(model: ModelNumber, run: F) -> Result<R, F> {
    let find = |scopes: &RefCell<Scopes>| {
        let scopes = scopes.borrow();
        scopes.frames[..scopes.depth].iter().rev().find(|frame| frame.model.get() == model).map(Rc::clone)
    };
    // A thread that is ending has no scopes any more, and layers that its destructors call pin for themselves.
    let Some(frame) = SCOPES.try_with(find).ok().flatten() else { return Err(run) };
    match &*frame.held.borrow() {
        Some(held) => Ok(run(held.plan())),
        None => Err(run),
    }
}

/// Runs `run` in a scope of `model` that holds `held`. Ends it when `run` returns or panics.
pub(super) fn enter<R>(model: ModelNumber, held: Held, run: impl FnOnce(&Arc<Plan>) -> R) -> R {
    struct Leave(Rc<Frame>);
    impl Drop for Leave {
        fn drop(&mut self) {
            // Scopes are closures, so the one that ends is the innermost.
            let _ = SCOPES.try_with(|scopes| scopes.borrow_mut().depth -= 1);
            // Outside of the borrow above: the last holder of a plan drops it here.
            drop(self.0.held.take());
        }
    }
    let push = |scopes: &RefCell<Scopes>| {
        let mut scopes = scopes.borrow_mut();
        if scopes.depth == scopes.frames.len() {
            scopes.frames.push(Rc::new(Frame { model: Cell::new(model), held: RefCell::default() }));
        }
        let frame = Rc::clone(&scopes.frames[scopes.depth]);
        scopes.depth += 1;
        frame.model.set(model);
        frame
    };
    // A thread that is ending: the plan goes to those who take it as an argument, and to nobody else.
    let Ok(frame) = SCOPES.try_with(push) else { return run(held.plan()) };
    let leave = Leave(frame);
    leave.0.held.replace(Some(held));
    let held = leave.0.held.borrow();
    run(held.as_ref().map(Held::plan).expect("internal: the scope was filled a moment ago"))
}
