// The head of every element-wise kernel. A family's file includes it, defines OP_<name>(x0, x1, …) as an expression
// over vectors VT of the compute type (the operator's scalars are s0, s1, …), and ends with `#include
// "common/pointwise_body.h"`. An operator with two outputs assigns the second one to `r1` in its expression.
// -D: OP=OP_<name>, NIN, NOUT, NSCALARS, VEC, ACC (compute tag), COMMON (dtype that inputs are cast to first),
// CAST_INPUTS (if any input has another dtype), IN0.. and OUT0.. (storage tags), DENSE (see pointwise_body.h),
// PAST_CACHE (large, aligned outputs), ROUND_RESULT (the result's dtype is narrower than an output's).
#include "common/few.h"
#include "common/vector.h"

// Converts a comparison's mask to 0 or 1 of the compute type.
#if defined(ACC_COMPLEX)
#define AS_BOOL(mask) ((VT)((mask) ? 1 : 0, 0))
#else
#define AS_BOOL(mask) ((mask) ? (VT)(1) : (VT)(0))
#endif

// For a function without a vector form, NETCL_MAPn(f) defines map_f, which applies the scalar f to each lane.
#if defined(DEVICE_GPU) && VEC == 4
// Unrolled, a long function would be there four times, and a counted lane would lie in memory: the lanes rotate.
#define NETCL_MAP1(f)                                                \
  static inline VT map_##f(VT x) {                                   \
    NO_UNROLL for (int k = 0; k < 4; k++) x = (VT)(x.s123, f(x.s0)); \
    return x;                                                        \
  }
#define NETCL_MAP2(f)                       \
  static inline VT map_##f(VT x, VT y) {    \
    NO_UNROLL for (int k = 0; k < 4; k++) { \
      x = (VT)(x.s123, f(x.s0, y.s0));      \
      y = y.s1230;                          \
    }                                       \
    return x;                               \
  }
#define NETCL_MAP3(f)                          \
  static inline VT map_##f(VT x, VT y, VT z) { \
    NO_UNROLL for (int k = 0; k < 4; k++) {    \
      x = (VT)(x.s123, f(x.s0, y.s0, z.s0));   \
      y = y.s1230;                             \
      z = z.s1230;                             \
    }                                          \
    return x;                                  \
  }
#else
#define NETCL_MAP1(f)                                 \
  static inline VT map_##f(VT x) {                    \
    lanes_t a, r;                                     \
    a.v = x;                                          \
    for (int k = 0; k < VEC; k++) r.s[k] = f(a.s[k]); \
    return r.v;                                       \
  }
#define NETCL_MAP2(f)                                         \
  static inline VT map_##f(VT x, VT y) {                      \
    lanes_t a, b, r;                                          \
    a.v = x;                                                  \
    b.v = y;                                                  \
    for (int k = 0; k < VEC; k++) r.s[k] = f(a.s[k], b.s[k]); \
    return r.v;                                               \
  }
#define NETCL_MAP3(f)                                                 \
  static inline VT map_##f(VT x, VT y, VT z) {                        \
    lanes_t a, b, c, r;                                               \
    a.v = x;                                                          \
    b.v = y;                                                          \
    c.v = z;                                                          \
    for (int k = 0; k < VEC; k++) r.s[k] = f(a.s[k], b.s[k], c.s[k]); \
    return r.v;                                                       \
  }
#endif
