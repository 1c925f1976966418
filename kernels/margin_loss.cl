// multi_margin_loss and multilabel_margin_loss over rows of C scores: the loss of each row in the compute type, and the
// gradient. A work-item takes a row. -D: IN, ACC. The weight has IN's dtype or is null.
#include "args/loss.h"
#include "common/wide.h"

#define X(j) LOAD(IN, ACC, 1, x, j)

static inline long class_of(__global const long* target, long row, const MarginParams* P, __global int* err) {
  const long c = target[row];
  if (c >= 0 && c < P->classes) return c;
  netcl_report(err, (int)P->code, c, P->classes);
  return 0;
}

// `out` is the loss of each row or, if the output's gradient is given, the gradient of `in`.
__kernel void multi_margin(BUF(out), BUF(grad), BUF(in), BUF(target), BUF(weight), BUF(err), const MarginParams P) {
  const long row = get_global_id(0);
  if (row >= P.rows) return;
  __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN)) + row * P.classes;
  __global STORAGE(IN)* y = PTR(out, STORAGE(IN)) + row * P.classes;
  const long t = class_of(PTR(target, const long), row, &P, PTR(err, int));
  const ST w = PARAM(IN, weight, t, 1), base = WIDE_OF(P.margin) - X(t);
  ST sum = 0;
  if (!grad_buf) {
    for (long j = 0; j < P.classes; j++) {
      const ST z = base + X(j);
      if (j != t && !(z <= 0)) sum += P.power == 1 ? z : z * z;
    }
    PTR(out, ST)[row] = sum * w / P.classes;
    return;
  }
  const ST g = LOAD(IN, ACC, 1, PTR(grad, const STORAGE(IN)), P.each ? row : 0) * WIDE_OF(P.scale) / P.classes * w;
  for (long j = 0; j < P.classes; j++) {
    const ST z = base + X(j);
    const ST r = j == t || z <= 0 ? 0 : P.power == 1 ? g : 2 * g * z;
    sum += r;
    STORE(IN, ACC, 1, y, j, r);
  }
  STORE(IN, ACC, 1, y, t, -sum);
}

// A row's targets end at the first -1. is_target becomes 1 for the classes among them.
__kernel void multilabel_margin(BUF(each), BUF(is_target), BUF(in), BUF(target), BUF(err), const MarginParams P) {
  const long row = get_global_id(0);
  if (row >= P.rows) return;
  __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN)) + row * P.classes;
  __global STORAGE(IN)* is = PTR(is_target, STORAGE(IN)) + row * P.classes;
  __global const long* targets = PTR(target, const long) + row * P.classes;
  for (long j = 0; j < P.classes; j++) STORE(IN, ACC, 1, is, j, (ST)0);
  long count = 0;
  for (; count < P.classes && targets[count] != -1; count++)
    STORE(IN, ACC, 1, is, class_of(targets, count, &P, PTR(err, int)), (ST)1);
  ST sum = 0;
  for (long k = 0; k < count; k++) {
    const ST base = 1 - X(class_of(targets, k, &P, PTR(err, int)));
    for (long j = 0; j < P.classes; j++) {
      const ST z = base + X(j);
      if (LOAD(IN, ACC, 1, is, j) == 0 && !(z <= 0)) sum += z;
    }
  }
  PTR(each, ST)[row] = sum / P.classes;
}

__kernel void multilabel_margin_backward(BUF(gin), BUF(grad), BUF(is_target), BUF(in), BUF(target), BUF(err),
                                         const MarginParams P) {
  const long row = get_global_id(0);
  if (row >= P.rows) return;
  __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN)) + row * P.classes;
  __global const STORAGE(IN)* is = PTR(is_target, const STORAGE(IN)) + row * P.classes;
  __global const long* targets = PTR(target, const long) + row * P.classes;
  __global STORAGE(IN)* y = PTR(gin, STORAGE(IN)) + row * P.classes;
  const ST g = LOAD(IN, ACC, 1, PTR(grad, const STORAGE(IN)), P.each ? row : 0) * WIDE_OF(P.scale) / P.classes;
  for (long j = 0; j < P.classes; j++) {
    ST sum = 0;
    const int wanted = LOAD(IN, ACC, 1, is, j) != 0;
    for (long k = 0; k < P.classes && targets[k] != -1; k++) {
      const long t = class_of(targets, k, &P, PTR(err, int));
      if (wanted && t == j) {
        for (long i = 0; i < P.classes; i++)
          if (LOAD(IN, ACC, 1, is, i) == 0 && 1 - X(t) + X(i) > 0) sum -= g;
      } else if (!wanted && 1 - X(t) + X(j) > 0) {
        sum += g;
      }
    }
    STORE(IN, ACC, 1, y, j, sum);
  }
}
