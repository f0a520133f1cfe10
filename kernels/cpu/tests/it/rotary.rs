use kernelhub_cpu::{apply_rotary, apply_rotary_pair};

use crate::support::{Arg, DTYPES, Dt, Tensor, at_every_level, call};

const SHAPE: [i64; 4] = [2, 11, 3, 37];

#[derive(Debug, Clone)]
struct Case {
    x1: Tensor,
    x2: Tensor,
    out1: Tensor,
    out2: Tensor,
}

impl Case {
    fn run(&self, cos: &Tensor, sin: &Tensor, conj: Arg<'_>) -> Result<(), String> {
        let [x1, x2, out1, out2] = [&self.x1, &self.x2, &self.out1, &self.out2].map(Arg::T);
        call(apply_rotary, &[x1, x2, Arg::T(cos), Arg::T(sin), out1, out2, conj])
    }

    /// `table` maps an index of x to one of cos and sin.
    fn check(&self, cos: &Tensor, sin: &Tensor, table: impl Fn(&[i64]) -> Vec<i64>, what: &str) {
        for (conj, sign) in [(Arg::B(false), 1.0), (Arg::I(1), -1.0)] {
            let (a, b) = (self.x1.values(), self.x2.values());
            let inputs: std::collections::HashMap<_, _> =
                self.x1.indices().into_iter().zip(a.into_iter().zip(b)).collect();
            self.run(cos, sin, conj).expect(what);
            let parts = |index: &[i64]| {
                let (a, b) = inputs[index];
                (a, b, cos.get(&table(index)), sin.get(&table(index)) * sign)
            };
            self.out1.expect(
                |index| {
                    let (a, b, c, s) = parts(index);
                    a * c - b * s
                },
                what,
            );
            self.out2.expect(
                |index| {
                    let (a, b, c, s) = parts(index);
                    a * s + b * c
                },
                what,
            );
        }
    }
}

/// Halves of a [batch, seq, heads, 2 * half] layout given by strides of the first three axes.
fn halves(dtype: Dt, strides: [i64; 3], step: i64, between: i64, seed: u64) -> (Tensor, Tensor) {
    let base = Tensor::random(dtype, &[8000], seed);
    let strides = [strides[0], strides[1], strides[2], step];
    (base.view(&SHAPE, &strides, 1), base.view(&SHAPE, &strides, 1 + between))
}

fn layouts(dtype: Dt) -> Vec<(&'static str, Case)> {
    let two = 2 * SHAPE[3];
    let contiguous = [11 * 3 * two, 3 * two, two];
    let heads_first = [11 * 3 * two, two, 11 * two];
    let make = |strides, step, between, seed| {
        let (x1, x2) = halves(dtype, strides, step, between, seed);
        let (out1, out2) = halves(dtype, strides, step, between, seed + 1);
        Case { x1, x2, out1, out2 }
    };
    let mixed = {
        let (x1, x2) = halves(dtype, contiguous, 2, 1, 9);
        let (out1, out2) = halves(dtype, heads_first, 1, 37, 10);
        Case { x1, x2, out1, out2 }
    };
    let broadcast = {
        let (x1, x2) = halves(dtype, [0, 0, 80], 1, 37, 11);
        let (out1, out2) = halves(dtype, contiguous, 1, 37, 12);
        Case { x1, x2, out1, out2 }
    };
    let in_place = |strides, step, between, seed| {
        let (x1, x2) = halves(dtype, strides, step, between, seed);
        Case { out1: x1.clone(), out2: x2.clone(), x1, x2 }
    };
    vec![
        ("split", make(contiguous, 1, 37, 1)),
        ("split, heads first", make(heads_first, 1, 37, 3)),
        ("interleaved", make(contiguous, 2, 1, 5)),
        ("interleaved, heads first", make(heads_first, 2, 1, 7)),
        ("interleaved to split", mixed),
        ("broadcast input", broadcast),
        ("split in place", in_place(contiguous, 1, 37, 13)),
        ("interleaved in place", in_place(heads_first, 2, 1, 14)),
    ]
}

#[test]
fn agrees_with_f64_in_every_layout() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for table_dtype in [dtype, Dt::F32] {
                for (name, case) in layouts(dtype) {
                    let cos = Tensor::random(table_dtype, &[11, 37], 20);
                    let sin = Tensor::random(table_dtype, &[11, 37], 21);
                    case.check(&cos, &sin, |i| vec![i[1], i[3]], &format!("{level:?} {name}"));
                }
            }
        }
    });
}

#[test]
fn takes_every_broadcast_of_the_tables() {
    at_every_level(|level| {
        let base = |seed| Tensor::random(Dt::F32, &[5000], seed);
        let all = |i: &[i64]| i.to_vec();
        for (shape, strides) in [
            (vec![11, 1, 37], vec![40, 9, 1]),
            (vec![11, 3, 37], vec![120, 40, 1]),
            (vec![2, 11, 3, 37], vec![0, 40, 0, 1]),
            (vec![1, 11, 1, 37], vec![5, 40, 5, 1]),
            (vec![2, 11, 1, 37], vec![500, 40, 1, 1]),
            (vec![11, 37], vec![1, 60]),
        ] {
            let (cos, sin) = (base(30).view(&shape, &strides, 1), base(31).view(&shape, &strides, 2));
            let table = |i: &[i64]| {
                if shape.len() == 2 {
                    return vec![i[1], i[3]];
                }
                let i = &all(i)[4 - shape.len()..];
                i.iter().zip(&shape).map(|(&i, &extent)| if extent == 1 { 0 } else { i }).collect()
            };
            for (name, case) in layouts(Dt::F32).into_iter().take(3) {
                case.check(&cos, &sin, table, &format!("{level:?} {name} tables {shape:?}"));
            }
        }
    });
}

#[test]
fn takes_rank_three_and_one_element() {
    at_every_level(|_| {
        for half in [1, 2, 16, 64] {
            let shape = [5, 2, half];
            let case = Case {
                x1: Tensor::random(Dt::F32, &shape, 40),
                x2: Tensor::random(Dt::F32, &shape, 41),
                out1: Tensor::new(Dt::F32, &shape),
                out2: Tensor::new(Dt::F32, &shape),
            };
            let tables = [42, 43].map(|seed| Tensor::random(Dt::F32, &[5, half], seed));
            case.check(&tables[0], &tables[1], |i| vec![i[0], i[2]], "rank 3, [seq, half]");
            let tables = [44, 45].map(|seed| Tensor::random(Dt::F32, &[5, 1, half], seed));
            case.check(&tables[0], &tables[1], |i| vec![i[0], 0, i[2]], "rank 3, [seq, 1, half]");
        }
    });
}

#[test]
fn non_finite_values_propagate() {
    at_every_level(|level| {
        for special in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            let (_, case) = layouts(Dt::F32).swap_remove(0);
            case.x1.set(&[0, 0, 0, 0], special);
            case.x2.set(&[1, 10, 2, 36], special);
            let cos = Tensor::random(Dt::F32, &[11, 37], 50);
            let sin = Tensor::random(Dt::F32, &[11, 37], 51);
            case.check(&cos, &sin, |i| vec![i[1], i[3]], &format!("{level:?} {special}"));
        }
    });
}

#[test]
fn outputs_that_would_overwrite_unread_inputs_are_refused() {
    let (x1, x2) = (Tensor::random(Dt::F32, &SHAPE, 60), Tensor::random(Dt::F32, &SHAPE, 61));
    let tables = [62, 63].map(|seed| Tensor::random(Dt::F32, &[11, 37], seed));
    let swapped = Case { out1: x2.clone(), out2: x1.clone(), x1: x1.clone(), x2: x2.clone() };
    let text = swapped.run(&tables[0], &tables[1], Arg::B(false)).expect_err("swapped");
    assert_eq!(text, "apply_rotary: argument `out1`: expected memory apart from `x2`, got a partial overlap with it");
    let same = Case { out1: x1.clone(), out2: x1.clone(), x1, x2 };
    let text = same.run(&tables[0], &tables[1], Arg::B(false)).expect_err("twice the same");
    assert_eq!(text, "apply_rotary: argument `out2`: expected memory apart from `out1`, got the same view");
}

/// The arguments of `apply_rotary_pair`: those of `case`, and those of `other`, if any.
fn pair(case: &Case, other: Option<&Case>, [cos, sin]: [&Tensor; 2], conj: bool) -> Result<(), String> {
    let parts = |case: &'_ Case| [&case.x1, &case.x2, &case.out1, &case.out2].map(Clone::clone);
    let ([x1, x2, out1, out2], others) = (parts(case), other.map(parts));
    let mut args = [&x1, &x2, cos, sin, &out1, &out2].map(Arg::T).to_vec();
    args.push(Arg::B(conj));
    match &others {
        Some(others) => args.extend(others.iter().map(Arg::T)),
        None => args.extend([Arg::None; 4]),
    }
    call(apply_rotary_pair, &args)
}

/// A tensor of `heads` heads beside [`SHAPE`], heads before positions where `heads_first`.
fn beside(dtype: Dt, heads: i64, heads_first: bool, seed: u64) -> Case {
    let [batch, seq, _, half] = SHAPE;
    let (shape, width) = ([batch, seq, heads, half], 2 * half);
    let strides = if heads_first {
        [seq * heads * width, width, seq * width, 1]
    } else {
        [seq * heads * width, heads * width, width, 1]
    };
    let make = |seed| {
        let base = Tensor::random(dtype, &[batch * seq * heads * width], seed);
        [base.view(&shape, &strides, 0), base.view(&shape, &strides, half)]
    };
    let ([x1, x2], [out1, out2]) = (make(seed), make(seed + 1));
    Case { x1, x2, out1, out2 }
}

#[test]
fn a_pair_has_the_bits_of_two_calls() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for table_dtype in [dtype, Dt::F32] {
                let tables = [70, 71].map(|seed| Tensor::random(table_dtype, &[11, 37], seed));
                let tables = [&tables[0], &tables[1]];
                for (heads, heads_first, conj) in
                    [(1, false, false), (5, true, true), (5, false, true), (0, true, false)]
                {
                    // The second call of a case in place finds what the first one wrote: so each has its own.
                    for ((name, first), (_, again)) in layouts(dtype).into_iter().zip(layouts(dtype)) {
                        let what = format!("{level:?} {dtype:?} {name} and {heads} heads, {conj}");
                        let other = beside(dtype, heads, heads_first, 72);
                        pair(&first, Some(&other), tables, conj).expect(&what);
                        again.run(tables[0], tables[1], Arg::B(conj)).expect(&what);
                        let alone = Case {
                            out1: Tensor::new(dtype, &other.x1.shape),
                            out2: Tensor::new(dtype, &other.x1.shape),
                            ..other.clone()
                        };
                        alone.run(tables[0], tables[1], Arg::B(conj)).expect(&what);
                        for (pair, alone) in [(&first, &again), (&other, &alone)] {
                            assert_eq!(pair.out1.values(), alone.out1.values(), "{what}");
                            assert_eq!(pair.out2.values(), alone.out2.values(), "{what}");
                        }
                    }
                }
                for ((name, first), (_, again)) in layouts(dtype).into_iter().zip(layouts(dtype)) {
                    pair(&first, None, tables, true).expect(name);
                    again.run(tables[0], tables[1], Arg::B(true)).expect(name);
                    assert_eq!(first.out1.values(), again.out1.values(), "{level:?} {name} alone");
                    assert_eq!(first.out2.values(), again.out2.values(), "{level:?} {name} alone");
                }
            }
        }
    });
}

#[test]
fn wrong_pairs_are_refused_before_anything_is_written() {
    let tables = [80, 81].map(|seed| Tensor::random(Dt::F32, &[11, 37], seed));
    let tables = [&tables[0], &tables[1]];
    let x = || layouts(Dt::F32).swap_remove(0).1;
    let refuse = |case: &Case, other: &Case, text: &str| {
        let before = case.out1.values();
        let error = pair(case, Some(other), tables, false).expect_err(text);
        assert_eq!(error, format!("apply_rotary_pair: argument {text}"));
        assert!(before == case.out1.values(), "{text}");
    };
    refuse(&x(), &beside(Dt::F16, 2, false, 82), "`y1`: expected dtype f32 (as `x1`), got f16");
    let y = beside(Dt::F32, 2, false, 84);
    let short = Case { x2: y.x2.view(&[2, 11, 2, 36], &y.x2.strides, 0), ..y.clone() };
    refuse(&x(), &short, "`y2`: expected shape [2, 11, 2, 37] (as `y1`), got [2, 11, 2, 36]");
    let other = layouts(Dt::F32).swap_remove(0).1;
    let long = Case {
        x1: Tensor::random(Dt::F32, &[2, 12, 3, 37], 86),
        x2: Tensor::random(Dt::F32, &[2, 12, 3, 37], 87),
        out1: Tensor::new(Dt::F32, &[2, 12, 3, 37]),
        out2: Tensor::new(Dt::F32, &[2, 12, 3, 37]),
    };
    refuse(
        &x(),
        &long,
        "`cos`: expected [12, 37] (seq, half), or a shape that broadcasts to [2, 12, 3, 37], got [11, 37]",
    );
    let case = x();
    let same = Case { out1: case.out1.clone(), ..other };
    refuse(&case, &same, "`out1`: expected memory apart from `y_out1`, got the same view");
    let case = x();
    let read = Case { x2: case.out2.clone(), ..layouts(Dt::F32).swap_remove(0).1 };
    refuse(&case, &read, "`out2`: expected memory apart from `y2`, got the same view");
    let [x1, x2, out1, out2] = [&case.x1, &case.x2, &case.out1, &case.out2].map(Arg::T);
    let args = [x1, x2, Arg::T(tables[0]), Arg::T(tables[1]), out1, out2, Arg::B(false), Arg::None, x1, x2, Arg::None];
    let text = call(apply_rotary_pair, &args).expect_err("half of a pair");
    assert_eq!(text, "apply_rotary_pair: argument `y2`: expected None, as `y1` is");
    let args = [x1, x2, Arg::T(tables[0]), Arg::T(tables[1]), out1, out2, Arg::B(false), x1, x2, Arg::None, Arg::None];
    let text = call(apply_rotary_pair, &args).expect_err("half of a pair");
    assert_eq!(text, "apply_rotary_pair: argument `y_out1`: expected Tensor (DLTensor*), got None");
}
