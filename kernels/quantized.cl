// Products of a few rows with quantised weights. Each weight is read from memory once, and the weight's rows are
// contiguous.
// -D: IN (storage tag of x and of scales), OUT (of the result), ACC, VEC, GROUP (work-items per group), ROWS and COLS
// (rows of x and of the weight at once). A CPU's work-item keeps sums in vectors over k. A GPU's work-group divides k
// among its work-items.
#define WHOLE_LOADS  // see common/builtins.h
#include "args/quantized.h"
#include "common/join_group.h"
#include "common/join_lanes.h"

#define LANE (GROUP == 1 ? 0L : (long)get_local_id(0))
#define GROUP_SUM(x) (GROUP == 1 ? (x) : group_sum(x, scratch))
GROUP_REDUCE(group_sum, ST, GROUP, PLUS)

// PoCL calls a function to convert each element.
#if VEC > 1 && defined(HAVE_CPU_BUILTINS) && __has_builtin(__builtin_convertvector)
#define TO_ACC(v) __builtin_convertvector(v, VT)
#else
#define TO_ACC(v) CONVERT(ACC, VEC, v)
#endif

// If x is not of the compute type, or the weight is int4, a CPU's work-item first writes x into a panel of its own, in
// the compute type and in the order in which it is needed. That costs little, since a work-item has many rows of the
// weight.
#define ROW_OF_X(i) (PTR(x, const STORAGE(IN)) + (i) * P.k)
#define PANEL(i) (PTR(panels, ST) + ((long)get_group_id(0) * P.m + (i)) * P.x_row)
#define X_ROW(r) ROW_OF_X(min(row + (r), P.m - 1))
#define PANEL_ROW(r) PANEL(min(row + (r), P.m - 1))
#define both_f32_f32 1
#if defined(DEVICE_CPU) && !CAT3(both_, IN, CAT(_, ACC))
#define HAS_PANELS 1
#define LOAD_X(V, r, i) LOAD(ACC, ACC, V, PANEL_ROW(r), i)
#else
#define HAS_PANELS 0
#define LOAD_X(V, r, i) LOAD(IN, ACC, V, X_ROW(r), i)
#endif

// The weight's row s of this step; one beyond the last repeats it, as X_ROW does.
#define COLUMN(s) min(col + (s), P.n - 1)
// The rows of the next steps follow in memory. Without this, the processor meets each row as a new stream.
#define FETCH_AHEAD(p) FETCH_LINE((__global const char*)(p) + 4096)
#define EACH_ROW for (int r = 0; r < ROWS; r++)
#define EACH_COLUMN for (int s = 0; s < COLS; s++)
#define CLEAR(t) UNROLL EACH_ROW UNROLL EACH_COLUMN t[r][s] = (VT)(0);
#define EACH_TILE                                                                     \
  const long first_ = (long)get_group_id(0) * P.per, last = min(first_ + P.per, P.n); \
  for (long col = first_; col < last; col += COLS)                                    \
    for (long row = 0; row < P.m; row += ROWS)
#define STORE_SUM(sum)                              \
  if (LANE == 0 && row + r < P.m && col + s < last) \
    STORE(OUT, ACC, 1, PTR(out, STORAGE(OUT)), (row + r) * P.n + col + s, sum);

// The weight is int8. Each of its rows has a factor, unless `scales` is null.
__kernel void dots_int8(BUF(out), BUF(x), BUF(w), BUF(scales), BUF(panels), const QuantizedParams P) {
  __local ST scratch[GROUP];
  __global const char* weight = PTR(w, const char);
  for (long r = 0; HAS_PANELS && r < P.m; r++) {
    long i = 0;
    for (; i + VEC <= P.k; i += VEC) STORE(ACC, ACC, VEC, PANEL(r), i, LOAD(IN, ACC, VEC, ROW_OF_X(r), i));
    for (; i < P.k; i++) PANEL(r)[i] = LOAD(IN, ACC, 1, ROW_OF_X(r), i);
  }
  EACH_TILE {
    VT t[ROWS][COLS];
    CLEAR(t)
    long i = LANE * VEC;
    for (; i + VEC <= P.k; i += GROUP * VEC) {
      if (GROUP == 1 && i % 64 == 0) UNROLL
        EACH_COLUMN FETCH_AHEAD(weight + COLUMN(s) * P.k + i);
      VT y[COLS];
      UNROLL EACH_COLUMN y[s] = TO_ACC(CAT(VLOAD_, VEC)(0, weight + COLUMN(s) * P.k + i));
      UNROLL EACH_ROW {
        const VT v = LOAD_X(VEC, r, i);
        UNROLL EACH_COLUMN t[r][s] += v * y[s];
      }
    }
    EACH_ROW EACH_COLUMN {
      ST sum = sum_lanes(t[r][s]);
      for (long j = i; VEC > 1 && j < P.k; j++) sum += LOAD_X(1, r, j) * (ST)weight[COLUMN(s) * P.k + j];
      sum = GROUP_SUM(sum);
      if (scales_buf) sum *= LOAD(IN, ACC, 1, PTR(scales, const STORAGE(IN)), COLUMN(s));
      STORE_SUM(sum)
    }
  }
}

// An int4 weight has words of 8 numbers. Of each 32 numbers of a row, number 4 * j + i is number j of word i: so words
// side by side give numbers side by side.
#define NUMBER(words, j) ((words) >> 4 * (j) & 15)
// Scale and zero of group g of weight row `col`; number q stands for (q - 8) * scale + zero.
#define PAIR(g, col) (PTR(scales, const STORAGE(IN)) + 2 * ((g) * P.n + (col)))
#define SCALE_OF(pair) LOAD(IN, ACC, 1, pair, 0)
#define ZERO_OF(pair) LOAD(IN, ACC, 1, pair, 1)
// The product of a word, number i of a row of the weight, with its part of a row of x.
static inline float word_dot(uint word, __global const STORAGE(IN)* x, long i, float scale, float zero) {
  float sum = 0;
  x += i / 4 * 32 + i % 4;
  UNROLL for (int j = 0; j < 8; j++)
    sum += LOAD(IN, f32, 1, x, 4 * j) * (((float)(int)NUMBER(word, j) - 8) * scale + zero);
  return sum;
}

// The weight is int4, on a GPU: a work-item takes one word at a time.
__kernel void dots_int4_words(BUF(out), BUF(x), BUF(w), BUF(scales), BUF(panels), const QuantizedParams P) {
  __local ST scratch[GROUP];
  EACH_TILE {
    VT t[ROWS][COLS];
    CLEAR(t)
    for (long i = LANE; i < P.k / 8; i += GROUP) UNROLL
      EACH_COLUMN {
        __global const STORAGE(IN)* pair = PAIR(8 * i / P.group, COLUMN(s));
        const uint word = PTR(w, const uint)[COLUMN(s) * (P.k / 8) + i];
        UNROLL EACH_ROW t[r][s] += word_dot(word, X_ROW(r), i, SCALE_OF(pair), ZERO_OF(pair));
      }
    EACH_ROW EACH_COLUMN {
      const ST sum = GROUP_SUM(t[r][s]);
      STORE_SUM(sum)
    }
  }
}

// On a CPU, VEC words of a row make a step of 8 * VEC numbers. The numbers of a word are not moved to its lowest bits
// but for the last ones, which would be negative: number j comes as a multiple of 16^j, and the panel has x / 16^j.
// Both are exact, save for the last bits of an x below 1e-30.
#if VEC > 1
typedef VTYPE(i32, VEC) words_t;
#define IN_PLACE(words, j) ((j) == 7 ? (words) >> 28 & 15 : (words) & 15 << 4 * (j))
#define WEIGHT_OF(j) ((ST)1 / ((j) == 7 ? 1 : 1 << 4 * (j)))
#define FOURS_4(p) LOAD(IN, ACC, 4, p, 0)
#define FOURS_8(p) (VTYPE(ACC, 8))(FOURS_4(p), FOURS_4((p) + 32))
#define FOURS_16(p) (VTYPE(ACC, 16))(FOURS_8(p), FOURS_8((p) + 64))
// Scales and zeros of a step's rows of the weight.
#if COLS == 2
#define PAIRS 4
#elif COLS == 4
#define PAIRS 8
#else
#define PAIRS 16
#endif
typedef VTYPE(ACC, COLS) columns_t;
typedef union {
  VTYPE(ACC, PAIRS) v;
  ST s[PAIRS];
} pairs_t;
typedef union {
  columns_t v;
  ST s[COLS];
} sums_t;

// The row's panel, and the sums of x over each group: these are for the part that does not depend on the numbers.
static inline void fill_panel(__global ST* panel, __global const STORAGE(IN)* x, const QuantizedParams* P) {
  for (long i = 0; i < P->k; i += 8 * VEC) UNROLL
    for (int j = 0; j < 8; j++)
      STORE(ACC, ACC, VEC, panel, i + j * VEC, CAT(FOURS_, VEC)(x + i + 4 * j) * WEIGHT_OF(j));
  for (long g = 0; g < P->k / P->group; g++) {
    VT t = (VT)(0);
    for (long i = 0; i < P->group; i += VEC) t += LOAD(IN, ACC, VEC, x, g * P->group + i);
    panel[P->k + g] = sum_lanes(t);
  }
}

// The same product, in which a number that is not finite meets the weight itself.
static inline ST exact_dot(__global const uint* words, __global const STORAGE(IN)* x, __global const STORAGE(IN)* pairs,
                           const QuantizedParams* P) {
  ST sum = 0;
  for (long i = 0; i < P->k / 8; i++) {
    __global const STORAGE(IN)* pair = pairs + 2 * (8 * i / P->group) * P->n;
    sum += (ST)word_dot(words[i], x, i, SCALE_OF(pair), ZERO_OF(pair));
  }
  return sum;
}

// The weight is int4. COLS divides n.
__kernel void dots_int4(BUF(out), BUF(x), BUF(w), BUF(scales), BUF(panels), const QuantizedParams P) {
  for (long r = 0; r < P.m; r++) fill_panel(PANEL(r), ROW_OF_X(r), &P);
  EACH_TILE {
    __global const uint* weight = PTR(w, const uint) + col * (P.k / 8);
    VT t[ROWS][COLS];
    CLEAR(t)
    sums_t rest[ROWS];
    UNROLL EACH_ROW rest[r].v = (columns_t)(0);
    for (long g = 0; g < P.k / P.group; g++) {
      VT dot[ROWS][COLS];
      CLEAR(dot)
      for (long i = g * P.group; i < (g + 1) * P.group; i += 8 * VEC) {
        words_t words[COLS];
        UNROLL EACH_COLUMN words[s] = CAT(VLOAD_, VEC)(0, (__global const int*)(weight + s * (P.k / 8) + i / 8));
        UNROLL EACH_COLUMN FETCH_AHEAD(weight + s * (P.k / 8) + i / 8);
        UNROLL for (int j = 0; j < 8; j++) {
          VT v[ROWS];
          UNROLL EACH_ROW v[r] = LOAD(ACC, ACC, VEC, PANEL_ROW(r), i + j * VEC);
          UNROLL EACH_COLUMN {
            const VT y = TO_ACC(IN_PLACE(words[s], j));
            UNROLL EACH_ROW dot[r][s] += v[r] * y;
          }
        }
      }
      pairs_t pairs;
      pairs.v = LOAD(IN, ACC, PAIRS, PAIR(g, col), 0);
      UNROLL EACH_ROW {
        UNROLL EACH_COLUMN t[r][s] += (VT)(pairs.s[2 * s]) * dot[r][s];
        rest[r].v += (pairs.v.odd - 8 * pairs.v.even) * PANEL_ROW(r)[P.k + g];
      }
    }
    EACH_ROW EACH_COLUMN {
      ST sum = sum_lanes(t[r][s]) + rest[r].s[s];
      if (!isfinite(sum))
        sum = exact_dot(weight + s * (P.k / 8), ROW_OF_X(min(row + r, P.m - 1)), PAIR(0, col + s), &P);
      STORE_SUM(sum)
    }
  }
}
#endif

// From two numbers per byte, the first one in the high half.
__kernel void int4_pack(BUF(out), BUF(w), long words, long per) {
  const long first = (long)get_global_id(0) * per, last = min(first + per, words);
  for (long i = first; i < last; i++) {
    __global const uchar* from = PTR(w, const uchar) + i / 4 * 16 + i % 4 / 2;
    const int shift = i % 2 ? 0 : 4;
    uint word = 0;
    UNROLL for (int j = 0; j < 8; j++)
      word |= (uint)(from[2 * j] >> shift & 15) << 4 * j;
    PTR(out, uint)[i] = word;
  }
}

// The weight's numbers in the dtype OUT, VEC words at a time.
__kernel void int4_unpack(BUF(out), BUF(w), BUF(scales), const QuantizedParams P) {
  const long row = P.k / 8, first = (long)get_global_id(0) * P.per, last = min(first + P.per, P.n * row);
  for (long i = first; i < last; i += VEC) {
    const long col = i / row, in_row = i % row;
    __global const STORAGE(IN)* pair = PAIR(8 * in_row / P.group, col);
    const ST scale = SCALE_OF(pair), zero = ZERO_OF(pair);
    __global STORAGE(OUT)* to = PTR(out, STORAGE(OUT)) + i / 4 * 32 + i % 4;
    const VTYPE(i32, VEC) words = CAT(VLOAD_, VEC)(0, PTR(w, const int) + i);
    UNROLL for (int j = 0; j < 8; j++) {
      const VT y = (TO_ACC(NUMBER(words, j)) - 8) * scale + zero;
#if VEC == 1
      STORE(OUT, ACC, 1, to, 4 * j, y);
#elif VEC == 4
      STORE(OUT, ACC, 4, to, 4 * j, y);
#elif VEC == 8
      STORE(OUT, ACC, 4, to, 4 * j, y.lo);
      STORE(OUT, ACC, 4, to, 4 * j + 32, y.hi);
#else
      STORE(OUT, ACC, 4, to, 4 * j, y.lo.lo);
      STORE(OUT, ACC, 4, to, 4 * j + 32, y.lo.hi);
      STORE(OUT, ACC, 4, to, 4 * j + 64, y.hi.lo);
      STORE(OUT, ACC, 4, to, 4 * j + 96, y.hi.hi);
#endif
    }
  }
}
