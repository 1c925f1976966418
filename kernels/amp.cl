// The kernels of GradScaler. -D: those of multi_tensor.h, IO (storage tag of the tensors).
#include "args/amp.h"
#include "common/multi_tensor.h"

// Checks for Inf and NaN.
#define CHECK_AT(V, i)                              \
  {                                                 \
    const VTYPE(ACC, V) x = LOAD(IO, ACC, V, g, i); \
    bad |= ANY_LANE(V, isnan(x - x));               \
  }
// A record has two words per gradient: how many of its elements are Inf or NaN, and FIRST_AT minus the index of the
// first, so that 0 means none. All indices from FIRST_AT - 1 on give the same word.
#define FIRST_AT 0xffffffffu
#define TELL_AT(V, i)                        \
  for (int k = 0; k < V; k++) {              \
    const ST x = LOAD(IO, ACC, 1, g, i + k); \
    if (isnan(x - x)) {                      \
      if (count++ == 0) first = i + k;       \
    }                                        \
  }
#define TELL(record, row)                                                        \
  {                                                                              \
    uint count = 0;                                                              \
    long first = 0;                                                              \
    MT_FOR_EACH(TELL_AT)                                                         \
    volatile __global uint* told = PTR(record, volatile uint) + 2 * (long)(row); \
    if (count) {                                                                 \
      atomic_add(told, count);                                                   \
      atomic_max(told + 1, FIRST_AT - (uint)min(first, (long)(FIRST_AT - 1)));   \
    }                                                                            \
  }

// grad *= inv_scale in place for every gradient. found_inf becomes 1 if an element was Inf or NaN, and is never
// cleared. If there is a `record`, it tells which gradients; a row's scalar is its number there.
__kernel void unscale(MT_PARAMS, BUF(found_inf), BUF(inv_scale), BUF(record)) {
  MT_CHUNK
  __global STORAGE(IO)* g = MT_PTR(0, IO);
  const float factor = *PTR(inv_scale, const float);
  const ST inv = (ST)factor;
  int bad = 0;
  // A factor of 1 only checks; a fused optimizer, which divides by the scale itself, asks for this. A factor above 1
  // may make an Inf of a finite gradient, so the gradients are checked first.
#define UNSCALE_AT(V, i)                            \
  {                                                 \
    const VTYPE(ACC, V) x = LOAD(IO, ACC, V, g, i); \
    bad |= ANY_LANE(V, isnan(x - x));               \
    STORE(IO, ACC, V, g, i, x * inv);               \
  }
  if (factor >= 1.0f) {
    MT_FOR_EACH(CHECK_AT)
    if (bad && record_buf) TELL(record, MT_SCALAR)
    if (factor > 1.0f) MT_FOR_EACH(UNSCALE_AT)
  } else {
    MT_FOR_EACH(UNSCALE_AT)
    if (bad && record_buf) TELL(record, MT_SCALAR)
  }
  // Several work-items may write this, but all write the same value.
  if (bad) *PTR(found_inf, float) = 1.0f;
}

// If found_inf is not zero: live = saved for every row, which undoes a skipped step.
__kernel void take_back(MT_PARAMS, BUF(found_inf)) {
  if (*PTR(found_inf, const float) == 0.0f) return;
  MT_CHUNK
  __global STORAGE(IO)* live = MT_PTR(0, IO);
  __global const STORAGE(IO)* saved = MT_PTR(1, IO);
#define TAKE_BACK_AT(V, i) \
  for (int k = 0; k < V; k++) live[i + k] = saved[i + k];
  MT_FOR_EACH(TAKE_BACK_AT)
}

// Sets bits of a word that is never cleared: 1 if a tensor holds an Inf, 2 if it holds a NaN.
__kernel void flag_non_finite(MT_PARAMS, BUF(flag)) {
  MT_CHUNK
  __global STORAGE(IO)* g = MT_PTR(0, IO);
  int bad = 0;
  MT_FOR_EACH(CHECK_AT)
  if (!bad) return;
  int bits = 0;
#define FLAG_AT(V, i)                        \
  for (int k = 0; k < V; k++) {              \
    const ST x = LOAD(IO, ACC, 1, g, i + k); \
    bits |= isnan(x) ? 2 : isinf(x) ? 1 : 0; \
  }
  MT_FOR_EACH(FLAG_AT)
  if (bits) atomic_or((volatile __global int*)PTR(flag, int), bits);
}

// s * factor computed in float64, then rounded to float32. Without double it is rounded once; this differs in the last
// place if the product is within 2^-48 of the middle of two floats.
static inline float times(float s, const ScaleFactor f) {
#ifdef HAVE_FP64
  return (float)((double)s * as_double(f.bits));
#else
  const float product = s * f.high;
  return isfinite(product) ? fma(s, f.high, s * f.low) : product;
#endif
}

// The scale of the next step.
__kernel void update_scale(BUF(scale), BUF(tracker), BUF(found_inf), const ScaleFactor growth,
                           const ScaleFactor backoff, int interval) {
  __global float* s = PTR(scale, float);
  __global int* t = PTR(tracker, int);
  if (*PTR(found_inf, const float) != 0.0f) {
    *s = times(*s, backoff);
    *t = 0;
    return;
  }
  const int steps = *t + 1;
  if (steps != interval) {
    *t = steps;
    return;
  }
  const float grown = times(*s, growth);
  if (isfinite(grown)) *s = grown;
  *t = 0;
}
