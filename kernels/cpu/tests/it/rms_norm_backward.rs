use kernelhub_cpu::rms_norm_backward;

use crate::support::{Arg, DTYPES, Dt, Tensor, at_every_level, call, flat, slope};

/// `sum(dy * rms_norm(x, weight))` for one row.
fn weighed(x: &[f64], weight: &[f64], dy: &[f64], eps: f64) -> f64 {
    let factor = 1.0 / (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64 + eps).sqrt();
    x.iter().zip(weight).zip(dy).map(|((x, w), dy)| x * factor * w * dy).sum()
}

/// The gradient of [`weighed`] with respect to `x`, each with the sum of its terms' absolute values, and the factor.
fn analytic(x: &[f64], weight: &[f64], dy: &[f64], eps: f64) -> (Vec<[f64; 2]>, f64) {
    let count = x.len() as f64;
    let factor = 1.0 / (x.iter().map(|x| x * x).sum::<f64>() / count + eps).sqrt();
    let terms: Vec<f64> = x.iter().zip(weight).zip(dy).map(|((x, w), dy)| x * w * dy).collect();
    let [mean, size] = [terms.iter().sum::<f64>(), terms.iter().map(|t| t.abs()).sum()].map(|sum| sum / count);
    let row = x.iter().zip(weight).zip(dy).map(|((x, w), dy)| {
        let cube = factor.powi(3);
        [factor * w * dy - x * cube * mean, factor * (w * dy).abs() + x.abs() * cube * size]
    });
    (row.collect(), factor)
}

struct Case<'a> {
    dx: &'a Tensor,
    dweight: &'a Tensor,
    dy: &'a Tensor,
    x: &'a Tensor,
    weight: &'a Tensor,
    eps: f64,
    offset: f64,
}

impl Case<'_> {
    fn check(&self, what: &str) {
        let shape = self.x.shape.clone();
        // Taken at once: `dx` may be an input.
        let (x, dy) = (self.x.rows(), self.dy.rows());
        let weight: Vec<f64> = self.weight.values().iter().map(|&w| f64::from(w as f32 + self.offset as f32)).collect();
        let [a, b, c, d, e] = [self.dx, self.dweight, self.dy, self.x, self.weight].map(Arg::T);
        call(rms_norm_backward, &[a, b, c, d, e, Arg::F(self.eps), Arg::F(self.offset)]).expect(what);
        let rows: Vec<_> = x.iter().zip(&dy).map(|(x, dy)| analytic(x, &weight, dy, self.eps)).collect();
        let hidden = weight.len();
        self.dx.expect_sums(|index| rows[flat(&shape, index) / hidden].0[flat(&shape, index) % hidden], what);
        let of_weight = |index: &[i64]| {
            let at = index[0] as usize;
            let terms = x.iter().zip(&dy).zip(&rows).map(|((x, dy), (_, factor))| x[at] * dy[at] * factor);
            let terms: Vec<f64> = terms.collect();
            [terms.iter().sum(), terms.iter().map(|t| t.abs()).sum()]
        };
        self.dweight.expect_sums(of_weight, &format!("{what}: weight"));
    }
}

#[test]
fn the_formula_is_that_of_central_differences() {
    let x = [0.3, -1.2, 2.0, 0.05, -0.7];
    let weight = [1.5, -0.4, 0.9, 1.1, 0.2];
    let dy = [0.2, 1.0, -0.6, 0.3, 0.8];
    let (row, factor) = analytic(&x, &weight, &dy, 1e-3);
    for at in 0..x.len() {
        assert!((slope(&x, at, |x| weighed(x, &weight, &dy, 1e-3)) - row[at][0]).abs() < 1e-9);
        let of_weight = slope(&weight, at, |weight| weighed(&x, weight, &dy, 1e-3));
        assert!((of_weight - x[at] * dy[at] * factor).abs() < 1e-9);
    }
}

#[test]
fn agrees_with_f64_at_odd_widths_and_both_weight_dtypes() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for (rows, hidden) in [(1, 1), (3, 7), (40, 16), (17, 63), (9, 1408), (2, 3420), (1000, 5)] {
                for (weight_dtype, offset) in [(dtype, 0.0), (Dt::F32, 1.0)] {
                    let [x, dy] = [1, 2].map(|seed| Tensor::random(dtype, &[rows, hidden], seed));
                    let weight = Tensor::random(weight_dtype, &[hidden], 3);
                    let (dx, dweight) = (Tensor::new(dtype, &x.shape), Tensor::new(weight_dtype, &[hidden]));
                    let case = Case { dx: &dx, dweight: &dweight, dy: &dy, x: &x, weight: &weight, eps: 1e-5, offset };
                    case.check(&format!("{level:?} [{rows}, {hidden}]"));
                }
            }
        }
    });
}

#[test]
fn rows_may_be_strided_and_the_gradient_written_over_an_input() {
    at_every_level(|level| {
        for dtype in DTYPES {
            let base = Tensor::random(dtype, &[4000], 4);
            let weight = Tensor::random(dtype, &[33], 5);
            let dweight = Tensor::new(dtype, &[33]);
            for strides in [[330, 66, 1], [33, 400, 1], [0, 50, 1]] {
                let x = base.view(&[4, 5, 33], &strides, 3);
                let dy = base.view(&[4, 5, 33], &[200, 40, 1], 1);
                let dx = Tensor::new(dtype, &[9000]).view(&[4, 5, 33], &[33, 170, 1], 1);
                let case = Case { dx: &dx, dweight: &dweight, dy: &dy, x: &x, weight: &weight, eps: 1e-6, offset: 0.0 };
                case.check(&format!("{level:?} {strides:?}"));
            }
            for over_x in [false, true] {
                let [x, dy] = [6, 7].map(|seed| Tensor::random(dtype, &[20, 33], seed));
                let dx = if over_x { x.clone() } else { dy.clone() };
                let case = Case { dx: &dx, dweight: &dweight, dy: &dy, x: &x, weight: &weight, eps: 1e-6, offset: 0.0 };
                case.check(&format!("{level:?} in place"));
            }
        }
    });
}

/// Longer than the scratch, so that the rows are gone over more than once; also in place.
#[test]
fn rows_longer_than_the_scratch() {
    at_every_level(|level| {
        let hidden = (1 << 16) * 2 + 7;
        let [x, dy] = [8, 9].map(|seed| Tensor::random(Dt::F32, &[3, hidden], seed));
        let (weight, dweight) = (Tensor::random(Dt::F32, &[hidden], 10), Tensor::new(Dt::F32, &[hidden]));
        let dx = dy.clone();
        let case = Case { dx: &dx, dweight: &dweight, dy: &dy, x: &x, weight: &weight, eps: 1e-6, offset: 0.0 };
        case.check(&format!("{level:?}"));
    });
}

#[test]
fn rows_that_leave_f32_keep_their_gradient() {
    at_every_level(|level| {
        let x = Tensor::random(Dt::F32, &[5, 37], 11);
        x.clone().fill(|index| x.get(index) * 1e30);
        let dy = Tensor::random(Dt::F32, &[5, 37], 12);
        // Gradients are as small as the rows are large.
        dy.clone().fill(|index| dy.get(index) * 1e30);
        let weight = Tensor::random(Dt::F32, &[37], 13);
        let (dx, dweight) = (Tensor::new(Dt::F32, &x.shape), Tensor::new(Dt::F32, &[37]));
        let case = Case { dx: &dx, dweight: &dweight, dy: &dy, x: &x, weight: &weight, eps: 1e-6, offset: 0.0 };
        case.check(&format!("{level:?}"));
    });
}

#[test]
fn no_rows_leave_no_gradient_of_the_weight() {
    let t = |shape: &[i64]| Tensor::random(Dt::F32, shape, 14);
    let run = |tensors: [&Tensor; 5]| {
        let [a, b, c, d, e] = tensors.map(Arg::T);
        call(rms_norm_backward, &[a, b, c, d, e, Arg::F(1e-5), Arg::F(0.0)])
    };
    let dweight = t(&[8]);
    run([&t(&[0, 8]), &dweight, &t(&[0, 8]), &t(&[0, 8]), &t(&[8])]).expect("no rows");
    assert_eq!(dweight.values(), [0.0; 8]);
    run([&t(&[3, 0]), &t(&[0]), &t(&[3, 0]), &t(&[3, 0]), &t(&[0])]).expect("no columns");
    let (x, w) = (t(&[2, 8]), t(&[8]));
    for (actual, text) in [
        (
            run([&t(&[2, 8]), &w, &x, &x, &w]),
            "`dweight`: expected memory apart from `weight`, got a partial overlap with it",
        ),
        (run([&t(&[2, 8]), &t(&[7]), &x, &x, &w]), "`dweight`: expected shape [8] (as `weight`), got [7]"),
        (
            run([&t(&[2, 8]), &Tensor::new(Dt::Bf16, &[8]), &x, &x, &w]),
            "`dweight`: expected dtype f32 (as `weight`), got bf16",
        ),
        (run([&t(&[2, 8]), &t(&[8]), &t(&[2, 9]), &x, &w]), "`dy`: expected shape [2, 8] (as `x`), got [2, 9]"),
        (
            run([&t(&[2, 8]).view(&[2, 8], &[0, 1], 0), &t(&[8]), &x, &x, &w]),
            "`dx`: expected an output whose elements lie apart, got shape [2, 8] with strides [0, 1]",
        ),
    ] {
        assert_eq!(actual.expect_err("wrong call"), format!("rms_norm_backward: argument {text}"));
    }
}
