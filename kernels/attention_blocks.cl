// Attention for CPUs, with the algorithm of FlashAttention-2 (Dao 2023): a work-item takes QROWS queries of a head at a
// time and goes through blocks of keys, whose scores and probabilities stay in its cache. q, k and v are packed as
// operands of products (kernels/gemm/gemm_panels.h), queries as A, keys and values as B. -D: ACC (f32), VEC, MR, INA
// (f32: the probabilities), OUT and ADD (storage tag of the result), BIAS (the same, if a bias is added to the scores),
// and a matrix engine's.
#include "args/attention.h"
#include "common/join_lanes.h"
#include "gemm/gemm_micro.h"
#include "gemm/gemm_panels.h"

#define PANELS ((kAttentionRows + MR - 1) / MR)
#define QROWS (PANELS * MR)
#define EACH_VECTOR(i, n) for (long i = 0; i < (n); i += VEC)
#define AT(p, i) CAT(VLOAD_, VEC)(0, (p) + (i))
#define PUT(v, p, i) CAT(VSTORE_, VEC)(v, 0, (p) + (i))
JOIN_LANES(max_lanes, ACC, fmax)

// Scores of a row become exponentials; those from n on are 0. Returns what earlier sums are multiplied by.
static inline ST exponentials(__global ST* s, long n, long padded, ST* top, ST* sum) {
  VT m = (VT)(*top), t = (VT)(0);
  for (long i = n; i < padded; i++) s[i] = -INFINITY;
  EACH_VECTOR(i, padded) m = fmax(m, AT(s, i));
  const ST most = max_lanes(m), shift = most == -INFINITY ? (ST)(0) : most;
  EACH_VECTOR(i, padded) {
    const VT e = exp(AT(s, i) - shift);
    PUT(e, s, i);
    t += e;
  }
  const ST factor = exp(*top - shift);
  *top = most;
  *sum = *sum * factor + sum_lanes(t);
  return factor;
}

#ifdef BIAS
#define BIAS_PARAM BUF(bias),
#else
#define BIAS_PARAM
#endif
__kernel void attention_blocks(BUF(out), BUF(lse), BUF(scratch), BUF(q), BUF(k), BUF(v),
                               BIAS_PARAM const FlashParams P) {
  const long deep = PADDED_K(P.depth), key_deep = PADDED_K(P.keys), wide = (P.width + NR - 1) / NR * NR;
  const long q_panels = (P.queries + MR - 1) / MR, k_panels = (P.keys + NR - 1) / NR;
  const long blocks = (q_panels + PANELS - 1) / PANELS;
  __global ST* S = PTR(scratch, ST) + get_global_id(0) * (QROWS * (2 * kAttentionKeys + wide));
  __global ST* O = S + QROWS * kAttentionKeys;
  __global panel_t* packed = (__global panel_t*)(O + QROWS * wide);
  VT t[2 * MR + SPARE_VECTORS];
  ST top[QROWS], sum[QROWS], factor[QROWS];
  ENGINE_BEGIN();
  for (long w = get_global_id(0); w < P.batches * P.heads * blocks; w += get_global_size(0)) {
    const long bh = w / blocks, b = bh / P.heads, h = bh % P.heads, panel0 = (blocks - 1 - w % blocks) * PANELS;
    const long kv = b * P.kv_heads + h / (P.heads / P.kv_heads), row0 = panel0 * MR;
    const int rows = (int)min((long)QROWS, P.queries - row0), panels = (rows + MR - 1) / MR;
    const long limit = P.causal ? min(P.keys, row0 + rows) : P.keys;
    __global const panel_t* Q = PTR(q, const panel_t) + (bh * q_panels + panel0) * deep * MR * PARTS;
    __global const panel_t* K = PTR(k, const panel_t) + kv * k_panels * deep * NR * PARTS;
    __global const panel_t* V = PTR(v, const panel_t) + kv * wide * key_deep * PARTS;
    for (int r = 0; r < rows; r++) {
      top[r] = -INFINITY;
      sum[r] = 0;
    }
    EACH_VECTOR(i, QROWS * wide) PUT((VT)(0), O, i);
    for (long k0 = 0; k0 < limit; k0 += kAttentionKeys) {
      const long keys = min((long)kAttentionKeys, limit - k0), padded = (keys + 31) & ~31L, key_depth = PADDED_K(keys);
      for (long j = 0; j < keys; j += NR)
        for (int i = 0; i < panels; i++) {
          micro_kernel(Q + i * deep * MR * PARTS, K + (k0 + j) * deep * PARTS, deep, NR, t);
          __global ST* to = S + i * MR * kAttentionKeys + j;
          for (int r = 0; r < MR; r++, to += kAttentionKeys) {
            PUT(t[2 * r] * P.scale, to, 0);
            PUT(t[2 * r + 1] * P.scale, to, VEC);
          }
        }
      for (int r = 0; r < rows; r++) {
        __global ST* s = S + r * kAttentionKeys;
        const long n = P.causal ? clamp(row0 + r + 1 - k0, 0L, keys) : keys;
#ifdef BIAS
        __global const STORAGE(BIAS)* add =
            PTR(bias, const STORAGE(BIAS)) + b * P.bias_b + h * P.bias_h + (row0 + r) * P.bias_q + k0 * P.bias_k;
        long x = 0;
        for (; P.bias_k == 1 && x + VEC <= n; x += VEC) PUT(AT(s, x) + LOAD(BIAS, ACC, VEC, add, x), s, x);
        for (; x < n; x++) s[x] += LOAD(BIAS, ACC, 1, add, x * P.bias_k);
#endif
        factor[r] = exponentials(s, n, padded, &top[r], &sum[r]);
      }
      for (int i = 0; i < panels; i++)
        pack_a(S + i * MR * kAttentionKeys, kAttentionKeys, 1, min(MR, rows - i * MR), keys, key_depth,
               packed + i * MR * key_depth * PARTS);
      for (long j = 0; j < wide; j += NR)
        for (int i = 0; i < panels; i++) {
          micro_kernel(packed + i * MR * key_depth * PARTS, V + (j * key_deep + k0 * NR) * PARTS, key_depth,
                       P.width - j, t);
          for (int r = 0; r < min(MR, rows - i * MR); r++) {
            __global ST* o = O + (i * MR + r) * wide + j;
            PUT(AT(o, 0) * factor[i * MR + r] + t[2 * r], o, 0);
            PUT(AT(o, VEC) * factor[i * MR + r] + t[2 * r + 1], o, VEC);
          }
        }
    }
    for (int r = 0; r < rows; r++) {
      __global STORAGE(OUT)* out = PTR(out, STORAGE(OUT)) + b * P.out.b + h * P.out.h + (row0 + r) * P.out.row;
      const ST scale = sum[r] == 0 ? (ST)(0) : 1 / sum[r];
      long x = 0;
      for (; x + VEC <= P.width; x += VEC) STORE(OUT, ACC, VEC, out, x, AT(O + r * wide, x) * scale);
      for (; x < P.width; x++) STORE(OUT, ACC, 1, out, x, O[r * wide + x] * scale);
      PTR(lse, ST)[bh * P.queries + row0 + r] = (top[r] == -INFINITY ? (ST)(0) : top[r]) + log(sum[r]);
    }
  }
  ENGINE_END();
}
