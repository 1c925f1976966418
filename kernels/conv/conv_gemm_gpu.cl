// Convolution as a matrix product on GPUs: gathered (m x k) * packed (k x n), as drawn in conv.h, with the inner loop
// of gemm_gpu.cl. Local memory holds two blocks of each operand, KC deep: while one is multiplied, the next one is
// loaded into registers.
//
// -D: ACC (compute tag), IN, OUT (storage tags), OFFSET (int or long: type of the table); conv_tiled: SIDE_X, SIDE_Y,
// ROWS, COLS, KC, LVA, LVB (gemm_blocks.h), VB (elements of the packed operand that a work-item reads at once), VA (the
// same of the gathered one, which are adjacent taps), ALONG_K (neighbouring work-items read neighbouring taps, not
// rows), DOWN (neighbours store neighbouring rows, not columns); conv_panels: KC, WIDTH, LINES.
#define VEC 1
#include "conv/conv_tile.h"

#ifndef SIDE_X
// Packs the right operand into panels of WIDTH columns, [k][WIDTH], with zeros after the last column and the last tap:
// the depth is a multiple of KC. For conv_units.cl it packs LINES, [column][k]; WIDTH is 8 then. A work-item packs one
// element; 8 x 8 neighbours read and write 8 at a time.
__kernel void conv_panels(BUF(src), BUF(tap), BUF(dst), const MixedRadix cols, const ConvPackParams P, long groups) {
  const long depth = (P.k + KC - 1) / KC * KC, k_blocks = depth / 8, item = get_global_id(0), block = item / 64;
  const long column_block = block / k_blocks, column_blocks = P.panels * (WIDTH / 8),
             group = column_block / column_blocks;
  if (group >= groups) return;
  const int inside = (int)(item - block * 64);
  const long r = (block - column_block * k_blocks) * 8 + inside % 8;
  const long col = (column_block - group * column_blocks) * 8 + inside / 8, panel = col / WIDTH;
  __global const STORAGE(IN)* src = PTR(src, const STORAGE(IN)) + group * P.src_group;
  ST value = 0;
  if (r < P.k && col < P.n) value = LOAD(IN, ACC, 1, src, offset_of(&cols, col) + PTR(tap, const OFFSET)[r]);
#ifdef LINES
  if (col < P.n) PTR(dst, ST)[(group * P.n + col) * depth + r] = value;
#else
  PTR(dst, ST)[((group * P.panels + panel) * depth + r) * WIDTH + col - panel * WIDTH] = value;
#endif
}
#else
#define MAC(a, b, c) ((a) * (b) + (c))
#include "gemm/gemm_blocks.h"

#define KEEP(V, x) (x)
BLOCKS(a, ACC, KEEP, LVA, ROWS, SIDE_Y)
BLOCKS(b, ACC, KEEP, LVB, COLS, SIDE_X)

// The gathered elements of a block: those of row `line` + i * A_LINES_APART at kk, or of row `line` at kk +
// i * A_K_APART.
#define A_VECTORS (HEIGHT * KC / (ITEMS * VA))
#if ALONG_K
#define A_ROWS A_VECTORS
#define A_LINE(id) ((id) / (KC / VA))
#define A_KK(id) ((id) % (KC / VA) * VA)
#define A_LINES_APART (ITEMS * VA / KC)
#define A_TAPS 1
#define A_K_APART 0
#else
#define A_ROWS 1
#define A_LINE(id) ((id) % HEIGHT)
#define A_KK(id) ((id) / HEIGHT)
#define A_LINES_APART 0
#define A_TAPS A_VECTORS
#define A_K_APART (ITEMS / HEIGHT)
#endif
#define B_VECTORS (WIDTH * KC / (ITEMS * VB))

typedef union {
  VTYPE(ACC, VA) v;
  ST s[VA];
} a_moved;
typedef VTYPE(ACC, VB) b_moved;

// Reads the places of a block's taps. Vectors from `end` on repeat the last one, so that they are valid and aligned.
ALWAYS_INLINE void a_places(__global const OFFSET* tap, long kk, long end, OFFSET* at) {
  UNROLL for (int i = 0; i < A_TAPS; i++)
    at[i] = tap[min(kk + i * A_K_APART, end - VA)];
}
// Reads a work-item's elements; `left`: the remaining taps, from its first one on. Later ones are 0.
ALWAYS_INLINE void a_fetch(__global const ST* x, const long* row, const OFFSET* at, int left, a_moved* r) {
  UNROLL for (int i = 0; i < A_VECTORS; i++) {
    __global const ST* from = x + row[ALONG_K ? i : 0] + at[ALONG_K ? 0 : i];
    const VTYPE(ACC, VA) v = *(__global const VTYPE(ACC, VA)*)from;
    r[i].v = i * A_K_APART < left ? v : (VTYPE(ACC, VA))(0);
  }
}
ALWAYS_INLINE void a_put(const a_moved* r, __local ST* to) {
  UNROLL for (int i = 0; i < A_VECTORS; i++) UNROLL
    for (int j = 0; j < VA; j++) to[(i * A_K_APART + j) * a_pitch + i * A_LINES_APART] = r[i].s[j];
}
ALWAYS_INLINE void b_fetch(__global const ST* b, int id, b_moved* r) {
  UNROLL for (int i = 0; i < B_VECTORS; i++)
    r[i] = *(__global const b_moved*)(b + (id + i * ITEMS) * VB);
}
ALWAYS_INLINE void b_put(const b_moved* r, int id, __local ST* block) {
  UNROLL for (int i = 0; i < B_VECTORS; i++) {
    const int at = (id + i * ITEMS) * VB;
    *(__local b_moved*)(block + at / WIDTH * b_pitch + at % WIDTH) = r[i];
  }
}

// Stores a work-item's elements: row i and column j go to out[place[i] + place[HEIGHT + j]].
ALWAYS_INLINE void store_tile(ST (*t)[COLS], __global STORAGE(OUT)* out, __global const ST* bias,
                              const ConvGemmParams* G, __local const long* place, int x, int y, int rows, int cols) {
  UNROLL for (int s = 0; s < COLS; s++) {
    const int j = COLUMN_OF(s, x);
    if (j >= cols) continue;
    UNROLL for (int r = 0; r < ROWS; r++) {
      const int i = ROW_OF(r, y);
      if (i >= rows) continue;
      const ST more = bias ? bias[i * G->bias_row + j * G->bias_col] : 0;
      STORE(OUT, ACC, 1, out, place[i] + place[HEIGHT + j], t[r][s] + more);
    }
  }
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void conv_tiled(BUF(x), BUF(tap), BUF(b), BUF(bias),
                                                                            BUF(out), const MixedRadix rows,
                                                                            const MixedRadix out_rows,
                                                                            const MixedRadix out_cols,
                                                                            const ConvGemmParams G) {
  __local ST ta[2 * KC * a_pitch] __attribute__((aligned(16)));
  __local ST tb[2 * KC * b_pitch] __attribute__((aligned(16)));
  __local long* place = (__local long*)ta;  // offsets of rows and columns, before and after the product
  const int id = get_local_id(0);
  const int x = DOWN ? id / SIDE_Y : id % SIDE_X, y = DOWN ? id % SIDE_Y : id / SIDE_X;
  const ConvTile T = tile_of(&G, get_group_id(0), HEIGHT, WIDTH);
  const long begin = T.begin, end = T.end, depth = (G.k + KC - 1) / KC * KC;

  put_places(place, &rows, T.row0, G.m, HEIGHT, ITEMS);
  barrier(CLK_LOCAL_MEM_FENCE);
  long row[A_ROWS];
  UNROLL for (int i = 0; i < A_ROWS; i++)
    row[i] = place[A_LINE(id) + i * A_LINES_APART];
  barrier(CLK_LOCAL_MEM_FENCE);
  __global const ST* from = PTR(x, const ST) + T.group * G.x_group;
  __global const OFFSET* tap = PTR(tap, const OFFSET);
  __global const ST* b = PTR(b, const ST) + ((T.group * G.n_panels + T.panel) * depth + begin) * WIDTH;
  const int a_first = A_KK(id) * a_pitch + A_LINE(id);
  long kk = begin + A_KK(id);

  ST t[ROWS][COLS];
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL
    for (int s = 0; s < COLS; s++) t[r][s] = 0;
  OFFSET at[A_TAPS];
  a_moved ra[A_VECTORS];
  b_moved rb[B_VECTORS];
  if (begin < end) {
    a_places(tap, kk, end, at);
    a_fetch(from, row, at, (int)min(end - kk, (long)KC), ra);
    b_fetch(b, id, rb);
    a_places(tap, kk + KC, end, at);
    a_put(ra, ta + a_first);
    b_put(rb, id, tb);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  int now = 0;
  for (long left = end - begin - KC; left > -KC; left -= KC) {
    if (left > 0) {
      kk += KC;
      b += KC * WIDTH;
      a_fetch(from, row, at, (int)min(end - kk, (long)KC), ra);
      b_fetch(b, id, rb);
      a_places(tap, kk + KC, end, at);
    }
    MULTIPLY_BLOCKS(ta + now * a_pitch, tb + now * b_pitch, x, y, t)
    now = KC - now;
    if (left > 0) {
      a_put(ra, ta + now * a_pitch + a_first);
      b_put(rb, id, tb + now * b_pitch);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  put_places(place, &out_rows, T.row0, G.m, HEIGHT, ITEMS);
  put_places(place + HEIGHT, &out_cols, T.col0, G.n, WIDTH, ITEMS);
  barrier(CLK_LOCAL_MEM_FENCE);
  __global STORAGE(OUT)* out = PTR(out, STORAGE(OUT)) + T.slice * G.out_slice + T.group * G.out_group;
  __global const ST* bias =
      bias_buf ? PTR(bias, const ST) + T.group * G.bias_group + T.row0 * G.bias_row + T.col0 * G.bias_col
               : (__global const ST*)0;
  store_tile(t, out, bias, &G, place, x, y, (int)min(G.m - T.row0, (long)HEIGHT), (int)min(G.n - T.col0, (long)WIDTH));
}
#endif
