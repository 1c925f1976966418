// Where the elements come from that an output of resampling is computed from (kernels/upsample*.cl, except
// upsample_aa.cl).
// -D: ACC, OP (NEAREST, EXACT, LINEAR, CUBIC), NDIM.
#include "args/upsample.h"
#include "common/vector.h"

#define NEAREST 0
#define EXACT 1
#define LINEAR 2
#define CUBIC 3
#define TAPS (OP == CUBIC ? 4 : OP == LINEAR ? 2 : 1)
// Missing dimensions have one tap.
#define TAPS_D (NDIM > 2 ? TAPS : 1)
#define TAPS_H (NDIM > 1 ? TAPS : 1)

// Positions are computed in the compute type. Nearest neighbours use float32 for every dtype, as in ATen, and may be
// copied as integers.
#if TAPS == 1
typedef float POSITION;
#define SCALE(d) scales.high[d]
#else
typedef ST POSITION;
#define SCALE(d) ((ST)scales.high[d] + (ST)scales.low[d])
#endif

// The TAPS positions that output `o` is computed from, and their weights.
static inline void taps(long o, long size, POSITION scale, long align, long* at, ST* weight) {
#if TAPS == 1
  at[0] = min((long)floor(((float)o + (OP == EXACT ? 0.5f : 0)) * scale), size - 1);
  weight[0] = 1;
#else
  ST x = align ? scale * o : scale * (o + (ST)0.5f) - (ST)0.5f;
  if (TAPS == 2) {
    if (x < 0) x = 0;
    at[0] = min((long)x, size - 1);
    at[1] = min(at[0] + 1, size - 1);
    weight[1] = min(max(x - at[0], (ST)0), (ST)1);
    weight[0] = 1 - weight[1];
    return;
  }
  const ST base = floor(x), t = x - base, a = -0.75f;
  for (int k = 0; k < 4; k++) {
    at[k] = clamp((long)base + k - 1, 0L, size - 1);
    const ST u = fabs(t - (k - 1));
    weight[k] = u <= 1 ? ((a + 2) * u - (a + 3)) * u * u + 1 : ((a * u - 5 * a) * u + 8 * a) * u - 4 * a;
  }
#endif
}

static inline long last_tap(long o, long size, POSITION scale, long align) {
  long at[TAPS];
  ST weight[TAPS];
  taps(o, size, scale, align, at, weight);
  return at[TAPS - 1];
}

// The first output whose taps reach input `i`, or `out`: taps move forward with the output.
static inline long first_output(long i, long in, long out, POSITION scale, long align) {
  long low = 0, high = out;
  while (low < high) {
    const long o = (low + high) / 2;
    if (last_tap(o, in, scale, align) < i)
      low = o + 1;
    else
      high = o;
  }
  return low;
}

// Whether the taps of output `o` begin at or before input `i`, and the sum of the weights of those that are `i`.
static inline int begins_by(long o, long i, long in, POSITION scale, long align, ST* sum) {
  long at[TAPS];
  ST weight[TAPS];
  taps(o, in, scale, align, at, weight);
  *sum = 0;
  for (int k = 0; k < TAPS; k++) *sum += at[k] == i ? weight[k] : (ST)0;
  return at[0] <= i;
}
