// Shared by conv_channels.cl and conv_channels_few.cl: convolutions of channels_last images on a CPU, with vectors
// along the channels. Nothing is copied; rows of taps outside of the source are skipped.
// -D: ACC (compute tag), IO (storage tag of source and result), VEC (at most the channels), MR (pixels at once).
#include "args/conv.h"
#include "common/vector.h"

// A row of the grid, and its rows of taps that lie in the source.
typedef struct {
  long at;                        // offset of its first pixel in the result
  int count;                      // number of rows of taps
  int tap[CONV_MOST_TAP_ROWS];    // their indices
  long from[CONV_MOST_TAP_ROWS];  // offsets of their rows of the source
#if RING
  int slot[CONV_MOST_TAP_ROWS];  // where copies of these rows lie
#endif
} GridRow;

static inline void find_row(const ConvChannelsParams* P, long row, GridRow* R) {
  const long plane = row / P->height, y = row - plane * P->height;
  const long image = plane / P->depth, z = plane - image * P->depth;
  R->at = image * P->out_image + z * P->out_z + y * P->out_y;
  R->count = 0;
  for (long kz = 0; kz < P->taps_z; kz++) {
    const long from_z = z * P->step_z + P->first_z + kz * P->apart_z;
    if (from_z < 0 || from_z >= P->in_d) continue;
    for (long ky = 0; ky < P->taps_y; ky++) {
      const long from_y = y * P->step_y + P->first_y + ky * P->apart_y;
      if (from_y < 0 || from_y >= P->in_h) continue;
#if RING
      R->slot[R->count] = (int)kz * (int)P->slots + (int)((uint)from_y % (uint)P->slots);
#endif
      R->tap[R->count] = (int)(kz * P->taps_y + ky);
      R->from[R->count++] = ((image * P->in_d + from_z) * P->in_h + from_y) * P->in_w * P->point;
    }
  }
}
