// Adds the slices of a product whose k was split: C = alpha * (sum of the slices) + beta * D. `a` is the first slice;
// a.b0 leads from one slice to the next, k is their number. A work-item computes n_tiles columns of one row.
// -D: OUT, ADD (storage tags), ACC (also of the slices).
#include "gemm/gemm.h"

__kernel void gemm_sum(BUF(a), BUF(c), BUF(d), const GemmParams P, const GemmScalars S) {
  const long row = get_global_id(1), begin = get_global_id(0) * P.n_tiles, end = min(begin + P.n_tiles, P.n);
  __global const ST* A = PTR(a, const ST) + row * P.a.rs;
  const Epilogue E = epilogue(PTR(c, STORAGE(OUT)), PTR(d, const STORAGE(ADD)), &P, 0, &S);
  for (long col = begin; col < end; col++) {
    ST sum = (ST)(0);
    for (long slice = 0; slice < P.k; slice++) sum += A[slice * P.a.b0 + col];
    store_element(&E, row, col, sum);
  }
}
