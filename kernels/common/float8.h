// The float8 dtypes, as storage only: e4m3, e5m2, and e4m3z and e5m2z, which have neither infinities nor -0; and e8m0,
// which is an exponent. Programs that read or write one define FLOAT8; <tag>_widen<W> makes floats of W bytes,
// <tag>_narrow<W> bytes of floats, with the rounding and the limits of PyTorch.
#ifndef NETCL_FLOAT8_H
#define NETCL_FLOAT8_H

#define st_e4m3 uchar
#define st_e5m2 uchar
#define st_e4m3z uchar
#define st_e5m2z uchar
#define st_e8m0 uchar
#define ld_e4m3(A, V, p) CONVERT(A, V, CAT(e4m3_widen, V)(CAT(VLOAD_, V)(0, p)))
#define ld_e5m2(A, V, p) CONVERT(A, V, CAT(e5m2_widen, V)(CAT(VLOAD_, V)(0, p)))
#define ld_e4m3z(A, V, p) CONVERT(A, V, CAT(e4m3z_widen, V)(CAT(VLOAD_, V)(0, p)))
#define ld_e5m2z(A, V, p) CONVERT(A, V, CAT(e5m2z_widen, V)(CAT(VLOAD_, V)(0, p)))
#define ld_e8m0(A, V, p) CONVERT(A, V, CAT(e8m0_widen, V)(CAT(VLOAD_, V)(0, p)))
#define sto_e4m3(A, V, p, v) CAT(VSTORE_, V)(CAT(e4m3_narrow, V)(CONVERT(f32, V, CAT(real_, A)(v))), 0, p)
#define sto_e5m2(A, V, p, v) CAT(VSTORE_, V)(CAT(e5m2_narrow, V)(CONVERT(f32, V, CAT(real_, A)(v))), 0, p)
#define sto_e4m3z(A, V, p, v) CAT(VSTORE_, V)(CAT(e4m3z_narrow, V)(CONVERT(f32, V, CAT(real_, A)(v))), 0, p)
#define sto_e5m2z(A, V, p, v) CAT(VSTORE_, V)(CAT(e5m2z_narrow, V)(CONVERT(f32, V, CAT(real_, A)(v))), 0, p)
#define sto_e8m0(A, V, p, v) CAT(VSTORE_, V)(CAT(e8m0_narrow, V)(CONVERT(f32, V, CAT(real_, A)(v))), 0, p)
#define rnd_e4m3(A, V, x) CONVERT(A, V, CAT(e4m3_widen, V)(CAT(e4m3_narrow, V)(CONVERT(f32, V, x))))
#define rnd_e5m2(A, V, x) CONVERT(A, V, CAT(e5m2_widen, V)(CAT(e5m2_narrow, V)(CONVERT(f32, V, x))))
#define rnd_e4m3z(A, V, x) CONVERT(A, V, CAT(e4m3z_widen, V)(CAT(e4m3z_narrow, V)(CONVERT(f32, V, x))))
#define rnd_e5m2z(A, V, x) CONVERT(A, V, CAT(e5m2z_widen, V)(CAT(e5m2z_narrow, V)(CONVERT(f32, V, x))))
#define rnd_e8m0(A, V, x) CONVERT(A, V, CAT(e8m0_widen, V)(CAT(e8m0_narrow, V)(CONVERT(f32, V, x))))

// NAME has M bits of mantissa and exponents with BIAS. SPECIAL(u, m) corrects the float of the byte u = sign | m.
// LIMIT, as bits of a float, is the first number beyond all that round down to a finite one; TOO_LARGE(a) is the byte
// of such a number's bits a. A number below the least normal one is rounded where it is added to a number whose last
// place is the least denormal number; integers round the others. FIX(r) corrects the byte of what rounding made.
#define NETCL_FLOAT8(NAME, M, BIAS, SPECIAL, LIMIT, TOO_LARGE, FIX, SIGN, W, F, U, UC)                         \
  static inline F NAME##_widen##W(UC x) {                                                                      \
    const U u = convert_##U(x), m = u & (U)(0x7fu);                                                            \
    const F small = convert_##F(m) * (F)(1.0f / (1 << (BIAS - 1 + M)));                                        \
    const F f = m < (U)(1u << M) ? small : as_##F((m << (23 - M)) + (U)((127u - BIAS) << 23));                 \
    return as_##F(as_##U(SPECIAL(F, u, m, f)) | ((u & (U)(0x80u)) << 24));                                     \
  }                                                                                                            \
  static inline UC NAME##_narrow##W(F x) {                                                                     \
    const U bits = as_##U(x), sign = bits & (U)(0x80000000u), a = bits ^ sign;                                 \
    const U anchor = (U)((127u - BIAS + 23u - M + 1u) << 23);                                                  \
    const U small = as_##U(as_##F(a) + as_##F(anchor)) - anchor;                                               \
    const U normal =                                                                                           \
        (a - (U)((127u - BIAS) << 23) + (U)((1u << (22 - M)) - 1u) + ((a >> (23 - M)) & (U)(1u))) >> (23 - M); \
    const U r = a < (U)((128u - BIAS) << 23) ? small : FIX(U, normal);                                         \
    const U s = sign >> 24;                                                                                    \
    return convert_##UC(a >= (U)(LIMIT) ? TOO_LARGE(U, a, s) : SIGN(U, r, s));                                 \
  }
#define NETCL_FLOAT8_WIDTHS(NAME, M, BIAS, SPECIAL, LIMIT, TOO_LARGE, FIX, SIGN)              \
  NETCL_FLOAT8(NAME, M, BIAS, SPECIAL, LIMIT, TOO_LARGE, FIX, SIGN, 1, float, uint, uchar)    \
  NETCL_FLOAT8(NAME, M, BIAS, SPECIAL, LIMIT, TOO_LARGE, FIX, SIGN, 4, float4, uint4, uchar4) \
  NETCL_FLOAT8(NAME, M, BIAS, SPECIAL, LIMIT, TOO_LARGE, FIX, SIGN, 8, float8, uint8, uchar8) \
  NETCL_FLOAT8(NAME, M, BIAS, SPECIAL, LIMIT, TOO_LARGE, FIX, SIGN, 16, float16, uint16, uchar16)

// e4m3 has no infinity and one NaN a sign; numbers too large for it become its largest one.
#define e4m3_special(F, u, m, f) ((m) == 0x7fu ? (F)(NAN) : (f))
#define e4m3_too_large(U, a, s) (((a) > 0x7f800000u ? (U)(0x7fu) : (U)(0x7eu)) | (s))
#define e4m3_fix(U, r) min(r, (U)(0x7eu))
#define e5m2_special(F, u, m, f) ((m) > 0x7cu ? (F)(NAN) : (m) == 0x7cu ? (F)(INFINITY) : (f))
#define e5m2_too_large(U, a, s) (((a) > 0x7f800000u ? (U)(0x7fu) : (U)(0x7cu)) | (s))
#define no_fix(U, r) (r)
#define or_sign(U, r, s) ((r) | (s))
// The only NaN of the others is what -0 would be.
#define nan_special(F, u, m, f) ((u) == 0x80u ? (F)(NAN) : (f))
#define nan_too_large(U, a, s) ((U)(0x80u))
#define no_minus_zero(U, r, s) ((r) == 0u ? (U)(0u) : ((r) | (s)))
#if defined(FLOAT8_e4m3)
NETCL_FLOAT8_WIDTHS(e4m3, 3, 7, e4m3_special, 1087u << 20, e4m3_too_large, e4m3_fix, or_sign)
#endif
#if defined(FLOAT8_e5m2)
NETCL_FLOAT8_WIDTHS(e5m2, 2, 15, e5m2_special, 143u << 23, e5m2_too_large, no_fix, or_sign)
#endif
#if defined(FLOAT8_e4m3z)
NETCL_FLOAT8_WIDTHS(e4m3z, 3, 8, nan_special, 0x87u << 23, nan_too_large, no_fix, no_minus_zero)
#endif
#if defined(FLOAT8_e5m2z)
NETCL_FLOAT8_WIDTHS(e5m2z, 2, 16, nan_special, 0x8fu << 23, nan_too_large, no_fix, no_minus_zero)
#endif
// A power of two from 2^-127 on, or NaN; signs are lost. Denormal numbers are rounded to even, others to the nearest.
#if defined(FLOAT8_e8m0)
#define NETCL_E8M0(W, F, U, UC)                                                                              \
  static inline F e8m0_widen##W(UC x) {                                                                      \
    const U u = convert_##U(x);                                                                              \
    return as_##F((u << 23) | (u == 0u || u == 255u ? (U)(0x400000u) : (U)(0u)));                            \
  }                                                                                                          \
  static inline UC e8m0_narrow##W(F x) {                                                                     \
    const U a = as_##U(x) & (U)(0x7fffffffu);                                                                \
    return convert_##UC(min((a + (a < (U)(0x800000u) ? (U)(0x3fffffu) : (U)(0x400000u))) >> 23, (U)(255u))); \
  }
NETCL_E8M0(1, float, uint, uchar)
NETCL_E8M0(4, float4, uint4, uchar4)
NETCL_E8M0(8, float8, uint8, uchar8)
NETCL_E8M0(16, float16, uint16, uchar16)
#endif
#endif
