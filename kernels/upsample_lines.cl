// Resampling of 1 to 3 spatial dimensions of contiguous tensors on CPUs, forward and backward, with vectors along x.
// -D: IN, ACC, OP (NEAREST, EXACT, LINEAR, CUBIC), NDIM, VEC (8 or 16).
#include "common/upsample_blocks.h"

#define HALF_8 4
#define HALF_16 8
#define HALF CAT(HALF_, VEC)
typedef VTYPE(ACC, HALF) half_vec_t;

// If b.twice: the inputs whose outputs, and the outputs of whose neighbours, use only taps inside the image. Columns of
// rows that belong to inputs [begin, end) are computed in vectors.
typedef struct {
  long begin, end;
} inner_t;
static inline inner_t inner_inputs(const UpsampleBlock* b, const block_t* m, int step, long size) {
  inner_t r;
  r.begin = max((long)TAPS / 2 * 2, (m->column + step - 1) / step);
  r.end = min(size - TAPS / 2, m->columns_end / step);
  if (!b->twice || r.end - r.begin < HALF) r.begin = r.end = m->columns_end;
  return r;
}

// Computes the columns of a block from a row of the input.
#if TAPS == 1
#define PUT(o, v) STORE(IN, ACC, 1, line, o, v)
#define PUT_VECTOR(o, v) STORE(IN, ACC, VEC, line, o, v)
ALWAYS_INLINE void resample_line(__global STORAGE(IN)* line, __global const STORAGE(IN)* x,
#else
#define PUT(o, v) line[o] = v
#define PUT_VECTOR(o, v) CAT(vstore, VEC)(v, 0, line + (o))
ALWAYS_INLINE void resample_line(ST* line, __global const STORAGE(IN)* x,
#endif
                                 const table_t* t, const block_t* m, const inner_t inner) {
  const long width = m->columns_end - m->column;
  const long before = min(2 * inner.begin - m->column, width), after = max(2 * inner.end - m->column, before);
  for (long o = 0; o < width; o++) {
    if (o == before) o = after;
    if (o >= width) break;
    ST sum = 0;
    UNROLL for (int k = 0; k < TAPS; k++) {
      const int tap = k * kUpsampleBlock + (int)o;
#if TAPS == 1
      sum = LOAD(IN, ACC, 1, x, t->at[tap]);
#else
      sum += t->weight[tap] * LOAD(IN, ACC, 1, x, t->at[tap]);
#endif
    }
    PUT(o, sum);
  }
  for (long i = inner.begin; i < inner.end; i += HALF) {
    const long from = min(i, inner.end - HALF), o = 2 * from - m->column;
    VT r;
#if TAPS == 1
    r.even = r.odd = LOAD(IN, ACC, HALF, x, from);
#else
    half_vec_t even = (half_vec_t)(0), odd = (half_vec_t)(0);
    UNROLL for (int k = 0; k < TAPS; k++) {
      even += t->weight[k * kUpsampleBlock + before] * LOAD(IN, ACC, HALF, x, from - TAPS / 2 + k);
      odd += t->weight[k * kUpsampleBlock + before + 1] * LOAD(IN, ACC, HALF, x, from - TAPS / 2 + 1 + k);
    }
    r.even = even;
    r.odd = odd;
#endif
    PUT_VECTOR(o, r);
  }
}

__kernel void resample_lines(BUF(out), BUF(in), const UpsampleParams s, const UpsampleScales scales,
                             const UpsampleBlock b) {
  BEGIN_OUTPUTS
  const inner_t inner = inner_inputs(&b, &m, 2, s.in[2]);
#if TAPS > 1
  // The lines that the last row was computed from; `held` tells their rows.
  ST lines[PLANE_TAPS][kUpsampleBlock];
  long held[PLANE_TAPS];
  for (int k = 0; k < PLANE_TAPS; k++) held[k] = -1;
#endif
  for (long plane = m.plane; plane < m.planes_end; plane++)
    for (long od = 0; od < s.out[0]; od++) {
      long dat[TAPS] = {0};
      ST dw[TAPS] = {1};
      if (NDIM > 2) taps(od, s.in[0], SCALE(0), s.align_corners, dat, dw);
      __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN));
      __global STORAGE(IN)* y =
          PTR(out, STORAGE(IN)) + ((plane * s.out[0] + od) * s.out[1] + m.row) * s.out[2] + m.column;
      for (int h = 0; h < m.rows_end - m.row; h++, y += s.out[2]) {
#if TAPS == 1
        const long row = (plane * s.in[0] + dat[0]) * s.in[1] + down.at[h];
        if (h > 0 && down.at[h] == down.at[h - 1])
          copy_elements(y, y - s.out[2], width);
        else
          resample_line(y, x + row * s.in[2], &across, &m, inner);
#else
        const ST* line[PLANE_TAPS];
        ST weight[PLANE_TAPS];
        UNROLL for (int k = 0; k < PLANE_TAPS; k++) {
          const int i = k / TAPS_H, tap = k % TAPS_H * kUpsampleBlock + h;
          const long hat = NDIM > 1 ? down.at[tap] : 0, row = (plane * s.in[0] + dat[i]) * s.in[1] + hat;
          const int place = (int)(dat[i] % TAPS_D) * TAPS_H + (int)(hat % TAPS_H);
          if (held[place] != row) resample_line(lines[place], x + row * s.in[2], &across, &m, inner);
          held[place] = row;
          line[k] = lines[place];
          weight[k] = dw[i] * (NDIM > 1 ? down.weight[tap] : (ST)1);
        }
        if (width < VEC) {
          for (long o = 0; o < width; o++) {
            ST sum = 0;
            UNROLL for (int k = 0; k < PLANE_TAPS; k++)
              sum += weight[k] * line[k][o];
            STORE(IN, ACC, 1, y, o, sum);
          }
          continue;
        }
        FOR_VECTORS(o, width) {
          VT sum = (VT)(0);
          UNROLL for (int k = 0; k < PLANE_TAPS; k++)
            sum += weight[k] * CAT(vload, VEC)(0, line[k] + o);
          STORE(IN, ACC, VEC, y, o, sum);
        }
#endif
      }
    }
}

// The gradients of a block's inputs, from `line`, whose element 0 is that of output `from`.
ALWAYS_INLINE void gather_line(__global STORAGE(IN)* gin, const ST* line, long from, const hits_t* across,
                               const block_t* m, const inner_t inner) {
  const long width = m->columns_end - m->column;
  const long before = min(inner.begin - m->column, width), after = max(inner.end - m->column, before);
  for (long i = 0; i < width; i++) {
    if (i == before) i = after;
    if (i >= width) break;
    ST sum = 0;
    for (int k = 0; k < across->count[i]; k++)
      sum += across->weight[across->first[i] + k] * line[across->from[i] - from + k];
    STORE(IN, ACC, 1, gin, i, sum);
  }
  // An input inside is used for outputs 2 (i - TAPS / 2) + 1 to 2 (i + TAPS / 2), one after another.
  const ST* weight = across->weight + across->first[before < width ? before : 0];
  for (long i = inner.begin; i < inner.end; i += HALF) {
    const long at = min(i, inner.end - HALF);
    half_vec_t sum = (half_vec_t)(0);
    UNROLL for (int k = -(TAPS / 2); k <= TAPS / 2; k++) {
      const VT pair = CAT(vload, VEC)(0, line + 2 * (at + k) - from);
#if TAPS == 1
      sum = pair.even + pair.odd;
#else
      if (k > -(TAPS / 2)) sum += weight[2 * (k + TAPS / 2) - 1] * pair.even;
      if (k < TAPS / 2) sum += weight[2 * (k + TAPS / 2)] * pair.odd;
#endif
    }
    STORE(IN, ACC, HALF, gin, at - m->column, sum);
  }
}

__kernel void resample_lines_backward(BUF(gin), BUF(grad), const UpsampleParams s, const UpsampleScales scales,
                                      const UpsampleBlock b) {
  const block_t m = my_block(&b, s.in, s.planes);
  const long width = m.columns_end - m.column;
  if (width <= 0) return;
  hits_t across, down, deep;
  FIND_HITS(&across, 2, m.column, m.columns_end);
  FIND_HITS(&down, 1, m.row, m.rows_end);
  const inner_t inner = inner_inputs(&b, &m, 1, s.in[2]);
  const long from = across.from[0], outputs = across.from[width - 1] + across.count[width - 1] - from;
  // Vectors of pairs may begin one element before, and end one behind.
  ST space[kUpsampleHits + 2 * VEC], *line = space + VEC;
  for (long plane = m.plane; plane < m.planes_end; plane++)
    for (long d = 0; d < s.in[0]; d++) {
      FIND_HITS(&deep, 0, d, d + 1);
      __global const STORAGE(IN)* g = PTR(grad, const STORAGE(IN)) + plane * s.out[0] * s.out[1] * s.out[2];
      __global STORAGE(IN)* x = PTR(gin, STORAGE(IN)) + ((plane * s.in[0] + d) * s.in[1] + m.row) * s.in[2] + m.column;
      for (int h = 0; h < m.rows_end - m.row; h++, x += s.in[2]) {
        const rows_t rows = rows_of(g, &s, &deep, &down, h, s.out[2]);
        if (outputs < VEC) {
          for (long o = 0; o < outputs; o++) {
            ST sum = 0;
            ADD_ROWS(1, sum, rows, from + o)
            line[o] = sum;
          }
        } else {
          FOR_VECTORS(o, outputs) {
            VT sum = (VT)(0);
            ADD_ROWS(VEC, sum, rows, from + o)
            CAT(vstore, VEC)(sum, 0, line + o);
          }
        }
        gather_line(x, line, from, &across, &m, inner);
      }
    }
}
