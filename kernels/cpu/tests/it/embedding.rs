use kernelhub_cpu::embedding;

use crate::support::{Arg, DTYPES, Dt, Tensor, at_every_level, call};

fn ids(dtype: Dt, shape: &[i64], vocab: i64) -> Tensor {
    let ids = Tensor::new(dtype, shape);
    let mut next = 3;
    ids.fill(|_| {
        next = (next * 7 + 5) % vocab;
        next as f64
    });
    ids
}

fn check(out: &Tensor, ids: &Tensor, weight: &Tensor, what: &str) {
    call(embedding, &[Arg::T(out), Arg::T(ids), Arg::T(weight)]).expect(what);
    for index in out.indices() {
        let (place, column) = (&index[..index.len() - 1], index[index.len() - 1]);
        let expected = weight.get(&[ids.get(place) as i64, column]);
        assert_eq!(out.get(&index), expected, "{what}: at {index:?}");
    }
}

#[test]
fn copies_rows_exactly() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for id_dtype in [Dt::U32, Dt::I64] {
                for (shape, hidden) in
                    [(vec![], 7), (vec![1], 1), (vec![5], 7), (vec![2, 3], 1408), (vec![1, 2, 1, 2], 3420)]
                {
                    let weight = Tensor::random(dtype, &[11, hidden], 1);
                    let ids = ids(id_dtype, &shape, 11);
                    let mut full = shape.clone();
                    full.push(hidden);
                    let what = format!("{level:?} {id_dtype:?} {shape:?} {hidden}");
                    check(&Tensor::new(dtype, &full), &ids, &weight, &what);
                }
            }
        }
    });
}

#[test]
fn ids_rows_and_table_may_be_strided() {
    for dtype in DTYPES {
        for id_dtype in [Dt::U32, Dt::I64] {
            let table = Tensor::random(dtype, &[40, 50], 2);
            let all = ids(id_dtype, &[100], 7);
            for strides in [[10, 1], [1, 10], [0, 3], [0, 0], [-9, 2]] {
                let ids = all.view(&[4, 5], &strides, 30);
                let out = Tensor::new(dtype, &[4000]).view(&[4, 5, 33], &[40, 200, 1], 3);
                check(&out, &ids, &table.view(&[7, 33], &[150, 1], 2), &format!("{strides:?}"));
                check(&out, &ids, &table.view(&[7, 33], &[-50, 1], 1500), &format!("{strides:?}, backwards"));
                check(&out, &ids, &table.view(&[7, 33], &[0, 1], 0), &format!("{strides:?}, one row"));
            }
        }
    }
}

#[test]
fn ids_out_of_range_are_named_and_nothing_is_written() {
    let weight = Tensor::random(Dt::F32, &[11, 4], 3);
    let out = Tensor::new(Dt::F32, &[2, 3, 4]);
    let before = out.values();
    for (id_dtype, wrong) in
        [(Dt::U32, 11), (Dt::U32, i64::from(u32::MAX)), (Dt::I64, 11), (Dt::I64, -1), (Dt::I64, i64::MIN)]
    {
        let ids = ids(id_dtype, &[2, 3], 11);
        ids.set(&[1, 2], wrong as f64);
        let text = call(embedding, &[Arg::T(&out), Arg::T(&ids), Arg::T(&weight)]).expect_err("out of range");
        let expected =
            format!("embedding: argument `ids`: expected ids within 0..11 (vocab), got {wrong} at index [1, 2]");
        assert_eq!(text, expected);
    }
    assert!(before.iter().zip(out.values()).all(|(a, b)| a.to_bits() == b.to_bits()));
    let none = Tensor::new(Dt::F32, &[0, 4]);
    let text = call(embedding, &[Arg::T(&out), Arg::T(&ids(Dt::U32, &[2, 3], 1)), Arg::T(&none)]);
    let expected = "embedding: argument `ids`: expected ids within 0..0 (vocab), got 0 at index [0, 0]";
    assert_eq!(text.expect_err("no vocabulary"), expected);
}

#[test]
fn empty_tensors_and_wrong_calls() {
    let t = |shape: &[i64]| Tensor::random(Dt::F32, shape, 4);
    let run =
        |out: &Tensor, ids: &Tensor, weight: &Tensor| call(embedding, &[Arg::T(out), Arg::T(ids), Arg::T(weight)]);
    let none = Tensor { data: std::ptr::null_mut(), ..Tensor::new(Dt::I64, &[0]) };
    run(&t(&[0, 4]), &none, &t(&[11, 4])).expect("no ids");
    run(&t(&[3, 0]), &ids(Dt::I64, &[3], 5), &t(&[11, 0])).expect("no columns");
    let some = ids(Dt::I64, &[3], 5);
    let unaligned = Tensor { data: some.data.wrapping_add(4), ..some.view(&[2], &[1], 0) };
    for (actual, text) in [
        (
            run(&t(&[3, 5]), &some, &t(&[11, 4])),
            "`out`: expected shape [3, 4] ([.., hidden], the leading axes as `ids`, hidden as in `weight`), got [3, 5]",
        ),
        (run(&t(&[3, 4]), &t(&[3]), &t(&[11, 4])), "`ids`: expected dtype u32 or i64, got code 2, 32 bits, 1 lanes"),
        (run(&t(&[3, 4]), &some, &t(&[11])), "`weight`: expected rank 2 [vocab, hidden], got rank 1 [11]"),
        (
            run(&t(&[1; 8]), &ids(Dt::U32, &[1; 8], 2), &t(&[11, 1])),
            "`ids`: expected rank 0 to 7 [..], got rank 8 [1, 1, 1, 1, 1, 1, 1, 1]",
        ),
        (
            run(&t(&[2, 4]), &unaligned, &t(&[11, 4])),
            "`ids`: expected an address that is a multiple of 8 bytes for i64, got 0x",
        ),
        (run(&Tensor::new(Dt::F16, &[3, 4]), &some, &t(&[11, 4])), "`out`: expected dtype f32 (as `weight`), got f16"),
    ] {
        let text = format!("embedding: argument {text}");
        assert_eq!(actual.expect_err("wrong call").get(..text.len()), Some(&*text));
    }
}
