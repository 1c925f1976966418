// The tile of C that a work-group of gemm_gpu.cl or gemm_units.cl computes, and how it is stored.

#define STRIP 8  // tiles down that are computed before the next ones across, so that B stays in the cache

typedef struct {
  uint batch;
  long row0, col0;
} GemmTile;

static inline GemmTile tile_of(const GemmParams* P, uint group) {
  const uint m_tiles = (uint)P->m_tiles, n_tiles = (uint)P->n_tiles, tile = group % (m_tiles * n_tiles);
  const uint strip = tile / (STRIP * n_tiles), inside = tile % (STRIP * n_tiles);
  const uint down = min((uint)STRIP, m_tiles - strip * STRIP);
  GemmTile T;
  T.batch = group / (m_tiles * n_tiles);
  T.row0 = (long)(strip * STRIP + inside % down) * HEIGHT;
  T.col0 = (long)(inside / down) * WIDTH;
  return T;
}

// Stores LVB elements of one row; `end` columns exist from there on.
static inline void store_part(const Epilogue* E, long row, long col, lanes_t t, long end) {
  if (LVB > 1 && end >= LVB && E->c_col == 1 && (!E->has_d || E->d_col <= 1)) {
    store_vector(E, row, col, t.v, 0, LVB);
    return;
  }
  UNROLL for (int j = 0; j < LVB; j++)
    if (j < end) store_element(E, row, col + j, t.s[j]);
}
