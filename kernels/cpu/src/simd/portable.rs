//! 4 lanes in plain Rust, which compilers turn into whatever the target surely has.

#![expect(unsafe_code, reason = "pointer access")]
#![expect(clippy::inline_always, reason = "the same call structure as the other levels")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]
#![expect(clippy::cast_possible_truncation, reason = "exponents, small by contract")]

use core::array::from_fn;

use half::{bf16, f16};

use super::{Kernel, Simd};

const LANES: usize = 4;
type V = [f32; LANES];

/// The level that every CPU has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Portable;

#[inline(never)]
fn compiled<K: Kernel>(simd: Portable, kernel: K) {
    kernel.run(simd);
}

/// `2^n` for `n` within the exponents of normal numbers.
fn power2(n: i32) -> f32 {
    // In range by contract, so the sum is within 1..=254.
    f32::from_bits((n + 127).cast_unsigned() << 23)
}

#[inline(always)]
fn greater(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

impl Simd for Portable {
    type V = V;
    const LANES: usize = LANES;
    const TILE: usize = 2;
    const PAIRS: bool = false;

    #[inline(always)]
    fn call<K: Kernel>(self, kernel: K) {
        compiled(self, kernel);
    }

    #[inline(always)]
    fn splat(self, value: f32) -> V {
        [value; LANES]
    }
    #[inline(always)]
    fn add(self, a: V, b: V) -> V {
        from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: V, b: V) -> V {
        from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: V, b: V) -> V {
        from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn reciprocal(self, a: V) -> V {
        a.map(|x| 1.0 / x)
    }
    #[inline(always)]
    fn fma(self, a: V, b: V, c: V) -> V {
        // Not `mul_add`: without the instruction that is a call into the C library for each lane.
        from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn divide(self, a: V, b: V) -> V {
        from_fn(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn fnma(self, a: V, b: V, c: V) -> V {
        from_fn(|i| c[i] - a[i] * b[i])
    }
    #[inline(always)]
    fn max(self, a: V, b: V) -> V {
        from_fn(|i| greater(a[i], b[i]))
    }
    #[inline(always)]
    fn min(self, a: V, b: V) -> V {
        from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn abs(self, a: V) -> V {
        a.map(f32::abs)
    }
    #[inline(always)]
    fn round(self, a: V) -> V {
        // Adding and taking away 1.5 * 2^23 leaves an integer; every caller's values are below 2^22.
        const MAGIC: f32 = 12_582_912.0;
        a.map(|x| (x + MAGIC) - MAGIC)
    }
    #[inline(always)]
    fn scale2(self, a: V, n: V) -> V {
        from_fn(|i| {
            // Integral and small by contract; NaN gives 0, and then `a` is NaN too.
            let n = n[i] as i32;
            let half = n >> 1;
            a[i] * power2(half) * power2(n - half)
        })
    }
    #[inline(always)]
    fn where_negative(self, x: V, a: V, b: V) -> V {
        from_fn(|i| if x[i] < 0.0 { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn keep_first(self, v: V, count: usize, fill: f32) -> V {
        from_fn(|i| if i < count { v[i] } else { fill })
    }
    #[inline(always)]
    fn sum(self, v: V) -> f32 {
        (v[0] + v[1]) + (v[2] + v[3])
    }
    #[inline(always)]
    fn sum4(self, v: [V; 4]) -> [f32; 4] {
        v.map(|v| self.sum(v))
    }
    #[inline(always)]
    fn max_lane(self, v: V) -> f32 {
        greater(greater(v[0], v[1]), greater(v[2], v[3]))
    }
    #[inline(always)]
    fn deinterleave(self, low: V, high: V) -> (V, V) {
        ([low[0], low[2], high[0], high[2]], [low[1], low[3], high[1], high[3]])
    }
    #[inline(always)]
    fn interleave(self, a: V, b: V) -> (V, V) {
        ([a[0], b[0], a[1], b[1]], [a[2], b[2], a[3], b[3]])
    }
    #[inline(always)]
    unsafe fn transpose(self, source: *const f32, source_stride: usize, target: *mut f32, target_stride: usize) {
        for row in 0..LANES {
            for column in 0..LANES {
                // SAFETY: inside the block, readable by the caller's contract.
                let value = unsafe { source.add(row * source_stride + column).read() };
                // SAFETY: inside the block, writable by the caller's contract.
                unsafe { target.add(column * target_stride + row).write(value) };
            }
        }
    }
    #[inline(always)]
    fn fence(self) {}
    #[inline(always)]
    fn prefetch(self, _p: *const u8) {}
    #[inline(always)]
    fn splat_pair(self, pair: u32) -> V {
        [f32::from_bits(pair); LANES]
    }
    #[inline(always)]
    fn dot_pairs(self, a: V, b: V, c: V) -> V {
        from_fn(|i| {
            let (a, b) = (a[i].to_bits(), b[i].to_bits());
            let (high, low) = (|pair: u32| f32::from_bits(pair & !0xffff), |pair: u32| f32::from_bits(pair << 16));
            low(a) * low(b) + (high(a) * high(b) + c[i])
        })
    }

    #[inline(always)]
    unsafe fn load_f32(self, p: *const f32) -> V {
        // SAFETY: LANES elements are readable by the caller's contract.
        unsafe { p.cast::<V>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load_f32_part(self, p: *const f32, count: usize) -> V {
        let mut whole = [0.0; LANES];
        // SAFETY: `count <= LANES` elements are readable by the caller's contract.
        unsafe { core::ptr::copy_nonoverlapping(p, whole.as_mut_ptr(), count) };
        whole
    }
    #[inline(always)]
    unsafe fn store_f32(self, p: *mut f32, v: V) {
        // SAFETY: LANES elements are writable by the caller's contract.
        unsafe { p.cast::<V>().write_unaligned(v) };
    }
    #[inline(always)]
    unsafe fn store_f32_part(self, p: *mut f32, v: V, count: usize) {
        // SAFETY: `count <= LANES` elements are writable by the caller's contract.
        unsafe { core::ptr::copy_nonoverlapping(v.as_ptr(), p, count) };
    }
    #[inline(always)]
    unsafe fn stream_f32(self, p: *mut f32, v: V) {
        // SAFETY: the caller's contract is the stricter one.
        unsafe { self.store_f32(p, v) };
    }

    #[inline(always)]
    unsafe fn load_pairs(self, p: *const u16) -> V {
        // SAFETY: LANES pairs are readable by the caller's contract.
        unsafe { p.cast::<[u32; LANES]>().read_unaligned() }.map(f32::from_bits)
    }
    #[inline(always)]
    unsafe fn load_pairs_part(self, p: *const u16, count: usize) -> V {
        let mut whole = [0_u16; 2 * LANES];
        // SAFETY: `count <= 2 * LANES` elements are readable by the caller's contract.
        unsafe { core::ptr::copy_nonoverlapping(p, whole.as_mut_ptr(), count) };
        // SAFETY: `whole` holds LANES pairs.
        unsafe { self.load_pairs(whole.as_ptr()) }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> V {
        // SAFETY: LANES elements are readable by the caller's contract.
        unsafe { p.cast::<[u16; LANES]>().read_unaligned() }.map(|bits| bf16::from_bits(bits).to_f32())
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> V {
        // SAFETY: LANES elements are readable by the caller's contract.
        unsafe { p.cast::<[u16; LANES]>().read_unaligned() }.map(|bits| f16::from_bits(bits).to_f32())
    }
    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut u16, v: V) {
        let bits = v.map(|x| bf16::from_f32(x).to_bits());
        // SAFETY: LANES elements are writable by the caller's contract.
        unsafe { p.cast::<[u16; LANES]>().write_unaligned(bits) };
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: V) {
        let bits = v.map(|x| f16::from_f32(x).to_bits());
        // SAFETY: LANES elements are writable by the caller's contract.
        unsafe { p.cast::<[u16; LANES]>().write_unaligned(bits) };
    }
    #[inline(always)]
    unsafe fn stream_bf16(self, p: *mut u16, v: V) {
        // SAFETY: the caller's contract is the stricter one.
        unsafe { self.store_bf16(p, v) };
    }
    #[inline(always)]
    unsafe fn stream_f16(self, p: *mut u16, v: V) {
        // SAFETY: the caller's contract is the stricter one.
        unsafe { self.store_f16(p, v) };
    }
}
