// Rows that GPUs keep in registers: WIDTH work-items share a row, and each holds HELD vectors of VEC elements of it,
// WIDTH vectors apart. A work-group takes GROUP / WIDTH rows. Rows are read in whole vectors: either VEC divides their
// length and they are aligned to vectors, or VEC is 1. -D: ACC (compute tag), VEC (1 or 4), WIDTH (a power of 2), HELD
// (1, 2, 4 or 8), GROUP.
#include "common/join_group.h"
#include "common/join_lanes.h"
#include "common/vector.h"

// Steps for vector j of a work-item. Loops over arrays would keep them in memory with some compilers.
#define EACH_HELD(M) CAT(EACH_, HELD)(M)
#define EACH_1(M) M(0)
#define EACH_2(M) M(0) M(1)
#define EACH_4(M) M(0) M(1) M(2) M(3)
#define EACH_8(M) EACH_4(M) M(4) M(5) M(6) M(7)
#define EACH_READ(S, x) CAT(READ_, HELD)(S, x)
#define READ_1(S, x) READ_WHOLE(S, x, 0)
#define READ_2(S, x) READ_1(S, x) READ_WHOLE(S, x, 1)
#define READ_4(S, x) READ_2(S, x) READ_WHOLE(S, x, 2) READ_WHOLE(S, x, 3)
#define READ_8(S, x) READ_4(S, x) READ_WHOLE(S, x, 4) READ_WHOLE(S, x, 5) READ_WHOLE(S, x, 6) READ_WHOLE(S, x, 7)

// This work-item's row, and its first element. Behind the last row come empty ones, so that all work-items meet at the
// barriers.
#define WALK(W)                                                           \
  __local ST scratch[GROUP];                                              \
  const int lid = (int)get_local_id(0), lane = lid % WIDTH;               \
  const long row = (long)get_group_id(0) * (GROUP / WIDTH) + lid / WIDTH; \
  const int length = row < (W).rows ? (int)(W).n : 0;                     \
  const long n = (W).n, place = row * n;
#define AT(j) ((lane + (j) * WIDTH) * VEC)
#define HAS(j) (AT(j) < length)

#define WALK_GROUP_SIZE FIXED_GROUP_SIZE
#define DEFINE_LANES(S)
// Vector j of x has the register x##j.
#define OPERAND(S, x, in)                                                 \
  __global const STORAGE(S)* x##_row = PTR(in, const STORAGE(S)) + place; \
  EACH_READ(S, x)
#define READ_WHOLE(S, x, j) \
  VT x##j = (VT)(0);        \
  if (HAS(j)) x##j = LOAD_WHOLE(S, x##_row + AT(j));
#define RESULT(S, y, out, x) __global STORAGE(S)* y = PTR(out, STORAGE(S)) + place
#define STORED(S, y, out)
#define EACH(STEP) EACH_HELD(STEP)
#define X(S, x, j) x##j
#define COUNTED(j, v, fill) (HAS(j) ? (v) : (VT)(fill))
#define PUT(S, y, j, v) \
  if (HAS(j)) STORE_WHOLE(S, y + AT(j), v)
#define SHARED(S, w, j) (HAS(j) ? LOAD_WHOLE(S, (w) + AT(j)) : (VT)(0))
#define VALUE(S, p, i, absent) (length ? PARAM(S, p, i, absent) : (ST)(absent))
#define PUT_VALUE(S, p, i, v) \
  if (lane == 0 && length) PUT_PARAM(S, p, i, v)
#define KEEP(x, j, v) x##j = v
#define KEPT(x, j, again) x##j
#define AHEAD(x, j)
typedef ST row_t;
#define ROW_SUM(v) row_sum(sum_lanes(v))
#define ROW_MAX(v) row_max(max_lanes(v))

GROUP_REDUCE(sum_over, ST, WIDTH, PLUS)
GROUP_REDUCE(max_over, ST, WIDTH, fmax)
#define row_sum(x) sum_over(x, scratch)
#define row_max(x) max_over(x, scratch)
JOIN_LANES(max_lanes, ACC, fmax)

#if VEC == 1
#define LOAD_WHOLE(S, p) LOAD(S, ACC, 1, p, 0)
#define STORE_WHOLE(S, p, x) STORE(S, ACC, 1, p, 0, x)
#else
// Aligned vectors; clang would read and write what vload4 and vstore4 take element by element.
#define LOAD_WHOLE(S, p) CONVERT(ACC, 4, CAT(whole_, S)(p))
#define whole_f32(p) (*(__global const float4*)(p))
#define whole_f64(p) (*(__global const double4*)(p))
#define whole_bf16(p) bf16_widen4(*(__global const ushort4*)(p))
#define STORE_WHOLE(S, p, x) CAT(put_, S)(p, x)
#define put_f32(p, x) (*(__global float4*)(p) = CONVERT(f32, 4, x))
#define put_f64(p, x) (*(__global double4*)(p) = (x))
#define put_bf16(p, x) (*(__global ushort4*)(p) = bf16_narrow4(CONVERT(f32, 4, x)))
#ifdef HAVE_FP16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define whole_f16(p) convert_float4(*(__global const half4*)(p))
#define put_f16(p, x) (*(__global half4*)(p) = convert_half4_rte(CONVERT(f32, 4, x)))
#else
static inline float widen_half(ushort x) { return vload_half(0, (const half*)&x); }
static inline float4 whole_f16(__global const void* p) {
  const uint2 w = *(__global const uint2*)p;
  return (float4)(widen_half((ushort)w.x), widen_half((ushort)(w.x >> 16)), widen_half((ushort)w.y),
                  widen_half((ushort)(w.y >> 16)));
}
static inline uint narrow_half(float x) {
  ushort h;
  vstore_half(x, 0, (half*)&h);
  return h;
}
#define put_f16(p, x) put_halves(p, CONVERT(f32, 4, x))
static inline void put_halves(__global void* p, float4 x) {
  *(__global uint2*)p = (uint2)(narrow_half(x.x) | narrow_half(x.y) << 16, narrow_half(x.z) | narrow_half(x.w) << 16);
}
#endif
#endif
