// Division, powers and shifts of integers: NETCL_INTEGER_MATH(suffix, VT, ST) defines them for vectors VT of ST.

#define NETCL_INTEGER_MATH(X, VT, ST) NETCL_QUOTIENTS(X, VT, ST) NETCL_POWERS(X, ST) NETCL_VECTOR_POWERS(X, VT, ST)
// Division by 0 is undefined and INT_MIN / -1 traps on some CPUs, so both avoid the hardware's division.
#define NETCL_QUOTIENTS(X, VT, ST)                                                                      \
  static inline VT safe_quotient##X(VT x, VT y) {                                                       \
    const VT minus_one = (VT)(-1), unsafe = (VT)((ST)(-1) < (ST)0), one = (VT)1;                        \
    const VT q = x / (y == (VT)0 || (unsafe != (VT)0 && y == minus_one) ? one : y);                     \
    return y == (VT)0 ? minus_one : unsafe != (VT)0 && y == minus_one ? -x : q;                         \
  }                                                                                                     \
  static inline VT safe_rest##X(VT x, VT y) { return y == (VT)0 ? x : x - safe_quotient##X(x, y) * y; } \
  static inline VT floor_rest##X(VT x, VT y) {                                                          \
    const VT r = safe_rest##X(x, y);                                                                    \
    return r != (VT)0 && ((r < (VT)0) != (y < (VT)0)) ? r + y : r;                                      \
  }                                                                                                     \
  static inline VT floor_quotient##X(VT x, VT y) {                                                      \
    const VT r = safe_rest##X(x, y), q = safe_quotient##X(x, y);                                        \
    return y != (VT)0 && r != (VT)0 && ((r < (VT)0) != (y < (VT)0)) ? q - (VT)1 : q;                    \
  }
// Shifts by the width or more, or by negative numbers, give 0, or the sign for a right shift, as on the CPU.
#define NETCL_POWERS(X, ST)                                                                                        \
  static inline ST pow_int##X(ST x, ST n) {                                                                        \
    if (n < 0) return x == 1 ? 1 : x == (ST)(-1) ? (n & 1 ? (ST)(-1) : (ST)1) : 0;                                 \
    ST r = 1;                                                                                                      \
    for (; n; n >>= 1, x *= x) r *= n & 1 ? x : (ST)1;                                                             \
    return r;                                                                                                      \
  }                                                                                                                \
  static inline ST left_shift##X(ST x, ST n) { return n < 0 || n >= (ST)(sizeof(ST) * 8) ? (ST)0 : (ST)(x << n); } \
  static inline ST right_shift##X(ST x, ST n) {                                                                    \
    const ST most = sizeof(ST) * 8 - ((ST)(-1) < (ST)0 ? 1 : 0);                                                   \
    return n < 0 || n >= most ? ((ST)(-1) < (ST)0 ? (ST)(x >> most) : (ST)0) : (ST)(x >> n);                       \
  }
#define NETCL_VECTOR_POWERS(X, VT, ST)                                      \
  typedef union {                                                           \
    VT v;                                                                   \
    ST s[VEC];                                                              \
  } integer_lanes##X;                                                       \
  NETCL_INTEGER_MAP(map_pow_int##X, pow_int##X, integer_lanes##X, VT)       \
  NETCL_INTEGER_MAP(map_left_shift##X, left_shift##X, integer_lanes##X, VT) \
  NETCL_INTEGER_MAP(map_right_shift##X, right_shift##X, integer_lanes##X, VT)
#define NETCL_INTEGER_MAP(name, one, lanes, VT)                 \
  static inline VT name(VT x, VT y) {                           \
    lanes a, b, r;                                              \
    a.v = x;                                                    \
    b.v = y;                                                    \
    for (int k = 0; k < VEC; k++) r.s[k] = one(a.s[k], b.s[k]); \
    return r.v;                                                 \
  }
