// Shared by the kernels of normalisation: their operands, statistics of parts, and running ones. -D: those of vector.h;
// RT, the storage tag of running statistics.
#include "args/norm.h"
#include "common/wide.h"

// Operands that come together: the statistics of each row or channel, the parameters, the running statistics, and the
// gradients. Those that are missing or not wanted are null.
#define SAVED BUF(mean), BUF(rstd)
#define AFFINE BUF(weight), BUF(bias)
#define RUNNING BUF(run_mean), BUF(run_var)
#define GRADIENTS BUF(gin), BUF(gw), BUF(gb)

// Joins `parts` parts. Of part i, `count` numbers, the mean is pivot + shift, and the squares of the deviations from it
// have the sum `squares`. Declares pivot_, shift_ and squares_ of all numbers, `total`. As in Chan, Golub and LeVeque,
// "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances" (1979).
#define JOIN_MOMENTS(T, parts, pivot, shift, squares, count, total) \
  T pivot_ = (T)(0), shift_ = (T)(0), squares_ = (T)(0);            \
  for (long i = 0; i < (parts); i++) {                              \
    if (i == 0) pivot_ = pivot;                                     \
    shift_ += (pivot - pivot_ + shift) * (count);                   \
  }                                                                 \
  shift_ /= (total);                                                \
  for (long i = 0; i < (parts); i++) {                              \
    const T d_ = pivot - pivot_ + shift - shift_;                   \
    squares_ += squares + d_ * d_ * (count);                        \
  }
// Saves the statistics of channel c, of n numbers, and moves the running ones towards them, which take the unbiased
// variance. VALUE and PUT are those of a walk, or PARAM and PUT_PARAM.
#define MOVE_RUNNING(VALUE, PUT, run, c, value) \
  PUT(RT, run, c, (1 - (ST)WIDE_OF(P.momentum)) * VALUE(RT, run, c, 0) + (ST)WIDE_OF(P.momentum) * (value))
#define SAVE_STATISTICS(VALUE, PUT, c, m, r, var, n) \
  PUT(ACC, mean, c, m);                              \
  PUT(ACC, rstd, c, r);                              \
  MOVE_RUNNING(VALUE, PUT, run_mean, c, m);          \
  MOVE_RUNNING(VALUE, PUT, run_var, c, (var) * (n) / ((n) - 1));
