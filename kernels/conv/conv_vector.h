// conv_gemm in explicit vectors: rows are gathered while they are multiplied.

// Products per block of a sum. The error grows with the root of this number and with that of the number of blocks, not
// with the root of the number of all products.
#define SUM_BLOCK 256

static inline void prepare_rows(const Tile* T) {}

// sum[i] += x[i] * b: one tap of all rows times a row of a panel.
ALWAYS_INLINE void add_tap(const ST* x, __global const ST* b, VT (*sum)[NV]) {
  VT w[NV];
  UNROLL for (int v = 0; v < NV; v++)
    w[v] = CAT(VLOAD_, VEC)(v, b);
  UNROLL for (int i = 0; i < MR; i++) {
    const VT xi = (VT)(x[i]);
    UNROLL for (int v = 0; v < NV; v++)
      sum[i][v] = fma(xi, w[v], sum[i][v]);
  }
}
// Adds the taps [begin, end) of adjacent rows; one address serves them all.
ALWAYS_INLINE void add_taps_of_neighbours(const Tile* T, long begin, long end, __global const ST* b, VT (*sum)[NV]) {
  __global const ST* x0 = T->x + T->row[0];
  for (long r = begin; r < end; r++, b += NR) {
    __global const ST* from = x0 + T->tap[r];
    ST x[MR];
    UNROLL for (int i = 0; i < MR; i++)
      x[i] = from[i];
    add_tap(x, b, sum);
  }
}
ALWAYS_INLINE void add_taps(const Tile* T, long begin, long end, __global const ST* b, VT (*sum)[NV]) {
  for (long r = begin; r < end; r++, b += NR) {
    __global const ST* from = T->x + T->tap[r];
    ST x[MR];
    UNROLL for (int i = 0; i < MR; i++)
      x[i] = from[T->row[i]];
    add_tap(x, b, sum);
  }
}

ALWAYS_INLINE void accumulate(const Tile* T, __global const panel_t* b, VT (*sum)[NV]) {
  const bool neighbours = T->height == MR && T->row[MR - 1] - T->row[0] == MR - 1;  // offsets of rows only grow
  VT total[MR][NV];  // kept in memory, so that it needs no registers of the tile
  UNROLL for (int i = 0; i < MR; i++) UNROLL
    for (int v = 0; v < NV; v++) sum[i][v] = (VT)(0);
  for (long block = T->begin; block < T->end; block += SUM_BLOCK) {
    const long end = min(block + SUM_BLOCK, T->end);
    if (block > T->begin)
      for (int i = 0; i < MR; i++)
        for (int v = 0; v < NV; v++) {
          total[i][v] = block == T->begin + SUM_BLOCK ? sum[i][v] : total[i][v] + sum[i][v];
          sum[i][v] = (VT)(0);
        }
    if (neighbours)
      add_taps_of_neighbours(T, block, end, b + (block - T->begin) * NR, sum);
    else
      add_taps(T, block, end, b + (block - T->begin) * NR, sum);
  }
  if (T->end - T->begin > SUM_BLOCK) {
    UNROLL for (int i = 0; i < MR; i++) UNROLL
      for (int v = 0; v < NV; v++) sum[i][v] += total[i][v];
  }
}
