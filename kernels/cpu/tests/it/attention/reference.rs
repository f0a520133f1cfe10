//! Attention of one sequence in f64, with the scores of a row in memory and the mask as its definition reads.

#[derive(Debug, Clone, Copy)]
pub(super) struct Opts {
    pub(super) scale: f64,
    pub(super) causal: bool,
    pub(super) left: i64,
    pub(super) right: i64,
    pub(super) softcap: f64,
}

/// A query sees everything, as it is.
pub(super) const FULL: Opts = Opts { scale: 0.3, causal: false, left: -1, right: -1, softcap: 0.0 };
pub(super) const CAUSAL: Opts = Opts { causal: true, ..FULL };

impl Opts {
    /// Whether query `i` sees key `j`.
    pub(super) fn sees(&self, q_len: i64, kv_len: i64, i: i64, j: i64) -> bool {
        let position = kv_len - q_len + i;
        let right = if self.causal { 0 } else { self.right };
        (self.left < 0 || position - self.left <= j) && (right < 0 || j <= position + right)
    }

    /// The weights of one query, given its products with the keys.
    fn weights(&self, q_len: i64, i: i64, products: &[f64]) -> Vec<f64> {
        let kv_len = products.len() as i64;
        let capped = |product: f64| {
            let score = product * self.scale;
            if self.softcap > 0.0 { self.softcap * (score / self.softcap).tanh() } else { score }
        };
        let seen: Vec<bool> = (0..kv_len).map(|j| self.sees(q_len, kv_len, i, j)).collect();
        let scores: Vec<f64> = products.iter().map(|&product| capped(product)).collect();
        let visible = || scores.iter().zip(&seen).filter(|(_, seen)| **seen).map(|(score, _)| *score);
        let max = visible().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = visible().map(|score| (score - max).exp()).sum();
        scores.iter().zip(&seen).map(|(score, seen)| if *seen { (score - max).exp() / sum } else { 0.0 }).collect()
    }
}

/// Lengths and heads of one sequence.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub(super) q_len: i64,
    pub(super) kv_len: i64,
    pub(super) heads: i64,
    pub(super) kv_heads: i64,
    pub(super) head_dim: i64,
}

/// `[q_len, heads, head_dim]` in row order, of elements at (position, head, d).
pub(super) fn attention(
    extent: Extent,
    opts: Opts,
    q: impl Fn(i64, i64, i64) -> f64,
    k: impl Fn(i64, i64, i64) -> f64,
    v: impl Fn(i64, i64, i64) -> f64,
) -> Vec<f64> {
    let Extent { q_len, kv_len, heads, kv_heads, head_dim } = extent;
    let mut output = Vec::new();
    for i in 0..q_len {
        for h in 0..heads {
            let g = h / (heads / kv_heads);
            let product = |j| (0..head_dim).map(|d| q(i, h, d) * k(j, g, d)).sum::<f64>();
            let weights = opts.weights(q_len, i, &(0..kv_len).map(product).collect::<Vec<_>>());
            for d in 0..head_dim {
                // Keys that are not seen have no influence, whatever stands there.
                let seen = weights.iter().zip(0..).filter(|(_, j)| opts.sees(q_len, kv_len, i, *j));
                output.push(seen.map(|(weight, j)| weight * v(j, g, d)).sum());
            }
        }
    }
    output
}
