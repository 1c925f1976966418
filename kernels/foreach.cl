// The foreach operators. Column 0 of the table is the output.
// -D: those of multi_tensor.h, IN and OUT (storage tags); for `map` OP=OP_<name> and NIN (inputs); for the norms OP.
#include "common/join_group.h"
#include "common/multi_tensor.h"

// --- map: one expression per operator, of x0 (self), x1, x2 and the row's scalar s ----------------------------
// s as a vector: V is the width in the body that expands these.
#define SPLAT(x) ((T)(x))
#define OP_add (x0 + SPLAT(s))
#define OP_sub (x0 - SPLAT(s))
#define OP_mul (x0 * SPLAT(s))
#define OP_div (x0 / SPLAT(s))
#define OP_maximum ((isnan(x0) | (x0 > SPLAT(s))) ? x0 : SPLAT(s))
#define OP_minimum ((isnan(x0) | (x0 < SPLAT(s))) ? x0 : SPLAT(s))
#define OP_pow pow(x0, SPLAT(s))
#define OP_pow_of pow(SPLAT(s), x0)

#define OP_add_list (x0 + SPLAT(s) * x1)
#define OP_sub_list (x0 - SPLAT(s) * x1)
#define OP_mul_list (x0 * x1)
#define OP_div_list (x0 / x1)
#define OP_maximum_list ((isnan(x0) | (x0 > x1)) ? x0 : x1)
#define OP_minimum_list ((isnan(x0) | (x0 < x1)) ? x0 : x1)
#define OP_pow_list pow(x0, x1)
// Interpolates from the nearer end, so that a weight of 1 gives x1 exactly.
#define OP_lerp (fabs(s) < (ST)0.5f ? x0 + SPLAT(s) * (x1 - x0) : x1 - (x1 - x0) * SPLAT(1 - s))
#define OP_lerp_list (fabs(x2) < SPLAT(0.5f) ? x0 + x2 * (x1 - x0) : x1 - (x1 - x0) * (SPLAT(1) - x2))
#define OP_addcmul (x0 + SPLAT(s) * x1 * x2)
#define OP_addcdiv (x0 + SPLAT(s) * (x1 / x2))

#define OP_neg (-x0)
#define OP_abs fabs(x0)
#define OP_sqrt sqrt(x0)
#define OP_rsqrt (SPLAT(1) / sqrt(x0))
#define OP_reciprocal (SPLAT(1) / x0)
#define OP_exp exp(x0)
#define OP_log log(x0)
#define OP_copy x0
#define OP_zero SPLAT(0)

// `scalar` holds s; if it is null, the row's scalar is s.
__kernel void map(MT_PARAMS, BUF(scalar)) {
  MT_CHUNK
  const ST s = PARAM(IN, scalar, 0, MT_SCALAR);
  __global STORAGE(OUT)* out = MT_PTR(0, OUT);
  __global STORAGE(IN)*p0 = MT_PTR(1, IN), *p1 = MT_PTR(NIN > 1 ? 2 : 1, IN), *p2 = MT_PTR(NIN > 2 ? 3 : 1, IN);
#define MAP_AT(V, i)                      \
  {                                       \
    typedef VTYPE(ACC, V) T;              \
    const T x0 = LOAD(IN, ACC, V, p0, i); \
    const T x1 = LOAD(IN, ACC, V, p1, i); \
    const T x2 = LOAD(IN, ACC, V, p2, i); \
    const T y = OP;                       \
    STORE(OUT, ACC, V, out, i, y);        \
  }
  MT_FOR_EACH(MAP_AT)
}

// Joins tensors: the row's elements go to `out`, from its element `scalar` on.
__kernel void join(MT_PARAMS, BUF(out)) {
  MT_CHUNK
  __global const STORAGE(IN)* from = MT_PTR(0, IN);
  __global STORAGE(IN)* to = PTR(out, STORAGE(IN)) + mt_row[2];
#define JOIN_AT(V, i) STORE(IN, ACC, V, to, i, LOAD(IN, ACC, V, from, i));
  MT_FOR_EACH(JOIN_AT)
}

// --- norms: a partial result per chunk, then one per tensor ---------------------------------------------------
// OP: l1 (the sum of |x|), l2 (the root of the sum of squares), linf (the greatest |x|; a NaN wins).
#define l1_TERM(sum, x) ((sum) + fabs(x))
#define l1_JOIN(a, b) ((a) + (b))
#define l1_END(a) (a)
#define l2_TERM(sum, x) ((sum) + (x) * (x))
#define l2_JOIN(a, b) ((a) + (b))
#define l2_END(a) sqrt(a)
#define linf_TERM(most, x) linf_JOIN(most, fabs(x))
#define linf_JOIN(a, b) ((isnan(a) | ((a) > (b))) ? (a) : (b))
#define linf_END(a) (a)
#define NORM_TERM CAT3(OP, _, TERM)
#define NORM_JOIN CAT3(OP, _, JOIN)
#define NORM_END CAT3(OP, _, END)

__kernel void norm_chunks(MT_PARAMS, BUF(partial)) {
  MT_CHUNK
  __global const STORAGE(IN)* x = MT_PTR(1, IN);
  VTYPE(ACC, VEC) sum_VEC = 0;
  ST sum_1 = 0;
#define sum_4 sum_VEC
#define sum_8 sum_VEC
#define sum_16 sum_VEC
#define NORM_AT(V, i)                               \
  {                                                 \
    const VTYPE(ACC, V) v = LOAD(IN, ACC, V, x, i); \
    CAT(sum_, V) = NORM_TERM(CAT(sum_, V), v);      \
  }
  MT_FOR_EACH(NORM_AT)
  ST lanes[VEC];
  CAT(VSTORE_, VEC)(sum_VEC, 0, lanes);
  for (int k = 0; k < VEC; k++) sum_1 = NORM_JOIN(sum_1, lanes[k]);
  __local ST all[GROUP];
  if (GROUP > 1) {
    all[mt_lane] = sum_1;
    JOIN_GROUP(mt_lane, GROUP, CLK_LOCAL_MEM_FENCE, all[mt_lane] = NORM_JOIN(all[mt_lane], all[mt_lane + apart]))
    if (mt_lane == 0) sum_1 = all[0];
  }
  if (mt_lane == 0) PTR(partial, ST)[mt_base + mt_chunk] = sum_1;
}

__kernel void norm_rows(MT_PARAMS, BUF(partial)) {
  MT_ROW
  __global const ST* p = PTR(partial, const ST) + mt_base + (long)mt_row[0];
  const long n = ((long)mt_row[1] + kChunk - 1) / kChunk;
  ST acc = 0;
  for (long k = 0; k < n; k++) acc = NORM_JOIN(acc, p[k]);
  STORE(OUT, ACC, 1, MT_PTR(0, OUT), 0, NORM_END(acc));
}
