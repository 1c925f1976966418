// Negative log likelihood, forward and backward, over (n, C) or (n, C, inner); inner is 1 if the class axis is the last
// one.
// -D: IN (input, output, gradients), IDX (of the target: i64 or u8), ACC; GROUP (nll_finish). The weight has IN's dtype
// or is null.
#include "args/loss.h"
#include "common/join_group.h"
#include "common/vector.h"

// The class of element i, or -1 if it is ignored.
static inline long target_of(__global const STORAGE(IDX)* t, long i, const NllParams* P, __global int* err) {
  const long c = LOAD(IDX, i64, 1, t, i);
  if (c == P->ignore) return -1;
  if (c < 0 || c >= P->classes) {
    netcl_report(err, (int)P->code, c, P->classes);
    return -1;
  }
  return c;
}
#define TARGET_OF(i) target_of(PTR(target, const STORAGE(IDX)), i, &P, PTR(err, int))
#define WEIGHT(c) PARAM(IN, weight, c, 1)
#define SCORE(i, c) ((i) / P.inner * P.classes * P.inner + (c) * P.inner + (i) % P.inner)

// The loss of each element.
__kernel void nll_each(BUF(out), BUF(in), BUF(target), BUF(weight), BUF(err), const NllParams P) {
  const long first = (long)get_global_id(0) * P.per, last = min(first + P.per, P.n);
  for (long i = first; i < last; i++) {
    const long c = TARGET_OF(i);
    const ST loss = c >= 0 ? -WEIGHT(c) * LOAD(IN, ACC, 1, PTR(in, const STORAGE(IN)), SCORE(i, c)) : 0;
    STORE(IN, ACC, 1, PTR(out, STORAGE(IN)), i, loss);
  }
}

// For one share of the elements: part[2p] = sum of the weighted losses, part[2p + 1] = sum of the weights.
__kernel void nll_parts(BUF(part), BUF(in), BUF(target), BUF(weight), BUF(err), const NllParams P) {
  const long p = get_global_id(0), first = p * P.per, last = min(first + P.per, P.n);
  if (first >= P.n && p > 0) return;
  ST loss = 0, total = 0;
  // Adds in blocks, so that rounding errors do not grow with the number of elements.
  for (long from = first; from < last; from += 512) {
    const long to = min(from + 512, last);
    ST some_loss = 0, some_weight = 0;
    for (long i = from; i < to; i++) {
      const long c = TARGET_OF(i);
      if (c < 0) continue;
      const ST w = WEIGHT(c);
      some_loss -= w * LOAD(IN, ACC, 1, PTR(in, const STORAGE(IN)), SCORE(i, c));
      some_weight += w;
    }
    loss += some_loss;
    total += some_weight;
  }
  PTR(part, ST)[2 * p] = loss;
  PTR(part, ST)[2 * p + 1] = total;
}

// One work-group, of GROUP work-items.
__kernel void nll_finish(BUF(out), BUF(total_weight), BUF(part), long parts, int mean) {
  ST loss = 0, total = 0;
  for (long p = get_global_id(0); p < parts; p += GROUP) {
    loss += PTR(part, const ST)[2 * p];
    total += PTR(part, const ST)[2 * p + 1];
  }
#ifdef DEVICE_GPU
  __local ST losses[GROUP], totals[GROUP];
  const int i = (int)get_local_id(0);
  losses[i] = loss;
  totals[i] = total;
  JOIN_GROUP(i, GROUP, CLK_LOCAL_MEM_FENCE, (losses[i] += losses[i + apart], totals[i] += totals[i + apart]))
  if (i > 0) return;
  loss = losses[0];
  total = totals[0];
#endif
  STORE(IN, ACC, 1, PTR(out, STORAGE(IN)), 0, mean ? loss / total : loss);
  STORE(IN, ACC, 1, PTR(total_weight, STORAGE(IN)), 0, total);
}

// Writes to a gradient that must be zero.
__kernel void nll_backward(BUF(gin), BUF(grad), BUF(target), BUF(weight), BUF(total_weight), BUF(err),
                           const NllParams P) {
  const long first = (long)get_global_id(0) * P.per, last = min(first + P.per, P.n);
  ST g = P.each ? 0 : LOAD(IN, ACC, 1, PTR(grad, const STORAGE(IN)), 0);
  if (P.mean) g /= LOAD(IN, ACC, 1, PTR(total_weight, const STORAGE(IN)), 0);
  for (long i = first; i < last; i++) {
    const long c = TARGET_OF(i);
    if (c < 0) continue;
    if (P.each) g = LOAD(IN, ACC, 1, PTR(grad, const STORAGE(IN)), i);
    STORE(IN, ACC, 1, PTR(gin, STORAGE(IN)), SCORE(i, c), -WEIGHT(c) * g);
  }
}
