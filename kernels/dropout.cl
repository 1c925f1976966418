// Dropout: out = in * mask / (1 - p), with a mask drawn as in random.cl. -D: IO (storage tag), ACC.
#include "args/random.h"
#include "common/philox.h"
#include "common/scalar.h"

__kernel void dropout(BUF(out), BUF(mask), BUF(in), ulong seed, ulong offset, const RandomParams P) {
  __global const STORAGE(IO)* x = PTR(in, STORAGE(IO));
  __global STORAGE(IO)* y = PTR(out, STORAGE(IO));
  __global uchar* m = PTR(mask, uchar);
  const long n = P.n, first = (long)get_global_id(0) * P.per;
  const float keep = (float)scalar_of(P.a);
  const ST scale = scalar_of(P.b);
  for (long g = first; g < first + P.per && PLACE(g, 0, 4) < n; g++) {
    const words_t words = philox_blocks(seed, offset + (ulong)g * BLOCKS);
    FOR_FEW(k, 0, 4, 4) {
      const long i = PLACE(g, k, 4);
      const floats u = uniform_closed_open(words.w[k]);
      const VTYPE(u8, BLOCKS) kept = CONVERT(u8, BLOCKS, u < (floats)keep) & (VTYPE(u8, BLOCKS))1;
      if (i + BLOCKS <= n) {
        CAT(VSTORE_, BLOCKS)(kept, 0, m + i);
        STORE(IO, ACC, BLOCKS, y, i, LOAD(IO, ACC, BLOCKS, x, i) * CONVERT(ACC, BLOCKS, kept) * scale);
      } else {
        uchar lanes[BLOCKS];
        CAT(VSTORE_, BLOCKS)(kept, 0, lanes);
        for (int j = 0; j < BLOCKS && i + j < n; j++) {
          m[i + j] = lanes[j];
          STORE(IO, ACC, 1, y, i + j, LOAD(IO, ACC, 1, x, i + j) * CONVERT(ACC, 1, lanes[j]) * scale);
        }
      }
    }
  }
}
