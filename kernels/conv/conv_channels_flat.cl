// Convolutions of channels_last images with few channels per group, in the source and in the result, on a CPU. A vector
// lies along a row of the source: over several groups and, if a pixel has few channels, over several pixels. The
// channels of a group are adjacent lanes, which are added last. See conv_channels.h.
// -D: also KW (taps along a row), STEP and APART (distance of a row's pixels, and of its taps, in the source), NCO
// (output channels per group), CI (source channels per group), GROUPS and PIXELS (the groups of a pixel and the pixels
// that a vector holds; if it holds more than one pixel, STEP is 1), SPACE (elements of the table of the weights:
// [tap][output channel][VEC]), RING (elements for copies of the source's rows, with zeros around them, if GROUPS is all
// groups; 0: the source is read where it is).
#include "conv/conv_channels.h"

#if RING
#define POINT(P) (GROUPS * CI)
#else
#define POINT(P) (P)->point
#endif
#define LANES (PIXELS * GROUPS * CI)
#define RESULTS (PIXELS * GROUPS * NCO)
#define RESULT_VECTORS ((RESULTS + VEC - 1) / VEC)

typedef struct {
  const ConvChannelsParams* P;
  long group;  // the first one of a vector
  GridRow row;
#if RING
  ST ring[RING];
  long held[CONV_MOST_TAP_ROWS];  // the row that lies in each slot
  const ST* from[CONV_MOST_TAP_ROWS];
#else
  __global const STORAGE(IO)* from[CONV_MOST_TAP_ROWS];
#endif
} Source;

#if RING
// Of a vload16, PoCL makes loads of four elements if neighbouring vectors overlap.
typedef struct __attribute__((packed)) {
  VT v;
} unaligned_t;

// A row has P->pitch elements, of which P->front precede the source's.
ALWAYS_INLINE void copy_row(__global const STORAGE(IO)* x, ST* to, const ConvChannelsParams* P) {
  const long n = min(P->in_w * P->point, P->pitch - P->front);
  for (long i = 0; i < P->front; i += VEC) CAT(VSTORE_, VEC)((VT)(0), 0, to + i);
  to += P->front;
  const long rest = P->pitch - P->front - VEC;
  for (long i = n / VEC * VEC; i < rest; i += VEC) CAT(VSTORE_, VEC)((VT)(0), 0, to + i);
  CAT(VSTORE_, VEC)((VT)(0), 0, to + rest);
  if (n < VEC) {
    for (long i = 0; i < n; i++) to[i] = LOAD(IO, ACC, 1, x, i);
    return;
  }
  for (long i = 0; i < n; i += VEC) {
    const long at = min(i, n - VEC);  // the last vector overlaps the previous one
    CAT(VSTORE_, VEC)(LOAD(IO, ACC, VEC, x, at), 0, to + at);
  }
}
#endif

ALWAYS_INLINE void open_source(Source* S, const ConvChannelsParams* P) {
  S->P = P;
#if RING
  for (long i = 0; i < P->slots * max(P->taps_z, 1L); i++) S->held[i] = -1;
#endif
}

// Finds the rows of the source for a row of the grid.
ALWAYS_INLINE void find_source(Source* S, __global const STORAGE(IO)* x, long row) {
  const ConvChannelsParams* P = S->P;
  find_row(P, row, &S->row);
  for (int r = 0; r < S->row.count; r++) {
    const long at = S->row.from[r];
#if RING
    const long slot = S->row.slot[r];
    ST* to = S->ring + slot * P->pitch;
    if (S->held[slot] != at) copy_row(x + at, to, P);
    S->held[slot] = at;
    S->from[r] = to + P->front;
#else
    S->from[r] = x + at;
#endif
  }
}

// Whether all vectors of MR * PIXELS pixels lie in the row, for all taps; `start` is the first tap's element.
static inline bool lies_inside(const ConvChannelsParams* P, long start) {
#if RING
  return true;
#else
  const long last = (KW - 1) * APART, reach = (MR - 1) * PIXELS * STEP;
  return start + min(last, 0L) * P->point >= 0 &&
         start + (reach + max(last, 0L)) * P->point + VEC <= P->in_w * P->point;
#endif
}

// Loads the vector at element e of a row of the source; missing pixels are zeros.
ALWAYS_INLINE VT load_source(const Source* S, int r, long e, bool inside) {
#if RING
  return ((const unaligned_t*)(S->from[r] + e))->v;
#else
  const long end = S->P->in_w * S->P->point;
  if (inside || (e >= 0 && e + VEC <= end)) return LOAD(IO, ACC, VEC, S->from[r], e);
  lanes_t t;
  t.v = (VT)(0);
  for (long l = max(-e, 0L); l < VEC && e + l < end; l++) t.s[l] = LOAD(IO, ACC, 1, S->from[r], e + l);
  return t.v;
#endif
}

static inline void write_table(__global const STORAGE(IO)* w, long group, const ConvChannelsParams* P, ST* table) {
  w += group * P->w_group;
  for (long z = 0; z < P->taps_z; z++)
    for (long y = 0; y < P->taps_y; y++)
      for (long x = 0; x < KW; x++)
        for (int co = 0; co < NCO; co++, table += VEC) {
          __global const STORAGE(IO)* from = w + z * P->w_z + y * P->w_y + x * P->w_x + co * P->w_out;
          for (int g = 0; g < GROUPS; g++)
            for (int c = 0; c < CI; c++) {
              const ST v = LOAD(IO, ACC, 1, from, g * P->w_group + c * P->w_in);
              for (int p = 0; p < PIXELS; p++) table[(p * GROUPS + g) * CI + c] = v;
            }
          for (int l = LANES; l < VEC; l++) table[l] = 0;
        }
}

// Two vectors of lanes: a0 b0 a1 b1 …
ALWAYS_INLINE void interleave(VT a, VT b, VT* result) {
  lanes_t x, y, lo, hi;
  x.v = a;
  y.v = b;
  UNROLL for (int l = 0; l < VEC; l++) {
    lo.s[l] = l % 2 ? y.s[l / 2] : x.s[l / 2];
    hi.s[l] = l % 2 ? y.s[(VEC + l) / 2] : x.s[(VEC + l) / 2];
  }
  result[0] = lo.v;
  result[1] = hi.v;
}

// Adds the lanes of each group; the sums are the first lanes of the result.
ALWAYS_INLINE VT add_groups(VT v) {
  lanes_t s;
  s.v = v;
#if CI == 2 || CI == 4 || CI == 8
  UNROLL for (int n = CI; n > 1; n /= 2) {
    lanes_t even, odd;
    UNROLL for (int l = 0; l < VEC; l++) {
      even.s[l] = s.s[2 * l % VEC];
      odd.s[l] = s.s[(2 * l + 1) % VEC];
    }
    s.v = even.v + odd.v;
  }
  return s.v;
#else
  lanes_t total;
  total.v = (VT)(0);
  UNROLL for (int c = 0; c < CI; c++) {
    lanes_t t;
    UNROLL for (int l = 0; l < VEC; l++)
      t.s[l] = s.s[min(l * CI + c, VEC - 1)];
    total.v += t.v;
  }
  return total.v;
#endif
}

// Adds the lanes of each group, and puts the results into the order of memory: [pixel][group][output channel].
ALWAYS_INLINE void add_lanes(const VT* sum, const VT* bias, VT* result) {
  VT s[NCO], r[4];
  UNROLL for (int co = 0; co < NCO; co++)
    s[co] = CI == 1 ? sum[co] : add_groups(sum[co]);
#if NCO == 1
  r[0] = s[0];
#elif NCO == 2
  interleave(s[0], s[1], r);
#elif NCO == 4
  VT even[2], odd[2];
  interleave(s[0], s[2], even);
  interleave(s[1], s[3], odd);
  interleave(even[0], odd[0], r);
  interleave(even[1], odd[1], r + 2);
#else
  lanes_t t[3];
  UNROLL for (int co = 0; co < 3; co++)
    t[co].v = s[co];
  UNROLL for (int j = 0; j < 3; j++) {
    lanes_t line;
    UNROLL for (int l = 0; l < VEC; l++)
      line.s[l] = t[(j * VEC + l) % 3].s[(j * VEC + l) / 3];
    r[j] = line.v;
  }
#endif
  UNROLL for (int j = 0; j < RESULT_VECTORS; j++)
    result[j] = r[j] + bias[j];
}

// Stores the results of a vector; `count` pixels are left in the row.
ALWAYS_INLINE void store_results(__global STORAGE(IO)* to, const VT* result, long count, const ConvChannelsParams* P) {
  const bool adjacent = PIXELS == 1 || P->out_x == GROUPS * NCO;
  if (adjacent && count >= PIXELS) {
    // Lanes beyond the results are stored again by the next vector of the row.
    const bool spare =
        GROUPS == P->groups && P->out_x == GROUPS * NCO && count * (GROUPS * NCO) >= RESULT_VECTORS * VEC;
    UNROLL for (int j = 0; j < RESULT_VECTORS; j++) {
      if ((j + 1) * VEC <= RESULTS || spare) {
        STORE(IO, ACC, VEC, to, j * VEC, result[j]);
      } else {
        lanes_t t;
        t.v = result[j];
        for (int l = 0; l < RESULTS - j * VEC; l++) STORE(IO, ACC, 1, to, j * VEC + l, t.s[l]);
      }
    }
    return;
  }
  ST line[RESULT_VECTORS * VEC];
  UNROLL for (int j = 0; j < RESULT_VECTORS; j++)
    CAT(VSTORE_, VEC)(result[j], j, line);
  for (int p = 0; p < PIXELS && p < count; p++)
    for (int i = 0; i < GROUPS * NCO; i++) STORE(IO, ACC, 1, to, p * P->out_x + i, line[p * GROUPS * NCO + i]);
}

ALWAYS_INLINE void add_rows(const Source* S, long start, bool inside, const ST* table, VT (*sum)[NCO]) {
  const ConvChannelsParams* P = S->P;
  const long next = PIXELS * STEP * POINT(P), apart = APART * POINT(P);
  for (int r = 0; r < S->row.count; r++) {
    const ST* weights = table + S->row.tap[r] * (KW * NCO * VEC);
    UNROLL for (int k = 0; k < KW; k++, weights += NCO * VEC) {
      VT weight[NCO];
      UNROLL for (int co = 0; co < NCO; co++)
        weight[co] = CAT(VLOAD_, VEC)(co, weights);
      UNROLL for (int i = 0; i < MR; i++) {
        const VT v = load_source(S, r, start + k * apart + i * next, inside);
        UNROLL for (int co = 0; co < NCO; co++)
          sum[i][co] = fma(v, weight[co], sum[i][co]);
      }
    }
  }
}

__kernel void conv_flat(BUF(x), BUF(w), BUF(bias), BUF(out), const ConvChannelsParams P) {
  const long begin = get_global_id(0) * P.rows_per_item, end = min(begin + P.rows_per_item, P.rows);
  ST table[SPACE];
  Source S;
  open_source(&S, &P);
  for (long first_group = 0; first_group < P.groups; first_group += GROUPS) {
    S.group = min(first_group, P.groups - GROUPS);  // the last vector overlaps the previous one
    write_table(PTR(w, const STORAGE(IO)), S.group, &P, table);
    lanes_t start_at[RESULT_VECTORS];
    VT bias[RESULT_VECTORS];
    for (int i = 0; i < RESULT_VECTORS * VEC; i++)
      start_at[i / VEC].s[i % VEC] = bias_buf ? PTR(bias, const ST)[S.group * NCO + i % (GROUPS * NCO)] : 0;
    UNROLL for (int j = 0; j < RESULT_VECTORS; j++)
      bias[j] = start_at[j].v;
    for (long row = begin; row < end; row++) {
      find_source(&S, PTR(x, const STORAGE(IO)), row);
      for (long at = 0; at < P.width; at += MR * PIXELS) {
        const long start = (at * STEP + P.first_x) * POINT(&P) + S.group * CI;
        VT sum[MR][NCO];
        UNROLL for (int i = 0; i < MR; i++) UNROLL
          for (int co = 0; co < NCO; co++) sum[i][co] = (VT)(0);
        if (lies_inside(&P, start))
          add_rows(&S, start, true, table, sum);
        else
          add_rows(&S, start, false, table, sum);
        UNROLL for (int i = 0; i < MR; i++) {
          const long pixel = at + i * PIXELS;
          if (pixel >= P.width) break;
          VT result[RESULT_VECTORS];
          add_lanes(sum[i], bias, result);
          store_results(PTR(out, STORAGE(IO)) + S.row.at + pixel * P.out_x + S.group * NCO, result, P.width - pixel,
                        &P);
        }
      }
    }
  }
}

// --- the gradient of the weight -------------------------------------------------------------------------------------

// Spreads the gradients of each output channel over the lanes of its group, for `count` pixels; others are zeros.
ALWAYS_INLINE void spread_gradients(__global const STORAGE(IO)* dy, long count, const ConvChannelsParams* P, VT* g) {
  if ((RESULTS % VEC == 0 || (GROUPS == P->groups && count * (GROUPS * NCO) >= RESULT_VECTORS * VEC)) &&
      count >= PIXELS) {
    lanes_t t[RESULT_VECTORS];
    UNROLL for (int j = 0; j < RESULT_VECTORS; j++)
      t[j].v = LOAD(IO, ACC, VEC, dy, j * VEC);
    UNROLL for (int co = 0; co < NCO; co++) {
      lanes_t s;
      UNROLL for (int l = 0; l < VEC; l++) {
        const int at = min(l, LANES - 1) / CI * NCO + co;
        s.s[l] = t[at / VEC].s[at % VEC];
      }
      g[co] = s.v;
    }
    return;
  }
  ST line[NCO][VEC];
  for (int i = 0; i < NCO * VEC; i++) line[i / VEC][i % VEC] = 0;
  for (int p = 0; p < PIXELS && p < count; p++)
    for (int i = 0; i < GROUPS; i++)
      for (int co = 0; co < NCO; co++) {
        const ST v = LOAD(IO, ACC, 1, dy, p * P->out_x + i * NCO + co);
        for (int c = 0; c < CI; c++) line[co][(p * GROUPS + i) * CI + c] = v;
      }
  UNROLL for (int co = 0; co < NCO; co++)
    g[co] = CAT(VLOAD_, VEC)(0, line[co]);
}

// table[tap][co] += the source at each tap * the gradients of MR vectors, which begin with pixel `at` of the row. Lanes
// of pixels beyond the row are zeros in both factors, since either may be infinite.
ALWAYS_INLINE void add_products(const Source* S, __global const STORAGE(IO)* dy, long at, bool inside, ST* table) {
  const ConvChannelsParams* P = S->P;
  const long next = PIXELS * STEP * POINT(P), apart = APART * POINT(P);
  const long start = (at * STEP + P->first_x) * POINT(P) + S->group * CI;
  VT g[MR][NCO], lanes[MR];
  UNROLL for (int i = 0; i < MR; i++) {
    const long count = max(P->width - at - i * PIXELS, 0L);
    lanes[i] = (VT)((ST)(min(count, (long)PIXELS) * (GROUPS * CI)));
    spread_gradients(dy + i * PIXELS * P->out_x, count, P, g[i]);
  }
  for (int r = 0; r < S->row.count; r++) {
    ST* to = table + S->row.tap[r] * (KW * NCO * VEC);
    UNROLL for (int k = 0; k < KW; k++, to += NCO * VEC) {
      VT part[NCO];
      UNROLL for (int co = 0; co < NCO; co++)
        part[co] = CAT(VLOAD_, VEC)(co, to);
      UNROLL for (int i = 0; i < MR; i++) {
        VT v = load_source(S, r, start + k * apart + i * next, inside);
        if (!inside) v = (VT)LANE_NUMBERS(VEC) < lanes[i] ? v : (VT)(0);
        UNROLL for (int co = 0; co < NCO; co++)
          part[co] = fma(v, g[i][co], part[co]);
      }
      UNROLL for (int co = 0; co < NCO; co++)
        CAT(VSTORE_, VEC)(part[co], co, to);
    }
  }
}

// Each work-item sums its rows, to part[item] if there are several, which has the order of the weight:
// [group][co][tap][ci].
__kernel void conv_flat_weight(BUF(x), BUF(dy), BUF(part), BUF(out), const ConvChannelsParams P) {
  const long begin = get_global_id(0) * P.rows_per_item, end = min(begin + P.rows_per_item, P.rows);
  const long taps = P.taps_z * P.taps_y * KW;
  ST table[SPACE];
  Source S;
  open_source(&S, &P);
  for (long first_group = 0; first_group < P.groups; first_group += GROUPS) {
    S.group = min(first_group, P.groups - GROUPS);
    for (int i = 0; i < SPACE; i += VEC) CAT(VSTORE_, VEC)((VT)(0), 0, table + i);
    for (long row = begin; row < end; row++) {
      find_source(&S, PTR(x, const STORAGE(IO)), row);
      for (long at = 0; at < P.width; at += MR * PIXELS) {
        __global const STORAGE(IO)* dy = PTR(dy, const STORAGE(IO)) + S.row.at + at * P.out_x + S.group * NCO;
        const long start = (at * STEP + P.first_x) * POINT(&P) + S.group * CI;
        if (at + MR * PIXELS <= P.width && lies_inside(&P, start))
          add_products(&S, dy, at, true, table);
        else
          add_products(&S, dy, at, false, table);
      }
    }
    const long to = (get_global_id(0) * P.groups + S.group) * (NCO * CI) * taps;
    for (long t = 0; t < taps; t++)
      for (int co = 0; co < NCO; co++)
        for (int g = 0; g < GROUPS; g++)
          for (int c = 0; c < CI; c++) {
            ST total = 0;
            for (int p = 0; p < PIXELS; p++) total += table[(t * NCO + co) * VEC + (p * GROUPS + g) * CI + c];
            const long i = to + ((g * NCO + co) * taps + t) * CI + c;
            if (get_global_size(0) > 1)
              PTR(part, ST)[i] = total;
            else
              STORE(IO, ACC, 1, PTR(out, STORAGE(IO)), i, total);
          }
  }
}
