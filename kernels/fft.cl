// Stockham's FFT over one dimension of contiguous tensors [lines, n, inner], with one pass per factor of n. `pass`
// combines transforms of `done` elements into transforms of done * RADIX elements, one butterfly per work-item; the
// last pass leaves the result in order. `roots` computes the n-th roots of unity that the passes multiply by, or the
// weights of Bluestein's algorithm. -D: ACC (c64 or c128); for a pass also RADIX, IN and OUT: ACC, or
// its real tag (reads with an imaginary part of 0, writes the real part).
#define WORK_GROUPS
#define VEC 1
#include "args/fft.h"
#include "common/vector.h"
#include "common/complex.h"
#include "common/few.h"

// e^(2 pi i k / n) for k < n. Quarter turns are exact, and the remaining angle is below pi / 2.
static inline VT root_of_unity(ulong k, ulong n) {
  const ulong quarter = 4 * k / n, rest = 4 * k - quarter * n;
  const R half_turns = (R)rest / (R)(2 * n), c = cospi(half_turns), s = sinpi(half_turns);
  const VT odd = quarter & 1 ? (VT)(-s, c) : (VT)(c, s);
  return quarter & 2 ? -odd : odd;
}

// For each k < n the n-th root of unity e^(-2 pi i k / n), or with `chirp` e^(-pi i k^2 / n).
__kernel void roots(BUF(out), long n, int inverse, int chirp) {
  const ulong k = get_global_id(0), turn = chirp ? 2 * n : n;
  if (k >= n) return;
  const VT w = root_of_unity(chirp ? k * k % turn : k, turn);
  PTR(out, VT)[k] = inverse ? w : c_conj(w);
}

#if defined(RADIX)
// A butterfly of v[first + step * k], k < 4; `turn` is the root of a quarter turn, (0, 1) or (0, -1).
static inline void four(VT* v, int first, int step, R turn) {
  const VT a = v[first], b = v[first + step], c = v[first + 2 * step], d = v[first + 3 * step], e = (b - d).yx;
  const VT even = a + c, odd = b + d, left = a - c, right = (VT)(-turn * e.x, turn * e.y);
  v[first] = even + odd;
  v[first + step] = left + right;
  v[first + 2 * step] = even - odd;
  v[first + 3 * step] = left - right;
}

static inline void butterfly(VT* v, __global const VT* root, uint step) {
  if (RADIX == 2) {
    const VT a = v[0];
    v[0] = a + v[1];
    v[1] = a - v[1];
  } else if (RADIX == 4) {
    four(v, 0, 1, root[step].y);
  } else if (RADIX == 8) {
    const R turn = root[2 * step].y;
    four(v, 0, 2, turn);
    four(v, 1, 2, turn);
    VT r[8];
    for (int k = 0; k < 4; k++) {
      const VT odd = c_mul(v[2 * k + 1], root[k * step]);
      r[k] = v[2 * k] + odd;
      r[k + 4] = v[2 * k] - odd;
    }
    for (int k = 0; k < 8; k++) v[k] = r[k];
  } else if (RADIX > 1) {
    VT r[RADIX];
    FOR_FEW(a, 0, RADIX, RADIX) {
      r[a] = v[0];
      FOR_FEW(b, 1, RADIX, RADIX) r[a] += c_mul(v[b], root[a * b % RADIX * step]);
    }
    FOR_FEW(a, 0, RADIX, RADIX) v[a] = r[a];
  }
}

// The input holds the first elements of the dimension; the others are the conjugates of their mirror images, since the
// transform is real.
__kernel void pass(BUF(out), BUF(in), BUF(root), const FftPassParams P) {
  const uint i = get_global_id(0), inner = P.inner, done = P.done;
  const ulong line = get_global_id(1);
  if (i >= P.butterflies || line >= P.lines) return;
  const uint stride = P.n / RADIX, j = i / inner, at = i - j * inner;
  const uint block = j / done, k = j - block * done, turn = k * (stride / done);
  __global const STORAGE(IN)* src = PTR(in, const STORAGE(IN)) + line * P.in_n * P.inner + at;
  __global STORAGE(OUT)* dst = PTR(out, STORAGE(OUT)) + line * P.out_n * P.inner + at;
  __global const VT* w = PTR(root, const VT);
  VT v[RADIX];
  FOR_FEW(r, 0, RADIX, RADIX) {
    const uint p = j + r * stride;
    v[r] = p < P.in_n ? LOAD(IN, ACC, 1, src, p * P.inner) : c_conj(LOAD(IN, ACC, 1, src, (P.n - p) * P.inner));
    if (r > 0 && done > 1) v[r] = c_mul(v[r], w[r * turn]);
  }
  butterfly(v, w, stride);
  const R scale = P.normalization == 0 ? 1 : P.normalization == 1 ? 1 / sqrt((R)P.normalized) : 1 / (R)P.normalized;
  FOR_FEW(r, 0, RADIX, RADIX) {
    const ulong p = (ulong)block * P.done * RADIX + k + r * P.done;
    if (p < P.out_n) STORE(OUT, ACC, 1, dst, p * P.inner, v[r] * scale);
  }
}
#endif
