//! Wrong calls: each an error that names function, argument, expected and actual; never a crash.

#![expect(unsafe_code, reason = "calls with arguments that no safe helper would make")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "a list of calls with one reason")]

use kernelhub_abi::{DLDataType, TVMFFIAny, dtype_code};
use kernelhub_cpu::{apply_rotary, flash_attn, rms_norm, silu_and_mul};

use crate::packs::{Export, export};
use crate::support::{Arg, Dt, Tensor, call, last_error};

fn rms(out: &Tensor, x: &Tensor, weight: &Tensor) -> String {
    call(rms_norm, &[Arg::T(out), Arg::T(x), Arg::T(weight), Arg::F(1e-5)]).expect_err("wrong call")
}

fn good() -> (Tensor, Tensor, Tensor) {
    (Tensor::new(Dt::F32, &[2, 8]), Tensor::random(Dt::F32, &[2, 8], 1), Tensor::random(Dt::F32, &[8], 2))
}

#[test]
fn counts_and_types() {
    let (out, x, weight) = good();
    let [o, i, w] = [&out, &x, &weight].map(Arg::T);
    for (args, text) in [
        (&[o, i, w][..], "rms_norm: expected 4 arguments, got 3"),
        (&[], "rms_norm: expected 4 arguments, got 0"),
        (&[o, i, w, Arg::F(0.0), w], "rms_norm: expected 4 arguments, got 5"),
        (&[o, Arg::None, w, Arg::F(0.0)], "rms_norm: argument `x`: expected Tensor (DLTensor*), got None"),
        (&[o, Arg::F(1.0), w, Arg::F(0.0)], "rms_norm: argument `x`: expected Tensor (DLTensor*), got Float"),
        (
            &[o, i, Arg::NullTensor, Arg::F(0.0)],
            "rms_norm: argument `weight`: expected a DLTensor, got the address 0x0",
        ),
        (&[o, i, w, Arg::B(true)], "rms_norm: argument `eps`: expected Float or Int, got Bool"),
        (&[o, i, w, w], "rms_norm: argument `eps`: expected Float or Int, got Tensor (DLTensor*)"),
        (&[o, i, w, Arg::F(f64::NAN)], "rms_norm: argument `eps`: expected a finite number of at least 0, got NaN"),
        (&[o, i, w, Arg::F(-1.0)], "rms_norm: argument `eps`: expected a finite number of at least 0, got -1"),
    ] {
        assert_eq!(call(rms_norm, args).expect_err("wrong call"), text);
    }
    let negative = TVMFFIAny::none();
    let Export { function: rms_norm, last_error: last_error_of, .. } = export(rms_norm);
    // SAFETY: the count is refused before any value is read.
    unsafe {
        assert_ne!(rms_norm(std::ptr::null_mut(), &raw const negative, -1, std::ptr::null_mut()), 0);
        assert_eq!(last_error(), "rms_norm: expected 4 arguments, got -1");
        assert_ne!(rms_norm(std::ptr::null_mut(), std::ptr::null(), 4, std::ptr::null_mut()), 0);
        assert_eq!(last_error(), "rms_norm: the argument array is null");
        let foreign = [TVMFFIAny { type_index: 12345, ..negative }; 4];
        assert_ne!(rms_norm(std::ptr::null_mut(), foreign.as_ptr(), 4, std::ptr::null_mut()), 0);
        assert_eq!(last_error(), "rms_norm: argument `out`: expected Tensor (DLTensor*), got type index 12345");
        let mut cut = [0_u8; 8];
        assert_eq!(last_error_of(cut.as_mut_ptr().cast(), 8), last_error().len());
        assert_eq!(&cut, b"rms_norm");
    }
}

#[test]
fn tensors_on_their_own() {
    let (out, x, weight) = good();
    let cases: Vec<(Tensor, &str)> = vec![
        (Tensor { device_type: 2, ..x.clone() }, "expected a tensor on the CPU (device type 1), got device type 2"),
        (
            Tensor { raw_dtype: Some(DLDataType { code: dtype_code::FLOAT, bits: 64, lanes: 1 }), ..x.clone() },
            "expected dtype f32, bf16 or f16, got code 2, 64 bits, 1 lanes",
        ),
        (
            Tensor { raw_dtype: Some(DLDataType { code: dtype_code::FLOAT, bits: 32, lanes: 4 }), ..x.clone() },
            "expected dtype f32, bf16 or f16, got code 2, 32 bits, 4 lanes",
        ),
        (Tensor { data: std::ptr::null_mut(), ..x.clone() }, "expected data, got a null address for shape [2, 8]"),
        (x.view(&[2, -8], &[8, 1], 0), "expected extents of at least 0, got -8 in axis 1"),
        (x.view(&[1; 9], &[1; 9], 0), "expected rank 0..=8, got 9"),
        (
            x.view(&[i64::MAX, 8], &[8, 1], 0),
            "shape [9223372036854775807, 8] with its strides exceeds the address space",
        ),
        (x.view(&[2, 8], &[i64::MIN, 1], 0), "shape [2, 8] with its strides exceeds the address space"),
        (
            x.view(&[1 << 40, 1 << 40, 8], &[0, 0, 1], 0),
            "shape [1099511627776, 1099511627776, 8] with its strides exceeds the address space",
        ),
        (x.view(&[], &[], 0), "expected rank 1 to 8 [.., hidden], got rank 0 []"),
        (x.view(&[2, 8], &[16, 2], 0), "expected stride 1 in the last axis, got strides [16, 2]"),
    ];
    for (wrong, text) in cases {
        let out = if wrong.shape == [2, 8] { out.clone() } else { wrong.clone() };
        assert_eq!(
            rms(&out, &wrong, &weight).split_once(": argument ").expect("named").1.split_once(": ").expect("named").1,
            text
        );
    }
    let unaligned = Tensor { data: x.data.wrapping_add(1), ..x.clone() };
    let text = rms(&out, &unaligned, &weight);
    assert!(
        text.starts_with("rms_norm: argument `x`: expected an address that is a multiple of 4 bytes for f32"),
        "{text}"
    );
}

#[test]
fn tensors_against_each_other() {
    let (out, x, weight) = good();
    let big = Tensor::random(Dt::F32, &[100], 3);
    for (actual, text) in [
        (
            rms(&out.view(&[2, 7], &[8, 1], 0), &x, &weight),
            "argument `out`: expected shape [2, 8] (as `x`), got [2, 7]",
        ),
        (
            rms(&out, &x, &weight.view(&[7], &[1], 0)),
            "argument `weight`: expected shape [8] ([hidden], hidden as in `x`), got [7]",
        ),
        (rms(&Tensor::new(Dt::F16, &[2, 8]), &x, &weight), "argument `out`: expected dtype f32 (as `x`), got f16"),
        (
            rms(&out, &x, &Tensor::new(Dt::Bf16, &[8])),
            "argument `weight`: expected dtype f32 (as `x`, or f32), got bf16",
        ),
        (
            rms(&out.view(&[2, 8], &[0, 1], 0), &x, &weight),
            "argument `out`: expected an output whose elements lie apart, got shape [2, 8] with strides [0, 1]",
        ),
        (
            rms(&big.view(&[2, 8], &[8, 1], 4), &big.view(&[2, 8], &[8, 1], 0), &weight),
            "argument `out`: expected memory apart from `x`, got a partial overlap with it",
        ),
    ] {
        assert_eq!(actual, format!("rms_norm: {text}"));
    }
}

#[test]
fn the_other_functions() {
    let t = |shape: &[i64]| Tensor::random(Dt::F32, shape, 4);
    let silu = |out: &[i64], x: &[i64]| call(silu_and_mul, &[Arg::T(&t(out)), Arg::T(&t(x))]).expect_err("wrong call");
    assert_eq!(
        silu(&[2, 3], &[2, 7]),
        "silu_and_mul: argument `x`: expected an even extent in the last axis, 2 * d, got 7"
    );
    assert_eq!(
        silu(&[2, 4], &[2, 6]),
        "silu_and_mul: argument `out`: expected shape [2, 3] (as `x` with half its last axis), got [2, 4]"
    );
    assert_eq!(silu(&[], &[]), "silu_and_mul: argument `x`: expected rank 1 to 8 [.., 2 * d], got rank 0 []");
    let rotary = |x: &[i64], other: &[i64], cos: &[i64]| {
        let (x, other, cos) = (t(x), t(other), t(cos));
        let out = [t(&x.shape), t(&x.shape)];
        let args = [&x, &other, &cos, &cos, &out[0], &out[1]].map(Arg::T);
        let args = [args[0], args[1], args[2], args[3], args[4], args[5], Arg::B(false)];
        call(apply_rotary, &args).expect_err("wrong call")
    };
    assert_eq!(
        rotary(&[5, 4], &[5, 4], &[5, 4]),
        "apply_rotary: argument `x1`: expected rank 3 to 4 [batch, seq, heads, half] or [seq, heads, half], got rank 2 [5, 4]"
    );
    assert_eq!(
        rotary(&[1, 5, 2, 4], &[1, 5, 2, 5], &[5, 4]),
        "apply_rotary: argument `x2`: expected shape [1, 5, 2, 4] (as `x1`), got [1, 5, 2, 5]"
    );
    for cos in [&[5, 5][..], &[4, 4], &[1, 4], &[5, 3, 4], &[5, 1, 1], &[4], &[1, 1, 5, 1, 4]] {
        let text = rotary(&[1, 5, 2, 4], &[1, 5, 2, 4], cos);
        let start = "apply_rotary: argument `cos`: expected [5, 4] (seq, half), or a shape that broadcasts to [1, 5, 2, 4], got [";
        assert!(text.starts_with(start), "{text}");
    }
    let attention = |q: &[i64], k: &[i64], v: &[i64], scale: f64| {
        let (out, q, k, v) = (t(q), t(q), t(k), t(v));
        let [out, q, k, v] = [&out, &q, &k, &v].map(Arg::T);
        call(flash_attn, &[out, q, k, v, Arg::F(scale), Arg::I(0)]).expect_err("wrong call")
    };
    for (actual, text) in [
        (
            attention(&[1, 2, 4, 8], &[1, 3, 3, 8], &[1, 3, 3, 8], 1.0),
            "argument `k`: expected kv_heads that divide the 4 heads of `q`, got 3",
        ),
        (
            attention(&[1, 2, 4, 8], &[1, 3, 0, 8], &[1, 3, 0, 8], 1.0),
            "argument `k`: expected kv_heads that divide the 4 heads of `q`, got 0",
        ),
        (
            attention(&[1, 2, 4, 8], &[1, 3, 2, 9], &[1, 3, 2, 9], 1.0),
            "argument `k`: expected shape [1, 3, 2, 8] ([batch, kv_len, kv_heads, head_dim], batch and head_dim as in `q`), got [1, 3, 2, 9]",
        ),
        (
            attention(&[1, 2, 4, 8], &[1, 3, 2, 8], &[1, 4, 2, 8], 1.0),
            "argument `v`: expected shape [1, 3, 2, 8] (as `k`), got [1, 4, 2, 8]",
        ),
        (
            attention(&[1, 2, 4, 257], &[1, 3, 2, 257], &[1, 3, 2, 257], 1.0),
            "argument `q`: expected a head_dim of 1 to 256, got 257",
        ),
        (
            attention(&[2, 4, 8], &[3, 2, 8], &[3, 2, 8], 1.0),
            "argument `q`: expected rank 4 [batch, q_len, heads, head_dim], got rank 3 [2, 4, 8]",
        ),
        (
            attention(&[1, 2, 4, 8], &[1, 3, 2, 8], &[1, 3, 2, 8], f64::INFINITY),
            "argument `softmax_scale`: expected a finite number, got inf",
        ),
    ] {
        assert_eq!(actual, format!("flash_attn: {text}"));
    }
}

#[test]
fn a_long_text_is_cut_and_the_next_error_replaces_it() {
    let x = Tensor::new(Dt::F32, &[1; 8]).view(&[i64::MAX; 8], &[i64::MAX; 8], 0);
    let text = call(silu_and_mul, &[Arg::T(&x), Arg::T(&x)]).expect_err("wrong call");
    assert!(text.starts_with("silu_and_mul: argument `out`: shape [9223372036854775807, "), "{text}");
    assert_eq!(call(silu_and_mul, &[]).expect_err("wrong call"), "silu_and_mul: expected 2 arguments, got 0");
    let other = std::thread::spawn(last_error).join().expect("thread");
    assert_eq!(other, "", "each thread has its own text");
}
