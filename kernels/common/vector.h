// The types that kernels compute in, and helpers for vectors that stay in registers.
// -D: ACC (tag of the compute type), VEC (elements per vector).
#include "common/dtypes.h"

// ST is an element of the compute type, VT a vector of VEC elements, lanes_t a union of the vector and its elements.
#ifdef ACC
typedef CTYPE(ACC) ST;
#ifdef VEC
typedef VTYPE(ACC, VEC) VT;
typedef union {
  VT v;
  ST s[VEC];
} lanes_t;
#endif
#endif

// Element i of a tensor of storage tag S that may be null, and its store.
#define PARAM(S, p, i, absent) (p##_buf ? LOAD(S, ACC, 1, PTR(p, const STORAGE(S)), i) : (ST)(absent))
#define PUT_PARAM(S, p, i, v) \
  if (p##_buf) STORE(S, ACC, 1, PTR(p, STORAGE(S)), i, v)

// Element k of a vector of VEC elements, by selection: for loops that are unrolled.
#define LANE_OF(v, k) CAT(LANE_OF_, VEC)(v, k)
#define LANE_OF_1(v, k) (v)
#define LANE_OF_2(v, k) ((k) % 2 ? (v).s1 : (v).s0)
#define LANE_OF_4(v, k) ((k) % 4 < 2 ? LANE_OF_2((v).lo, k) : LANE_OF_2((v).hi, k))
#define LANE_OF_8(v, k) ((k) % 8 < 4 ? LANE_OF_4((v).lo, k) : LANE_OF_4((v).hi, k))
#define LANE_OF_16(v, k) ((k) % 16 < 8 ? LANE_OF_8((v).lo, k) : LANE_OF_8((v).hi, k))

// Whether any lane of a mask of V lanes is set: a comparison gives -1 in a vector, but 1 in a scalar.
#define ANY_LANE(V, mask) CAT(any_, V)(mask)
#define any_1(mask) ((mask) != 0)
#define any_2 any
#define any_4 any
#define any_8 any
#define any_16 any

// The product of two complex numbers of type T.
#define C_MUL(T, a, b) ((T)((a).x * (b).x - (a).y * (b).y, (a).x * (b).y + (a).y * (b).x))

// Put one of these in front of a loop.
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("nounroll")

// For functions that take an array of a caller's registers: if the compiler did not inline them, the array would be
// kept in memory. Also for those that take a kernel's local memory: if all calls pass the same array, the optimiser
// writes its name into the function, where PoCL 3.0 does not look for it, and all work-groups share the one array.
// tools/oclgrind.py replaces it, since Oclgrind does not know an intrinsic that LLVM writes where it inlines.
#ifndef ALWAYS_INLINE
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#endif

// 0, 1, 2, … for a vector of V elements; put the type in front: (float4)LANE_NUMBERS(4).
#define LANE_NUMBERS(V) CAT(LANE_NUMBERS_, V)
#define LANE_NUMBERS_1 (0)
#define LANE_NUMBERS_2 (0, 1)
#define LANE_NUMBERS_4 (0, 1, 2, 3)
#define LANE_NUMBERS_8 (0, 1, 2, 3, 4, 5, 6, 7)
#define LANE_NUMBERS_16 (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
