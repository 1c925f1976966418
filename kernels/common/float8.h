// The float8 dtypes, as storage only: e4m3, e5m2, and e4m3z and e5m2z, which have neither infinities nor -0; and e8m0,
// which is an exponent. Programs that read or write one define FLOAT8_<tag>; <tag>_widen<W> makes floats of W bytes,
// <tag>_narrow<W> bytes of floats, with the rounding and the limits of PyTorch.

#define st_e4m3 uchar
#define st_e5m2 uchar
#define st_e4m3z uchar
#define st_e5m2z uchar
#define st_e8m0 uchar
#define class_e4m3 float8
#define class_e5m2 float8
#define class_e4m3z float8
#define class_e5m2z float8
#define class_e8m0 float8
#define ld_float8(S, A, V, p) CONVERT(A, V, CAT3(S, _widen, V)(CAT(VLOAD_, V)(0, p)))
#define sto_e4m3(A, V, p, v) CAT(VSTORE_, V)(CAT(e4m3_narrow, V)(CONVERT(f32, V, REAL_PART(A, v))), 0, p)
#define sto_e5m2(A, V, p, v) CAT(VSTORE_, V)(CAT(e5m2_narrow, V)(CONVERT(f32, V, REAL_PART(A, v))), 0, p)
#define sto_e4m3z(A, V, p, v) CAT(VSTORE_, V)(CAT(e4m3z_narrow, V)(CONVERT(f32, V, REAL_PART(A, v))), 0, p)
#define sto_e5m2z(A, V, p, v) CAT(VSTORE_, V)(CAT(e5m2z_narrow, V)(CONVERT(f32, V, REAL_PART(A, v))), 0, p)
#define sto_e8m0(A, V, p, v) CAT(VSTORE_, V)(CAT(e8m0_narrow, V)(CONVERT(f32, V, REAL_PART(A, v))), 0, p)
#define rnd_float8(S, A, V, x) CONVERT(A, V, CAT3(S, _widen, V)(CAT3(S, _narrow, V)(CONVERT(f32, V, x))))

// NAME has M bits of mantissa and exponents with BIAS. NAME_special(u, m) corrects the float of the byte u = sign | m.
// LIMIT, as bits of a float, is the first number beyond all that round down to a finite one; NAME_too_large(a) is the
// byte of such a number's bits a. A number below the least normal one is rounded where it is added to a number whose
// last place is the least denormal number; integers round the others. NAME_fix(r) corrects the byte of what rounding
// made, and NAME_sign(r, s) gives it its sign.
#define NETCL_FLOAT8(NAME, M, BIAS, LIMIT, W, V)                                                                       \
  static inline float##V NAME##_widen##W(uchar##V x) {                                                                 \
    const uint##V u = convert_uint##V(x), m = u & (uint##V)(0x7fu);                                                    \
    const float##V small = convert_float##V(m) * (float##V)(1.0f / (1 << (BIAS - 1 + M)));                             \
    const float##V f = m < (uint##V)(1u << M) ? small : as_float##V((m << (23 - M)) + (uint##V)((127u - BIAS) << 23)); \
    return as_float##V(as_uint##V(NAME##_special(float##V, u, m, f)) | ((u & (uint##V)(0x80u)) << 24));                \
  }                                                                                                                    \
  static inline uchar##V NAME##_narrow##W(float##V x) {                                                                \
    const uint##V bits = as_uint##V(x), sign = bits & (uint##V)(0x80000000u), a = bits ^ sign;                         \
    const uint##V anchor = (uint##V)((127u - BIAS + 23u - M + 1u) << 23);                                              \
    const uint##V small = as_uint##V(as_float##V(a) + as_float##V(anchor)) - anchor;                                   \
    const uint##V half_ulp = (uint##V)((1u << (22 - M)) - 1u) + ((a >> (23 - M)) & (uint##V)(1u));                     \
    const uint##V normal = (a - (uint##V)((127u - BIAS) << 23) + half_ulp) >> (23 - M);                                \
    const uint##V r = a < (uint##V)((128u - BIAS) << 23) ? small : NAME##_fix(uint##V, normal);                        \
    const uint##V s = sign >> 24;                                                                                      \
    return convert_uchar##V(a >= (uint##V)(LIMIT) ? NAME##_too_large(uint##V, a, s) : NAME##_sign(uint##V, r, s));     \
  }
#define NETCL_FLOAT8_WIDTHS(NAME, M, BIAS, LIMIT) \
  NETCL_FLOAT8(NAME, M, BIAS, LIMIT, 1, )         \
  NETCL_FLOAT8(NAME, M, BIAS, LIMIT, 4, 4)        \
  NETCL_FLOAT8(NAME, M, BIAS, LIMIT, 8, 8)        \
  NETCL_FLOAT8(NAME, M, BIAS, LIMIT, 16, 16)
#define or_sign(U, r, s) ((r) | (s))

// e4m3 has no infinity and one NaN a sign; numbers too large for it become its largest one.
#if defined(FLOAT8_e4m3)
#define e4m3_special(F, u, m, f) ((m) == 0x7fu ? (F)(NAN) : (f))
#define e4m3_too_large(U, a, s) (((a) > 0x7f800000u ? (U)(0x7fu) : (U)(0x7eu)) | (s))
#define e4m3_fix(U, r) min(r, (U)(0x7eu))
#define e4m3_sign or_sign
NETCL_FLOAT8_WIDTHS(e4m3, 3, 7, 1087u << 20)
#endif
#if defined(FLOAT8_e5m2)
#define e5m2_special(F, u, m, f) ((m) > 0x7cu ? (F)(NAN) : (m) == 0x7cu ? (F)(INFINITY) : (f))
#define e5m2_too_large(U, a, s) (((a) > 0x7f800000u ? (U)(0x7fu) : (U)(0x7cu)) | (s))
#define e5m2_fix(U, r) (r)
#define e5m2_sign or_sign
NETCL_FLOAT8_WIDTHS(e5m2, 2, 15, 143u << 23)
#endif
// The only NaN of the others is what -0 would be.
#define e4m3z_special(F, u, m, f) ((u) == 0x80u ? (F)(NAN) : (f))
#define e4m3z_too_large(U, a, s) ((U)(0x80u))
#define e4m3z_fix(U, r) (r)
#define e4m3z_sign(U, r, s) ((r) == 0u ? (U)(0u) : ((r) | (s)))
#define e5m2z_special e4m3z_special
#define e5m2z_too_large e4m3z_too_large
#define e5m2z_fix e4m3z_fix
#define e5m2z_sign e4m3z_sign
#if defined(FLOAT8_e4m3z)
NETCL_FLOAT8_WIDTHS(e4m3z, 3, 8, 0x87u << 23)
#endif
#if defined(FLOAT8_e5m2z)
NETCL_FLOAT8_WIDTHS(e5m2z, 2, 16, 0x8fu << 23)
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
