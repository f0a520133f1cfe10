//! Powers of two for the levels that read tables.

/// `2^(k/32)` for `k` from 0 to 31.
#[repr(align(64))]
pub(super) struct Powers(pub(super) [f32; 32]);

#[rustfmt::skip]
pub(super) static POWERS: Powers = Powers([
    1.0, 1.021_897_2, 1.044_273_7, 1.067_140_5, 1.090_507_7, 1.114_386_8, 1.138_788_6, 1.163_724_9,
    1.189_207_1, 1.215_247_4, 1.241_857_8, 1.269_051, 1.296_839_6, 1.325_236_7, 1.354_255_6, 1.383_91,
    core::f32::consts::SQRT_2, 1.445_180_8, 1.476_826_2, 1.509_164_5, 1.542_210_8, 1.575_980_9, 1.610_490_3, 1.645_755_5,
    1.681_792_9, 1.718_619_3, 1.756_252_2, 1.794_709_1, 1.834_008_1, 1.874_167_7, 1.915_206_6, 1.957_144_1,
]);

/// [`POWERS`] less `k << 18`: the bits of `(m * 32 + k) << 18` added, they are those of `2^(m + k/32)`.
pub(super) static SHIFTED: Powers = {
    let mut all = POWERS.0;
    let mut k = 0_u32;
    while k < 32 {
        all[k as usize] = f32::from_bits(all[k as usize].to_bits() - (k << 18));
        k += 1;
    }
    Powers(all)
};
