// Shared by the kernels of resampling on CPUs (kernels/upsample_lines.cl, upsample_pixels.cl). A work-item writes a
// block of columns, rows and planes (UpsampleBlock). It first computes a table for the block's columns and one for its
// rows, which serve all planes. -D: IN, VEC, and those of upsample_taps.h. VEC must not exceed the width of a line, or
// the number of channels, that FOR_VECTORS goes through.
#include "common/upsample_taps.h"

#define PLANE_TAPS (TAPS_D * TAPS_H)

// The block of a work-item; elements are those of the larger or the smaller side, whichever is written.
typedef struct {
  long column, columns_end, row, rows_end, plane, planes_end;
} block_t;
static inline block_t my_block(const UpsampleBlock* b, const long* size, long planes) {
  block_t m;
  m.column = get_global_id(0) * b->columns;
  m.columns_end = min(m.column + b->columns, size[2]);
  m.row = get_global_id(1) * b->rows;
  m.rows_end = min(m.row + b->rows, size[1]);
  m.plane = get_global_id(2) * b->planes;
  m.planes_end = min(m.plane + b->planes, planes);
  return m;
}

// Loops over the vectors of [0, n), which has at least one; they overlap if n is no multiple of VEC.
#define FOR_VECTORS(i, n) for (long i##_ = 0, i; i##_ < (n) && (i = min(i##_, (long)(n) - VEC), 1); i##_ += VEC)

ALWAYS_INLINE void copy_elements(__global STORAGE(IN)* to, __global const STORAGE(IN)* from, long n) {
  if (n < VEC) {
    for (long i = 0; i < n; i++) to[i] = from[i];
    return;
  }
  FOR_VECTORS(i, n) STORE(IN, ACC, VEC, to, i, LOAD(IN, ACC, VEC, from, i));
}

// Tap k of element o of the block is number k * kUpsampleBlock + o.
typedef struct {
  int at[TAPS * kUpsampleBlock];
  ST weight[TAPS * kUpsampleBlock];
} table_t;
static inline void fill_table(table_t* t, long begin, long end, long size, POSITION scale, long align) {
  for (long o = begin; o < end; o++) {
    long at[TAPS];
    ST weight[TAPS];
    taps(o, size, scale, align, at, weight);
    for (int k = 0; k < TAPS; k++) {
      t->at[k * kUpsampleBlock + o - begin] = (int)at[k];
      t->weight[k * kUpsampleBlock + o - begin] = weight[k];
    }
  }
}
#define FILL_TABLE(t, d, begin, end) fill_table(t, begin, end, s.in[d], SCALE(d), s.align_corners)
// Begins a kernel that writes outputs: its block, and the tables of the block's columns and rows.
#define BEGIN_OUTPUTS                              \
  const block_t m = my_block(&b, s.out, s.planes); \
  const long width = m.columns_end - m.column;     \
  if (width <= 0) return;                          \
  table_t across, down;                            \
  FILL_TABLE(&across, 2, m.column, m.columns_end); \
  FILL_TABLE(&down, 1, m.row, m.rows_end);

// The outputs that inputs of a block are used for: those of input i are `count[i]` from `from[i]` on, and their weights
// begin at `first[i]`. An output that uses an input for several taps has the sum of their weights.
typedef struct {
  int from[kUpsampleBlock], count[kUpsampleBlock], first[kUpsampleBlock];
  ST weight[kUpsampleHits];
} hits_t;

static inline void find_hits(hits_t* t, long begin, long end, long in, long out, POSITION scale, long align) {
  long low = first_output(begin, in, out, scale, align);
  int n = 0;
  for (long i = begin; i < end; i++) {
    while (low < out && last_tap(low, in, scale, align) < i) low++;
    t->from[i - begin] = (int)low;
    t->first[i - begin] = n;
    ST weight;
    for (long o = low; o < out && begins_by(o, i, in, scale, align, &weight); o++) t->weight[n++] = weight;
    t->count[i - begin] = n - t->first[i - begin];
  }
}
#define FIND_HITS(t, d, begin, end) find_hits(t, begin, end, s.in[d], s.out[d], SCALE(d), s.align_corners)

// The rows of the gradient that a row of the input is used for: `count` rows, `stride` elements apart, in each of
// some layers.
typedef struct {
  __global const STORAGE(IN)* first;
  long stride, layer;
  int count, layers;
  const ST *weight, *layer_weight;
} rows_t;
// Those of row h of a block, in a plane of the gradient; its rows have `line` elements.
static inline rows_t rows_of(__global const STORAGE(IN)* plane, const UpsampleParams* s, const hits_t* deep,
                             const hits_t* down, int h, long line) {
  rows_t r;
  r.first = plane + (deep->from[0] * s->out[1] + down->from[h]) * line;
  r.stride = line;
  r.layer = s->out[1] * line;
  r.count = down->count[h];
  r.layers = deep->count[0];
  r.weight = down->weight + down->first[h];
  r.layer_weight = deep->weight;
  return r;
}

// Adds up element `at` of all rows, for V elements from there on.
#define ADD_ROWS(V, sum, rows, at)                         \
  for (int i_ = 0; i_ < (rows).layers; i_++)               \
    for (int j_ = 0; j_ < (rows).count; j_++)              \
      sum += (rows).layer_weight[i_] * (rows).weight[j_] * \
             LOAD(IN, ACC, V, (rows).first, i_ * (rows).layer + j_ * (rows).stride + (at));
