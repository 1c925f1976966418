// For CPUs, and for GPUs with one lane: lanes lie along the first kept dimension. A work-item computes tiles_per_item
// tiles. Each has up to PANEL vectors of outputs side by side, whose accumulators stay in the first-level cache. -D:
// PANEL; DENSE_ROWS if each output has a short row of adjacent elements (CPUs, VEC is 16, numbers of 32 bits).
#include "common/few.h"
#include "common/transpose.h"
#include "reduce/outputs.h"

// How many vectors of a tile are read by one load each. A GPU has one lane, so there it makes no difference.
#ifdef DEVICE_GPU
#define DENSE(T) 0
#else
#define DENSE(T) ((T)->dense)
#endif

typedef struct {
  src_t src;  // the first element
  long lane_stride, row_stride;
  int width, vectors;  // number of outputs, and of the vectors that hold them
  int dense;           // how many of these vectors are read by one load each
  int tail;            // lanes of the last vector
  int last;  // the output at which the last vector begins: it is whole if it may repeat some of the one before
} tile_t;

static inline tile_t tile_at(const ReduceParams* L, src_t src, long column) {
  tile_t T;
  T.lane_stride = L->kept.in[0];
  T.row_stride = L->reduced_in[0];
  T.src = src + column * T.lane_stride;
  T.width = (int)min((long)(PANEL * VEC), L->kept.size[0] - column);
  T.vectors = (T.width + VEC - 1) / VEC;
  T.dense = T.lane_stride == ELEMENT ? T.width / VEC : 0;
  T.tail = T.width - (T.vectors - 1) * VEC;
  T.last = (T.vectors - 1) * VEC;
  if (T.dense > 0) {
    T.dense = T.vectors;
    T.tail = VEC;
    T.last = T.width - VEC;
  }
  return T;
}
static inline int lanes_of(const tile_t* T, int j) { return j == T->vectors - 1 ? T->tail : VEC; }
static inline int output_of(const tile_t* T, int j) { return min(j * VEC, T->last); }

// Adds four rows (add_row: one) from `row` on; `place` is the first row's position in the segment.
ALWAYS_INLINE void add_four_rows(accumulators_t* acc, const tile_t* T, src_t row, long place, param_t p0) {
  const long stride = T->row_stride;
  const places_t at = {place, 1};
  FOR_FEW(j, 0, DENSE(T), PANEL) {
    const long from = output_of(T, j) * ELEMENT;
    const src_t c = row + from;
    const VT pivot = READ(T->src + from);
    for (int k = 4; k < 8; k++) FETCH_LINE(c + k * stride);
    step4(&acc[j], FROM(READ(c), pivot), FROM(READ(c + stride), pivot), FROM(READ(c + 2 * stride), pivot),
          FROM(READ(c + 3 * stride), pivot), at, p0);
  }
  FOR_FEW(j, DENSE(T), T->vectors, PANEL) {
    const src_t c = row + j * (VEC * T->lane_stride);
    const int lanes = lanes_of(T, j);
    const VT pivot = gather(T->src + j * (VEC * T->lane_stride), T->lane_stride, lanes);
    step4(&acc[j], FROM(gather(c, T->lane_stride, lanes), pivot),
          FROM(gather(c + stride, T->lane_stride, lanes), pivot),
          FROM(gather(c + 2 * stride, T->lane_stride, lanes), pivot),
          FROM(gather(c + 3 * stride, T->lane_stride, lanes), pivot), at, p0);
  }
}
ALWAYS_INLINE void add_row(accumulators_t* acc, const tile_t* T, src_t row, long place, param_t p0) {
  FOR_FEW(j, 0, DENSE(T), PANEL) {
    const long from = output_of(T, j) * ELEMENT;
    step(&acc[j], FROM(READ(row + from), READ(T->src + from)), place, p0);
  }
  FOR_FEW(j, DENSE(T), T->vectors, PANEL) {
    const long at = j * (VEC * T->lane_stride);
    const int lanes = lanes_of(T, j);
    const VT pivot = gather(T->src + at, T->lane_stride, lanes);
    step(&acc[j], FROM(gather(row + at, T->lane_stride, lanes), pivot), place, p0);
  }
}

#if defined(DENSE_ROWS)
// Reads VEC elements of VEC outputs, `count` of which count, and gives each output a lane. A vector may go on into the
// next output's elements, but not behind `end`.
ALWAYS_INLINE void read_across(VT* v, src_t src, long lane_stride, int count, src_t end) {
  if (count == VEC) {
    UNROLL for (int k = 0; k < VEC; k++)
      v[k] = READ(src + k * lane_stride);
  } else {
    for (int k = 0; k < VEC; k++) {
      const src_t p = src + k * lane_stride;
      v[k] = p + VEC * ELEMENT <= end ? READ(p) : gather(p, ELEMENT, count);
    }
  }
  TRANSPOSE16(VT, v)
}

// Adds all n elements of each output.
ALWAYS_INLINE void add_dense_rows(accumulators_t* acc, const tile_t* T, long n, param_t p0) {
  const long stride = T->lane_stride;
  for (int j = 0; j < T->vectors; j++) {
    const src_t src = T->src + output_of(T, j) * stride;
    const int lanes = lanes_of(T, j);
    const VT pivot = gather(src, stride, lanes);
    accumulators_t a = identities();
    for (long i = 0; i < n && lanes < VEC; i++) step(&a, FROM(gather(src + i * ELEMENT, stride, lanes), pivot), i, p0);
    for (long i = 0; i < n && lanes == VEC; i += VEC) {
      const int count = (int)min(n - i, (long)VEC);
      VT v[VEC];
      read_across(v, src + i * ELEMENT, stride, count, src + (VEC - 1) * stride + n * ELEMENT);
      int k = 0;
      for (; k + 4 <= count; k += 4) {
        const places_t at = {i + k, 1};
        step4(&a, FROM(v[k], pivot), FROM(v[k + 1], pivot), FROM(v[k + 2], pivot), FROM(v[k + 3], pivot), at, p0);
      }
      for (; k < count; k++) step(&a, FROM(v[k], pivot), i + k, p0);
    }
    acc[j] = a;
  }
}
#endif

// Adds the reduced elements [begin, end), in stages of kReduceRows.
ALWAYS_INLINE void add_segment(accumulators_t* acc, const tile_t* T, const ReduceParams* L, long begin, long end,
                               param_t p0) {
  accumulators_t total[PANEL];
  long since = 0;
  int staged = 0;
  FOR_FEW(j, 0, T->vectors, PANEL) acc[j] = identities();
  for (long place = begin; place < end;) {
    if (since == kReduceRows) {
      FOR_FEW(j, 0, T->vectors, PANEL) {
        if (staged)
          merge_lanes(&total[j], &acc[j]);
        else
          total[j] = acc[j];
        acc[j] = identities();
      }
      since = 0;
      staged = 1;
    }
    const long row = reduced_row(L, place), at = place - row * L->reduced_size[0];
    const long n = min(min(L->reduced_size[0] - at, end - place), kReduceRows - since);
    const src_t p = T->src + reduced_offset(L, row) + at * T->row_stride;
    long i = 0;
    for (; i + 4 <= n; i += 4) add_four_rows(acc, T, p + i * T->row_stride, place - begin + i, p0);
    for (; i < n; i++) add_row(acc, T, p + i * T->row_stride, place - begin + i, p0);
    since += n;
    place += n;
  }
  FOR_FEW(j, 0, staged ? T->vectors : 0, PANEL) {
    merge_lanes(&total[j], &acc[j]);
    acc[j] = total[j];
  }
}

// Writes the results of VEC outputs, if they lie side by side; else returns 0.
ALWAYS_INLINE int write_vector(const accumulators_t* a, __global uchar* out0, long stride0, __global uchar* out1,
                               long stride1, param_t p0) {
#if defined(KIND_SIMPLE)
  if (stride0 != sizeof(STORAGE(OUT0))) return 0;
  const VT r = FINISH(a->v);
  STORE(OUT0, ACC, VEC, (__global STORAGE(OUT0)*)out0, 0, r);
  return 1;
#elif defined(KIND_ARG) && defined(OUT1)
  if (stride0 != sizeof(STORAGE(OUT0)) || stride1 != sizeof(long)) return 0;
  STORE(OUT0, ACC, VEC, (__global STORAGE(OUT0)*)out0, 0, a->v);
  STORE(i64, INDEX, VEC, (__global long*)out1, 0, a->i);
  return 1;
#elif defined(KIND_ARG)
  if (stride0 != sizeof(long)) return 0;
  STORE(i64, INDEX, VEC, (__global long*)out0, 0, a->i);
  return 1;
#else
  return 0;
#endif
}

__kernel void reduce_outer(ARGS) {
  const ReduceParams* L = &params;
  const param_t p0 = P0(L);
  const long first = (long)get_global_id(0) * L->tiles_per_item, last = min(first + L->tiles_per_item, L->tiles);
  const long segment = get_global_id(1), begin = segment * L->segment, end = min(begin + L->segment, L->reduced);
  const long columns = L->kept.size[0], panels = (columns + PANEL * VEC - 1) / (PANEL * VEC);
  const long stride0 = L->kept.out0[0], stride1 = L->kept.out1[0];
  accumulators_t acc[PANEL];
  for (long tile = first; tile < last; tile++) {
    const long rest = tile / panels, column = (tile - rest * panels) * (PANEL * VEC);
    const offsets_t off = offsets_at(&L->kept, rest, 1);
    const tile_t T = tile_at(L, IN_PTR + off.in, column);
#if defined(DENSE_ROWS)
    add_dense_rows(acc, &T, L->reduced, p0);
#else
    add_segment(acc, &T, L, begin, end, p0);
#endif
    __global uchar* out0 = OUT0_PTR + off.out0 + column * stride0;
    __global uchar* out1 = OUT1_PTR + off.out1 + column * stride1;
    FOR_FEW(j, 0, T.vectors, PANEL) {
      const int lanes = lanes_of(&T, j);
      const long output = output_of(&T, j);
      if (L->has_partial) {
        for (int k = 0; k < lanes; k++)
          PARTIAL[segment * L->outputs + rest * columns + column + output + k] = lane(&acc[j], k, begin);
        continue;
      }
      if (lanes == VEC && write_vector(&acc[j], out0 + output * stride0, stride0, out1 + output * stride1, stride1, p0))
        continue;
      for (int k = 0; k < lanes; k++) {
        const long c = output + k;
        write_result(lane(&acc[j], k, begin), T.src + c * T.lane_stride, out0 + c * stride0, out1 + c * stride1, p0);
      }
    }
  }
}
