// Sums over columns of matrices, and their updates. The elements of a column are contiguous. On a GPU a team of TEAM
// work-items takes a column, and a work-group has TEAMS teams, whose members must all call what has a barrier; on a CPU
// one work-item takes it, with vectors.
// -D: those of matrices.h; GPU: TEAM, TEAMS (powers of two).
#if defined(TEAM)
#define WORK_GROUPS
#else
#define TEAM 1
#define TEAMS 1
#endif
#include "common/join_group.h"
#include "linalg/matrices.h"

#define GROUP (TEAM * TEAMS)
#define COLUMN __global VT*
#define CONST_COLUMN __global const VT*

#define LID (GROUP == 1 ? 0 : (int)get_local_id(0))
#define LANE (LID % TEAM)
#define TEAM_ID (LID / TEAM)
#define SYNC() \
  if (GROUP > 1) barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
// The sum of a team's or of the group's values, and the largest; NaN if one is NaN. The whole group calls them. Their
// barriers order global memory too: callers read a column before, and write it afterwards.
ALWAYS_INLINE VT team_sum(VT x, __local VT* s) {
  if (GROUP == 1) return x;
  s[LID] = x;
  JOIN_GROUP(LANE, TEAM, CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE, s[LID] += s[LID + apart])
  const VT sum = s[LID - LANE];
  SYNC();
  return sum;
}
ALWAYS_INLINE R most_of(R x, int first, int count, __local VT* s) {
  if (GROUP == 1) return x;
  s[LID] = FROM_REAL(x);
  SYNC();
  R most = 0;
  for (int k = 0; k < count; k++) {
    const R other = REAL(s[first + k]);
    most = other > most || isnan(other) ? other : most;
  }
  SYNC();
  return most;
}
ALWAYS_INLINE R team_most(R x, __local VT* s) { return most_of(x, LID - LANE, TEAM, s); }
ALWAYS_INLINE R group_most(R x, __local VT* s) { return most_of(x, 0, GROUP, s); }
ALWAYS_INLINE R group_sum(R x, __local VT* scratch) {
  if (GROUP == 1) return x;
  scratch[LID] = FROM_REAL(x);
  SYNC();
  x = 0;
  for (int k = 0; k < GROUP; k++) x += REAL(scratch[k]);
  SYNC();
  return x;
}

#if defined(ACC_DOUBLE)
typedef double4 R4;
typedef double8 R8;
#else
typedef float4 R4;
typedef float8 R8;
#endif
#if defined(ACC_COMPLEX)
#define PARTS 2
#define SWAP8(v) (v).s10325476
#define SIGNS8 ((R8)(-1, 1, -1, 1, -1, 1, -1, 1))
#else
#define PARTS 1
#define SWAP8(v) (v)
#define SIGNS8 ((R8)(0))
#endif
static inline R sum_of_8(R8 v) {
  const R4 half_sum = v.lo + v.hi;
  return (half_sum.x + half_sum.y) + (half_sum.z + half_sum.w);
}

// Loops over a column's elements: on a CPU i counts vectors of 8 real numbers, then elements that are left.
#define EIGHTS(n, i) for (; GROUP == 1 && (i) + 8 / PARTS <= (n); (i) += 8 / PARTS)
#define ELEMENTS(n, i) for (i += LANE; (i) < (n); (i) += TEAM)
#define LOAD8(p, i) vload8(0, (__global const R*)((p) + (i)))
#define STORE8(v, p, i) vstore8(v, 0, (__global R*)((p) + (i)))

// This work-item's part of the sum of conj(x[i]) y[i].
static inline VT dot_part(CONST_COLUMN x, CONST_COLUMN y, long n) {
  long i = 0;
  R8 same = 0, crossed = 0;
  EIGHTS(n, i) {
    const R8 a = LOAD8(x, i), b = LOAD8(y, i);
    same += a * b;
    if (PARTS == 2) crossed += SWAP8(a) * b;
  }
  VT sum = NUMBER(sum_of_8(same), sum_of_8(crossed * SIGNS8));
  ELEMENTS(n, i) sum += MUL(CONJ(x[i]), y[i]);
  return sum;
}

// This work-item's part of y += factor x.
static inline void add_scaled(COLUMN y, VT factor, CONST_COLUMN x, long n) {
  long i = 0;
  const R8 turned = IMAGINARY(factor) * SIGNS8;
  EIGHTS(n, i) {
    const R8 a = LOAD8(x, i), sum = LOAD8(y, i) + a * REAL(factor);
    STORE8(PARTS == 2 ? sum + SWAP8(a) * turned : sum, y, i);
  }
  ELEMENTS(n, i) y[i] += MUL(factor, x[i]);
}

static inline R square_part(CONST_COLUMN x, long n) { return REAL(dot_part(x, x, n)); }

// This work-item's part of the largest |re| or |im|; NaN if one is NaN.
static inline R most_part(CONST_COLUMN x, long n) {
  R most = 0;
  long i = 0;
  ELEMENTS(n, i) {
    const R a = fabs(REAL(x[i])), b = fabs(IMAGINARY(x[i])), here = a > b || isnan(a) ? a : b;
    most = here > most || isnan(here) ? here : most;
  }
  return most;
}
