// Convolution as a matrix product on GPUs: gathered (m x k) * packed (k x n), as drawn in conv.h, with the inner loop
// of gemm_gpu.cl. Local memory holds two blocks of each operand, KC deep: while one is multiplied, the next one is
// loaded into registers.
//
// -D: ACC (compute tag), OUT (storage tag), IDX (i32 or i64: dtype of the table), SIDE_X, SIDE_Y, ROWS, COLS, KC,
// LVA, LVB (gemm_blocks.h), VB (elements of the packed operand that a work-item reads at once), VA (the same of the
// gathered one, which are adjacent taps), ALONG_K (neighbouring work-items read neighbouring taps, not rows), DOWN
// (neighbours store neighbouring rows, not columns).
#define VEC 1
#include "conv/conv_tile.h"

#define MAC(a, b, c) ((a) * (b) + (c))
#define KEEP(V, x) (x)
#define LOCAL_A ACC
#define LOCAL_B ACC
#define WIDEN_A KEEP
#define WIDEN_B KEEP
#include "gemm/gemm_blocks.h"

// The gathered operand.
#define A_EACH VA
#include "conv/conv_gather.h"
enum { a_taps = ALONG_K ? 1 : a_vectors };

typedef union {
  VTYPE(ACC, VA) v;
  ST s[VA];
} a_moved;
typedef struct {
  __global const ST* x;
  __global const offset_t* tap;
  long kk, end;  // a work-item's first tap of the next block; the end of all taps
  long row[a_rows];
  offset_t at[a_taps];  // the places of the next block's taps
  int to;               // the place of the work-item's first element in a block
} a_source;

// Reads the places of taps from kk on. Vectors from `end` on repeat the last one, so that they are valid and aligned.
ALWAYS_INLINE void a_places(a_source* o, long kk) {
  UNROLL for (int i = 0; i < a_taps; i++)
    o->at[i] = o->tap[min(kk + i * a_k_apart, o->end - VA)];
}
ALWAYS_INLINE void a_next(a_source* o) { o->kk += KC; }
// Also reads the places of the block after this one, so that no load has to wait for them.
ALWAYS_INLINE void a_fetch(a_source* o, int left, a_moved* r) {
  left = (int)min(o->end - o->kk, (long)KC);  // from the first tap on
  UNROLL for (int i = 0; i < a_vectors; i++) {
    __global const ST* from = o->x + o->row[ALONG_K ? i : 0] + o->at[ALONG_K ? 0 : i];
    const VTYPE(ACC, VA) v = *(__global const VTYPE(ACC, VA)*)from;
    r[i].v = i * a_k_apart < left ? v : (VTYPE(ACC, VA))(0);
  }
  a_places(o, o->kk + KC);
}
ALWAYS_INLINE void a_put(const a_source* o, const a_moved* r, __local ST* block) {
  __local ST* to = block + o->to;
  UNROLL for (int i = 0; i < a_vectors; i++) UNROLL
    for (int j = 0; j < VA; j++) to[(i * a_k_apart + j) * a_pitch + i * a_lines_apart] = r[i].s[j];
}

// The packed operand.
enum { b_vectors = WIDTH * KC / (ITEMS * VB) };
typedef VTYPE(ACC, VB) b_moved;
typedef struct {
  __global const ST* p;
  int id;
} b_source;
ALWAYS_INLINE void b_next(b_source* o) { o->p += KC * WIDTH; }
ALWAYS_INLINE void b_fetch(const b_source* o, int left, b_moved* r) {
  UNROLL for (int i = 0; i < b_vectors; i++)
    r[i] = *(__global const b_moved*)(o->p + (o->id + i * ITEMS) * VB);
}
ALWAYS_INLINE void b_put(const b_source* o, const b_moved* r, __local ST* block) {
  UNROLL for (int i = 0; i < b_vectors; i++) {
    const int at = (o->id + i * ITEMS) * VB;
    *(__local b_moved*)(block + at / WIDTH * b_pitch + at % WIDTH) = r[i];
  }
}
#include "gemm/gemm_loop.h"

// Stores a work-item's elements: row i and column j of the tile go to out[place[i] + place[HEIGHT + j]].
ALWAYS_INLINE void store_tile(ST (*t)[COLS], __global STORAGE(OUT)* out, __global const ST* bias,
                              const ConvGemmParams* G, __local const long* place, Item I, const ConvTile* T) {
  const int rows = (int)min(G->m - T->row0, (long)HEIGHT), cols = (int)min(G->n - T->col0, (long)WIDTH);
  UNROLL for (int s = 0; s < COLS; s++) {
    const int j = column_of(s, I);
    if (j >= cols) continue;
    UNROLL for (int r = 0; r < ROWS; r++) {
      const int i = row_of(r, I);
      if (i >= rows) continue;
      const ST more = bias ? bias[i * G->bias_row + j * G->bias_col] : 0;
      STORE(OUT, ACC, 1, out, place[i] + place[HEIGHT + j], t[r][s] + more);
    }
  }
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void conv_tiled(BUF(x), BUF(tap), BUF(b), BUF(bias),
                                                                            BUF(out), const ConvGemmParams G) {
  __local ST ta[2 * KC * a_pitch] __attribute__((aligned(16)));
  __local ST tb[2 * KC * b_pitch] __attribute__((aligned(16)));
  __local long* place = (__local long*)ta;  // offsets of rows and columns, before and after the product
  const uint id = get_local_id(0);
  const Item I = {DOWN ? id / SIDE_Y : id % SIDE_X, DOWN ? id % SIDE_Y : id / SIDE_X};
  const ConvTile T = tile_of(&G, get_group_id(0), HEIGHT, WIDTH);

  put_places(place, &G.rows, T.row0, G.m, HEIGHT, ITEMS);
  barrier(CLK_LOCAL_MEM_FENCE);
  a_source A;
  A.x = PTR(x, const ST) + T.group * G.x_group;
  A.tap = PTR(tap, const offset_t);
  A.to = first_tap(id) * a_pitch + first_line(id);
  A.kk = T.begin + first_tap(id);
  A.end = T.end;
  UNROLL for (int i = 0; i < a_rows; i++)
    A.row[i] = place[first_line(id) + i * a_lines_apart];
  barrier(CLK_LOCAL_MEM_FENCE);
  const long depth = (G.k + KC - 1) / KC * KC;
  b_source B = {PTR(b, const ST) + ((T.group * G.n_panels + T.panel) * depth + T.begin) * WIDTH, id};

  ST t[ROWS][COLS];
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL
    for (int s = 0; s < COLS; s++) t[r][s] = 0;
  if (T.begin < T.end) {
    a_places(&A, A.kk);
    multiply(T.end - T.begin, &A, &B, ta, tb, I, t);
  }

  barrier(CLK_LOCAL_MEM_FENCE);
  put_places(place, &G.out_rows, T.row0, G.m, HEIGHT, ITEMS);
  put_places(place + HEIGHT, &G.out_cols, T.col0, G.n, WIDTH, ITEMS);
  barrier(CLK_LOCAL_MEM_FENCE);
  __global STORAGE(OUT)* out = PTR(out, STORAGE(OUT)) + T.slice * G.out_slice + T.group * G.out_group;
  __global const ST* bias =
      bias_buf ? PTR(bias, const ST) + T.group * G.bias_group + T.row0 * G.bias_row + T.col0 * G.bias_col
               : (__global const ST*)0;
  store_tile(t, out, bias, &G, place, I, &T);
}
