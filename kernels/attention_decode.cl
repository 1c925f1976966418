// Attention of one query of each head, on CPUs: a work-item takes the ROWS heads that share a head of keys and values,
// and reads each key and each value once.
// -D: IO (storage tag), ACC (f32), VEC, ROWS.
#define WHOLE_LOADS  // see common/builtins.h
#include "args/attention.h"
#include "common/join_lanes.h"

#define EACH_ROW UNROLL for (int r = 0; r < ROWS; r++)
#define HEAD_OF(name, head) (PTR(name, STORAGE(IO)) + b * P.name.b + (head) * P.name.h)
#define LOAD_IO(p, i) LOAD(IO, ACC, VEC, p, i)
// Vectors of values at a time: as many sums as registers hold.
#define COLS (ROWS <= 2 ? 4 : ROWS <= 4 ? 2 : 1)

// The row's scores become exponentials; those from P.keys on are 0. Returns the factor that makes them probabilities.
static inline ST exponentials(__global ST* s, long padded, __global ST* lse) {
  VT m = (VT)(-INFINITY), t = (VT)(0);
  for (long i = 0; i < padded; i += VEC) m = fmax(m, LOAD(ACC, ACC, VEC, s, i));
  lanes_t lanes;
  lanes.v = m;
  ST top = lanes.s[0];
  for (int i = 1; i < VEC; i++) top = fmax(top, lanes.s[i]);
  if (top == -INFINITY) top = 0;
  for (long i = 0; i < padded; i += VEC) {
    const VT e = exp(LOAD(ACC, ACC, VEC, s, i) - top);
    STORE(ACC, ACC, VEC, s, i, e);
    t += e;
  }
  const ST sum = sum_lanes(t);
  *lse = top + log(sum);
  return sum == 0 ? (ST)(0) : 1 / sum;
}

// P.depth is a multiple of VEC, and P.width is VEC or more.
__kernel void attention_decode(BUF(out), BUF(lse), BUF(scores), BUF(q), BUF(k), BUF(v), const FlashParams P) {
  const long group = get_group_id(0), b = group / P.kv_heads, h = group % P.kv_heads;
  const long padded = (P.keys + VEC - 1) / VEC * VEC;
  __global ST* s = PTR(scores, ST) + group * ROWS * padded;
  for (long key = 0; key < P.keys; key++) {
    __global const STORAGE(IO)* row = HEAD_OF(k, h) + key * P.k.row;
    VT t[ROWS];
    EACH_ROW t[r] = (VT)(0);
    for (long i = 0; i < P.depth; i += VEC) {
      const VT y = LOAD_IO(row, i);
      EACH_ROW t[r] += y * LOAD_IO(HEAD_OF(q, h * ROWS + r), i);
    }
    EACH_ROW s[r * padded + key] = sum_lanes(t[r]) * P.scale;
  }
  ST factor[ROWS];
  for (int r = 0; r < ROWS; r++) {
    for (long i = P.keys; i < padded; i++) s[r * padded + i] = -INFINITY;
    factor[r] = exponentials(s + r * padded, padded, PTR(lse, ST) + group * ROWS + r);
  }
  for (long i = 0; i < P.width; i += COLS * VEC) {
    VT t[ROWS][COLS];
    EACH_ROW UNROLL for (int c = 0; c < COLS; c++) t[r][c] = (VT)(0);
    for (long key = 0; key < P.keys; key++) {
      __global const STORAGE(IO)* row = HEAD_OF(v, h) + key * P.v.row;
      UNROLL for (int c = 0; c < COLS; c++) {
        const VT y = LOAD_IO(row, min(i + c * VEC, P.width - VEC));
        EACH_ROW t[r][c] += y * s[r * padded + key];
      }
    }
    EACH_ROW UNROLL for (int c = 0; c < COLS; c++)
        STORE(IO, ACC, VEC, HEAD_OF(out, h * ROWS + r), min(i + c * VEC, P.width - VEC), t[r][c] * factor[r]);
  }
}
