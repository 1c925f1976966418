// Shared by the kernels that torch_netcl/inductor generates. A value is a vector of VEC lanes: 16 on CPUs, 1 on GPUs,
// where the same body runs once per work-item. A bool is a mask of int: -1 or 0 in each lane.
#define NETCL_COMPILED
#if defined(DEVICE_CPU)
#ifndef VEC  // that of attention_blocks.h is the device's
#define VEC 16
#endif
#define GROUP 1
#define LOCAL_ID 0
#else
#define VEC 1
#define GROUP 64
#define LOCAL_ID ((int)get_local_id(0))
#endif
#include "common/dtypes.h"
#include "common/join_group.h"
#include "common/join_lanes.h"
#include "common/vector.h"

#define VECTOR(A) VTYPE(A, VEC)
#define MASK VTYPE(i32, VEC)
#define LANE_INTS ((VTYPE(i32, VEC))LANE_NUMBERS(VEC))
#define LANE_LONGS ((VTYPE(i64, VEC))LANE_NUMBERS(VEC))

// A vector of tag A and its elements.
#define NETCL_LANES(A) \
  typedef union {      \
    VECTOR(A) v;       \
    CTYPE(A) s[VEC];   \
  } lanes_##A;
NETCL_LANES(f32)
#ifdef HAVE_FP64
NETCL_LANES(f64)
#endif
NETCL_LANES(i8)
NETCL_LANES(i16)
NETCL_LANES(i32)
NETCL_LANES(i64)
NETCL_LANES(u8)
NETCL_LANES(u16)
NETCL_LANES(u32)
NETCL_LANES(u64)

// TRUTH_<bytes>(c) makes a mask from a comparison of numbers of that size. PICK_<bytes>(m, a, b), for numbers of that
// size, is a if the mask is set, else b.
#if VEC == 1
#define TRUTH_1(c) (-(int)(c))
#define TRUTH_2(c) (-(int)(c))
#define TRUTH_4(c) (-(int)(c))
#define TRUTH_8(c) (-(int)(c))
#define ALL(m) (m)
#else
#define TRUTH_1(c) CAT(convert_int, VEC)(c)
#define TRUTH_2(c) CAT(convert_int, VEC)(c)
#define TRUTH_4(c) (c)
#define TRUTH_8(c) CAT(convert_int, VEC)(c)
#define ALL(m) all(m)
#endif
#define PICK_1(m, a, b) (CONVERT(i8, VEC, m) ? (a) : (b))
#define PICK_2(m, a, b) (CONVERT(i16, VEC, m) ? (a) : (b))
#define PICK_4(m, a, b) ((m) ? (a) : (b))
#define PICK_8(m, a, b) (CONVERT(i64, VEC, m) ? (a) : (b))
#define ANY(m) ANY_LANE(VEC, m)
#define FIRST(v) LANE_OF(v, 0)
#define LANES_BELOW(n) TRUTH_4(LANE_INTS < (MASK)(n))

// AS(A, x) is a vector's bits as a vector of tag A. BITS(S, x) is what memory of storage tag S holds of a computed x,
// as unsigned integers, and OF_BITS(S, n) is what it means.
#define AS(A, x) CAT(CAT(as_, CTYPE(A)), CAT(V_, VEC))(x)
#define BITS(S, x) CAT(S, _bits)(x)
#define OF_BITS(S, n) CAT(S, _of_bits)(n)
#define bool_bits(x) CONVERT(u8, VEC, (x) & 1)
#define bool_of_bits(n) TRUTH_1((n) != (VECTOR(u8))(0))
#define e4m3_bits(x) CAT(e4m3_narrow, VEC)(x)
#define e5m2_bits(x) CAT(e5m2_narrow, VEC)(x)
#define e4m3z_bits(x) CAT(e4m3z_narrow, VEC)(x)
#define e5m2z_bits(x) CAT(e5m2z_narrow, VEC)(x)
#define e4m3_of_bits(n) CAT(e4m3_widen, VEC)(n)
#define e5m2_of_bits(n) CAT(e5m2_widen, VEC)(n)
#define e4m3z_of_bits(n) CAT(e4m3z_widen, VEC)(n)
#define e5m2z_of_bits(n) CAT(e5m2z_widen, VEC)(n)
#define bf16_of_bits(n) CAT(bf16_widen, VEC)(n)
// A NaN keeps its bits.
static inline VECTOR(u16) bf16_bits(VECTOR(f32) x) {
  return PICK_2(x != x, CONVERT(u16, VEC, AS(u32, x) >> 16 | 0x40), CAT(bf16_narrow, VEC)(x));
}
#if defined(NETCL_F16C)
#define f16_bits(x) CAT(half_narrow, VEC)(x)
#define f16_of_bits(n) CAT(half_widen, VEC)(n)
#else
static inline VECTOR(u16) f16_bits(VECTOR(f32) x) {
  lanes_f32 a;
  lanes_u16 r;
  a.v = x;
  for (int k = 0; k < VEC; k++) vstore_half(a.s[k], k, (half*)r.s);
  return r.v;
}
static inline VECTOR(f32) f16_of_bits(VECTOR(u16) n) {
  lanes_u16 a;
  lanes_f32 r;
  a.v = n;
  for (int k = 0; k < VEC; k++) r.s[k] = vload_half(k, (const half*)a.s);
  return r.v;
}
#endif

// A function of kernels/, which computes in ACC. If a program needs functions of both, those of floats take doubles.
#if defined(ACC_DOUBLE)
#define CALL1_f64(f, x) f(x)
#define CALL2_f64(f, x, y) f(x, y)
#define CALL1_f32(f, x) CONVERT(f32, VEC, f(CONVERT(f64, VEC, x)))
#define CALL2_f32(f, x, y) CONVERT(f32, VEC, f(CONVERT(f64, VEC, x), CONVERT(f64, VEC, y)))
#else
#define CALL1_f32(f, x) f(x)
#define CALL2_f32(f, x, y) f(x, y)
#endif

#define FULL(lanes) (VEC == 1 || (lanes) == VEC)
#define FOR_LANES(k, lanes) for (int k = 0; k < (VEC == 1 ? 1 : (lanes)); k++)
#define NETCL_IO(S, A) NETCL_LOAD(S, A) NETCL_GATHER(S, A) NETCL_STORE(S, A)
// Loads from storage tag S as A: lanes `stride` apart, n neighbours, one element for all lanes.
#define NETCL_LOAD(S, A)                                                                      \
  static inline VECTOR(A) strided_##S(__global const STORAGE(S)* p, long stride, int lanes) { \
    lanes_##A r;                                                                              \
    r.v = (VECTOR(A))(0);                                                                     \
    if (FULL(lanes)) {                                                                        \
      for (int k = 0; k < VEC; k++) r.s[k] = LOAD(S, A, 1, p, k * stride);                    \
    } else {                                                                                  \
      for (int k = 0; k < lanes; k++) r.s[k] = LOAD(S, A, 1, p, k * stride);                  \
    }                                                                                         \
    return r.v;                                                                               \
  }                                                                                           \
  static inline VECTOR(A) load_##S(__global const STORAGE(S)* p, int lanes) {                 \
    return FULL(lanes) ? LOAD(S, A, VEC, p, 0) : strided_##S(p, 1, lanes);                    \
  }                                                                                           \
  static inline VECTOR(A) splat_##S(__global const STORAGE(S)* p) { return (VECTOR(A))(LOAD(S, A, 1, p, 0)); }
// Lanes anywhere (`i`); the same, and neighbours, under a mask (0 elsewhere).
#define NETCL_GATHER(S, A)                                                                                         \
  static inline VECTOR(A) gather_##S(__global const STORAGE(S)* p, VECTOR(i64) i, int lanes) {                     \
    lanes_##A r;                                                                                                   \
    const lanes_i64 at = {i};                                                                                      \
    r.v = (VECTOR(A))(0);                                                                                          \
    FOR_LANES(k, lanes) r.s[k] = LOAD(S, A, 1, p, at.s[k]);                                                        \
    return r.v;                                                                                                    \
  }                                                                                                                \
  static inline VECTOR(A) masked_##S(__global const STORAGE(S)* p, VECTOR(i64) i, int lanes, MASK m) {             \
    lanes_##A r;                                                                                                   \
    const lanes_i64 at = {i};                                                                                      \
    const lanes_i32 set = {m};                                                                                     \
    r.v = (VECTOR(A))(0);                                                                                          \
    if (!ANY(m)) return r.v;                                                                                       \
    FOR_LANES(k, lanes) if (set.s[k]) r.s[k] = LOAD(S, A, 1, p, at.s[k]);                                          \
    return r.v;                                                                                                    \
  }                                                                                                                \
  static inline VECTOR(A) near_##S(__global const STORAGE(S)* p, long i, int lanes, MASK m) {                      \
    return FULL(lanes) && ALL(m) ? LOAD(S, A, VEC, p, i) : masked_##S(p, (VECTOR(i64))(i) + LANE_LONGS, lanes, m); \
  }
#define NETCL_STORE(S, A)                                                                               \
  static inline void spread_##S(__global STORAGE(S)* p, long stride, int lanes, VECTOR(A) v) {          \
    const lanes_##A r = {v};                                                                            \
    FOR_LANES(k, lanes) STORE(S, A, 1, p, k * stride, r.s[k]);                                          \
  }                                                                                                     \
  static inline void store_##S(__global STORAGE(S)* p, int lanes, VECTOR(A) v) {                        \
    if (FULL(lanes)) {                                                                                  \
      STORE(S, A, VEC, p, 0, v);                                                                        \
    } else {                                                                                            \
      spread_##S(p, 1, lanes, v);                                                                       \
    }                                                                                                   \
  }                                                                                                     \
  static inline void first_##S(__global STORAGE(S)* p, VECTOR(A) v) { STORE(S, A, 1, p, 0, FIRST(v)); } \
  static inline void scatter_##S(__global STORAGE(S)* p, VECTOR(i64) i, int lanes, VECTOR(A) v) {       \
    const lanes_##A r = {v};                                                                            \
    const lanes_i64 at = {i};                                                                           \
    FOR_LANES(k, lanes) STORE(S, A, 1, p, at.s[k], r.s[k]);                                             \
  }

// Adds each lane to memory that other work-items also add to. `word` is the 32-bit word that the device exchanges; a
// narrower number lies in a part of it.
#define NETCL_ATOMIC_ADD(S, A)                                                                              \
  static inline void atomic_add_##S(__global STORAGE(S)* base, VTYPE(i64, VEC) i, int lanes, VECTOR(A) v) { \
    lanes_##A r;                                                                                            \
    lanes_i64 at;                                                                                           \
    r.v = v;                                                                                                \
    at.v = i;                                                                                               \
    for (int k = 0; k < lanes; k++) {                                                                       \
      __global STORAGE(S)* p = base + at.s[k];                                                              \
      const ulong skip = (ulong)p % 4;                                                                      \
      __global uint* word = (__global uint*)((__global uchar*)p - skip);                                    \
      uint seen = *(volatile __global uint*)word;                                                           \
      while (true) {                                                                                        \
        const uint wanted = added_##S(seen, (int)skip * 8, r.s[k]);                                         \
        const uint before = atomic_cmpxchg((volatile __global uint*)word, seen, wanted);                    \
        if (before == seen) break;                                                                          \
        seen = before;                                                                                      \
      }                                                                                                     \
    }                                                                                                       \
  }
// The same for numbers of 8 bytes.
#define NETCL_ATOMIC_ADD_8(S, A)                                                                            \
  static inline void atomic_add_##S(__global STORAGE(S)* base, VTYPE(i64, VEC) i, int lanes, VECTOR(A) v) { \
    lanes_##A r;                                                                                            \
    lanes_i64 at;                                                                                           \
    r.v = v;                                                                                                \
    at.v = i;                                                                                               \
    for (int k = 0; k < lanes; k++) {                                                                       \
      volatile __global ulong* word = (volatile __global ulong*)(base + at.s[k]);                           \
      ulong seen = *word;                                                                                   \
      while (true) {                                                                                        \
        const ulong before = atom_cmpxchg(word, seen, added_##S(seen, r.s[k]));                             \
        if (before == seen) break;                                                                          \
        seen = before;                                                                                      \
      }                                                                                                     \
    }                                                                                                       \
  }
#define added_f64(word, v) as_ulong(as_double(word) + (v))
#define added_i64(word, v) ((word) + (ulong)(v))
#define added_u64(word, v) ((word) + (v))
static inline uint added_f32(uint word, int shift, float v) { return as_uint(as_float(word) + v); }
static inline uint added_i32(uint word, int shift, int v) { return word + (uint)v; }
static inline uint added_u32(uint word, int shift, uint v) { return word + v; }
static inline uint with_half_word(uint word, int shift, uint bits) {
  return (word & ~(0xffffu << shift)) | ((bits & 0xffffu) << shift);
}
static inline uint added_bf16(uint word, int shift, float v) {
  return with_half_word(word, shift, bf16_narrow1(bf16_widen1((ushort)(word >> shift)) + v));
}
static inline uint added_i16(uint word, int shift, short v) {
  return with_half_word(word, shift, (word >> shift) + (ushort)v);
}
static inline uint added_f16(uint word, int shift, float v) {
  ushort h = (ushort)(word >> shift);
  vstore_half(vload_half(0, (const half*)&h) + v, 0, (half*)&h);
  return with_half_word(word, shift, h);
}
static inline uint added_byte(uint word, int shift, int v) {
  return (word & ~(0xffu << shift)) | ((((word >> shift) + (uint)v) & 0xffu) << shift);
}
#define added_i8(word, shift, v) added_byte(word, shift, (int)(v))
#define added_u8(word, shift, v) added_byte(word, shift, (int)(v))

// Prefetches what lies n elements behind the vector at p.
#if VEC == 1
#define FETCH_NEXT(p, n)
#else
#define FETCH_NEXT(p, n) \
  for (ulong line_ = 0; line_ < VEC * sizeof(*(p)); line_ += 64) FETCH_LINE((ulong)((p) + (n)) + line_)
#endif

// --- reductions: the lanes of a vector, and on a GPU those of a work-group, become one number in all lanes -----------
#define MUL(a, b) ((a) * (b))
#define XOR(a, b) ((a) ^ (b))
#define AND(a, b) ((a) & (b))
#define OR(a, b) ((a) | (b))
#define GREATER(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define LESS(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#if VEC == 1
#define SCRATCH(A, name) __local CTYPE(A) name[GROUP];
#define NETCL_REDUCE(NAME, OP, A) GROUP_REDUCE(NAME##_##A, CTYPE(A), GROUP, OP)
#define REDUCE(NAME, A, v, scratch) NAME##_##A(v, scratch)
#else
#define SCRATCH(A, name)
#define NETCL_REDUCE(NAME, OP, A) JOIN_LANES(NAME##_##A, A, OP)
#define REDUCE(NAME, A, v, scratch) (VECTOR(A))(NAME##_##A(v))
#endif

// The position of the greatest (least) value. Of equal values the first counts, and a NaN comes before all others.
#define BEFORE_GREATER(a, i, b, j) \
  ((a) > (b) || ((a) != (a) && (b) == (b)) || (((a) == (b) || ((a) != (a) && (b) != (b))) && (i) < (j)))
#define BEFORE_LESS(a, i, b, j) \
  ((a) < (b) || ((a) != (a) && (b) == (b)) || (((a) == (b) || ((a) != (a) && (b) != (b))) && (i) < (j)))
#if VEC == 1
#define REDUCE_AT_STEP(BEFORE)                                                                          \
  if (BEFORE(values[LOCAL_ID + apart], places[LOCAL_ID + apart], values[LOCAL_ID], places[LOCAL_ID])) { \
    values[LOCAL_ID] = values[LOCAL_ID + apart];                                                        \
    places[LOCAL_ID] = places[LOCAL_ID + apart];                                                        \
  }
// Without the last barrier, PoCL 3.0 loses what the first work-item stores next.
#define NETCL_REDUCE_AT(NAME, BEFORE, A)                                                                \
  ALWAYS_INLINE long NAME##_##A(CTYPE(A) v, long at, __local CTYPE(A) * values, __local long* places) { \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                       \
    values[LOCAL_ID] = v;                                                                               \
    places[LOCAL_ID] = at;                                                                              \
    JOIN_GROUP(LOCAL_ID, GROUP, CLK_LOCAL_MEM_FENCE, REDUCE_AT_STEP(BEFORE))                            \
    const long best = places[0];                                                                        \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                       \
    return best;                                                                                        \
  }
#define REDUCE_AT(NAME, A, v, at, values, places) NAME##_##A(v, at, values, places)
#else
#define NETCL_REDUCE_AT(NAME, BEFORE, A)                                              \
  static inline VECTOR(i64) NAME##_##A(VECTOR(A) v, VECTOR(i64) at) {                 \
    lanes_##A values;                                                                 \
    lanes_i64 places;                                                                 \
    values.v = v;                                                                     \
    places.v = at;                                                                    \
    int best = 0;                                                                     \
    for (int k = 1; k < VEC; k++)                                                     \
      if (BEFORE(values.s[k], places.s[k], values.s[best], places.s[best])) best = k; \
    return (VECTOR(i64))(places.s[best]);                                             \
  }
#define REDUCE_AT(NAME, A, v, at, values, places) NAME##_##A(v, at)
#endif

// --- index arithmetic ------------------------------------------------------------------------------------------------
typedef VECTOR(i32) ints;
typedef VECTOR(i64) longs;
#define NETCL_FLOOR_DIV(T)                                                 \
  static inline T floor_div_##T(T a, T b) {                                \
    const T q = a / b, r = a - q * b;                                      \
    return r != (T)(0) && ((a < (T)(0)) != (b < (T)(0))) ? q - (T)(1) : q; \
  }                                                                        \
  static inline T floor_mod_##T(T a, T b) { return a - floor_div_##T(a, b) * b; }
NETCL_FLOOR_DIV(long)
NETCL_FLOOR_DIV(ints)
NETCL_FLOOR_DIV(longs)
// For numbers that are not negative. Intel's compiler gets kernels with two gathers wrong whose indices have signed
// quotients of vectors of longs.
#define NETCL_QUOTIENT(T, A, U, V)                                                                      \
  static inline T quotient_##T(T a, T b) { return CONVERT(A, V, CONVERT(U, V, a) / CONVERT(U, V, b)); } \
  static inline T rest_##T(T a, T b) { return CONVERT(A, V, CONVERT(U, V, a) % CONVERT(U, V, b)); }
NETCL_QUOTIENT(long, i64, u64, 1)
NETCL_QUOTIENT(ints, i32, u32, VEC)
NETCL_QUOTIENT(longs, i64, u64, VEC)

// Reports an index outside [0, size), for the lanes that count.
static inline void check_index(longs index, long size, MASK counts, __global int* err, int code) {
  const MASK bad = TRUTH_8(index < 0 || index >= size) & counts;
  if (ANY(bad)) {
    const lanes_i64 i = {index};
    const lanes_i32 b = {bad};
    for (int k = 0; k < VEC; k++)
      if (b.s[k]) netcl_report(err, code, i.s[k], size);
  }
}
#define CHECK_INDEX(index, size, counts, err, code) check_index(index, size, counts, err, code)

// One launch may serve many sets of buffers, of MANY buffers each (csrc/aten/support/MultiTensor.h), with `items`
// work-items per set.
#ifdef MANY
#define COLUMNS MANY
#include "common/multi_tensor.h"
#define ITEM (get_global_id(0) % items)
#define SET_OF_BUFFERS                                     \
  MT_SLABS                                                 \
  if ((long)(get_global_id(0) / items) >= mt_rows) return; \
  __global const ulong* mt_row = PTR(table, const ulong) + get_global_id(0) / items * MT_WORDS;
#else
#define ITEM get_global_id(0)
#endif

// The vectors that a work-item takes of `rows` rows of `width` elements. A vector begins at column `xcol` of `xrow`.
#define EACH_VECTOR(rows, width)                                                      \
  const long vectors_per_row = ((width) + VEC - 1) / VEC, first = (long)ITEM * per;   \
  const long last = min(first + per, (rows) * vectors_per_row);                       \
  long xrow = first / vectors_per_row, xcol = (first - xrow * vectors_per_row) * VEC; \
  for (long unit = first; unit < last; unit++, xcol += VEC, xrow += xcol >= (width), xcol = xcol >= (width) ? 0 : xcol)
// The vectors that a row of `extent` elements is reduced by. It may consist of shorter rows, of `width` elements, that
// no vector crosses. Work-items of a group take turns.
#if VEC == 1
#define EACH_OF_ROWS(extent, width) for (long rrow = LOCAL_ID, rcol = 0; rrow < (extent); rrow += GROUP)
#else
#define EACH_OF_ROWS(extent, width)                     \
  for (long rrow = 0; rrow < (extent); rrow += (width)) \
    for (long rcol = 0; rcol < (width); rcol += VEC)
#endif
