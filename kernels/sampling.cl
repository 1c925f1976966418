// Rejection sampling from distributions with a parameter per element: gamma, Poisson, binomial. Each element has its
// own Philox stream, so its number depends only on its position and parameters.
// -D: OP (a distribution), IO (storage tag), ACC (f32 or f64).
#include "args/random.h"
#include "common/vector.h"
#include "common/philox.h"

#include "common/scalar_math.h"

// A round is accepted with a probability above 1/2 (gamma: 0.95), so 100 rejections in a row do not occur in practice.
#define ROUNDS 100

// A uniform number in (0, 1].
#if defined(ACC_DOUBLE)
static inline ST uniform(philox_stream_t* s) {
  const ulong high = philox_next(s);
  return (((high << 32 | philox_next(s)) >> 11) + 1) * 0x1p-53;
}
#else
static inline ST uniform(philox_stream_t* s) { return philox_next(s) * 0x1p-32f + 0x1p-33f; }
#endif
static inline ST normal(philox_stream_t* s) {
  const ST r = sqrt(-2 * log(uniform(s)));
  return r * cos(2 * PI * uniform(s));
}

// log(k!) minus Stirling's formula.
static inline ST stirling_rest(ST k) {
  ST sum = 0;
  for (; k < 8; k += 1) sum += (k + K(0.5)) * log1p(1 / k) - 1;
  const ST z = 1 / (k * k);
  return sum + (K(1.) / 12 - z * (K(1.) / 360 - z * (K(1.) / 1260 - z / 1680))) / k;
}
// k log(k / mean) + mean - k without cancellation (Loader 2000).
static inline ST deviance(ST k, ST mean) { return -k * log1p_minus((mean - k) / k); }

// The least normal number of IO. A gamma variate must not be 0, since densities take its logarithm.
#define LEAST ((ST)CAT3(least_, IO, ))
#define least_f64 DBL_MIN
#define least_f32 FLT_MIN
#define least_bf16 FLT_MIN
#define least_f16 0x1p-14f

// Marsaglia and Tsang (2000); a shape below 1 uses shape + 1.
static inline ST draw_gamma(philox_stream_t* s, ST shape, ST unused) {
  if (!(shape >= 0)) return (ST)NAN;
  if (shape == 0) return LEAST;
  const ST boost = shape < 1 ? pow(uniform(s), 1 / shape) : 1;
  const ST d = (shape < 1 ? shape + 1 : shape) - K(1.) / 3, c = 1 / sqrt(9 * d);
  ST v = 1;
  for (int k = 0; k < ROUNDS; k++) {
    const ST x = normal(s), t = 1 + c * x, u = uniform(s);
    v = t * t * t;
    if (t > 0 && log(u) < x * x / 2 + d * (1 - v + log(v))) break;
  }
  return fmax(boost * d * v, LEAST);
}

// Products of uniform numbers for a small rate, else Hörmann's transformed rejection PTRS (1993).
static inline ST draw_poisson(philox_stream_t* s, ST rate, ST unused) {
  if (!(rate > 0) || isinf(rate)) return rate == 0 || rate > 0 ? rate : (ST)NAN;
  if (rate < 10) {
    const ST end = exp(-rate);
    ST product = uniform(s), k = 0;
    for (; product > end && k < 2 * ROUNDS; k += 1) product *= uniform(s);
    return k;
  }
  const ST b = K(0.931) + K(2.53) * sqrt(rate), a = K(0.02483) * b - K(0.059);
  const ST inverse_alpha = K(1.1239) + K(1.1328) / (b - K(3.4)), accept = K(0.9277) - K(3.6224) / (b - 2);
  for (int round = 0; round < ROUNDS; round++) {
    const ST u = uniform(s) - K(0.5), v = uniform(s), us = K(0.5) - fabs(u);
    const ST k = floor((2 * a / us + b) * u + rate + K(0.43));
    if (us >= K(0.07) && v <= accept) return k;
    if (k < 0 || (us < K(0.013) && v > us)) continue;
    const ST log_p = k == 0 ? -rate : -deviance(k, rate) - stirling_rest(k) - log(2 * PI * k) / 2;
    if (log(v * inverse_alpha / (a / (us * us) + b)) <= log_p) return k;
  }
  return floor(rate);
}

static inline ST binomial_log_p(ST k, ST n, ST p) {
  if (k == 0) return n * log1p(-p);
  if (k == n) return n * log(p);
  return stirling_rest(n) - stirling_rest(k) - stirling_rest(n - k) - deviance(k, n * p) -
         deviance(n - k, n * (1 - p)) + log(n / (2 * PI * k * (n - k))) / 2;
}
// Waiting times for a small mean, else Hörmann's BTRS (1993); p <= 1/2.
static inline ST draw_binomial_low(philox_stream_t* s, ST n, ST p) {
  if (n * p < 10) {
    const ST scale = log1p(-p);
    ST at = 0, k = 0;
    for (; k < 2 * ROUNDS; k += 1) {
      at += fmax(ceil(log(uniform(s)) / scale), (ST)1);
      if (at > n) break;
    }
    return k;
  }
  const ST sigma = sqrt(n * p * (1 - p)), b = K(1.15) + K(2.53) * sigma;
  const ST a = K(0.0248) * b + K(0.01) * p - K(0.0873), accept = K(0.92) - K(4.2) / b;
  const ST alpha = (K(2.83) + K(5.1) / b) * sigma, mode = floor((n + 1) * p), top = binomial_log_p(mode, n, p);
  for (int round = 0; round < ROUNDS; round++) {
    const ST u = uniform(s) - K(0.5), v = uniform(s), us = K(0.5) - fabs(u);
    const ST k = floor((2 * a / us + b) * u + n * p + K(0.5));
    if (us >= K(0.07) && v <= accept) return k;
    if (!(k >= 0 && k <= n)) continue;
    if (log(v * alpha / (a / (us * us) + b)) <= binomial_log_p(k, n, p) - top) return k;
  }
  return mode;
}
static inline ST draw_binomial(philox_stream_t* s, ST n, ST p) {
  if (isnan(n) || isnan(p)) return (ST)NAN;
  if (n <= 0 || p <= 0) return 0;
  if (p >= 1) return n;
  return p <= K(0.5) ? draw_binomial_low(s, n, p) : n - draw_binomial_low(s, n, 1 - p);
}

// Invalid parameters are reported to the host; a NaN gives NaN.
#define gamma_VALID(a) 1
#define poisson_VALID(a) ((a) >= 0)
#define binomial_VALID(a) 1

__kernel void sample(BUF(out), BUF(first), BUF(second), BUF(err), ulong seed, ulong offset, const RandomParams P) {
  const long begin = (long)get_global_id(0) * P.per, end = min(begin + P.per, P.n);
  for (long i = begin; i < end; i++) {
    philox_stream_t s;
    s.seed = seed;
    s.block = offset + (ulong)i;
    s.used = 0;
    const ST a = LOAD(IO, ACC, 1, PTR(first, const STORAGE(IO)), i);
    const ST b = second_buf ? LOAD(IO, ACC, 1, PTR(second, const STORAGE(IO)), i) : 0;
    if (!CAT(OP, _VALID)(a)) netcl_report(PTR(err, int), P.code, 0, 0);
    STORE(IO, ACC, 1, PTR(out, STORAGE(IO)), i, CAT(draw_, OP)(&s, a, b));
  }
}
