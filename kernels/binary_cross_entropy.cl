// Binary cross entropy of each element. Reports an input or target that is no probability to the host. Logarithms are
// at least -100, as on CPU and CUDA. -D: IN (all tensors), ACC, VEC.
#define GROUP 1
#include "args/loss.h"
#include "common/rows.h"

DEFINE_LANES(IN)

__kernel void binary_cross_entropy(BUF(loss), BUF(in), BUF(target), BUF(err), const BceParams P) {
  const long begin = (long)get_global_id(0) * P.per, end = min(begin + P.per, P.n);
  int input_fits = 1, target_fits = 1;
  for (long i = begin; i < end; i += VEC) {
    const int lanes = LANES(i, end);
    const VT x = LOAD_LANES(IN, PTR(in, const STORAGE(IN)), i, lanes, 0);
    const VT y = LOAD_LANES(IN, PTR(target, const STORAGE(IN)), i, lanes, 0);
    input_fits &= all((x >= 0) & (x <= 1));
    target_fits &= all((y >= 0) & (y <= 1));
    STORE_LANES(IN, PTR(loss, STORAGE(IN)), i, lanes,
                (y - 1) * fmax(log1p(-x), (VT)(-100)) - y * fmax(log(x), (VT)(-100)));
  }
  if (!input_fits) netcl_report(PTR(err, int), P.bad_input, 0, 0);
  if (!target_fits) netcl_report(PTR(err, int), P.bad_target, 0, 0);
}
