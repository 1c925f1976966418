// Fake quantisation: x is rounded to the nearest of the numbers (q - zero) * scale for integers q from s0 to s1.
#include "common/pointwise.h"

#if defined(ACC_FLOATING)
// ATen computes the reciprocal in float whatever the dtype of x, and a scale of 0 gives the largest number or NaN.
#define INVERSE(scale) CONVERT(ACC, VEC, 1.0f / CONVERT(f32, VEC, scale))
#define WITHIN(q, low, high) ((q) >= (low) && (q) <= (high))
// The mask says which elements get a gradient. `on` is 0 where the quantiser is switched off: x and True.
#define FAKE_QUANTIZE(x, on, q, scale, zero, low, high)        \
  (r1 = (on) == (VT)0 || WITHIN(q, low, high) ? (VT)1 : (VT)0, \
   (on) == (VT)0 ? (x) : (fmin(fmax(q, low), high) - (zero)) * (scale))
#define OP_fake_quantize(x, scale, zero, on) \
  FAKE_QUANTIZE(x, on, rint((x) * INVERSE(scale)) + (zero), scale, zero, s0, s1)
// A zero point that is a float is added before the rounding.
#define OP_fake_quantize_float(x, scale, zero, on) \
  FAKE_QUANTIZE(x, on, rint((x) * INVERSE(scale) + (zero)), scale, zero, s0, s1)
// With numbers of the host: scale, zero point and ends.
#define OP_fake_quantize_numbers(x) FAKE_QUANTIZE(x, (VT)1, rint((x) * INVERSE(s0)) + s1, s0, s1, s2, s3)

// The derivatives by x and scale, and by the zero point; those of scale and zero point are multiplied by a factor.
#define LEARNED(x, scale, zero) rint((zero) + (x) * INVERSE(scale))
#define SLOPE(x, q, scale, zero, low, high) \
  ((q) < (low) ? (low) - (zero) : (q) > (high) ? (high) - (zero) : (((q) - (zero)) * (scale) - (x)) * INVERSE(scale))
#define LEARN(x, g, factor, scale, zero, low, high)                                 \
  (r1 = (g) * SLOPE(x, LEARNED(x, scale, zero), scale, zero, low, high) * (factor), \
   WITHIN(LEARNED(x, scale, zero), low, high) ? (g) : (VT)0)
#define LEARN_ZERO(x, g, factor, scale, zero, low, high) \
  (WITHIN(LEARNED(x, scale, zero), low, high) ? (VT)0 : -(g) * (scale) * (factor))
#define OP_learn(x, g, scale, zero) LEARN(x, g, s2, scale, zero, s0, s1)
#define OP_learn_zero(x, g, scale, zero) LEARN_ZERO(x, g, s2, scale, zero, s0, s1)
#define OP_learn_numbers(x, g, factor) LEARN(x, g, factor, s0, s1, s2, s3)
#define OP_learn_zero_numbers(x, g, factor) LEARN_ZERO(x, g, factor, s0, s1, s2, s3)

// An observer's moving average, with weight s0 for the newest value; the first one replaces infinity.
#define OP_moving_average(old, newest, on) \
  ((on) == (VT)0 ? (old) : isinf(old) ? (newest) : (old) + s0 * ((newest) - (old)))

// Scale and zero point for numbers from `low` to `high`, integers from s0 to s1, symmetric if s2 is not 0.
#define OP_choose_qparams(low, high) choose_qparams(low, high, s0, s1, s2, &r1)
static inline VT choose_qparams(VT low, VT high, VT first, VT last, VT symmetric, VT* zero) {
  const VT steps = last - first, side = floor(steps / 2);
  // Only numbers of both signs are made symmetric.
  const VT both = (low < (VT)0 && high > (VT)0) && symmetric != (VT)0 ? (VT)1 : (VT)0;
  const VT reach = fmax(fabs(low / (side + 1)), fabs(high / side));
  low = fmin(both != (VT)0 ? -reach * (side + 1) : low, (VT)0);
  high = fmax(both != (VT)0 ? reach * side : high, (VT)0);
  VT scale = (high - low) / steps;
  scale = scale == (VT)0 || isinf(1 / scale) ? (VT)0.1f : scale;
  // Smaller scales are not used; the range grows with the scale.
  const VT least = (VT)6.1e-5f, growth = scale < least ? least / scale : (VT)1;
  scale = fmax(scale, least);
  low = low * growth;
  high = high * growth;
  const VT from_low = first - low / scale, from_high = last - high / scale;
  const VT low_error = fabs(first) + fabs(low / scale), high_error = fabs(last) + fabs(high / scale);
  const VT exact = both != (VT)0 ? (first + last) / 2 : low_error < high_error ? from_low : from_high;
  *zero = rint(fmin(fmax(exact, first), last));
  return scale;
}
#endif

#include "common/pointwise_body.h"
