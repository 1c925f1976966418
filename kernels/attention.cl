// The steps between the matrix products of attention: scores become probabilities, and in the backward pass the
// gradient of the probabilities becomes that of the scores. Both work in place, on dense scores of the compute type.
// -D: ACC, VEC, GROUP (see rows.h), BIAS (storage tag) if a bias is added to the scores.
#include "args/attention.h"
#include "common/rows.h"

DEFINE_LANES(ACC)
#ifdef BIAS
DEFINE_LANES(BIAS)
#define BIAS_PARAM BUF(bias),
#define BIAS_ROW \
  __global const STORAGE(BIAS)* bias = PTR(bias, const STORAGE(BIAS)) + b * P.bias_b + h * P.bias_h + q * P.bias_q;
#define ADD_BIAS(x, i, lanes) ((x) + load_bias(bias, P.bias_k, i, lanes))
static inline VT load_bias(__global const STORAGE(BIAS)* p, long stride, long i, int lanes) {
  if (stride == 1) return LOAD_LANES(BIAS, p, i, lanes, 0);
  lanes_t r;
  r.v = (VT)(0);
  for (int j = 0; j < lanes; j++) r.s[j] = LOAD(BIAS, ACC, 1, p, (i + j) * stride);
  return r.v;
}
#else
#define BIAS_PARAM
#define BIAS_ROW
#define ADD_BIAS(x, i, lanes) (x)
#endif

#define FOR_ROWS                                              \
  ROW_SCRATCH                                                 \
  const long first = (long)get_group_id(0) * P.rows_per_item; \
  const long last = min(first + P.rows_per_item, P.rows);     \
  for (long row = first; row < last; row++)
#define ROW                                                                     \
  const long bh = row / P.queries, q = P.first_query + row - bh * P.queries;    \
  const long b = P.first_batch + bh / P.heads, h = P.first_head + bh % P.heads; \
  const long n = P.causal ? min(q + 1, P.keys) : P.keys;                        \
  __global ST* s = PTR(scores, ST) + row * P.keys;                              \
  const long place = (b * P.all_heads + h) * P.all_queries + q;                 \
  __global ST* l = PTR(lse, ST) + place;                                        \
  BIAS_ROW
// Clears the keys that the query may not see.
#define CLEAR_REST(p) \
  for (long i = n + LID * VEC; i < P.keys; i += GROUP * VEC) STORE_LANES(ACC, p, i, LANES(i, P.keys), (VT)(0));

__kernel void attention_softmax(BUF(scores), BUF(lse), BIAS_PARAM const AttentionParams P) {
  FOR_ROWS {
    ROW
    VT m = (VT)(-INFINITY);
    FOR_ROW(i, n) {
      const int lanes = LANES(i, n);
      VT x = LOAD_LANES(ACC, s, i, lanes, -INFINITY);
#ifdef BIAS
      x = ADD_BIAS(x, i, lanes);
      STORE_LANES(ACC, s, i, lanes, x);
#endif
      m = fmax(m, x);
    }
    // A query that sees no key gets zeros.
    const ST most = row_max(m), top = most == -INFINITY ? (ST)(0) : most;
    VT t = (VT)(0);
    FOR_ROW(i, n) {
      const int lanes = LANES(i, n);
      const VT e = exp(LOAD_LANES(ACC, s, i, lanes, top) - top);
      STORE_LANES(ACC, s, i, lanes, e);
      t += keep_lanes(e, lanes, 0);
    }
    const ST sum = row_sum(t), scale = sum == 0 ? (ST)(0) : 1 / sum;
    FOR_ROW(i, n) {
      const int lanes = LANES(i, n);
      STORE_LANES(ACC, s, i, lanes, LOAD_LANES(ACC, s, i, lanes, 0) * scale);
    }
    CLEAR_REST(s)
    if (LID == 0) *l = top + log(sum);
  }
}

// Replaces scores by probabilities, and their gradient by that of the scores.
__kernel void attention_backward(BUF(scores), BUF(grad), BUF(lse), BIAS_PARAM const AttentionParams P) {
  FOR_ROWS {
    ROW
    __global ST* g = PTR(grad, ST) + row * P.keys;
    const ST total = *l;
    VT t = (VT)(0);
    FOR_ROW(i, n) {
      const int lanes = LANES(i, n);
      VT p = exp(ADD_BIAS(LOAD_LANES(ACC, s, i, lanes, 0), i, lanes) - total);
      if (total == -INFINITY) p = (VT)(0);
      STORE_LANES(ACC, s, i, lanes, p);
      t += keep_lanes(p * LOAD_LANES(ACC, g, i, lanes, 0), lanes, 0);
    }
    const ST dot = row_sum(t);
    FOR_ROW(i, n) {
      const int lanes = LANES(i, n);
      STORE_LANES(ACC, g, i, lanes, LOAD_LANES(ACC, s, i, lanes, 0) * (LOAD_LANES(ACC, g, i, lanes, 0) - dot));
    }
    CLEAR_REST(s)
    CLEAR_REST(g)
  }
}
