// Adds the slices of a matrix multiplication that was split along k: c = alpha * (sum over slices of a) +
// beta * d. -D: OUT, ADD (storage tags), ACC (also of the slices), ACC_FLOATING | ACC_COMPLEX | neither. A
// work-item makes `nb` columns of one row; a.b0 is from one slice to the next, k their number.
#include "gemm/gemm.h"

__kernel void gemm_sum(BUF(a), BUF(c), BUF(d), const GemmParams P, const ST alpha, const ST beta) {
  const long row = get_global_id(1), begin = get_global_id(0) * P.n_tiles, end = min(begin + P.n_tiles, P.n);
  __global const ST* A = PTR(a, const ST) + row * P.a.rs;
  __global STORAGE(OUT)* C = PTR(c, STORAGE(OUT)) + row * P.c.rs;
  __global const STORAGE(ADD)* D = PTR(d, const STORAGE(ADD)) + row * P.d.rs;
  for (long col = begin; col < end; col++) {
    ST v = (ST)(0);
    for (long s = 0; s < P.k; s++) v += A[s * P.a.b0 + col];
    finish1(C + col * P.c.cs, D + col * P.d.cs, P.has_d, v, alpha, beta);
  }
}
