//! Attention: every flag and option that the kernel takes.

use super::compare::{Case, Checker, Instead, exact};
use super::number::Number;
use super::sample::{Layout, Sample, collect, widths};
use super::{ParityError, takes};
use crate::bind::{AttentionKernel, AttentionOptions, LayerMeta, Window};

/// Extents of a case; `head_dim` apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) batch: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) q_len: usize,
    pub(super) kv_len: usize,
}

/// One query over the keys that it sees: `keys` and `values` give element `d` of key `j`.
pub(super) fn attend(
    query: &[f64],
    position: i64,
    kv_len: usize,
    keys: impl Fn(usize, usize) -> f64,
    values: impl Fn(usize, usize) -> f64,
    options: &AttentionOptions,
) -> Vec<f64> {
    let is_seen = |key: &usize| {
        let distance = i64::try_from(*key).unwrap_or(i64::MAX) - position;
        let left = options.window.left.is_none_or(|left| distance >= -i64::from(left));
        let right = options.window.right.is_none_or(|right| distance <= i64::from(right));
        left && right && (!options.causal || distance <= 0)
    };
    let seen: Vec<usize> = (0..kv_len).filter(is_seen).collect();
    let score = |key: &usize| {
        let score = query.iter().enumerate().map(|(d, q)| q * keys(*key, d)).sum::<f64>() * options.softmax_scale;
        if options.softcap > 0.0 { options.softcap * (score / options.softcap).tanh() } else { score }
    };
    let scores: Vec<f64> = seen.iter().map(score).collect();
    let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - highest).exp()).collect();
    let total: f64 = weights.iter().sum();
    let element = |d: usize| {
        let sum: f64 = seen.iter().zip(&weights).map(|(key, weight)| weight * values(*key, d)).sum();
        if seen.is_empty() { 0.0 } else { sum / total }
    };
    (0..query.len()).map(element).collect()
}

/// Both values of the flag, two scales, and each option that the kernel takes, alone and with the flag.
pub(super) fn options(meta: &LayerMeta) -> Vec<(String, AttentionOptions)> {
    let mut all = Vec::new();
    for causal in [false, true] {
        let plain = AttentionOptions::new(0.4, causal);
        all.push(plain);
        all.push(AttentionOptions { softmax_scale: 1.1, ..plain });
        let (left, right) = (takes(meta, "window_left"), takes(meta, "window_right"));
        if left {
            all.push(AttentionOptions { window: Window { left: Some(2), right: None }, ..plain });
            all.push(AttentionOptions { window: Window { left: Some(0), right: None }, ..plain });
        }
        if right {
            all.push(AttentionOptions { window: Window { left: None, right: Some(1) }, ..plain });
        }
        if left && right {
            all.push(AttentionOptions { window: Window { left: Some(1), right: Some(1) }, ..plain });
        }
        if takes(meta, "softcap") {
            all.push(AttentionOptions { softcap: 0.7, ..plain });
        }
    }
    let named = all.into_iter().map(|options| {
        let AttentionOptions { softmax_scale, causal, window, softcap } = options;
        let bound = |bound: Option<u32>| bound.map_or(-1, i64::from);
        let (left, right) = (bound(window.left), bound(window.right));
        let name =
            format!("softmax_scale {softmax_scale}, causal {causal}, window {left} and {right}, softcap {softcap}");
        (name, options)
    });
    named.collect()
}

/// What a kernel may compute that ignores one of its options.
pub(super) fn instead(options: AttentionOptions, of: impl Fn(&AttentionOptions) -> Vec<f64>) -> Vec<Instead> {
    let window = options.window;
    let others = [
        ("it ignores causal", AttentionOptions { causal: false, ..options }),
        ("it is always causal", AttentionOptions { causal: true, ..options }),
        ("it ignores window_left", AttentionOptions { window: Window { left: None, ..window }, ..options }),
        ("it ignores window_right", AttentionOptions { window: Window { right: None, ..window }, ..options }),
        ("it ignores the window", AttentionOptions { window: Window::default(), ..options }),
        ("it ignores softcap", AttentionOptions { softcap: 0.0, ..options }),
        ("it ignores softmax_scale", AttentionOptions { softmax_scale: 1.0, ..options }),
        (
            "its window is one key shorter on the left",
            AttentionOptions {
                window: Window { left: window.left.map(|left| left.saturating_sub(1)), ..window },
                ..options
            },
        ),
    ];
    others
        .into_iter()
        .filter(|(_, other)| *other != options)
        .map(|(words, other)| (words.to_owned(), exact(of(&other))))
        .collect()
}

pub(super) const SIZES: [Sizes; 4] = [
    Sizes { batch: 1, heads: 1, kv_heads: 1, q_len: 1, kv_len: 1 },
    Sizes { batch: 2, heads: 4, kv_heads: 2, q_len: 3, kv_len: 7 },
    Sizes { batch: 1, heads: 3, kv_heads: 1, q_len: 5, kv_len: 5 },
    Sizes { batch: 1, heads: 2, kv_heads: 2, q_len: 4, kv_len: 2 },
];

pub(super) fn dense<T: Number>(kernel: &AttentionKernel, checker: &mut Checker<'_>) -> Result<(), ParityError> {
    let meta = checker.meta;
    for head_dim in widths::<T>(meta) {
        for sizes in SIZES {
            for is_swapped in [false, true] {
                let Sizes { batch, heads, kv_heads, q_len, kv_len } = sizes;
                let layout = |heads: usize, len: usize| {
                    if is_swapped {
                        Layout::contiguous(&[batch, len, heads, head_dim]).with_axes_swapped(1, 2)
                    } else {
                        Layout::contiguous(&[batch, heads, len, head_dim])
                    }
                };
                let q = Sample::<T>::new(meta, &mut checker.noise, 1.0, &layout(heads, q_len));
                let k = Sample::<T>::new(meta, &mut checker.noise, 1.0, &layout(kv_heads, kv_len));
                let v = Sample::<T>::new(meta, &mut checker.noise, 1.0, &layout(kv_heads, kv_len));
                let name = layout(heads, q_len).name;
                let (queries, keys, values) = (q.values(), k.values(), v.values());
                let of = |options: &AttentionOptions| dense_of(sizes, head_dim, [&queries, &keys, &values], options);
                for (option, options) in options(meta) {
                    let case = Case::forward(&format!("q {:?}, k {:?}, {name}, {option}", q.shape(), k.shape()));
                    let outcome = collect(meta, &[batch, q_len, heads, head_dim], |out| {
                        kernel.forward(out, &q.tensor()?, &k.tensor()?, &v.tensor()?, &options)
                    });
                    let actual = checker.written::<T, T>(&case, outcome)?;
                    checker.compare::<T, T>(&case, &actual, &exact(of(&options)), || instead(options, of))?;
                }
            }
        }
    }
    Ok(())
}

/// `[batch, q_len, heads, head_dim]` from row-major `[batch, heads, len, head_dim]`.
fn dense_of(sizes: Sizes, head_dim: usize, [q, k, v]: [&[f64]; 3], options: &AttentionOptions) -> Vec<f64> {
    let Sizes { batch, heads, kv_heads, q_len, kv_len } = sizes;
    let mut out = Vec::with_capacity(q.len());
    for b in 0..batch {
        for i in 0..q_len {
            for h in 0..heads {
                let query = &q[((b * heads + h) * q_len + i) * head_dim..][..head_dim];
                let rows = (b * kv_heads + h / (heads / kv_heads)) * kv_len;
                let at = |tensor: &[f64], key: usize, d: usize| tensor[(rows + key) * head_dim + d];
                let position = i64::try_from(kv_len + i).unwrap_or_default() - i64::try_from(q_len).unwrap_or_default();
                let (keys, values) = (|key, d| at(k, key, d), |key, d| at(v, key, d));
                out.extend(attend(query, position, kv_len, keys, values, options));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{AttentionOptions, Window, attend};

    /// Counts the keys that a query at `position` sees among eight: each has the value 1 in a place of its own.
    fn seen(position: i64, options: &AttentionOptions) -> Vec<usize> {
        let one_hot = |key: usize, d: usize| if key == d { 1.0 } else { 0.0 };
        let out = attend(&[0.0; 8], position, 8, one_hot, one_hot, options);
        (0..8).filter(|key| out[*key] > 0.0).collect()
    }

    #[test]
    fn window_bounds_are_inclusive() {
        let plain = AttentionOptions::new(1.0, true);
        assert_eq!(seen(5, &plain), [0, 1, 2, 3, 4, 5]);
        let window = Window { left: Some(4), right: None };
        assert_eq!(seen(5, &AttentionOptions { window, ..plain }), [1, 2, 3, 4, 5]);
        assert_eq!(seen(5, &AttentionOptions { window, causal: false, ..plain }), [1, 2, 3, 4, 5, 6, 7]);
        let window = Window { left: Some(0), right: Some(1) };
        assert_eq!(seen(5, &AttentionOptions { window, causal: false, ..plain }), [5, 6]);
        assert_eq!(seen(-1, &plain), [0; 0]);
    }
}
