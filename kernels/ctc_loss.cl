// CTC loss in log space. A target of n labels has 2 n + 1 states: its labels with blanks around them. `spans` holds (3,
// batch): the lengths of inputs and of targets, and where the targets begin. log_probs is (steps, batch, classes);
// alpha and beta are (batch, steps, states). -D: ACC, the dtype; GROUP (work-items per work-group); KEPT on GPUs if
// local memory has room for a row (a power of two, not less than the states).
#include "args/ctc.h"
#include "common/join_group.h"
#include "common/vector.h"

#define NONE (-(ST)INFINITY)
#define SEQUENCES BUF(log_probs), BUF(targets), BUF(spans)
#define GRADIENT_ARGS BUF(out), BUF(grad), BUF(alpha), BUF(beta), BUF(nll), SEQUENCES, const CtcParams P

// log(exp(a) + exp(b) + exp(c)).
static inline ST log_sum(ST a, ST b, ST c) {
  const ST top = fmax(a, fmax(b, c)), shift = top == NONE ? 0 : top;
  return log(exp(a - shift) + exp(b - shift) + exp(c - shift)) + shift;
}

// The class of state s; an invalid class counts as the blank.
static inline long label(__global const long* target, long s, CtcParams P) {
  const long c = s % 2 ? target[s / 2] : P.blank;
  return c >= 0 && c < P.classes ? c : P.blank;
}

#if defined(KEPT)
typedef int state_t;
#define BEFORE(n, i) rows[((n) + 1) % 2][i]
#define LABEL_AT(i) chosen[i]
#define SCANNED CLK_LOCAL_MEM_FENCE
#else
typedef long state_t;
#define BEFORE(n, i) a[(reverse ? length - (n) : (n) - 1) * P.states + PLACE(i)]
#define LABEL_AT(i) label(target, PLACE(i), P)
#define SCANNED CLK_GLOBAL_MEM_FENCE
#endif
#define PLACE(i) (reverse ? used - 1 - (i) : (i))

// The logarithm of the probability of all paths that lead to a state; with `reverse`, of all paths from it on. Both
// include the state's own step. One work-group per sequence. The forward pass also stores the negative log likelihood.
// With KEPT, local memory holds the states before, in the order in which they follow each other.
__kernel void ctc_scan(BUF(alpha), BUF(nll), SEQUENCES, BUF(err), const CtcParams P) {
#if defined(KEPT)
  __local ST rows[2][KEPT];
  __local int chosen[KEPT];
#endif
  const long b = get_group_id(0), classes = P.classes;
  const int lane = get_local_id(0), reverse = P.reverse;
  __global const long* span = PTR(spans, const long);
  const long length = span[b], labels = span[P.batch + b];
  const state_t used = 2 * labels + 1;
  __global const long* target = PTR(targets, const long) + span[2 * P.batch + b];
  __global ST* a = PTR(alpha, ST) + b * P.steps * P.states;
  for (long i = lane; i < labels; i += GROUP)
    if (target[i] < 0 || target[i] >= classes) netcl_report(PTR(err, int), P.code, target[i], classes);
#if defined(KEPT)
  for (int i = lane; i < used; i += GROUP) chosen[i] = (int)label(target, PLACE(i), P);
  barrier(CLK_LOCAL_MEM_FENCE);
#endif
  for (long n = 0; n < length; n++) {
    const long t = reverse ? length - 1 - n : n;
    __global const ST* p = PTR(log_probs, const ST) + (t * P.batch + b) * classes;
    for (state_t i = lane; i < used; i += GROUP) {
      const state_t c = LABEL_AT(i);
      const ST here = p[c];
      ST sum = i < 2 ? here : NONE;
      if (n > 0) {
        const bool skips = i > 1 && c != LABEL_AT(i - 2);
        sum = log_sum(BEFORE(n, i), i > 0 ? BEFORE(n, i - 1) : NONE, skips ? BEFORE(n, i - 2) : NONE) + here;
      }
#if defined(KEPT)
      rows[n % 2][i] = sum;
#endif
      a[t * P.states + PLACE(i)] = sum;
    }
    barrier(SCANNED);
  }
  if (lane == 0 && !reverse) {
    ST log_likelihood = labels ? NONE : 0;
    if (length) log_likelihood = log_sum(BEFORE(length, used - 1), labels ? BEFORE(length, used - 2) : NONE, NONE);
    PTR(nll, ST)[b] = -log_likelihood;
  }
}

// The gradient with respect to log_probs, which is assumed to be the output of log_softmax. A work-item takes (step,
// sequence), on a CPU.
__kernel void ctc_gradient(GRADIENT_ARGS) {
  const long t = get_global_id(0), b = get_global_id(1), batch = P.batch, classes = P.classes;
  __global const long* span = PTR(spans, const long);
  const long used = 2 * span[batch + b] + 1;
  __global const long* target = PTR(targets, const long) + span[2 * batch + b];
  __global ST* y = PTR(out, ST) + (t * batch + b) * classes;
  const ST loss = PTR(nll, const ST)[b], g = PTR(grad, const ST)[b];
  if (t >= span[b] || (P.zero_infinity && loss == -NONE)) {
    for (long c = 0; c < classes; c++) y[c] = 0;
    return;
  }
  for (long c = 0; c < classes; c++) y[c] = NONE;
  const long row = (b * P.steps + t) * P.states;
  for (long s = 0; s < used; s++) {
    const long c = label(target, s, P);
    y[c] = log_sum(y[c], PTR(alpha, const ST)[row + s] + PTR(beta, const ST)[row + s], NONE);
  }
  __global const ST* p = PTR(log_probs, const ST) + (t * batch + b) * classes;
  for (long c = 0; c < classes; c++) y[c] = (exp(p[c]) - exp(y[c] + loss - p[c])) * g;
}

// For the label at each place of a target, the next place of the same label, or `longest`; its complement if the label
// also has an earlier place, or is the blank.
__kernel void ctc_repeats(BUF(next), BUF(targets), BUF(spans), const CtcParams P) {
  const long longest = P.states / 2, batch = P.batch;
  const long item = get_global_id(0), b = item / longest, i = item - b * longest;
  if (b >= batch) return;
  const long labels = PTR(spans, const long)[batch + b];
  if (i >= labels) return;
  __global const long* target = PTR(targets, const long) + PTR(spans, const long)[2 * batch + b];
  const long own = label(target, 2 * i + 1, P);
  int first = own != P.blank;
  for (long j = 0; j < i && first; j++) first = label(target, 2 * j + 1, P) != own;
  long next = i + 1;
  while (next < labels && label(target, 2 * next + 1, P) != own) next++;
  if (next == labels) next = longest;
  PTR(next, int)[item] = first ? (int)next : ~(int)next;
}

#if GROUP > 1
#define LOG_ADD(a, b) log_sum(a, b, NONE)
GROUP_REDUCE(group_log_sum, ST, GROUP, LOG_ADD)
#endif

// As ctc_gradient, on a GPU. A work-group takes (step, sequence): its work-items share the classes, then the labels.
__kernel void ctc_gradient_group(GRADIENT_ARGS, BUF(next)) {
  __local ST scratch[GROUP];
  const long t = get_group_id(0), b = get_global_id(1), lane = get_local_id(0);
  const long batch = P.batch, classes = P.classes, blank = P.blank;
  __global const long* span = PTR(spans, const long);
  const long labels = span[batch + b], longest = P.states / 2, row = (b * P.steps + t) * P.states;
  __global const long* target = PTR(targets, const long) + span[2 * batch + b];
  __global const int* next = PTR(next, const int) + b * longest;
  __global const ST *p = PTR(log_probs, const ST) + (t * batch + b) * classes, *a = PTR(alpha, const ST) + row;
  __global const ST* z = PTR(beta, const ST) + row;
  __global ST* y = PTR(out, ST) + (t * batch + b) * classes;
  const ST loss = PTR(nll, const ST)[b], g = PTR(grad, const ST)[b];
  const int nothing = t >= span[b] || (P.zero_infinity && loss == -NONE);
#define SLOPE(c, sum) ((exp(p[c]) - exp((sum) + loss - p[c])) * g)
  for (long c = lane; c < classes; c += GROUP) y[c] = nothing ? 0 : SLOPE(c, NONE);
  if (nothing) return;
  ST blanks = NONE;
  for (long s = lane; s < 2 * labels + 1; s += GROUP)
    if (label(target, s, P) == blank) blanks = log_sum(blanks, a[s] + z[s], NONE);
  blanks = group_log_sum(blanks, scratch);
  barrier(CLK_GLOBAL_MEM_FENCE);
  if (lane == 0) y[blank] = SLOPE(blank, blanks);
  for (long i = lane; i < labels; i += GROUP) {
    if (next[i] < 0) continue;
    const long c = label(target, 2 * i + 1, P);
    ST sum = NONE;
    for (long j = i; j < longest; j = next[j] < 0 ? ~next[j] : next[j])
      sum = log_sum(sum, a[2 * j + 1] + z[2 * j + 1], NONE);
    y[c] = SLOPE(c, sum);
  }
}
