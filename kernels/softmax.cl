// softmax and log_softmax, forward and backward.
// -D: OP (softmax or log_softmax), IN, OUT (storage tags of what is read and written), KEEP_IN (1: a row's exponentials
// are kept in local memory; 2: in the output, which has the compute type), and those of the walk.
// A maximum ignores a NaN, but it still reaches the sum and so the whole row. A row of -inf becomes NaN too.
#include "common/walk.h"
#include "common/exp_below.h"

DEFINE_LANES(IN)
DEFINE_LANES(OUT)

#define is_log_softmax 0
#define is_log_log_softmax 1
#define LOG CAT(is_log_, OP)

#if KEEP_IN == 1
#define LOCAL_ROW __local VT *kept,
#define KEEP_ONE(j, e) kept[(j) / VEC] = e
#define KEPT_ONE(j) kept[(j) / VEC]
#elif LOG
#define KEEP_ONE(j, e)
#elif KEEP_IN == 2
#define KEEP_ONE(j, e) PUT(OUT, y, j, e)
#define KEPT_ONE(j) X(OUT, y, j)
#else
#define KEEP_ONE(j, e) KEEP(x, j, e)
#define KEPT_ONE(j) KEPT(x, j, EXP_BELOW(X(IN, x, j) - top))
#endif
#ifndef LOCAL_ROW
#define LOCAL_ROW
#endif

#define TO_MOST(j)                                    \
  {                                                   \
    const VT v_ = COUNTED(j, X(IN, x, j), -INFINITY); \
    most = v_ > most ? v_ : most;                     \
  }
#define TO_SUM(j)                               \
  {                                             \
    AHEAD(x, j);                                \
    const VT e_ = EXP_BELOW(X(IN, x, j) - top); \
    KEEP_ONE(j, e_);                            \
    sum += COUNTED(j, e_, 0);                   \
  }
#define TO_LOG(j) PUT(OUT, y, j, X(IN, x, j) - top - shift);
#define TO_SCALED(j) PUT(OUT, y, j, KEPT_ONE(j) * scale);

__kernel WALK_GROUP_SIZE void softmax(BUF(out), BUF(in), LOCAL_ROW const RowWalk W) {
  WALK(W) {
    OPERAND(IN, x, in);
    RESULT(OUT, y, out, x);
    VT most = (VT)(-INFINITY), sum = (VT)(0);
    EACH(TO_MOST);
    const row_t top = ROW_MAX(most);
    EACH(TO_SUM);
#if LOG
    const row_t shift = log(ROW_SUM(sum));
    EACH(TO_LOG);
#else
    const row_t scale = 1 / ROW_SUM(sum);
    EACH(TO_SCALED);
#endif
    STORED(OUT, y, out);
  }
  STORES_DONE();
}

#if LOG
#define TERM(g, y) (g)
#define DERIVATIVE(g, y, sum) ((g) - exp(y) * (sum))
#else
#define TERM(g, y) ((g) * (y))
#define DERIVATIVE(g, y, sum) (((g) - (sum)) * (y))
#endif
#define TO_DOT(j) dot += COUNTED(j, TERM(X(IN, g, j), X(IN, y, j)), 0);
#define TO_GRAD(j)                               \
  {                                              \
    AHEAD(g, j);                                 \
    AHEAD(y, j);                                 \
    const VT g_ = X(IN, g, j), y_ = X(IN, y, j); \
    PUT(OUT, to, j, DERIVATIVE(g_, y_, sum));    \
  }

__kernel WALK_GROUP_SIZE void softmax_backward(BUF(gin), BUF(grad), BUF(output), const RowWalk W) {
  WALK(W) {
    OPERAND(IN, g, grad);
    OPERAND(IN, y, output);
    RESULT(OUT, to, gin, g);
    VT dot = (VT)(0);
    EACH(TO_DOT);
    const row_t sum = ROW_SUM(dot);
    EACH(TO_GRAD);
    STORED(OUT, to, gin);
  }
  STORES_DONE();
}
