// The gradients of attention on CPUs, with the algorithm of FlashAttention-2 (Dao 2023): a work-item takes a head of
// keys and values, whose gradients it adds up in scratch memory. It goes through the heads of queries that share it,
// blocks of their queries, and blocks of keys, whose probabilities stay in its cache. It packs what it multiplies.
#define INB INA
#include "attention_blocks.h"
#include "common/join_lanes.h"

#define ROWS kBackwardRows
#define KEYS kBackwardKeys
#define EACH_PANEL(i, rows) for (long i = 0; i < (rows); i += MR)

// rows x k, with elements rs and ks apart.
typedef struct {
  __global const ST* at;
  long rs, ks, rows, k;
} matrix_t;

// As rows of A, or as columns of B; and as rows [0, k) of B, which has panels of `deep`.
static inline void pack_left(const matrix_t m, __global panel_t* to) {
  const long kp = PADDED_K(m.k);
  EACH_PANEL(i, m.rows)
  pack_a(m.at + i * m.rs, m.rs, m.ks, (int)min((long)MR, m.rows - i), m.k, kp, to + i * kp * PARTS);
}
static inline void pack_right(const matrix_t m, long deep, __global panel_t* to) {
  for (long j = 0; j < m.rows; j += NR)
    pack_b(m.at + j * m.rs, m.rs, m.ks, (int)min((long)NR, m.rows - j), m.k, PADDED_K(m.k), to + j * deep * PARTS);
}

// to (A.rows x n) += A * B, whose panels are `deep`. A is packed here.
static inline void add_product(const matrix_t A, __global panel_t* packed, __global const panel_t* b, long deep, long n,
                               __global ST* to) {
  const long kp = PADDED_K(A.k), wide = UP(n, NR);
  VT t[2 * MR + SPARE_VECTORS];
  pack_left(A, packed);
  for (long j = 0; j < n; j += NR) EACH_PANEL(i, A.rows) {
      micro_kernel(packed + i * kp * PARTS, b + j * deep * PARTS, kp, n - j, t);
      for (int r = 0; r < min((long)MR, A.rows - i); r++) {
        __global ST* o = to + (i + r) * wide + j;
        PUT(AT(o, 0) + t[2 * r], o, 0);
        PUT(AT(o, VEC) + t[2 * r + 1], o, VEC);
      }
    }
}

// Lines [0, n) of d numbers as floats, UP(d, NR) apart.
static inline matrix_t load_lines(__global const STORAGE(OUT)* from, const HeadStrides* s, long n, long d,
                                  __global ST* to) {
  const matrix_t m = {to, UP(d, NR), 1, n, d};
  for (long r = 0; r < n; r++, from += s->row, to += m.rs) {
    long x = 0;
    for (; x + VEC <= d; x += VEC) PUT(LOAD(OUT, ACC, VEC, from, x), to, x);
    for (; x < d; x++) to[x] = LOAD(OUT, ACC, 1, from, x);
  }
  return m;
}
static inline matrix_t transposed(const matrix_t m) {
  const matrix_t t = {m.at, m.ks, m.rs, m.k, m.rows};
  return t;
}

static inline ST dot_product(__global const STORAGE(OUT)* a, __global const ST* b, long n) {
  VT sum = (VT)(0);
  long x = 0;
  for (; x + VEC <= n; x += VEC) sum += LOAD(OUT, ACC, VEC, a, x) * AT(b, x);
  ST rest = sum_lanes(sum);
  for (; x < n; x++) rest += LOAD(OUT, ACC, 1, a, x) * b[x];
  return rest;
}

// 0 from lane n on.
ALWAYS_INLINE VT first_lanes(VT x, long n) {
  typedef VTYPE(i32, VEC) places;
  return n >= VEC ? x : (places)LANE_NUMBERS(VEC) < (places)((int)n) ? x : (VT)(0);
}

#ifdef BIAS
ALWAYS_INLINE VT load_bias(__global const STORAGE(BIAS)* p, long step, long n) {
  if (step == 1 && n >= VEC) return LOAD(BIAS, ACC, VEC, p, 0);
  lanes_t r;
  r.v = (VT)(0);
  for (int k = 0; k < min(n, (long)VEC); k++) r.s[k] = LOAD(BIAS, ACC, 1, p, k * step);
  return r.v;
}
#endif

// A block of scores: `rows` queries from q0 on, n keys from k0 on.
typedef struct {
  __global ST *p, *ds;  // probabilities, and the gradients of the scores
  __global const ST* lse;
  const ST* delta;
  long q0, rows;
  IF_MODIFIED(long b, h; __global const uchar* seen;)
  long k0, n;
#ifdef BIAS
  __global const STORAGE(BIAS)* bias;  // of query q0
#endif
} block_t;

// Whether a query of the tile of row i and column j may see one of its keys.
static inline int is_seen(const FlashParams* P, const block_t* B, long i, long j) {
  const long q = B->q0 + i, k = B->k0 + j;
  IF_MODIFIED(if (!any_seen(B->seen, P, q, min(q + MR, B->q0 + B->rows), k, min(k + NR, B->k0 + B->n))) return 0;)
  return !P->causal || k < q + MR;
}
// Writes the tile of row i and column j from its scores and the gradients of its probabilities.
static inline void store_scores(const FlashParams* P, const block_t* B, const VT* score, const VT* grad, long i,
                                long j CAPTURED) {
  for (long r = i; r < min(i + MR, B->rows); r++) {
    const ST shift = B->lse[r] == -INFINITY ? INFINITY : B->lse[r];
    IF_MODIFIED(__global const uchar* blocks_seen = B->seen + (B->q0 + r) / P->q_block * P->seen_q;)
    for (int side = 0; side < 2; side++) {
      const long at = j + side * VEC, seen = (P->causal ? min(B->n, B->q0 + r + 1 - B->k0) : B->n) - at;
      VT p = (VT)(0), ds = (VT)(0);
      if (seen > 0) {
        VT x = score[2 * (r - i) + side] * P->scale;
#ifdef BIAS
        x += load_bias(B->bias + r * P->bias_q + (B->k0 + at) * P->bias_k, P->bias_k, seen);
#endif
#ifdef MODIFIED
        const int lanes = (int)min((long)VEC, seen), state = blocks_seen[(B->k0 + at) / P->k_block];
        const VT raw = x;
        x = modify(x, state, B->b, B->h, B->q0 + r, B->k0 + at, lanes GIVEN);
#endif
        p = first_lanes(EXP_BELOW(x - shift), seen);
        ds = first_lanes(p * (grad[2 * (r - i) + side] - B->delta[r]), seen);
        IF_MODIFIED(ds = p == 0 ? 0 : score_grad(raw, ds, B->b, B->h, B->q0 + r, B->k0 + at, lanes GIVEN);)
      }
      PUT(p, B->p, r * KEYS + at);
      PUT(ds, B->ds, r * KEYS + at);
    }
  }
}

#define QKV BUF(q), BUF(k), BUF(v)
#define RESULTS BUF(out), BUF(grad), BUF(lse)
#define HEAD_OF(name, batch, head) (PTR(name, STORAGE(OUT)) + (batch) * P.name.b + (head) * P.name.h)
#define TAKE(type, name, size)                \
  __global type* name = (__global type*)next; \
  next += UP(size, 64);

__kernel void attention_blocks_backward(BUF(dq), BUF(dk), BUF(dv), BUF(scratch), QKV, RESULTS,
                                        BIAS_PARAM IF_MODIFIED(BUF(grad_lse), ) MODIFIED_PARAMS const FlashParams P) {
  const long deep = PADDED_K(P.depth), wide_deep = PADDED_K(P.width), key_deep = PADDED_K(P.keys);
  const long depth = UP(P.depth, NR), width = UP(P.width, NR), sharing = P.heads / P.kv_heads;
  __global ST* next = PTR(scratch, ST) + get_global_id(0) * P.scratch;
  TAKE(ST, S, ROWS * KEYS)
  TAKE(ST, DS, ROWS * KEYS)
  TAKE(ST, lines, KEYS * max(depth, width))
  TAKE(ST, DQ, ROWS * depth)
  TAKE(ST, DK, P.keys * depth)
  TAKE(ST, DV, P.keys * width)
  TAKE(panel_t, packed, (ROWS + 32) * (KEYS + 32))
  TAKE(panel_t, q_left, ROWS * deep)
  TAKE(panel_t, g_left, ROWS * wide_deep)
  TAKE(panel_t, q_rows, ROWS * depth)
  TAKE(panel_t, g_rows, ROWS * width)
  TAKE(panel_t, k_columns, UP(P.keys, NR) * deep)
  TAKE(panel_t, v_columns, UP(P.keys, NR) * wide_deep)
  TAKE(panel_t, k_rows, key_deep * depth)
  VT s[2 * MR + SPARE_VECTORS], g[2 * MR + SPARE_VECTORS];
  ST delta[ROWS];
  ENGINE_BEGIN();
  for (long w = get_global_id(0); w < P.batches * P.kv_heads; w += get_global_size(0)) {
    const long b = w / P.kv_heads, kv = w % P.kv_heads;
    clear(DK, P.keys * depth);
    clear(DV, P.keys * width);
    for (long k0 = 0; k0 < P.keys; k0 += KEYS) {
      const long n = min((long)KEYS, P.keys - k0);
      const matrix_t k = load_lines(HEAD_OF(k, b, kv) + k0 * P.k.row, &P.k, n, P.depth, lines);
      pack_right(k, deep, k_columns + k0 * deep * PARTS);
      pack_right(transposed(k), key_deep, k_rows + k0 * NR * PARTS);
      const matrix_t v = load_lines(HEAD_OF(v, b, kv) + k0 * P.v.row, &P.v, n, P.width, lines);
      pack_right(v, wide_deep, v_columns + k0 * wide_deep * PARTS);
    }
    for (long x = 0; x < sharing * UP(P.queries, ROWS); x += ROWS) {
      const long h = kv * sharing + x / UP(P.queries, ROWS), q0 = x % UP(P.queries, ROWS);
      const long rows = min((long)ROWS, P.queries - q0), limit = P.causal ? min(P.keys, q0 + rows) : P.keys;
      const matrix_t q = load_lines(HEAD_OF(q, b, h) + q0 * P.q.row, &P.q, rows, P.depth, lines);
      pack_left(q, q_left);
      pack_right(transposed(q), ROWS, q_rows);
      const matrix_t grad = load_lines(HEAD_OF(grad, b, h) + q0 * P.grad.row, &P.grad, rows, P.width, lines);
      pack_left(grad, g_left);
      pack_right(transposed(grad), ROWS, g_rows);
      for (long r = 0; r < rows; r++)
        delta[r] = dot_product(HEAD_OF(out, b, h) + (q0 + r) * P.out.row, grad.at + r * grad.rs, P.width)
            IF_MODIFIED(-PTR(grad_lse, const ST)[(b * P.heads + h) * P.queries + q0 + r]);
      clear(DQ, ROWS * depth);
      block_t B = {S,     DS, PTR(lse, const ST) + (b * P.heads + h) * P.queries + q0,
                   delta, q0, rows IF_MODIFIED(, b, h, SEEN_ROW(b, h))};
#ifdef BIAS
      B.bias = BIAS_ROW(b, h, q0, 0);
#endif
      for (long k0 = 0; k0 < limit; k0 += KEYS) {
        const long n = min((long)KEYS, limit - k0);
        IF_MODIFIED(if (!any_seen(B.seen, &P, q0, q0 + rows, k0, k0 + n)) continue;)
        B.k0 = k0;
        B.n = n;
        for (long j = 0; j < n; j += NR) EACH_PANEL(i, rows) {
            if (is_seen(&P, &B, i, j)) {
              micro_kernel(q_left + i * deep * PARTS, k_columns + (k0 + j) * deep * PARTS, deep, NR, s);
              micro_kernel(g_left + i * wide_deep * PARTS, v_columns + (k0 + j) * wide_deep * PARTS, wide_deep, NR, g);
            }
            store_scores(&P, &B, s, g, i, j GIVEN);
          }
        const matrix_t pt = {S, 1, KEYS, n, rows}, ds = {DS, KEYS, 1, rows, n};
        add_product(pt, packed, g_rows, ROWS, P.width, DV + k0 * width);
        add_product(transposed(ds), packed, q_rows, ROWS, P.depth, DK + k0 * depth);
        add_product(ds, packed, k_rows + k0 * NR * PARTS, key_deep, P.depth, DQ);
      }
      for (long r = 0; r < rows; r++)
        store_scaled(HEAD_OF(dq, b, h) + (q0 + r) * P.dq.row, DQ + r * depth, P.depth, P.scale);
    }
    for (long r = 0; r < P.keys; r++) {
      store_scaled(HEAD_OF(dk, b, kv) + r * P.dk.row, DK + r * depth, P.depth, P.scale);
      store_scaled(HEAD_OF(dv, b, kv) + r * P.dv.row, DV + r * width, P.width, 1);
    }
  }
  ENGINE_END();
}
