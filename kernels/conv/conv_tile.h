// The tile of the result that a work-group of conv_gemm_gpu.cl or conv_units.cl computes.
#include "conv/conv.h"

// The offset of index i.
static inline long offset_of(const MixedRadix* R, long i) {
  if ((ulong)(i | R->size[1] | R->size[2] | R->size[3]) <= UINT_MAX) {
    const uint at = (uint)i, w = at / (uint)R->size[3], h = w / (uint)R->size[2], d = h / (uint)R->size[1];
    return d * R->stride[0] + (h - d * (uint)R->size[1]) * R->stride[1] + (w - h * (uint)R->size[2]) * R->stride[2] +
           (at - w * (uint)R->size[3]) * R->stride[3];
  }
  long offset[1];
  offsets_from(R, i, i + 1, 1, offset);
  return offset[0];
}

typedef struct {
  uint slice, group, panel;
  long row0, col0, begin, end;  // the first row and column; the slice of k
} ConvTile;

static inline ConvTile tile_of(const ConvGemmParams* G, uint id, int height, int width) {
  const uint m_tiles = (uint)G->m_tiles, n_tiles = (uint)G->n_panels, tiles = m_tiles * n_tiles;
  const uint part = id / tiles, tile = id % tiles;
  ConvTile T;
  T.slice = part / (uint)G->groups;
  T.group = part % (uint)G->groups;
  T.panel = tile % n_tiles;
  T.row0 = (long)(tile / n_tiles) * height;
  T.col0 = (long)T.panel * width;
  T.begin = T.slice * G->k_slice;
  T.end = min(T.begin + G->k_slice, G->k);
  return T;
}

// Writes the offsets of `count` indices from `first` on; those from `limit` on repeat the last one.
ALWAYS_INLINE void put_places(__local long* place, const MixedRadix* R, long first, long limit, int count, int items) {
  for (int i = get_local_id(0); i < count; i += items) place[i] = offset_of(R, min(first + i, limit - 1));
}
