// Functions of vectors of double that PoCL 3.0 computes wrongly beside certain lanes: pow() is off by a power of 2
// beside 0, and fmod() may not end. One lane at a time they are right.
#if defined(POCL_DEVICE_ADDRESS_BITS) && defined(HAVE_FP64) && !defined(NETCL_DOUBLE_LANES_H)
#define NETCL_DOUBLE_LANES_H

#define OVERLOADED __attribute__((overloadable))
#define AS_IT_IS(name, f, T) \
  static inline T OVERLOADED name(T x, T y) { return f(x, y); }
#define BY_LANES(name, f, V, SAFE)                                    \
  static inline double##V OVERLOADED name(double##V x, double##V y) { \
    if (SAFE(V)) return f(x, y);                                      \
    union {                                                           \
      double##V v;                                                    \
      double s[V];                                                    \
    } a, b;                                                           \
    a.v = x;                                                          \
    b.v = y;                                                          \
    for (int l = 0; l < V; l++) a.s[l] = f(a.s[l], b.s[l]);           \
    return a.v;                                                       \
  }
#define LANEWISE(name, f, SAFE) \
  AS_IT_IS(name, f, float)      \
  AS_IT_IS(name, f, float2)     \
  AS_IT_IS(name, f, float4)     \
  AS_IT_IS(name, f, float8)     \
  AS_IT_IS(name, f, float16)    \
  AS_IT_IS(name, f, double)     \
  BY_LANES(name, f, 2, SAFE)    \
  BY_LANES(name, f, 4, SAFE)    \
  BY_LANES(name, f, 8, SAFE)    \
  BY_LANES(name, f, 16, SAFE)
// Whether x to the y is far from overflow and underflow in all lanes, and no x is 0, denormal, infinite or NaN: x lies
// between 2 to the power of its exponent and twice that.
#define EXPONENT(V) convert_double##V(((as_long##V(x) >> 52) & 0x7ff) - 1023)
#define MODERATE(V) all((fabs(EXPONENT(V)) + 1) * fabs(y) < 1000 && fabs(EXPONENT(V)) < 1000)
#define NEVER(V) false
LANEWISE(lanewise_pow, pow, MODERATE)
LANEWISE(lanewise_fmod, fmod, NEVER)
// PoCL's own are macros.
#undef pow
#undef fmod
#define pow(x, y) lanewise_pow(x, y)
#define fmod(x, y) lanewise_fmod(x, y)

#undef OVERLOADED
#undef AS_IT_IS
#undef BY_LANES
#undef LANEWISE
#undef EXPONENT
#undef MODERATE
#undef NEVER
#endif
