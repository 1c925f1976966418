// CTC loss in log space. A target of n labels has 2 n + 1 states: its labels with blanks around them. `spans` holds (3,
// batch): the lengths of inputs and of targets, and where the targets begin. log_probs is (steps, batch, classes);
// alpha and beta are (batch, steps, states). -D: ACC, the dtype; GROUP (work-items per work-group); VEC (states of a
// vector; 1 on GPUs); KEPT if local memory has room for a row (a power of two from 64 on, not less than the states).
#include "args/ctc.h"
#include "common/join_group.h"
#include "common/vector.h"

#define NONE (-(ST)INFINITY)
#define SEQUENCES BUF(log_probs), BUF(targets), BUF(spans)
#define GRADIENT_ARGS BUF(out), BUF(grad), BUF(alpha), BUF(beta), BUF(nll), SEQUENCES, const CtcParams P

// log(exp(a) + exp(b) + exp(c)).
#define LOG_SUM(T, name)                                                   \
  static inline T name(T a, T b, T c) {                                    \
    const T top = fmax(a, fmax(b, c)), shift = top == NONE ? (T)(0) : top; \
    return log(exp(a - shift) + exp(b - shift) + exp(c - shift)) + shift;  \
  }
LOG_SUM(ST, log_sum)
LOG_SUM(VT, log_sums)

// The class of state s; an invalid class counts as the blank.
static inline long label(__global const long* target, long s, CtcParams P) {
  const long c = s % 2 ? target[s / 2] : P.blank;
  return c >= 0 && c < P.classes ? c : P.blank;
}

#define PLACE(i) (reverse ? used - 1 - (i) : (i))
#if defined(KEPT)
#define BEFORE(n, i) rows[((n) + 1) % 2][(i) + 2]
#define LOADED(p) CAT(LOADED_, VEC)(p)
#define LOADED_1(p) (*(p))
#define LOADED_4(p) vload4(0, p)
#define LOADED_16(p) vload16(0, p)
#else
#define BEFORE(n, i) a[(reverse ? length - (n) : (n) - 1) * P.states + PLACE(i)]
#endif

// The logarithm of the probability of all paths that lead to a state; with `reverse`, of all paths from it on. Both
// include the state's own step. One work-group per sequence. The forward pass also stores the negative log likelihood.
__kernel void ctc_scan(BUF(alpha), BUF(nll), SEQUENCES, BUF(err), const CtcParams P) {
  const long b = get_group_id(0), classes = P.classes;
  const int lane = get_local_id(0), reverse = P.reverse;
  __global const long* span = PTR(spans, const long);
  const long length = span[b], labels = span[P.batch + b];
  const long used = 2 * labels + 1;
  __global const long* target = PTR(targets, const long) + span[2 * P.batch + b];
  __global ST* a = PTR(alpha, ST) + b * P.steps * P.states;
  for (long i = lane; i < labels; i += GROUP)
    if (target[i] < 0 || target[i] >= classes) netcl_report(PTR(err, int), P.code, target[i], classes);
#if defined(KEPT)
  // The states of this step and the one before, in the order in which they follow each other, behind two places: the
  // second is where paths begin. A state's class is complemented if no path may leave out the state before.
  __local ST rows[2][KEPT + 2];
  __local int chosen[KEPT];
  for (int i = lane; i < KEPT; i += GROUP) {
    const int c = (int)(i < used ? label(target, PLACE(i), P) : P.blank);
    chosen[i] = i == 1 || (i > 1 && i < used && c != label(target, PLACE(i - 2), P)) ? c : ~c;
    rows[1][i + 2] = NONE;
  }
  if (lane == 0) rows[0][0] = rows[1][0] = NONE, rows[1][1] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
#endif
  for (long n = 0; n < length; n++) {
    const long t = reverse ? length - 1 - n : n;
    __global const ST* p = PTR(log_probs, const ST) + (t * P.batch + b) * classes;
#if defined(KEPT)
    __local const ST* before = rows[(n + 1) % 2];
    __local ST* row = rows[n % 2];
    if (lane == 0) row[1] = NONE;
    for (int i = lane * VEC; i < used; i += GROUP * VEC) {
      lanes_t sum, left;
      UNROLL for (int j = 0; j < VEC; j++) {
        const int c = chosen[i + j];
        sum.s[j] = p[max(c, ~c)];
        left.s[j] = c < 0 ? NONE : before[i + j];
      }
      sum.v += log_sums(LOADED(before + i + 2), LOADED(before + i + 1), left.v);
      UNROLL for (int j = 0; j < VEC; j++) {
        row[i + j + 2] = sum.s[j];
        if (i + j < used) a[t * P.states + PLACE(i + j)] = sum.s[j];
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#else
    for (long i = lane; i < used; i += GROUP) {
      const long c = label(target, PLACE(i), P);
      ST sum = i < 2 ? p[c] : NONE;
      if (n > 0) {
        const bool skips = i > 1 && c != label(target, PLACE(i - 2), P);
        sum = log_sum(BEFORE(n, i), i > 0 ? BEFORE(n, i - 1) : NONE, skips ? BEFORE(n, i - 2) : NONE) + p[c];
      }
      a[t * P.states + PLACE(i)] = sum;
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
#endif
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
  __global const ST* p = PTR(log_probs, const ST) + (t * batch + b) * classes;
  // 0, or NaN if there is no path.
  for (long c = 0; c < classes; c++) y[c] = exp(NONE + loss - p[c]);
  const long row = (b * P.steps + t) * P.states;
  __global const ST *a = PTR(alpha, const ST) + row, *z = PTR(beta, const ST) + row;
  // The probability that the paths are in a state at this step.
  for (long s = 0; s < used; s += VEC) {
    lanes_t x;
    int at[VEC];
    for (int j = 0; j < VEC; j++) {
      at[j] = (int)label(target, min(s + j, used - 1), P);
      x.s[j] = s + j < used ? a[s + j] + z[s + j] + loss - p[at[j]] : NONE;
    }
    x.v = exp(x.v);
    for (int j = 0; j < VEC; j++) y[at[j]] += x.s[j];
  }
  for (long c = 0; c < classes; c++) y[c] = (exp(p[c]) - y[c]) * g;
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
