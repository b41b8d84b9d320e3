//! Constants and polynomials. Written by `coefficients.py`, which says where they come from.

#![allow(clippy::all)] // literals with all their digits

use super::language::*;

/// 64 zero bits and the bits of 2 / pi.
pub(super) static TWO_OVER_PI_BITS: [u64; 21] = [
    0x0000000000000000,
    0xa2f9836e4e441529,
    0xfc2757d1f534ddc0,
    0xdb6295993c439041,
    0xfe5163abdebbc561,
    0xb7246e3a424dd2e0,
    0x06492eea09d1921c,
    0xfe1deb1cb129a73e,
    0xe88235f52ebb4484,
    0xe99c7026b45f7e41,
    0x3991d639835339f4,
    0x9c845f8bbdf9283b,
    0x1ff897ffde05980f,
    0xef2f118b5a0a6d1f,
    0x6d367ecf27cb09b7,
    0x4f463f669e5fea2d,
    0x7527bac7ebe5f17b,
    0x3d0739f78a5292ea,
    0x6bfb5fb11f8d5d08,
    0x56033046fc7b6bab,
    0xf0cfbc209af4361d,
];

define! {
    constants {
        /// 1.5 * 2^52: added to a small number, it leaves the nearest integer in the low bits.
        const MAGIC: f64 = 6755399441055744.0;
        /// 1 / ln 2.
        const LOG2_E: f64 = 1.4426950408889634;
        /// ln 2: part 1.
        const LN_2_1: f64 = 0.6931471805599453;
        /// ln 2: part 2.
        const LN_2_2: f64 = 2.3190468138462996e-17;
        /// ln 2, to be multiplied by exponents without rounding: part 1.
        const LN_2_SHORT_1: f64 = 0.693147180559663;
        /// ln 2, to be multiplied by exponents without rounding: part 2.
        const LN_2_SHORT_2: f64 = 2.8235290563031577e-13;
        /// 1 / ln 2: part 1.
        const INVERSE_LN_2_1: f64 = 1.4426950408889634;
        /// 1 / ln 2: part 2.
        const INVERSE_LN_2_2: f64 = 2.0355273740931033e-17;
        /// 1 / ln 10: part 1.
        const INVERSE_LN_10_1: f64 = 0.4342944819032518;
        /// 1 / ln 10: part 2.
        const INVERSE_LN_10_2: f64 = 1.098319650216765e-17;
        /// 2 / pi.
        const TWO_OVER_PI: f64 = 0.6366197723675814;
        /// pi / 2: part 1.
        const HALF_PI_1: f64 = 1.5707963267948966;
        /// pi / 2: part 2.
        const HALF_PI_2: f64 = 6.123233995736766e-17;
        /// pi / 2: part 3.
        const HALF_PI_3: f64 = -1.4973849048591698e-33;
        /// pi / 4: part 1.
        const QUARTER_PI_1: f64 = 0.7853981633974483;
        /// pi / 4: part 2.
        const QUARTER_PI_2: f64 = 3.061616997868383e-17;
        /// pi: part 1.
        const PI_1: f64 = 3.141592653589793;
        /// pi: part 2.
        const PI_2: f64 = 1.2246467991473532e-16;
        /// 2 / 3: part 1.
        const TWO_THIRDS_1: f64 = 0.6666666666666666;
        /// 2 / 3: part 2.
        const TWO_THIRDS_2: f64 = 3.700743415417188e-17;
        /// 2 / 5: part 1.
        const TWO_FIFTHS_1: f64 = 0.4;
        /// 2 / 5: part 2.
        const TWO_FIFTHS_2: f64 = -2.2204460492503132e-17;
        /// tan(pi / 8), where the arc tangent changes its reduction.
        const TAN_PI_8: f64 = 0.41421356237309503;
        /// 2^700, which brings small numbers to where their squares do not vanish.
        const UP: f64 = 5.260135901548374e+210;
        /// 2^-700, which brings large numbers to where their squares do not overflow.
        const DOWN: f64 = 1.90109156629516e-211;
        /// 2^-1022.
        const LEAST_NORMAL: f64 = 2.2250738585072014e-308;
        /// 2^54, which makes subnormal numbers normal.
        const UP_54: f64 = 1.8014398509481984e+16;
        /// 2^52: from here on all numbers are integers.
        const TWO_52: f64 = 4503599627370496.0;
        /// 1 / 3.
        const THIRD: f64 = 0.3333333333333333;
    }
    /// (exp(x) - 1 - x - x^2 / 2) / x^3.
    /// For -0.3466 to 0.3466, within 2^-61.6.
    fn exp_tail(x: f64) -> f64 {
        return fma(fma(fma(fma(fma(fma(fma(fma(fma(2.0915713129950104e-09, x, 2.5101832024716072e-08), x, 2.7557270626159574e-07), x, 2.7557264545148937e-06), x, 2.48015873286094e-05), x, 0.00019841269866585222), x, 0.001388888888888252), x, 0.008333333333328882), x, 0.04166666666666667), x, 0.16666666666666669);
    }
    /// (2 atanh(s) - 2 s) / s^3 for x = s^2.
    /// For 0 to 0.02944, within 2^-57.6.
    fn log_tail(x: f64) -> f64 {
        return fma(fma(fma(fma(fma(fma(0.14616710458938428, x, 0.1533170143770705), x, 0.18182889656256976), x, 0.22222211129960381), x, 0.2857142862596835), x, 0.3999999999989976), x, 0.666666666666667);
    }
    /// (2 atanh(s) - 2 s - 2/3 s^3 - 2/5 s^5) / s^7 for x = s^2.
    /// For 0 to 0.02944, within 2^-68.1.
    fn log_far_tail(x: f64) -> f64 {
        return fma(fma(fma(fma(fma(fma(0.11567514311094731, x, 0.11721703927852607), x, 0.1333420591087703), x, 0.15384606323555), x, 0.18181818226611857), x, 0.22222222222138865), x, 0.285714285714286);
    }
    /// (sin(r) - r) / r^3 for x = r^2.
    /// For 0 to 0.6169, within 2^-61.0.
    fn sin_tail(x: f64) -> f64 {
        return fma(fma(fma(fma(fma(fma(-7.05726870644477e-13, x, 1.6047918565636082e-10), x, -2.5052024406873453e-08), x, 2.755731891653585e-06), x, -0.00019841269840720395), x, 0.008333333333332912), x, -0.16666666666666666);
    }
    /// (cos(r) - 1 + r^2 / 2) / r^4 for x = r^2.
    /// For 0 to 0.6169, within 2^-60.4.
    fn cos_tail(x: f64) -> f64 {
        return fma(fma(fma(fma(fma(-1.1381553404980809e-11, x, 2.0876127962001466e-09), x, -2.7557317158789993e-07), x, 2.4801587298460856e-05), x, -0.0013888888888887061), x, 0.041666666666666664);
    }
    /// (atan(t) - t) / t^3 for x = t^2.
    /// For 0 to 0.1716, within 2^-57.5.
    fn atan_tail(x: f64) -> f64 {
        return fma(fma(fma(fma(fma(fma(fma(fma(fma(fma(-0.019229860011225283, x, 0.03927831605504123), x, -0.050872053571016096), x, 0.05858517176215313), x, -0.06664558575077315), x, 0.07692186975013411), x, -0.09090904767004482), x, 0.11111111020860442), x, -0.1428571428475652), x, 0.19999999999996168), x, -0.3333333333333333);
    }
    /// (asin(t) - t) / t^3 for x = t^2.
    /// For 0 to 0.25, within 2^-58.0.
    fn asin_tail(x: f64) -> f64 {
        return fma(fma(fma(fma(fma(fma(fma(fma(fma(fma(fma(fma(0.02894683817378194, x, -0.015139158759755704), x, 0.017592396510730218), x, 0.005383925392422023), x, 0.01034081793747115), x, 0.01147625113992563), x, 0.013971532836223497), x, 0.017352369430104073), x, 0.022372174037335067), x, 0.030381944107183312), x, 0.04464285714684728), x, 0.07499999999998086), x, 0.16666666666666669);
    }
    /// 1 / cbrt(x), roughly.
    /// For 1 to 8, within 2^-9.5.
    fn inverse_cbrt(x: f64) -> f64 {
        return fma(fma(fma(fma(fma(fma(3.21237782246543e-05, x, -0.0009995706051613377), x, 0.012700388542446926), x, -0.08516063033807252), x, 0.32718167412061167), x, -0.7527948432277574), x, 1.497612346691192);
    }
}
