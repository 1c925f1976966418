// What GradScaler runs on the device.
#include "common/multi_tensor.h"

// grad *= inv_scale in place for every gradient; found_inf becomes 1 where one was Inf or NaN, and is never cleared.
// S: dtype of the gradients.
__kernel void unscale(MT_PARAMS, BUF(found_inf), BUF(inv_scale)) {
  MT_CHUNK
  __global STORAGE(S) *g = MT_PTR(0, S);
  const float factor = *PTR(inv_scale, const float);
  const real inv = (real)factor;
  int bad = 0;
  // A factor of 1 only looks: what a fused optimizer asks for, which divides by the scale itself.
  if (factor == 1.0f) {
#define CHECK_AT(V, i)                                  \
  {                                                     \
    const VTYPE(ACC, V) x = LOAD(S, ACC, V, g, i);      \
    bad |= MT_ANY(V, isnan(x - x));                     \
  }
    MT_FOR_EACH(CHECK_AT)
  } else {
#define UNSCALE_AT(V, i)                                \
  {                                                     \
    const VTYPE(ACC, V) x = LOAD(S, ACC, V, g, i);      \
    bad |= MT_ANY(V, isnan(x - x));                     \
    STORE(S, ACC, V, g, i, x * inv);                    \
  }
    MT_FOR_EACH(UNSCALE_AT)
  }
  // Several work-items may write: all write the same.
  if (bad) *PTR(found_inf, float) = 1.0f;
}

// A double, and as two floats what devices without double can use of it.
typedef struct {
  ulong bits;
  float high, low;
} factor_t;

// s * factor as in float64, then rounded to float32; without double, rounded once, which differs in the last place
// where the product is within 2^-48 of the middle of two floats.
inline float times(float s, const factor_t f) {
#ifdef HAVE_FP64
  return (float)((double)s * as_double(f.bits));
#else
  const float product = s * f.high;
  return isfinite(product) ? fma(s, f.high, s * f.low) : product;
#endif
}

// The scale of the next step.
__kernel void update_scale(BUF(scale), BUF(tracker), BUF(found_inf), const factor_t growth, const factor_t backoff,
                           int interval) {
  __global float *s = PTR(scale, float);
  __global int *t = PTR(tracker, int);
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
