// CTC loss in log space. A target of n labels has 2 n + 1 states: its labels with blanks around them. `spans` holds (3,
// batch): the lengths of inputs and of targets, and where the targets begin. log_probs is (steps, batch, classes);
// alpha and beta are (batch, steps, states). -D: ACC, the dtype; on GPUs LS (work-items per work-group) and KEPT
// (ctc_scan_local: a power of two, not less than the states).
#include "common/join_group.h"
#include "common/vector.h"

#define NONE (-(ST)INFINITY)

// log(exp(a) + exp(b) + exp(c)).
static inline ST log_sum(ST a, ST b, ST c) {
  const ST top = fmax(a, fmax(b, c)), shift = top == NONE ? 0 : top;
  return log(exp(a - shift) + exp(b - shift) + exp(c - shift)) + shift;
}

// The class of state s; an invalid class counts as the blank.
static inline long label(__global const long* target, long s, long classes, long blank) {
  const long c = s % 2 ? target[s / 2] : blank;
  return c >= 0 && c < classes ? c : blank;
}

// The logarithm of the probability of all paths that lead to a state; with `reverse`, of all paths from it on. Both
// include the state's own step. One work-group per sequence. The forward pass also stores the negative log likelihood.
__kernel void ctc_scan(BUF(alpha), BUF(nll), BUF(log_probs), BUF(targets), BUF(spans), BUF(err), int code, long steps,
                       long batch, long classes, long states, long blank, int reverse) {
  const long b = get_group_id(0), lane = get_local_id(0), lanes = get_local_size(0);
  __global const long* span = PTR(spans, const long);
  const long length = span[b], labels = span[batch + b], used = 2 * labels + 1;
  __global const long* target = PTR(targets, const long) + span[2 * batch + b];
  __global const ST* p = PTR(log_probs, const ST) + b * classes;
  __global ST* a = PTR(alpha, ST) + b * steps * states;
  for (long i = lane; i < labels; i += lanes)
    if (target[i] < 0 || target[i] >= classes) netcl_report(PTR(err, int), code, target[i], classes);
  const long back = reverse ? 1 : -1;  // direction of the previous state or step
  for (long n = 0; n < steps; n++) {   // all steps, not `length`: every sequence must meet as many barriers
    const long t = reverse ? length - 1 - n : n;
    for (long i = lane; i < used && n < length; i += lanes) {
      const long s = reverse ? used - 1 - i : i, c = label(target, s, classes, blank);
      const ST here = p[t * batch * classes + c];
      ST sum;
      if (n == 0) {
        sum = i < 2 ? here : NONE;
      } else {
        __global const ST* before = a + (t + back) * states;
        const bool skips = i > 1 && c != label(target, s + 2 * back, classes, blank);
        sum = log_sum(before[s], i > 0 ? before[s + back] : NONE, skips ? before[s + 2 * back] : NONE) + here;
      }
      a[t * states + s] = sum;
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
  }
  if (lane == 0 && !reverse) {
    __global const ST* last = a + (length - 1) * states;
    ST log_likelihood = labels ? NONE : 0;
    if (length) log_likelihood = log_sum(last[used - 1], labels ? last[used - 2] : NONE, NONE);
    PTR(nll, ST)[b] = -log_likelihood;
  }
}

// The same for few states, on a GPU: the last row stays in local memory, in the order in which states follow each
// other.
__kernel void ctc_scan_local(BUF(alpha), BUF(nll), BUF(log_probs), BUF(targets), BUF(spans), BUF(err), int code,
                             long steps, long batch, long classes, long states, long blank, int reverse) {
  __local ST rows[2][KEPT];
  __local int chosen[KEPT];
  const long b = get_group_id(0);
  const int lane = get_local_id(0);
  __global const long* span = PTR(spans, const long);
  const long length = span[b], labels = span[batch + b];
  const int used = 2 * (int)labels + 1;
  __global const long* target = PTR(targets, const long) + span[2 * batch + b];
  __global ST* a = PTR(alpha, ST) + b * steps * states;
  for (long i = lane; i < labels; i += LS)
    if (target[i] < 0 || target[i] >= classes) netcl_report(PTR(err, int), code, target[i], classes);
  for (int i = lane; i < used; i += LS) chosen[i] = (int)label(target, reverse ? used - 1 - i : i, classes, blank);
  barrier(CLK_LOCAL_MEM_FENCE);
  for (long n = 0; n < length; n++) {
    const long t = reverse ? length - 1 - n : n;
    __global const ST* p = PTR(log_probs, const ST) + (t * batch + b) * classes;
    __local const ST* before = rows[(n + 1) % 2];
    for (int i = lane; i < used; i += LS) {
      const int c = chosen[i];
      const ST here = p[c];
      ST sum = i < 2 ? here : NONE;
      if (n > 0) {
        const bool skips = i > 1 && c != chosen[i - 2];
        sum = log_sum(before[i], i > 0 ? before[i - 1] : NONE, skips ? before[i - 2] : NONE) + here;
      }
      rows[n % 2][i] = sum;
      a[t * states + (reverse ? used - 1 - i : i)] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (lane == 0 && !reverse) {
    __local const ST* last = rows[(length + 1) % 2];
    ST log_likelihood = labels ? NONE : 0;
    if (length) log_likelihood = log_sum(last[used - 1], labels ? last[used - 2] : NONE, NONE);
    PTR(nll, ST)[b] = -log_likelihood;
  }
}

// The gradient with respect to log_probs, which is assumed to be the output of log_softmax. A work-item takes (step,
// sequence), on a CPU.
__kernel void ctc_gradient(BUF(out), BUF(grad), BUF(log_probs), BUF(alpha), BUF(beta), BUF(nll), BUF(targets),
                           BUF(spans), long steps, long batch, long classes, long states, long blank,
                           int zero_infinity) {
  const long t = get_global_id(0), b = get_global_id(1);
  if (t >= steps) return;
  __global const long* span = PTR(spans, const long);
  const long used = 2 * span[batch + b] + 1;
  __global const long* target = PTR(targets, const long) + span[2 * batch + b];
  __global ST* y = PTR(out, ST) + (t * batch + b) * classes;
  const ST loss = PTR(nll, const ST)[b], g = PTR(grad, const ST)[b];
  if (t >= span[b] || (zero_infinity && loss == -NONE)) {
    for (long c = 0; c < classes; c++) y[c] = 0;
    return;
  }
  for (long c = 0; c < classes; c++) y[c] = NONE;
  const long row = (b * steps + t) * states;
  for (long s = 0; s < used; s++) {
    const long c = label(target, s, classes, blank);
    y[c] = log_sum(y[c], PTR(alpha, const ST)[row + s] + PTR(beta, const ST)[row + s], NONE);
  }
  __global const ST* p = PTR(log_probs, const ST) + (t * batch + b) * classes;
  for (long c = 0; c < classes; c++) y[c] = (exp(p[c]) - exp(y[c] + loss - p[c])) * g;
}

// For the label at each place of a target, the next place of the same label, or `longest`; its complement if the label
// also has an earlier place, or is the blank.
__kernel void ctc_repeats(BUF(next), BUF(targets), BUF(spans), long batch, long classes, long longest, long blank) {
  const long item = get_global_id(0), b = item / longest, i = item - b * longest;
  if (b >= batch) return;
  const long labels = PTR(spans, const long)[batch + b];
  if (i >= labels) return;
  __global const long* target = PTR(targets, const long) + PTR(spans, const long)[2 * batch + b];
  const long own = label(target, 2 * i + 1, classes, blank);
  int first = own != blank;
  for (long j = 0; j < i && first; j++) first = label(target, 2 * j + 1, classes, blank) != own;
  long next = i + 1;
  while (next < labels && label(target, 2 * next + 1, classes, blank) != own) next++;
  if (next == labels) next = longest;
  PTR(next, int)[item] = first ? (int)next : ~(int)next;
}

#if defined(LS)
#define LOG_ADD(a, b) log_sum(a, b, NONE)
GROUP_REDUCE(group_log_sum, ST, LS, LOG_ADD)
#endif

// As ctc_gradient, on a GPU. A work-group takes (step, sequence): its work-items share the classes, then the labels.
__kernel void ctc_gradient_group(BUF(out), BUF(grad), BUF(log_probs), BUF(alpha), BUF(beta), BUF(nll), BUF(targets),
                                 BUF(spans), BUF(next), long steps, long batch, long classes, long states, long blank,
                                 int zero_infinity) {
  __local ST scratch[LS];
  const long t = get_group_id(0), b = get_global_id(1), lane = get_local_id(0);
  __global const long* span = PTR(spans, const long);
  const long labels = span[batch + b], longest = states / 2, row = (b * steps + t) * states;
  __global const long* target = PTR(targets, const long) + span[2 * batch + b];
  __global const int* next = PTR(next, const int) + b * longest;
  __global const ST *p = PTR(log_probs, const ST) + (t * batch + b) * classes, *a = PTR(alpha, const ST) + row;
  __global const ST* z = PTR(beta, const ST) + row;
  __global ST* y = PTR(out, ST) + (t * batch + b) * classes;
  const ST loss = PTR(nll, const ST)[b], g = PTR(grad, const ST)[b];
  const int nothing = t >= span[b] || (zero_infinity && loss == -NONE);
#define SLOPE(c, sum) ((exp(p[c]) - exp((sum) + loss - p[c])) * g)
  for (long c = lane; c < classes; c += LS) y[c] = nothing ? 0 : SLOPE(c, NONE);
  if (nothing) return;
  ST blanks = NONE;
  for (long s = lane; s < 2 * labels + 1; s += LS)
    if (label(target, s, classes, blank) == blank) blanks = log_sum(blanks, a[s] + z[s], NONE);
  blanks = group_log_sum(blanks, scratch);
  barrier(CLK_GLOBAL_MEM_FENCE);
  if (lane == 0) y[blank] = SLOPE(blank, blanks);
  for (long i = lane; i < labels; i += LS) {
    if (next[i] < 0) continue;
    const long c = label(target, 2 * i + 1, classes, blank);
    ST sum = NONE;
    for (long j = i; j < longest; j = next[j] < 0 ? ~next[j] : next[j])
      sum = log_sum(sum, a[2 * j + 1] + z[2 * j + 1], NONE);
    y[c] = SLOPE(c, sum);
  }
}
