// For CPUs: lanes lie along the reduced dimension. A work-item computes tiles_per_item outputs, one after another.
#include "reduce/outputs.h"

#include "common/join_lanes.h"

// Declares vectors v and i of n lanes: the better ones of the two halves of `values`, and their places.
#define BETTER_HALF(n, v, i, values, places)                                                            \
  const VTYPE(ACC, n) v##_lo = (values).lo, v##_hi = (values).hi;                                       \
  const VTYPE(INDEX, n) i##_lo = (places).lo, i##_hi = (places).hi;                                     \
  const VTYPE(INDEX, n) i##_takes = TAKES(v##_hi, v##_lo) | (TIES(v##_hi, v##_lo) & (i##_hi < i##_lo)); \
  const VTYPE(ACC, n) v = i##_takes ? v##_hi : v##_lo;                                                  \
  const VTYPE(INDEX, n) i = i##_takes ? i##_hi : i##_lo;

#if defined(KIND_SIMPLE)
JOIN_LANES(combine_lanes, ACC, COMBINE)
#endif
// Merges the lanes of a vector; `apart` is the distance from one lane's position to the next.
static inline accumulator_t merge_all_lanes(const accumulators_t* v, long apart) {
#if defined(KIND_SIMPLE)
  const accumulator_t r = {combine_lanes(v->v)};
  return r;
#elif defined(KIND_ARG)
  const index_vec_t places = v->i + (index_vec_t)LANE_NUMBERS(VEC) * (index_t)apart;
#if VEC == 16
  BETTER_HALF(8, v8, i8, v->v, places)
#else
  const VT v8 = v->v;
  const index_vec_t i8 = places;
#endif
  BETTER_HALF(4, v4, i4, v8, i8)
  BETTER_HALF(2, v2, i2, v4, i4)
  const accumulator_t a = {v2.x, i2.x}, b = {v2.y, i2.y};
  return merge(a, b);
#else  // all lanes have equally many elements
  const ST mean = sum_lanes(v->mean) / VEC;
  const VT off = v->mean - (VT)(mean);
  const accumulator_t r = {mean, sum_lanes(v->m2 + off * off * (VT)(v->n)), v->n * VEC};
  return r;
#endif
}

// A block is up to kReduceBlock elements of a row, which are summed in one set of lanes.
typedef struct {
  src_t src;
  long stride, n;
  long place;  // position of its first element in the segment
  ST pivot;
} block_t;

// The vector from element i on; `dense` is a compile-time constant.
ALWAYS_INLINE VT read_vector(const block_t B, long i, int dense) {
  return FROM(dense ? READ(B.src + i * ELEMENT) : gather(B.src + i * B.stride, B.stride, VEC), (VT)(B.pivot));
}

// The vectors of a step lie a quarter of the block apart, since a core that reads four places at once gets more of the
// memory's bandwidth. If the order matters, a step's vectors are neighbours.
#if defined(KIND_ARG)
#define QUARTER(n) VEC
#define STEP (4 * VEC)
#else
#define QUARTER(n) ((n) / (4 * VEC) * VEC)
#define STEP VEC
#endif
// Prefetches what follows the block, which is mostly the next block: the hardware does not predict four new places per
// block.
ALWAYS_INLINE void fetch_behind(const block_t B, long i) { FETCH_LINE(B.src + (i + B.n) * ELEMENT); }

// Adds all whole vectors of a block.
ALWAYS_INLINE void add_vectors(accumulators_t* v, const block_t B, int dense, param_t p0) {
  const long n = B.n, apart = QUARTER(n), steps_end = n / (4 * VEC) * STEP;
  long i = 0;
  while (i < steps_end) {
    const long end = min(i + SUMS_PER_STAGE * STEP, steps_end);
    accumulators_t w = identities();
    for (; i < end; i += STEP) {
      UNROLL for (int k = 0; dense && k < 4; k++)
        fetch_behind(B, i + k * apart);
      const places_t at = {B.place + i, apart};
      step4(&w, read_vector(B, i, dense), read_vector(B, i + apart, dense), read_vector(B, i + 2 * apart, dense),
            read_vector(B, i + 3 * apart, dense), at, p0);
    }
    merge_lanes(v, &w);
  }
  for (i = n / (4 * VEC) * (4 * VEC); i + VEC <= n; i += VEC) step(v, read_vector(B, i, dense), B.place + i, p0);
}

static inline accumulator_t reduce_block(const block_t B, param_t p0) {
  accumulator_t a = identity();
  if (B.n >= VEC) {
    accumulators_t v = identities();
    if (B.stride == ELEMENT)
      add_vectors(&v, B, 1, p0);
    else
      add_vectors(&v, B, 0, p0);
    a = merge_all_lanes(&v, 1);
  }
  for (long i = B.n / VEC * VEC; i < B.n; i++)
    a = merge(a, single(FROM(READ1(B.src + i * B.stride), B.pivot), B.place + i, p0));
  return a;
}

__kernel void reduce_inner(ARGS) {
  const ReduceParams* L = &params;
  const param_t p0 = P0(L);
  const long first = (long)get_global_id(0) * L->tiles_per_item, last = min(first + L->tiles_per_item, L->outputs);
  const long segment = get_global_id(1), begin = segment * L->segment, end = min(begin + L->segment, L->reduced);
  for (long o = first; o < last; o++) {
    const offsets_t off = offsets_at(&L->kept, o, 0);
    const src_t src = IN_PTR + off.in;
    block_t B;
    B.stride = L->reduced_in[0];
    B.pivot = READ1(src);
    accumulator_t total = identity(), stage = identity();
    int blocks = 0;
    for (long place = begin; place < end; place += B.n) {
      const long row = reduced_row(L, place), at = place - row * L->reduced_size[0];
      B.n = min(min(L->reduced_size[0] - at, end - place), (long)kReduceBlock);
      B.src = src + reduced_offset(L, row) + at * B.stride;
      B.place = place - begin;
      stage = merge(stage, reduce_block(B, p0));
      if (++blocks == SUMS_PER_STAGE) {
        total = merge(total, stage);
        stage = identity();
        blocks = 0;
      }
    }
    total = merge(total, stage);
#if defined(KIND_ARG)
    total.i += begin;
#endif
    if (L->has_partial)
      PARTIAL[segment * L->outputs + o] = total;
    else
      write_result(total, src, OUT0_PTR + off.out0, OUT1_PTR + off.out1, p0);
  }
}
