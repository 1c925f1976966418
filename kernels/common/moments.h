// Statistics of parts, and running ones.
#ifndef NETCL_MOMENTS_H
#define NETCL_MOMENTS_H

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
// A running statistic moves by the fraction f towards a new value, and takes the unbiased variance.
#define MOVED(old, f, value) ((1 - (f)) * (old) + (f) * (value))
#define UNBIASED(var, n) ((var) * (n) / ((n) - 1))

#endif
