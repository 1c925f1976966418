// Keys, which compare as unsigned integers in the order of the elements. -D: IN (storage tag), BYTES (of an element: 1,
// 2, 4, 8).
#include "common/elements.h"
#include "common/vector.h"

#if BYTES == 8
typedef ulong key_t;
#else
typedef uint key_t;
#endif
#define BITS (8 * BYTES)
#define LAST_KEY ((key_t)(elem_t) ~(elem_t)0)
#define SIGN ((key_t)1 << (BITS - 1))
#define FLIP(L) ((key_t)(L)->flip & LAST_KEY)
#define ELEMENT_AT(L, r, place) ((__global const elem_t*)((r)->in + (place) * (L)->in_stride))

// The bits of a floating-point number's infinity.
#define INFINITY_BITS CAT(infinity_, IN)
#define infinity_f16 0x7c00
#define infinity_bf16 0x7f80
#define infinity_f32 0x7f800000
#define infinity_f64 0x7ff0000000000000UL

// The key of an ascending order. NaN is the greatest value, and 0 equals -0.
static inline key_t key_of(elem_t x) {
  key_t u = x;
#if INFINITY_BITS
  const key_t magnitude = u & (SIGN - 1);
  u = (u & SIGN) ? ~u & LAST_KEY : u | SIGN;
  if (magnitude == 0) u = SIGN;
  if (magnitude > (key_t)INFINITY_BITS) u = LAST_KEY;
#elif CAT(is_truth_, CLASS(IN))
  u = u != 0;
#else
  if ((STORAGE(IN))(-1) < 0) u ^= SIGN;  // signed
#endif
  return u;
}
// The element of a key. Zeros and NaNs are fetched from `at`, so they keep their bits.
static inline elem_t element_of(key_t u, __global const elem_t* at) {
#if INFINITY_BITS
  if (u == SIGN || u == LAST_KEY) return *at;
  u = (u & SIGN) ? u ^ SIGN : ~u & LAST_KEY;
#elif !CAT(is_truth_, CLASS(IN))
  if ((STORAGE(IN))(-1) < 0) u ^= SIGN;
#endif
  return (elem_t)u;
}
