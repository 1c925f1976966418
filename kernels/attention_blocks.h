// What the kernels of attention on CPUs share (attention_blocks.cl, attention_blocks_backward.cl). Their operands are
// packed as those of products (kernels/gemm/gemm_panels.h). -D: ACC (f32), VEC, MR,
// INA (f32: what they pack themselves), OUT and ADD (storage tag of the results), BIAS (the same, if a bias is added to
// the scores), and a matrix engine's.
#include "args/attention.h"
#include "common/exp_below.h"
#include "gemm/gemm_micro.h"
#include "gemm/gemm_panels.h"

#define EACH_VECTOR(i, n) for (long i = 0; i < (n); i += VEC)
#define AT(p, i) CAT(VLOAD_, VEC)(0, (p) + (i))
#define PUT(v, p, i) CAT(VSTORE_, VEC)(v, 0, (p) + (i))
#define UP(n, step) (((n) + (step) - 1) / (step) * (step))

#ifdef BIAS
#define BIAS_PARAM BUF(bias),
#define BIAS_ROW(b, h, q, k) \
  (PTR(bias, const STORAGE(BIAS)) + (b) * P.bias_b + (h) * P.bias_h + (q) * P.bias_q + (k) * P.bias_k)
#else
#define BIAS_PARAM
#endif

static inline void clear(__global ST* p, long n) { EACH_VECTOR(i, n) PUT((VT)(0), p, i); }

static inline void store_scaled(__global STORAGE(OUT)* to, __global const ST* from, long n, ST scale) {
  long x = 0;
  for (; x + VEC <= n; x += VEC) STORE(OUT, ACC, VEC, to, x, AT(from, x) * scale);
  for (; x < n; x++) STORE(OUT, ACC, 1, to, x, from[x] * scale);
}
