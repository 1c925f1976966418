// Attention for CPUs, with the algorithm of FlashAttention-2 (Dao 2023): a work-item takes QROWS queries of a head at a
// time and goes through blocks of keys, whose scores and probabilities stay in its cache. The operands are queries as
// A, keys and values as B.
#include "attention_blocks.h"
#include "common/join_lanes.h"

#define PANELS ((kAttentionRows + MR - 1) / MR)
#define QROWS (PANELS * MR)
JOIN_LANES(max_lanes, ACC, fmax)

// Scores of a row become exponentials; those from n on are 0. Returns what earlier sums are multiplied by.
static inline ST exponentials(__global ST* s, long n, long padded, ST* top, ST* sum) {
  const long end = UP(n, VEC);
  VT m = (VT)(*top), t = (VT)(0);
  for (long i = n; i < end; i++) s[i] = -INFINITY;
  ALONG_ROW(i, end) m = fmax(m, AT(s, i));
  const ST most = max_lanes(m), shift = most == -INFINITY ? (ST)(0) : most;
  ALONG_ROW(i, end) {
    const VT e = EXP_BELOW(AT(s, i) - shift);
    PUT(e, s, i);
    t += e;
  }
  clear(s + end, padded - end);
  const ST factor = *top == -INFINITY ? (ST)(0) : exp(*top - shift);
  *top = most;
  *sum = *sum * factor + sum_lanes(t);
  return factor;
}

__kernel void attention_blocks(BUF(out), BUF(lse), BUF(scratch), BUF(q), BUF(k), BUF(v),
                               BIAS_PARAM MODIFIED_PARAMS const FlashParams P) {
  const long deep = PADDED_K(P.depth), key_deep = PADDED_K(P.keys), wide = UP(P.width, NR);
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
    clear(O, QROWS * wide);
    IF_MODIFIED(__global const uchar* seen = SEEN_ROW(b, h);)
    for (long k0 = 0; k0 < limit; k0 += kAttentionKeys) {
      const long keys = min((long)kAttentionKeys, limit - k0), padded = (keys + 31) & ~31L, key_depth = PADDED_K(keys);
      IF_MODIFIED(if (!any_seen(seen, &P, row0, row0 + rows, k0, k0 + keys)) continue;)
      for (long j = 0; j < keys; j += NR) {
        IF_MODIFIED(if (!any_seen(seen, &P, row0, row0 + rows, k0 + j, min(k0 + j + NR, k0 + keys))) continue;)
        for (int i = 0; i < panels; i++) {
          micro_kernel(Q + i * deep * MR * PARTS, K + (k0 + j) * deep * PARTS, deep, NR, t);
          __global ST* to = S + i * MR * kAttentionKeys + j;
          for (int r = 0; r < MR; r++, to += kAttentionKeys) {
            PUT(t[2 * r] * P.scale, to, 0);
            PUT(t[2 * r + 1] * P.scale, to, VEC);
          }
        }
      }
      for (int r = 0; r < rows; r++) {
        __global ST* s = S + r * kAttentionKeys;
        const long n = P.causal ? clamp(row0 + r + 1 - k0, 0L, keys) : keys;
#ifdef BIAS
        __global const STORAGE(BIAS)* add = BIAS_ROW(b, h, row0 + r, k0);
        long x = 0;
        for (; P.bias_k == 1 && x + VEC <= n; x += VEC) PUT(AT(s, x) + LOAD(BIAS, ACC, VEC, add, x), s, x);
        for (; x < n; x++) s[x] += LOAD(BIAS, ACC, 1, add, x * P.bias_k);
#endif
#ifdef MODIFIED
        ALONG_ROW(x, n) {
          const int state = seen[(row0 + r) / P.q_block * P.seen_q + (k0 + x) / P.k_block];
          PUT(modify(AT(s, x), state, b, h, row0 + r, k0 + x, (int)min((long)VEC, n - x) GIVEN), s, x);
        }
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
      store_scaled(out, O + r * wide, P.width, sum[r] == 0 ? (ST)(0) : 1 / sum[r]);
      PTR(lse, ST)[bh * P.queries + row0 + r] = (top[r] == -INFINITY ? (ST)(0) : top[r]) + log(sum[r]);
    }
  }
  ENGINE_END();
}
