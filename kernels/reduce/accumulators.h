// The state of a reduction, for its three kinds. accumulator_t is one state; accumulators_t holds VEC independent ones,
// one per lane. Elements come with their position in the segment.
//   identity, identities      the state of no elements
//   step, step4               adds one vector, or four
//   merge, merge_lanes        combines two (lane by lane); the second one's elements come after the first one's
//   lane                      one of VEC accumulators; `at` is added to its positions
//   single                    the state of one element
// -D: KIND_SIMPLE (operations.h) | KIND_ARG (the extreme value and where it first occurs; ARG_MIN) | KIND_VAR
// (variance).
#include "reduce/operations.h"

#if defined(ACC_DOUBLE)
#define P0(params) as_double((params)->p0)
typedef double param_t;
#else
#define P0(params) as_float((uint)(params)->p0)
typedef float param_t;
#endif

// Element k of a vector; union_t is the union of such a vector and its elements. The union is faster on CPUs, but
// Mesa's compiler loses elements of it in reduce_group.cl, which defines WIDTH.
#if defined(WIDTH)
#define VECTOR_ELEMENT(union_t, x, k) LANE_OF(x, k)
#else
#define VECTOR_ELEMENT(union_t, x, k) (((union_t){.v = (x)}).s[k])
#endif

// The places of four vectors.
typedef struct {
  long first, apart;
} places_t;

#if defined(KIND_SIMPLE)
#define IDENTITY CAT(OP, _IDENTITY)
#define MAP CAT(OP, _MAP)
#define COMBINE CAT(OP, _COMBINE)
#define FINISH CAT(OP, _FINISH)
typedef struct {
  VT v;
} accumulators_t;
typedef struct {
  ST v;
} accumulator_t;
static inline accumulator_t identity(void) {
  const accumulator_t a = {(ST)(IDENTITY)};
  return a;
}
static inline accumulators_t identities(void) {
  const accumulators_t a = {(VT)(IDENTITY)};
  return a;
}
static inline void step(accumulators_t* a, VT x, long at, param_t p0) {
  const VT y = MAP(x, VT);
  a->v = COMBINE(a->v, y);
}
static inline void step4(accumulators_t* a, VT x0, VT x1, VT x2, VT x3, places_t at, param_t p0) {
  const VT y0 = MAP(x0, VT), y1 = MAP(x1, VT), y2 = MAP(x2, VT), y3 = MAP(x3, VT);
  const VT z0 = COMBINE(y0, y1), z1 = COMBINE(y2, y3);
  const VT z = COMBINE(z0, z1);
  a->v = COMBINE(a->v, z);
}
static inline void merge_lanes(accumulators_t* a, const accumulators_t* b) { a->v = COMBINE(a->v, b->v); }
static inline accumulator_t merge(accumulator_t a, accumulator_t b) {
  const accumulator_t r = {COMBINE(a.v, b.v)};
  return r;
}
static inline accumulator_t lane(const accumulators_t* a, int k, long at) {
  const accumulator_t r = {VECTOR_ELEMENT(lanes_t, a->v, k)};
  return r;
}
static inline accumulator_t single(ST x, long at, param_t p0) {
  const accumulator_t r = {MAP(x, ST)};
  return r;
}
#endif

#if defined(KIND_ARG)
#if defined(ARG_MIN)
#define WORST HIGHEST
#define BEATS_OR_NAN(x, v) (!((x) >= (v)))
#define BEATS(x, v) ((x) < (v))
#else
#define WORST LOWEST
#define BEATS_OR_NAN(x, v) (!((x) <= (v)))
#define BEATS(x, v) ((x) > (v))
#endif
#if defined(ACC_FLOATING)  // the first NaN comes before all others
#define TAKES(x, v) (BEATS_OR_NAN(x, v) & !isnan(v))
#define TIES(x, v) (((x) == (v)) | (isnan(x) & isnan(v)))
#else
#define TAKES(x, v) BEATS(x, v)
#define TIES(x, v) ((x) == (v))
#endif
#define PLACE(at) ((index_vec_t)((index_t)(at)))  // in all lanes
typedef struct {
  VT v;
  index_vec_t i;
} accumulators_t;
typedef struct {
  ST v;
  long i;
} accumulator_t;
static inline accumulator_t identity(void) {
  const accumulator_t a = {WORST, LONG_MAX};
  return a;
}
static inline accumulators_t identities(void) {
  const accumulators_t a = {(VT)(WORST), (index_vec_t)(0)};
  return a;
}
static inline void step(accumulators_t* a, VT x, long at, param_t p0) {
  a->i = TAKES(x, a->v) ? PLACE(at) : a->i;
  a->v = TAKES(x, a->v) ? x : a->v;
}
static inline void step4(accumulators_t* a, VT x0, VT x1, VT x2, VT x3, places_t at, param_t p0) {
  // Combines in a tree, so that only its root waits for the previous step.
  const index_vec_t i0 = TAKES(x1, x0) ? PLACE(at.first + at.apart) : PLACE(at.first);
  const VT y0 = TAKES(x1, x0) ? x1 : x0;
  const index_vec_t i1 = TAKES(x3, x2) ? PLACE(at.first + 3 * at.apart) : PLACE(at.first + 2 * at.apart);
  const VT y1 = TAKES(x3, x2) ? x3 : x2;
  const index_vec_t i = TAKES(y1, y0) ? i1 : i0;
  const VT y = TAKES(y1, y0) ? y1 : y0;
  a->i = TAKES(y, a->v) ? i : a->i;
  a->v = TAKES(y, a->v) ? y : a->v;
}
static inline accumulator_t merge(accumulator_t a, accumulator_t b) {
  return TAKES(b.v, a.v) || (TIES(b.v, a.v) && b.i < a.i) ? b : a;
}
// b comes after a, so a tie keeps a.
static inline void merge_lanes(accumulators_t* a, const accumulators_t* b) {
  a->i = TAKES(b->v, a->v) ? b->i : a->i;
  a->v = TAKES(b->v, a->v) ? b->v : a->v;
}
static inline accumulator_t lane(const accumulators_t* a, int k, long at) {
  const accumulator_t r = {VECTOR_ELEMENT(lanes_t, a->v, k), (long)VECTOR_ELEMENT(index_lanes_t, a->i, k) + at};
  return r;
}
static inline accumulator_t single(ST x, long at, param_t p0) {
  const accumulator_t r = {x, at};
  return r;
}
#endif

// Welford's update with four elements at a time, and Chan's merge.
#if defined(KIND_VAR)
typedef struct {
  VT mean, m2;
  ST n;
} accumulators_t;
typedef struct {
  ST mean, m2, n;
} accumulator_t;
static inline accumulator_t identity(void) {
  const accumulator_t a = {0, 0, 0};
  return a;
}
static inline accumulators_t identities(void) {
  const accumulators_t a = {(VT)(0), (VT)(0), 0};
  return a;
}
static inline void step(accumulators_t* a, VT x, long at, param_t p0) {
  a->n += 1;
  const VT delta = x - a->mean;
  a->mean += delta * (VT)(1 / a->n);
  a->m2 += delta * (x - a->mean);
}
static inline void step4(accumulators_t* a, VT x0, VT x1, VT x2, VT x3, places_t at, param_t p0) {
  const VT mean = ((x0 + x1) + (x2 + x3)) * (VT)(0.25f);
  const VT d0 = x0 - mean, d1 = x1 - mean, d2 = x2 - mean, d3 = x3 - mean;
  const VT delta = mean - a->mean;
  const ST n = a->n + 4, part = 4 / n;
  a->mean += delta * (VT)(part);
  a->m2 += ((d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)) + delta * delta * (VT)(a->n * part);
  a->n = n;
}
static inline void merge_lanes(accumulators_t* a, const accumulators_t* b) {
  const ST n = a->n + b->n;
  if (n == 0) return;
  const ST part = b->n / n;
  const VT delta = b->mean - a->mean;
  a->mean += delta * (VT)(part);
  a->m2 += b->m2 + delta * delta * (VT)(a->n * part);
  a->n = n;
}
static inline accumulator_t merge(accumulator_t a, accumulator_t b) {
  if (a.n == 0) return b;
  if (b.n == 0) return a;
  const ST n = a.n + b.n, part = b.n / n, delta = b.mean - a.mean;
  const accumulator_t r = {a.mean + delta * part, a.m2 + b.m2 + delta * delta * (a.n * part), n};
  return r;
}
static inline accumulator_t lane(const accumulators_t* a, int k, long at) {
  const accumulator_t r = {VECTOR_ELEMENT(lanes_t, a->mean, k), VECTOR_ELEMENT(lanes_t, a->m2, k), a->n};
  return r;
}
static inline accumulator_t single(ST x, long at, param_t p0) {
  const accumulator_t r = {x, x - x, 1};  // NaN and infinity have no variance
  return r;
}
#endif

// The variance is computed from the distances to the first element, so it is accurate for values that are close to each
// other, whatever their mean.
#if defined(KIND_VAR)
#define FROM(x, pivot) ((x) - (pivot))
#else
#define FROM(x, pivot) (x)
#endif
