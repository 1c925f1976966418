// What the kernels of attention on CPUs share (attention_blocks.cl, attention_blocks_backward.cl). Their operands are
// packed as those of products (kernels/gemm/gemm_panels.h). -D: ACC (f32), VEC, MR,
// INA (f32: what they pack themselves), OUT and ADD (storage tag of the results), BIAS (the same, if a bias is added to
// the scores), and a matrix engine's. For flex_attention, generated text comes first (MODIFIED,
// torch_netcl/inductor/score_functions.py): score_mod(), mask_mod(), score_grad(), and the tensors that they read.
#include "args/attention.h"
#include "common/exp_below.h"
#include "gemm/gemm_micro.h"
#include "gemm/gemm_panels.h"

#define ALONG_ROW(i, n) for (long i = 0; i < (n); i += VEC)
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

// Which blocks of keys a block of queries sees: none (0), those that mask_mod() says (1), or all (2).
#ifdef MODIFIED
#define MODIFIED_PARAMS BUF(seen), CAPTURED_BUFFERS
#define IF_MODIFIED(...) __VA_ARGS__
#define SEEN_ROW(b, h) (PTR(seen, const uchar) + (b) * P.seen_b + (h) * P.seen_h)
// Whether any of these queries may see any of these keys.
static inline int any_seen(__global const uchar* seen, const FlashParams* P, long q0, long q_end, long k0, long k_end) {
  for (long q = q0 / P->q_block; q * P->q_block < q_end; q++)
    for (long k = k0 / P->k_block; k * P->k_block < k_end; k++)
      if (seen[q * P->seen_q + k]) return 1;
  return 0;
}
// The scores of query q and `lanes` keys from k on; -Inf if it does not see them.
static inline VT modify(VT score, int state, long b, long h, long q, long k, int lanes CAPTURED) {
  if (!state) return (VT)(-INFINITY);
  const VT changed = score_mod(score, b, h, q, k, lanes GIVEN);
  if (state == 2) return changed;
  return mask_mod(b, h, q, k, lanes GIVEN) ? changed : (VT)(-INFINITY);
}
#else
#define MODIFIED_PARAMS
#define IF_MODIFIED(...)
#define CAPTURED
#define GIVEN
#endif

static inline void clear(__global ST* p, long n) { ALONG_ROW(i, n) PUT((VT)(0), p, i); }

static inline void store_scaled(__global STORAGE(OUT)* to, __global const ST* from, long n, ST scale) {
  long x = 0;
  for (; x + VEC <= n; x += VEC) STORE(OUT, ACC, VEC, to, x, AT(from, x) * scale);
  for (; x < n; x++) STORE(OUT, ACC, 1, to, x, from[x] * scale);
}
