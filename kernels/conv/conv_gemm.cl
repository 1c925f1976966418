// The product of a convolution, gathered (m x k) * packed (k x n): see conv.h. A work-item multiplies some tiles of
// rows by some panels of columns. prepare_rows() and accumulate() multiply, in vectors (conv_vector.h) or with a matrix
// engine (conv_engine.h). -D: also PATCHES if the columns are the elements of a patch.
#define SPLIT_STORES  // see common/builtins.h
#include "conv/conv.h"

// A tile of the left operand: element (i, r) is x[row[i] + tap[r]]. It has `height` rows (the others repeat the last
// one) and the taps [begin, end); `contiguous` of their offsets at a time are consecutive.
typedef struct {
  __global const STORAGE(IN)* x;
  __global const offset_t* tap;
  const long* row;
  int height;
  long begin, end, contiguous;
  __global panel_t* packed;  // memory for a matrix engine's panel
  long step;                 // between rows that an engine reads in place, or 0
} Tile;

#ifdef ENGINE
#include "conv/conv_engine.h"
#else
#include "conv/conv_vector.h"
#endif

// The bias runs along the columns or along the rows.
ALWAYS_INLINE void add_bias(__global const ST* bias, const ConvGemmParams* G, int height, int width, VT (*sum)[NV]) {
  if (G->bias_col) {
    ST b[NR];
    for (int j = 0; j < NR; j++) b[j] = bias[min(j, width - 1)];
    UNROLL for (int i = 0; i < MR; i++) UNROLL
      for (int v = 0; v < NV; v++) sum[i][v] += CAT(VLOAD_, VEC)(v, b);
  } else {
    UNROLL for (int i = 0; i < MR; i++) UNROLL
      for (int v = 0; v < NV; v++) sum[i][v] += (VT)(bias[min(i, height - 1) * G->bias_row]);
  }
}

// Stores the columns [col, col + width) of a tile. Row i goes to out[row[i]], and columns are `cs` apart.
ALWAYS_INLINE void store_linear(const ST* tile, __global STORAGE(OUT)* out, const long* row, long cs, int height,
                                int width) {
  if (height == MR && row[MR - 1] - row[0] == MR - 1) {
    __global STORAGE(OUT)* to = out + row[0];
    for (int j = 0; j < width; j++, to += cs) UNROLL
      for (int i = 0; i < MR; i++) STORE(OUT, ACC, 1, to, i, tile[i * NR + j]);
  } else {
    for (int i = 0; i < height; i++)
      for (int j = 0; j < width; j++) STORE(OUT, ACC, 1, out + row[i], j * cs, tile[i * NR + j]);
  }
}

// Stores row i and column j of the tile to out[row[i] + offset of column col + j].
ALWAYS_INLINE void store_tile(VT (*sum)[NV], __global STORAGE(OUT)* out, const long* row, long col,
                              const ConvGemmParams* G, int height) {
  const MixedRadix* cols = &G->out_cols;
  const int width = (int)min((long)NR, G->n - col);
  if (G->cols_linear && cols->stride[3] == 1 && width == NR) {
    UNROLL for (int i = 0; i < MR; i++) UNROLL  // rows from `height` on repeat the last one
      for (int v = 0; v < NV; v++)
        if (row[i] >= 0) STORE(OUT, ACC, VEC, out + row[i] + col, v * VEC, sum[i][v]);
    return;
  }
  ST tile[MR * NR];
  UNROLL for (int i = 0; i < MR; i++) UNROLL
    for (int v = 0; v < NV; v++) CAT(VSTORE_, VEC)(sum[i][v], i * NV + v, tile);
  if (G->cols_linear) {
    const long cs = cols->stride[3];
    store_linear(tile, out + col * cs, row, cs, height, width);
    return;
  }
  long at[NR];
  offsets_from(cols, col, G->n, NR, at);
#ifdef PATCHES  // many columns are adjacent
  for (int v = 0; v < NV; v++) {
    const int first = v * VEC, end = min(first + VEC, width);
    const bool adjacent = end == first + VEC && at[end - 1] - at[first] == VEC - 1;
    for (int i = 0; i < height; i++) {
      if (adjacent)
        STORE(OUT, ACC, VEC, out + row[i] + at[first], 0, CAT(VLOAD_, VEC)(i * NV + v, tile));
      else
        for (int j = first; j < end; j++) STORE(OUT, ACC, 1, out, row[i] + at[j], tile[i * NR + j]);
    }
  }
#else
  for (int i = 0; i < height; i++)
    for (int j = 0; j < width; j++) STORE(OUT, ACC, 1, out, row[i] + at[j], tile[i * NR + j]);
#endif
}

// As offsets_from(), for rows that are read in place: they are points of the padded source, MR * n per image, and those
// that are no pixel have the offset -1.
ALWAYS_INLINE void offsets_in_lines(const ConvGemmParams* G, long first, long* offset) {
  const MixedRadix* R = &G->out_rows;
  const long image = first / G->rows.size[3], point = first - image * G->rows.size[3];
  long y = point / G->line, x = point - y * G->line;
  for (int i = 0; i < MR; i++) {
    offset[i] = y < R->size[2] && x < R->size[3] ? image * R->stride[0] + y * R->stride[2] + x * R->stride[3] : -1;
    if (++x == G->line) y++, x = 0;
  }
}

__kernel void conv_gemm(BUF(x), BUF(tap), BUF(b), BUF(bias), BUF(out), BUF(packed), const ConvGemmParams G) {
  const long panel0 = get_global_id(1) * G.n_panels_per_item, panel1 = min(panel0 + G.n_panels_per_item, G.n_panels);
  const long slice = (long)get_global_id(2) / G.groups, group = get_global_id(2) - slice * G.groups;
  const long item = (get_global_id(2) * get_global_size(1) + get_global_id(1)) * get_global_size(0) + get_global_id(0);
  const long begin = slice * G.k_slice, k = PADDED_K(G.k);
  __global const panel_t* b = PTR(b, const panel_t) + (group * G.n_panels * k + begin) * NR * PARTS;
  __global STORAGE(OUT)* out = PTR(out, STORAGE(OUT)) + slice * G.out_slice + group * G.out_group;
  long row[MR], out_row[MR];
  Tile T;
  T.x = PTR(x, const STORAGE(IN)) + group * G.x_group;
  T.tap = PTR(tap, const offset_t);
  T.row = row;
  T.begin = begin;
  T.end = min(begin + G.k_slice, G.k);
  T.contiguous = G.contiguous;
  T.packed = PTR(packed, panel_t) + item * PADDED_K(G.k_slice) * MR * PARTS;
  T.step = G.line ? G.rows.stride[3] : 0;
  ENGINE_BEGIN();
  long first = (long)get_global_id(0) * G.m_tiles * MR;
  for (long t = 0; t < G.m_tiles && first < G.m; t++, first += MR) {
    T.height = (int)min((long)MR, G.m - first);
    offsets_from(&G.rows, first, G.m, MR, row);
    if (G.line)
      offsets_in_lines(&G, first, out_row);
    else
      offsets_from(&G.out_rows, first, G.m, MR, out_row);
    prepare_rows(&T);
    // The tile is multiplied by all panels in turn, since it uses the same elements of x.
    for (long panel = panel0; panel < panel1; panel++) {
      const long col = panel * NR;
      VT sum[MR + (SPARE_VECTORS + 1) / 2][NV];
      accumulate(&T, b + panel * k * NR * PARTS, sum);
      if (bias_buf)
        add_bias(PTR(bias, const ST) + group * G.bias_group + first * G.bias_row + col * G.bias_col, &G, T.height,
                 (int)min((long)NR, G.n - col), sum);
      store_tile(sum, out, out_row, col, &G, T.height);
    }
  }
  ENGINE_END();
}

#ifndef ENGINE
// Copies the taps [begin, end) of kBlockTiles tiles to left[tap][row]. VEC divides the channels, so a vector of rows
// lies in one pixel. Vectors beyond the last row read that row's.
ALWAYS_INLINE void gather_block(const Tile* T, long begin, long end, ST (*left)[kBlockTiles * MR]) {
  __global const ST* from[kBlockTiles * MR / VEC];
  UNROLL for (int v = 0; v < kBlockTiles * MR / VEC; v++)
    from[v] = T->x + T->row[v * VEC + VEC - 1] - (VEC - 1);
  for (long r = begin; r < end; r++) {
    const offset_t tap = T->tap[r];
    UNROLL for (int v = 0; v < kBlockTiles * MR / VEC; v++)
      CAT(VSTORE_, VEC)(CAT(VLOAD_, VEC)(0, from[v] + tap), v, left[r - begin]);
  }
}

// Prefetches what gather_block() copies of a tap. The processor does not foresee it, since pixels lie far apart.
ALWAYS_INLINE void fetch_tap(const Tile* T, long r) {
  UNROLL for (int v = 0; v < kBlockTiles * MR / VEC; v++)
    FETCH_LINE(T->x + T->tap[r] + T->row[v * VEC]);
}

// As conv_gemm, without a bias, for rows that are neighbours and taps that are not, as in the gradient of the weight
// for channels_last images. There a tile uses a few bytes of each cache line, and lines that lie a power of two apart
// evict each other. So kBlockTaps taps of kBlockTiles tiles are copied, and multiplied by kBlockPanels panels, before
// the next ones.
__kernel void conv_gemm_blocks(BUF(x), BUF(tap), BUF(b), BUF(out), const ConvGemmParams G) {
  const long panel0 = get_global_id(1) * kBlockPanels;
  const int panels = (int)min((long)kBlockPanels, G.n_panels - panel0);
  const long slice = (long)get_global_id(2) / G.groups, group = get_global_id(2) - slice * G.groups;
  const long begin = slice * G.k_slice, k_end = min(begin + G.k_slice, G.k);
  __global const ST* b = PTR(b, const ST) + (group * G.n_panels + panel0) * G.k * NR;
  __global STORAGE(OUT)* out = PTR(out, STORAGE(OUT)) + slice * G.out_slice + group * G.out_group;
  ST left[kBlockTaps][kBlockTiles * MR];
  VT total[kBlockTiles][kBlockPanels][MR][NV], sum[MR][NV];
  long row[kBlockTiles * MR];
  Tile T;
  T.x = PTR(x, const STORAGE(IN)) + group * G.x_group;
  T.tap = PTR(tap, const offset_t);
  T.row = row;
  const long first = (long)get_global_id(0) * G.m_tiles * MR, last = min(first + G.m_tiles * MR, G.m);
  for (long top = first; top < last; top += kBlockTiles * MR) {
    const int height = (int)min((long)kBlockTiles * MR, G.m - top), tiles = (height + MR - 1) / MR;
    offsets_from(&G.rows, top, G.m, kBlockTiles * MR, row);
    const int fetched = (kBlockTaps + panels * tiles - 1) / (panels * tiles);  // taps per product
    for (long r = begin; r < k_end; r += kBlockTaps) {
      const int taps = (int)min((long)kBlockTaps, k_end - r);
      gather_block(&T, r, r + taps, left);
      long next = r + kBlockTaps;  // a tap of the next block
      for (int p = 0; p < panels; p++)
        for (int t = 0; t < tiles; t++) {
          for (int j = 0; j < fetched && next < k_end; j++) fetch_tap(&T, next++);
          UNROLL for (int i = 0; i < MR; i++) UNROLL
            for (int v = 0; v < NV; v++) sum[i][v] = (VT)(0);
          __global const ST* right = b + (p * G.k + r) * NR;
          for (int j = 0; j < taps; j++) add_tap(left[j] + t * MR, right + j * NR, sum);
          UNROLL for (int i = 0; i < MR; i++) UNROLL
            for (int v = 0; v < NV; v++) total[t][p][i][v] = r == begin ? sum[i][v] : total[t][p][i][v] + sum[i][v];
        }
    }
    offsets_from(&G.out_rows, top, G.m, kBlockTiles * MR, row);
    for (int t = 0; t < tiles; t++)
      for (int p = 0; p < panels; p++)
        store_tile(total[t][p], out, row + t * MR, (panel0 + p) * NR, &G, min(MR, height - t * MR));
  }
}
#endif
