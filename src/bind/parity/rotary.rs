//! Rotary position embedding, forwards and back.

use super::ParityError;
use super::compare::{Bounds, Case, Checker, exact};
use super::number::Number;
use super::sample::{Layout, Sample, collect, unit, widths};
use crate::bind::{RotaryKernel, RotaryStyle};

/// `[batch, heads, seq, head_dim]` turned by tables `[seq, head_dim / 2]`, all row-major.
fn rotary_of(x: &[f64], [cos, sin]: [&[f64]; 2], seq: usize, head_dim: usize, turn: Turn) -> Vec<f64> {
    let half = head_dim / 2;
    let mut out = vec![0.0; x.len()];
    for (row, (x, out)) in x.chunks(head_dim.max(1)).zip(out.chunks_mut(head_dim.max(1))).enumerate() {
        for at in 0..half {
            let (first, second) = match turn.style {
                RotaryStyle::HalfSplit => (at, at + half),
                RotaryStyle::Interleaved => (2 * at, 2 * at + 1),
            };
            let entry = row % seq * half + at;
            let (cos, sin) = (cos[entry], if turn.is_back { -sin[entry] } else { sin[entry] });
            out[first] = x[first] * cos - x[second] * sin;
            out[second] = x[first] * sin + x[second] * cos;
        }
    }
    out
}

#[derive(Debug, Clone, Copy)]
struct Turn {
    style: RotaryStyle,
    is_back: bool,
}

pub(super) fn rotary<T: Number>(kernel: &RotaryKernel, checker: &mut Checker<'_>) -> Result<(), ParityError> {
    let meta = checker.meta;
    let unit = unit::<T>(meta);
    // The kernel is given halves, which are aligned as it asks, and so are then the rows of the tables. Interleaved
    // halves start one element apart.
    let is_aligned = meta.limits.alignment_bytes as usize <= size_of::<T>();
    let styles: &[RotaryStyle] =
        if is_aligned { &[RotaryStyle::HalfSplit, RotaryStyle::Interleaved] } else { &[RotaryStyle::HalfSplit] };
    let halves = widths::<T>(meta).into_iter().map(|width| width.next_multiple_of(2 * unit));
    let mut widths: Vec<usize> = halves.filter(|width| meta.width_limit(*width).is_none()).collect();
    widths.dedup();
    for head_dim in widths {
        let swapped = Layout::contiguous(&[2, 3, 2, head_dim]).with_axes_swapped(1, 2);
        let empty = Layout { name: "no positions", ..Layout::contiguous(&[1, 2, 0, head_dim]) };
        for layout in [Layout::contiguous(&[2, 2, 3, head_dim]), swapped, empty] {
            let seq = layout.shape[2];
            let x = Sample::<T>::new(meta, &mut checker.noise, 1.0, &layout);
            let table = Layout::contiguous(&[seq, head_dim / 2]);
            let cos = Sample::<T>::new(meta, &mut checker.noise, 0.5, &table);
            let sin = Sample::<T>::new(meta, &mut checker.noise, 0.5, &table);
            for turn in styles.iter().flat_map(|style| [false, true].map(|is_back| Turn { style: *style, is_back })) {
                let name = format!("x {:?}, {}, {:?}", x.shape(), layout.name, turn.style);
                let case = if turn.is_back { Case::backward(&name, "out") } else { Case::forward(&name) };
                let outcome = collect(meta, x.shape(), |out| {
                    let (x, cos, sin) = (x.tensor()?, cos.tensor()?, sin.tensor()?);
                    if turn.is_back {
                        kernel.turn_back(out, &x, &cos, &sin, turn.style)
                    } else {
                        kernel.forward(out, &x, &cos, &sin, turn.style)
                    }
                });
                let actual = checker.written::<T, T>(&case, outcome)?;
                let of = |turn| -> Vec<Bounds> {
                    exact(rotary_of(&x.values(), [&cos.values(), &sin.values()], seq.max(1), head_dim, turn))
                };
                checker.compare::<T, T>(&case, &actual, &of(turn), || {
                    let other = match turn.style {
                        RotaryStyle::HalfSplit => RotaryStyle::Interleaved,
                        RotaryStyle::Interleaved => RotaryStyle::HalfSplit,
                    };
                    vec![
                        (
                            "it turns the other way: conj is not followed".to_owned(),
                            of(Turn { is_back: !turn.is_back, ..turn }),
                        ),
                        ("its numbers are those of the other style".to_owned(), of(Turn { style: other, ..turn })),
                    ]
                })?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::sample::Noise;
    use super::{RotaryStyle, Turn, rotary_of};

    #[test]
    fn turning_back_is_the_gradient_of_turning() {
        let mut noise = Noise::new(3);
        let mut take = |count: usize| (0..count).map(|_| noise.number()).collect::<Vec<f64>>();
        let (x, dy, cos, sin) = (take(12), take(12), take(6), take(6));
        for style in [RotaryStyle::HalfSplit, RotaryStyle::Interleaved] {
            let of = |x: &[f64], is_back| rotary_of(x, [&cos, &sin], 3, 4, Turn { style, is_back });
            let gradient = of(&dy, true);
            for (at, gradient) in gradient.iter().enumerate() {
                // Turning is linear, so that one step of any length gives the slope.
                let mut moved = x.clone();
                moved[at] += 1.0;
                let slope: f64 = of(&moved, false)
                    .iter()
                    .zip(of(&x, false))
                    .zip(&dy)
                    .map(|((after, before), dy)| (after - before) * dy)
                    .sum();
                assert!((slope - gradient).abs() < 1e-12, "{at}: {slope}, {gradient}");
            }
        }
    }
}
