//! The board of the host's crew (`src/load/crew/board.rs`), compiled with the parts of loom: a thread may then be
//! interrupted before each of its steps, a load may see every value that the memory orders allow, and each order of
//! events is tried. Locks that are never given back, wake-ups that are lost, and reads of what another thread may be
//! writing are failures. Sleep comes at once here, since a model has no clock.
//!
//! A package of its own, because loom's atomics work inside of a model only.

#![cfg(test)]
#![expect(unsafe_code, reason = "runs loops on several threads")]

#[path = "../../../src/load/crew/board.rs"]
mod board;
mod sync;

use std::ffi::c_void;

use board::{Board, HELPERS, Job};
use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread::{self, JoinHandle};

/// A place for each index, which nothing but the board's order guards.
struct Places(Vec<UnsafeCell<usize>>);

impl Places {
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| UnsafeCell::new(0)).collect())
    }

    /// How often each was visited, as the caller sees it after the loop.
    fn visits(&self) -> Vec<usize> {
        // SAFETY: loom fails the model where a write of another thread is not over.
        self.0.iter().map(|place| place.with(|visits| unsafe { *visits })).collect()
    }
}

unsafe extern "C" fn visit(index: usize, context: *mut c_void) {
    // SAFETY: the models pass places that outlive the loop.
    let places = unsafe { &*context.cast::<Places>() };
    // SAFETY: loom fails the model where another thread is at this place.
    places.0[index].with_mut(|visits| unsafe { *visits += 1 });
}

fn run(board: &Board, places: &Places) -> bool {
    let context = std::ptr::from_ref(places).cast_mut().cast();
    // SAFETY: `visit` may run on any thread, and the places live until the loop has returned.
    unsafe { board.run(Job { count: places.0.len(), body: visit, context }) }
}

fn helpers(board: &Arc<Board>, count: u64) -> Vec<JoinHandle<()>> {
    assert!(count <= HELPERS);
    let help = |member| {
        let board = Arc::clone(board);
        thread::spawn(move || board.serve(member))
    };
    (1..).take(usize::try_from(count).expect("few")).map(help).collect()
}

/// The helpers go, and none stays asleep.
fn end(board: &Board, helpers: Vec<JoinHandle<()>>) {
    board.dismiss();
    for helper in helpers {
        helper.join().expect("it ends");
    }
}

/// `preemptions`: how often at most a thread is interrupted where it could go on.
fn model(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(check);
}

fn loops(helper_count: u64, counts: &'static [usize]) {
    let board = Arc::new(Board::new(usize::try_from(helper_count).expect("few")));
    let helpers = helpers(&board, helper_count);
    for count in counts {
        let places = Places::new(*count);
        assert!(run(&board, &places));
        assert!(places.visits().iter().all(|visits| *visits == 1), "{:?}", places.visits());
    }
    end(&board, helpers);
}

#[test]
fn each_index_runs_once_and_is_over_when_the_loop_returns() {
    model(3, || loops(1, &[2]));
}

#[test]
fn loops_follow_each_other_whatever_the_helper_is_at() {
    model(2, || loops(1, &[1, 2]));
}

#[test]
fn two_helpers_do_not_disturb_each_other() {
    model(1, || loops(2, &[2]));
}

#[test]
fn of_two_callers_each_runs_its_loop_whole_or_not_at_all() {
    model(2, || {
        let board = Arc::new(Board::new(1));
        let helpers = helpers(&board, 1);
        let call = |board: &Board| {
            let places = Places::new(1);
            let is_run = run(board, &places);
            assert_eq!(places.visits(), [usize::from(is_run)]);
            is_run
        };
        let other = {
            let board = Arc::clone(&board);
            thread::spawn(move || call(&board))
        };
        let is_run = call(&board);
        let other_is_run = other.join().expect("it ends");
        assert!(is_run || other_is_run, "one of them had the board");
        end(&board, helpers);
    });
}

/// A loop inside of a loop.
unsafe extern "C" fn nested(_: usize, context: *mut c_void) {
    // SAFETY: the model passes a pair that outlives the loop.
    let (board, refused) = unsafe { &*context.cast::<(Arc<Board>, AtomicUsize)>() };
    let places = Places::new(1);
    assert!(!run(board, &places) && places.visits() == [0]);
    refused.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_loop_inside_of_a_loop_is_refused_and_not_waited_for() {
    model(2, || {
        let pair = (Arc::new(Board::new(1)), AtomicUsize::new(0));
        let helpers = helpers(&pair.0, 1);
        let context = std::ptr::from_ref(&pair).cast_mut().cast();
        // SAFETY: `nested` may run on any thread, and the pair lives until the loop has returned.
        assert!(unsafe { pair.0.run(Job { count: 2, body: nested, context }) });
        assert_eq!(pair.1.load(Ordering::Relaxed), 2);
        end(&pair.0, helpers);
    });
}
