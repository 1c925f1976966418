// The moments of rows that a walk visits. -D: those of walk.h, IN (storage tag), OP=rms_norm if there is no mean.
#include "common/norm.h"
#include "common/walk.h"

// A second pass corrects the mean, so that a large one costs no accuracy, unless the sum was not finite.
static inline row_t correction(row_t off) { return isfinite(off) ? off : (row_t)(0); }
static inline row_t variance(row_t squares, row_t off) {
  const row_t v = squares - off * off;
  return v < 0 ? (row_t)(0) : v;
}

// Declares the moments of x: the mean is mean + off, and var is the biased variance.
#define is_rms_rms_norm 1
#define IS_RMS CAT(is_rms_, OP)
#if IS_RMS
#define TO_SQUARES(j)                         \
  {                                           \
    const VT v_ = COUNTED(j, X(IN, x, j), 0); \
    sum += v_ * v_;                           \
  }
#define MOMENTS                   \
  SUMS(sum);                      \
  EACH_SUM(TO_SQUARES, FOLD(sum)) \
  const row_t mean = 0, off = 0, var = ROW_SUM(TOTAL(sum)) / n;
#else
#define TO_SUM(j) sum += COUNTED(j, X(IN, x, j), 0);
#define TO_DEVIATIONS(j)                             \
  {                                                  \
    AHEAD(x, j);                                     \
    const VT d_ = COUNTED(j, X(IN, x, j) - mean, 0); \
    offs += d_;                                      \
    squares += d_ * d_;                              \
  }
#define MOMENTS                                           \
  SUMS(sum);                                              \
  SUMS(offs);                                             \
  SUMS(squares);                                          \
  EACH_SUM(TO_SUM, FOLD(sum))                             \
  const row_t mean = ROW_SUM(TOTAL(sum)) / n;             \
  EACH_SUM(TO_DEVIATIONS, FOLD(offs) FOLD(squares))       \
  const row_t off = correction(ROW_SUM(TOTAL(offs)) / n); \
  const row_t var = variance(ROW_SUM(TOTAL(squares)) / n, off);
#endif
