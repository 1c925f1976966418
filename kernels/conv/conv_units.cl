// Convolution of 16-bit floats on a GPU's matrix units: gathered (m x k) * packed (k x n), as drawn in conv.h, with the
// blocks and the loop of gemm_units.cl. The gathered elements keep their 16 bits. The packed operand's taps are
// adjacent, so it may be the weight itself.
//
// -D: INA, OUT (storage tags of the operands and of the result), ACC=f32, IDX (i32 or i64: dtype of the table), RUN
// (the offsets of RUN adjacent taps, 8 or 1, are consecutive), VA (adjacent taps that a work-item reads at once),
// ALONG_K (neighbouring work-items read neighbouring taps, not rows), VB (taps of the packed operand that a work-item
// reads at once), DOWN (neighbours of a row of the result lie apart), and those of gemm_units.h.
#define WORK_GROUPS
#define VEC LVB
#define ALONG_A 1
#define ALONG_B 1
#define UNIT_DOWN DOWN
#include "conv/conv_tile.h"
#include "gemm/unit_operand.h"

OPERAND(b, VB, 1, 1)  // the packed operand

// The gathered operand.
#define A_EACH 8
#include "conv/conv_gather.h"

typedef union {
  VTYPE(MOVE, A_EACH) v;
  VTYPE(MOVE, VA) parts[A_EACH / VA];
  element_t s[A_EACH];
} a_moved;
typedef union {
  VTYPE(IDX, 8) v;
  offset_t s[A_EACH];
} offsets_t;
typedef struct {
  __global const element_t* x;
  __global const offset_t* tap;  // of the next block's first vector; the table's end is that of a block
  long row[a_rows];
  int line, kk;
} a_source;

ALWAYS_INLINE void a_next(a_source* o) { o->tap += KC; }
ALWAYS_INLINE void a_fetch(const a_source* o, int left, a_moved* r) {
  UNROLL for (int i = 0; i < a_vectors; i++) {
    __global const element_t* x = o->x + o->row[ALONG_K ? i : 0];
    offsets_t at;
#if RUN == A_EACH
    at.s[0] = o->tap[i * a_k_apart];
#else
    at.v = *(__global const VTYPE(IDX, 8)*)(o->tap + i * a_k_apart);
#endif
    UNROLL for (int j = 0; j < A_EACH; j += VA)
      r[i].parts[j / VA] = *(__global const VTYPE(MOVE, VA)*)(x + at.s[j / RUN * RUN] + j % RUN);
  }
  if (left >= KC) return;
  // What the table's last offsets lead to may be Inf or NaN, whose products with 0 are not 0.
  UNROLL for (int i = 0; i < a_vectors; i++) {
    const int room = left - o->kk - i * a_k_apart;
#if RUN == A_EACH || VA == A_EACH
    if (room <= 0) r[i].v = 0;
#else
    UNROLL for (int j = 0; j < A_EACH; j++)
      if (j >= room) r[i].s[j] = 0;
#endif
  }
}
ALWAYS_INLINE void a_put(const a_source* o, const a_moved* r, __local element_t* block) {
  UNROLL for (int i = 0; i < a_vectors; i++)
    *(__local VTYPE(MOVE, A_EACH)*)(block + a_at(o->line + i * a_lines_apart, o->kk + i * a_k_apart)) = r[i].v;
}

#include "gemm/gemm_loop.h"

// Stores LVB elements of one row; `cols` columns exist from there on. Column j lies at place[j].
ALWAYS_INLINE void store_part(__global STORAGE(OUT)* out, __local const long* place, const float* t, int cols) {
#if LVB > 1 && !DOWN
  // Pixels of two images, or of two rows of a strided gradient, are no neighbours. Offsets grow with the column.
  if (cols >= LVB && place[LVB - 1] - place[0] == LVB - 1) {
    lanes_t w;
    UNROLL for (int j = 0; j < LVB; j++)
      w.s[j] = t[j];
    STORE(OUT, ACC, LVB, out, place[0], w.v);
    return;
  }
#endif
  UNROLL for (int j = 0; j < LVB; j++)
    if (j < cols) STORE(OUT, ACC, 1, out, place[j], t[j]);
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) UNIT_KERNEL void conv_units(BUF(x), BUF(tap), BUF(b),
                                                                                        BUF(bias), BUF(out),
                                                                                        const ConvGemmParams G) {
  __local element_t ta[2 * a_block] __attribute__((aligned(16)));
  __local element_t tb[2 * b_block] __attribute__((aligned(16)));
  UNIT_SCRATCH(exchange);
  __local long* place = (__local long*)ta;  // offsets of rows and columns, before and after the product
  const uint id = get_local_id(0);
  const Item I = item_of(id, exchange);
  const ConvTile T = tile_of(&G, get_group_id(0), HEIGHT, WIDTH);

  put_places(place, &G.rows, T.row0, G.m, HEIGHT, ITEMS);
  barrier(CLK_LOCAL_MEM_FENCE);
  a_source A;
  A.line = first_line(id);
  A.kk = first_tap(id);
  A.x = PTR(x, const element_t) + T.group * G.x_group;
  A.tap = PTR(tap, const offset_t) + T.begin + A.kk;
  UNROLL for (int i = 0; i < a_rows; i++)
    A.row[i] = place[A.line + i * a_lines_apart];
  barrier(CLK_LOCAL_MEM_FENCE);
  b_source B = b_begin(PTR(b, const element_t) + T.group * G.packed_group + T.col0 * G.packed_col + T.begin,
                       G.packed_col, id, (int)min(G.n - T.col0, (long)WIDTH), 1);

  sums_t t[ROWS][COLS];
  UNIT_LOOP for (int r = 0; r < ROWS; r++) UNIT_LOOP for (int s = 0; s < COLS; s++) t[r][s] = 0;
  const long k = T.end - T.begin;
  if (k > 0) multiply(k, &A, &B, ta, tb, I, t);

  barrier(CLK_LOCAL_MEM_FENCE);
  put_places(place, &G.out_rows, T.row0, G.m, HEIGHT, ITEMS);
  put_places(place + HEIGHT, &G.out_cols, T.col0, G.n, WIDTH, ITEMS);
  barrier(CLK_LOCAL_MEM_FENCE);
  __global STORAGE(OUT)* out = PTR(out, STORAGE(OUT)) + T.slice * G.out_slice + T.group * G.out_group;
  __global const float* bias =
      bias_buf ? PTR(bias, const float) + T.group * G.bias_group + T.row0 * G.bias_row + T.col0 * G.bias_col
               : (__global const float*)0;
  const int m = (int)min(G.m - T.row0, (long)HEIGHT), n = (int)min(G.n - T.col0, (long)WIDTH);
  UNIT_LOOP for (int r = 0; r < ROWS; r++) UNIT_LOOP for (int s = 0; s < COLS; s++) {
    sums_by_number sums;
    sums.v = t[r][s];
    UNIT_LOOP for (int e = 0; e < UNIT_C_EACH; e += LVB) {
      const int i = row_of(r, e, I), j = column_of(s, e, I);
      if (i >= m) continue;
      UNROLL for (int q = 0; q < LVB; q++)
        if (bias && j + q < n) sums.s[e + q] += bias[i * G.bias_row + (j + q) * G.bias_col];
      store_part(out + place[i], place + HEIGHT + j, sums.s + e, n - j);
    }
  }
}
