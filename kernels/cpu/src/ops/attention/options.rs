//! How scores become weights: scale, visible keys, soft cap.

#![expect(clippy::cast_possible_truncation, reason = "factors round to f32, in which products are taken")]

use core::f64::consts::LOG2_E;

use crate::call::{Args, Failed};

/// Which keys a query sees, around its own position.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    /// Keys before the position; `usize::MAX`: all.
    pub(super) left: usize,
    /// Keys after the position; `usize::MAX`: all.
    pub(super) right: usize,
}

/// The scalars of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    /// What queries are multiplied with: their products with keys are scores in units of log2, or, with a cap, the
    /// scores in units of the cap.
    pub(super) factor: f32,
    /// The cap in units of log2.
    pub(super) cap: Option<f32>,
    pub(super) window: Window,
}

impl Window {
    fn new(causal: bool, left: usize, right: usize) -> Self {
        Self { left, right: if causal { 0 } else { right } }
    }

    /// The most keys that a query sees.
    pub(super) fn width(self) -> usize {
        self.left.saturating_add(self.right).saturating_add(1)
    }
}

impl Options {
    /// Reads `softmax_scale` and `causal`, the arguments from `first` on.
    pub(super) fn plain(args: &Args<'_>, first: usize) -> Result<Self, Failed> {
        let scale = scale(args, first)?;
        let window = Window::new(args.flag(first + 1)?, usize::MAX, usize::MAX);
        Ok(Self { factor: (scale * LOG2_E) as f32, cap: None, window })
    }

    /// Reads `softmax_scale`, `causal`, `window_left`, `window_right` and `softcap`, the arguments from `first` on.
    pub(super) fn all(args: &Args<'_>, first: usize) -> Result<Self, Failed> {
        let plain = Self::plain(args, first)?;
        let causal = args.flag(first + 1)?;
        let window = Window::new(causal, bound(args, first + 2)?, bound(args, first + 3)?);
        let cap = args.float(first + 4)?;
        if !cap.is_finite() || cap < 0.0 {
            let text = format_args!("expected a finite number of at least 0, where 0 is no cap, got {cap}");
            return Err(args.invalid(first + 4, text));
        }
        if cap == 0.0 {
            return Ok(Self { window, ..plain });
        }
        let (factor, in_log2) = (scale(args, first)? / cap, cap * LOG2_E);
        let fits = |value: f64| (value as f32).is_normal() || value == 0.0;
        if !fits(factor) || !fits(in_log2) {
            let text = format_args!("expected a cap whose ratio to softmax_scale has a place in f32, got {cap}");
            return Err(args.invalid(first + 4, text));
        }
        Ok(Self { factor: factor as f32, cap: Some(in_log2 as f32), window })
    }
}

fn scale(args: &Args<'_>, index: usize) -> Result<f64, Failed> {
    let scale = args.float(index)?;
    if scale.is_finite() {
        return Ok(scale);
    }
    Err(args.invalid(index, format_args!("expected a finite number, got {scale}")))
}

/// A bound of the window; `usize::MAX` for -1.
fn bound(args: &Args<'_>, index: usize) -> Result<usize, Failed> {
    match args.int(index)? {
        -1 => Ok(usize::MAX),
        keys => usize::try_from(keys)
            .map_err(|_| args.invalid(index, format_args!("expected a number of keys, or -1 for all, got {keys}"))),
    }
}
