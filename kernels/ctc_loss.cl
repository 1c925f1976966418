// CTC loss in log space. The states of a target of n labels are its labels with blanks around them, 2 n + 1; `spans`
// holds (3, batch) lengths of inputs and targets, and where the targets begin. log_probs is (steps, batch, classes),
// alpha and beta are (batch, steps, states). -D: T, the dtype.
#include "common/dtypes.h"

typedef CTYPE(T) acc_t;
#define NONE (-(acc_t)INFINITY)

// log(exp(a) + exp(b) + exp(c)).
inline acc_t log_sum(acc_t a, acc_t b, acc_t c) {
  const acc_t top = fmax(a, fmax(b, c)), shift = top == NONE ? 0 : top;
  return log(exp(a - shift) + exp(b - shift) + exp(c - shift)) + shift;
}

// The class of state s; a class that does not exist counts as the blank.
inline long label(__global const long *target, long s, long classes, long blank) {
  const long c = s % 2 ? target[s / 2] : blank;
  return c >= 0 && c < classes ? c : blank;
}

// The logarithm of the probability of all that leads to a state, the step itself included; with `reverse`, of all that
// follows. Work-group = sequence. The forward pass also leaves the negative log likelihood.
__kernel void ctc_scan(BUF(alpha), BUF(nll), BUF(log_probs), BUF(targets), BUF(spans), BUF(err), int code, long steps,
                       long batch, long classes, long states, long blank, int reverse) {
  const long b = get_group_id(0), lane = get_local_id(0), lanes = get_local_size(0);
  __global const long *span = PTR(spans, const long);
  const long length = span[b], labels = span[batch + b], used = 2 * labels + 1;
  __global const long *target = PTR(targets, const long) + span[2 * batch + b];
  __global const acc_t *p = PTR(log_probs, const acc_t) + b * classes;
  __global acc_t *a = PTR(alpha, acc_t) + b * steps * states;
  for (long i = lane; i < labels; i += lanes)
    if (target[i] < 0 || target[i] >= classes) netcl_report(PTR(err, int), code, target[i], classes);
  const long back = reverse ? 1 : -1;  // the way to the state or step that came before
  for (long n = 0; n < steps; n++) {   // not to `length`: every sequence meets as many barriers
    const long t = reverse ? length - 1 - n : n;
    for (long i = lane; i < used && n < length; i += lanes) {
      const long s = reverse ? used - 1 - i : i, c = label(target, s, classes, blank);
      const acc_t here = p[t * batch * classes + c];
      acc_t sum;
      if (n == 0) {
        sum = i < 2 ? here : NONE;
      } else {
        __global const acc_t *before = a + (t + back) * states;
        const bool skips = i > 1 && c != label(target, s + 2 * back, classes, blank);
        sum = log_sum(before[s], i > 0 ? before[s + back] : NONE, skips ? before[s + 2 * back] : NONE) + here;
      }
      a[t * states + s] = sum;
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
  }
  if (lane == 0 && !reverse) {
    __global const acc_t *last = a + (length - 1) * states;
    acc_t log_likelihood = labels ? NONE : 0;
    if (length) log_likelihood = log_sum(last[used - 1], labels ? last[used - 2] : NONE, NONE);
    PTR(nll, acc_t)[b] = -log_likelihood;
  }
}

// The derivative with respect to log_probs, which are taken to come from log_softmax. Work-item (step, sequence).
__kernel void ctc_gradient(BUF(out), BUF(grad), BUF(log_probs), BUF(alpha), BUF(beta), BUF(nll), BUF(targets),
                           BUF(spans), long batch, long classes, long states, long blank, int zero_infinity) {
  const long t = get_global_id(0), b = get_global_id(1), steps = get_global_size(0);
  __global const long *span = PTR(spans, const long);
  const long used = 2 * span[batch + b] + 1;
  __global const long *target = PTR(targets, const long) + span[2 * batch + b];
  __global acc_t *y = PTR(out, acc_t) + (t * batch + b) * classes;
  const acc_t loss = PTR(nll, const acc_t)[b], g = PTR(grad, const acc_t)[b];
  if (t >= span[b] || (zero_infinity && loss == -NONE)) {
    for (long c = 0; c < classes; c++) y[c] = 0;
    return;
  }
  for (long c = 0; c < classes; c++) y[c] = NONE;
  const long row = (b * steps + t) * states;
  for (long s = 0; s < used; s++) {
    const long c = label(target, s, classes, blank);
    y[c] = log_sum(y[c], PTR(alpha, const acc_t)[row + s] + PTR(beta, const acc_t)[row + s], NONE);
  }
  __global const acc_t *p = PTR(log_probs, const acc_t) + (t * batch + b) * classes;
  for (long c = 0; c < classes; c++) y[c] = (exp(p[c]) - exp(y[c] + loss - p[c])) * g;
}
