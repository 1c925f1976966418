// Dropout: out = in * mask / (1 - p), with a mask drawn as in random.cl. -D: IO (storage tag), ACC.
#include "common/vector.h"
#include "common/philox.h"

__kernel void dropout(BUF(out), BUF(mask), BUF(in), long n, long groups, ulong seed, ulong offset, float keep,
                      ST scale) {
  __global const STORAGE(IO)* x = PTR(in, STORAGE(IO));
  __global STORAGE(IO)* y = PTR(out, STORAGE(IO));
  __global uchar* m = PTR(mask, uchar);
  const long first = (long)get_global_id(0) * groups;
  for (long g = first; g < first + groups && g * 64 < n; g++) {
    const words_t words = philox16(seed, offset + (ulong)g * 16);
    for (int k = 0; k < 4; k++) {
      const long i = g * 64 + k * 16;
      const float16 u = uniform_closed_open(words.w[k]);
      const uchar16 kept = convert_uchar16(u < (float16)keep) & (uchar16)1;
      if (i + 16 <= n) {
        vstore16(kept, 0, m + i);
        STORE(IO, ACC, 16, y, i, LOAD(IO, ACC, 16, x, i) * CONVERT(ACC, 16, kept) * scale);
      } else {
        uchar lanes[16];
        vstore16(kept, 0, lanes);
        for (int j = 0; j < 16 && i + j < n; j++) {
          m[i + j] = lanes[j];
          STORE(IO, ACC, 1, y, i + j, LOAD(IO, ACC, 1, x, i + j) * CONVERT(ACC, 1, lanes[j]) * scale);
        }
      }
    }
  }
}
