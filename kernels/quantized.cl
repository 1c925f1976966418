// Products of a few rows with quantised weights. Each weight is read from memory once, and the weight's rows are
// contiguous; the rows x have the compute type.
// -D: SCALE, OUT (storage tags of scales and result), ACC, VEC, LS (work-items per group), ROWS and COLS (rows of x and
// of the weight at once); SCALED if each row of an int8 weight has a factor.
// A CPU's work-item keeps sums in vectors over k. A GPU's work-group divides k among its work-items.
#define WHOLE_LOADS  // see common/builtins.h
#include "common/group_reduce.h"
#if VEC > 1
#include "common/sum_lanes.h"
#else
#define SUM_LANES(v) (v)
#endif

#if LS == 1
#define LANE 0L
#define SCRATCH
#define GROUP_SUM(x) (x)
#else
#define LANE ((long)get_local_id(0))
#define SCRATCH __local ST scratch[LS];
#define GROUP_SUM(x) group_sum(x, scratch)
GROUP_REDUCE(group_sum, GROUP_ADD)
#endif

typedef VTYPE(u8, VEC) bytes_t;
#define LOAD_BYTES(p) CAT(VLOAD_, VEC)(0, p)
// PoCL calls a function to convert each byte.
#if VEC > 1 && defined(HAVE_CPU_BUILTINS) && __has_builtin(__builtin_convertvector)
#define TO_ACC(v) __builtin_convertvector(v, VT)
#else
#define TO_ACC(v) CONVERT(ACC, VEC, v)
#endif
#define SIGNED_BYTES(v) CAT(as_char, CAT(V_, VEC))(v)

// The weight's row s of this step, and row r of x; those beyond the last repeat it.
#define COLUMN(s) min(col + (s), n - 1)
#define X_ROW(r) (PTR(x, const ST) + min(row + (r), m - 1) * k)
#define LOAD_X(r, i) LOAD(ACC, ACC, VEC, X_ROW(r), i)
#define EACH_ROW for (int r = 0; r < ROWS; r++)
#define EACH_COLUMN for (int s = 0; s < COLS; s++)
#define CLEAR(t) UNROLL EACH_ROW UNROLL EACH_COLUMN t[r][s] = (VT)(0);
#define STORE_SUM(sum)                            \
  if (LANE == 0 && row + r < m && col + s < last) \
    STORE(OUT, ACC, 1, PTR(out, STORAGE(OUT)), (row + r) * n + col + s, sum);

// The weight is int8.
__kernel void dots_int8(BUF(out), BUF(x), BUF(w), BUF(scales), long m, long n, long k, long per) {
  SCRATCH
  const long first = (long)get_group_id(0) * per, last = min(first + per, n);
  __global const uchar* weight = PTR(w, const uchar);
  for (long col = first; col < last; col += COLS)
    for (long row = 0; row < m; row += ROWS) {
      VT t[ROWS][COLS];
      CLEAR(t)
      long i = LANE * VEC;
      for (; i + VEC <= k; i += LS * VEC) {
        VT y[COLS];
        UNROLL EACH_COLUMN y[s] = TO_ACC(SIGNED_BYTES(LOAD_BYTES(weight + COLUMN(s) * k + i)));
        UNROLL EACH_ROW {
          const VT v = LOAD_X(r, i);
          UNROLL EACH_COLUMN t[r][s] += v * y[s];
        }
      }
      EACH_ROW EACH_COLUMN {
        ST sum = SUM_LANES(t[r][s]);
#if VEC > 1
        for (long j = i; j < k; j++) sum += X_ROW(r)[j] * (ST)as_char(weight[COLUMN(s) * k + j]);
#endif
        sum = GROUP_SUM(sum);
#ifdef SCALED
        sum *= LOAD(SCALE, ACC, 1, PTR(scales, const STORAGE(SCALE)), COLUMN(s));
#endif
        STORE_SUM(sum)
      }
    }
}

// Bytes of a row of the weight that share a scale, and that one work-item takes at once.
#if LS == 1
#define SPAN (group / 2)
#else
#define SPAN 1
#endif
// Scale and zero of group g of weight row `col`; number q stands for (q - 8) * scale + zero.
#define PAIR(g, col) (PTR(scales, const STORAGE(SCALE)) + 2 * ((g) * n + (col)))

// The weight is int4, packed by int4_pack. `sums` holds the sums of x over each group, for what does not depend on q.
__kernel void dots_int4(BUF(out), BUF(x), BUF(sums), BUF(w), BUF(scales), long m, long n, long k, long group,
                        long per) {
  SCRATCH
  const long first = (long)get_group_id(0) * per, last = min(first + per, n), groups = k / group;
  __global const uchar* weight = PTR(w, const uchar);
  for (long col = first; col < last; col += COLS)
    for (long row = 0; row < m; row += ROWS) {
      VT t[ROWS][COLS];
      CLEAR(t)
      for (long span = LANE * SPAN; span < k / 2; span += LS * SPAN) {
        VT dot[ROWS][COLS];
        CLEAR(dot)
        for (long j = span; j < span + SPAN; j += VEC) {
          const long at = 2 * j - (j & 15);  // j / 16 * 32 + j % 16
          VT low[ROWS], high[ROWS];
          UNROLL EACH_ROW {
            low[r] = LOAD_X(r, at);
            high[r] = LOAD_X(r, at + 16);
          }
          UNROLL EACH_COLUMN {
            const bytes_t bytes = LOAD_BYTES(weight + COLUMN(s) * (k / 2) + j);
            const VT a = TO_ACC(bytes & (bytes_t)(15)), b = TO_ACC((bytes_t)(bytes >> (bytes_t)(4)));
            UNROLL EACH_ROW dot[r][s] += a * low[r] + b * high[r];
          }
        }
        UNROLL EACH_COLUMN {
          const VT scale = (VT)(LOAD(SCALE, ACC, 1, PAIR(2 * span / group, COLUMN(s)), 0));
          UNROLL EACH_ROW t[r][s] += scale * dot[r][s];
        }
      }
      EACH_ROW EACH_COLUMN {
        ST sum = SUM_LANES(t[r][s]);
        for (long g = LANE; g < groups; g += LS) {
          __global const STORAGE(SCALE)* pair = PAIR(g, COLUMN(s));
          const ST zero = LOAD(SCALE, ACC, 1, pair, 1) - 8 * LOAD(SCALE, ACC, 1, pair, 0);
          sum += zero * PTR(sums, const ST)[min(row + r, m - 1) * groups + g];
        }
        sum = GROUP_SUM(sum);
        STORE_SUM(sum)
      }
    }
}

// From two numbers per byte, the first in the high half, to 32 numbers per 16 bytes: number i in the low half of byte
// i, number i + 16 in its high half. Then a vector of bytes gives two vectors of neighbours.
__kernel void int4_pack(BUF(out), BUF(w), long bytes, long per) {
  const long first = (long)get_global_id(0) * per, last = min(first + per, bytes);
  __global const uchar* from = PTR(w, const uchar);
  for (long j = first; j < last; j++) {
    const long at = j / 16 * 16 + j % 16 / 2;
    const int shift = j % 2 ? 0 : 4;
    PTR(out, uchar)[j] = (uchar)((from[at] >> shift & 15) | (from[at + 8] >> shift & 15) << 4);
  }
}

// The weight's numbers in the dtype OUT.
__kernel void int4_unpack(BUF(out), BUF(w), BUF(scales), long n, long k, long group, long per) {
  const long first = (long)get_global_id(0) * per, last = min(first + per, n * k / 2);
  for (long j = first; j < last; j++) {
    const long col = j / (k / 2), in_row = j % (k / 2), at = in_row / 16 * 32 + in_row % 16;
    const ST scale = LOAD(SCALE, ACC, 1, PAIR(at / group, col), 0),
             zero = LOAD(SCALE, ACC, 1, PAIR(at / group, col), 1);
    const uchar byte = PTR(w, const uchar)[j];
    STORE(OUT, ACC, 1, PTR(out, STORAGE(OUT)), col * k + at, (ST)((byte & 15) - 8) * scale + zero);
    STORE(OUT, ACC, 1, PTR(out, STORAGE(OUT)), col * k + at + 16, (ST)((byte >> 4) - 8) * scale + zero);
  }
}
