// Stockham's FFT on CPUs, all passes in one launch: a work-item takes VEC lines, which lie in the lanes of its vectors,
// and keeps them in scratch memory. A real transform of an even length n is a complex one of n / 2 numbers, each of two
// neighbours. -D: ACC (f32 or f64), VEC (16 or 8).
#include "args/fft.h"
#include "common/transpose.h"
#include "common/vector.h"

// A complex number of each lane.
typedef struct {
  VT re, im;
} pair_t;

static inline pair_t number(__global const VT* p, long i) {
  const pair_t r = {p[2 * i], p[2 * i + 1]};
  return r;
}
static inline void put(pair_t v, __global VT* p, long i) {
  p[2 * i] = v.re;
  p[2 * i + 1] = v.im;
}
static inline pair_t sum(pair_t a, pair_t b) {
  const pair_t r = {a.re + b.re, a.im + b.im};
  return r;
}
static inline pair_t difference(pair_t a, pair_t b) {
  const pair_t r = {a.re - b.re, a.im - b.im};
  return r;
}
static inline pair_t conjugate(pair_t a) {
  const pair_t r = {a.re, -a.im};
  return r;
}
// a + i * s * b
static inline pair_t turned_sum(pair_t a, ST s, pair_t b) {
  const pair_t r = {a.re - s * b.im, a.im + s * b.re};
  return r;
}
static inline pair_t scaled(ST s, pair_t a) {
  const pair_t r = {s * a.re, s * a.im};
  return r;
}
// a + s * b
static inline pair_t scaled_sum(pair_t a, ST s, pair_t b) {
  const pair_t r = {a.re + s * b.re, a.im + s * b.im};
  return r;
}
// Times a root of unity.
static inline pair_t rotated(pair_t a, __global const ST* w) {
  const ST c = w[0], s = w[1];
  const pair_t r = {a.re * c - a.im * s, a.re * s + a.im * c};
  return r;
}

// One pass: transforms of `done` numbers become transforms of done * radix. `root` has `turns` roots of unity; `turn`
// is 1, or -1 if they go clockwise.
typedef struct {
  __global const VT* from;
  __global VT* to;
  __global const ST* root;
  long n, done, turns;
  ST turn;
} pass_t;

ALWAYS_INLINE void two(pair_t* a, pair_t* b) {
  const pair_t x = *a;
  *a = sum(x, *b);
  *b = difference(x, *b);
}
ALWAYS_INLINE void four(pair_t* v, const int step, ST turn) {
  two(v, v + 2 * step);
  two(v + step, v + 3 * step);
  two(v, v + step);
  const pair_t middle = v[step], left = v[2 * step], right = v[3 * step];
  v[step] = turned_sum(left, turn, right);
  v[2 * step] = middle;
  v[3 * step] = turned_sum(left, -turn, right);
}
ALWAYS_INLINE void eight(pair_t* v, const pass_t* p) {
  four(v, 2, p->turn);
  four(v + 1, 2, p->turn);
  pair_t r[8];
  UNROLL for (int k = 0; k < 4; k++) {
    const pair_t odd = rotated(v[2 * k + 1], p->root + 2 * (k * (p->turns / 8)));
    r[k] = sum(v[2 * k], odd);
    r[k + 4] = difference(v[2 * k], odd);
  }
  UNROLL for (int k = 0; k < 8; k++)
    v[k] = r[k];
}
ALWAYS_INLINE void three(pair_t* v, ST turn) {
  const pair_t t = sum(v[1], v[2]), d = difference(v[1], v[2]), m = scaled_sum(v[0], -(ST)0.5, t);
  const ST s = turn * (ST)0.86602540378443864676;
  v[0] = sum(v[0], t);
  v[1] = turned_sum(m, s, d);
  v[2] = turned_sum(m, -s, d);
}
ALWAYS_INLINE void five(pair_t* v, ST turn) {
  const ST c1 = (ST)0.30901699437494742410, c2 = -(ST)0.80901699437494742410;
  const ST s1 = turn * (ST)0.95105651629515357212, s2 = turn * (ST)0.58778525229247312917;
  const pair_t t1 = sum(v[1], v[4]), t2 = sum(v[2], v[3]), d1 = difference(v[1], v[4]), d2 = difference(v[2], v[3]);
  const pair_t m1 = scaled_sum(scaled_sum(v[0], c1, t1), c2, t2), m2 = scaled_sum(scaled_sum(v[0], c2, t1), c1, t2);
  const pair_t n1 = scaled_sum(scaled(s1, d1), s2, d2), n2 = scaled_sum(scaled(s2, d1), -s1, d2);
  v[0] = sum(v[0], sum(t1, t2));
  v[1] = turned_sum(m1, 1, n1);
  v[4] = turned_sum(m1, -1, n1);
  v[2] = turned_sum(m2, 1, n2);
  v[3] = turned_sum(m2, -1, n2);
}
// By definition, for the other primes.
static inline void prime(pair_t* v, int radix, const pass_t* p) {
  pair_t r[13];
  for (int a = 0; a < radix; a++) {
    r[a] = v[0];
    for (int b = 1; b < radix; b++) r[a] = sum(r[a], rotated(v[b], p->root + 2 * (a * b % radix * (p->turns / radix))));
  }
  for (int a = 0; a < radix; a++) v[a] = r[a];
}

// `radix` is a constant.
ALWAYS_INLINE void pass_of(const int radix, const pass_t* p) {
  const long stride = p->n / radix, angle = p->turns / (p->done * radix);
  for (long block = 0, j = 0; j < stride; block += p->done * radix)
    for (long k = 0; k < p->done; k++, j++) {
      pair_t v[13];
      UNROLL for (int r = 0; r < radix; r++)
        v[r] = number(p->from, j + r * stride);
      if (k > 0) UNROLL
        for (int r = 1; r < radix; r++) v[r] = rotated(v[r], p->root + 2 * (r * k * angle));
      if (radix == 2) two(v, v + 1);
      if (radix == 3) three(v, p->turn);
      if (radix == 4) four(v, 1, p->turn);
      if (radix == 5) five(v, p->turn);
      if (radix == 8) eight(v, p);
      if (radix == 7 || radix > 8) prime(v, radix, p);
      UNROLL for (int r = 0; r < radix; r++)
        put(v[r], p->to, block + k + r * p->done);
    }
}
static inline void run_pass(int radix, const pass_t* p) {
  switch (radix) {
    case 2:
      return pass_of(2, p);
    case 3:
      return pass_of(3, p);
    case 4:
      return pass_of(4, p);
    case 5:
      return pass_of(5, p);
    case 7:
      return pass_of(7, p);
    case 8:
      return pass_of(8, p);
    case 11:
      return pass_of(11, p);
    case 13:
      return pass_of(13, p);
  }
}

// The lines of the lanes [first, first + VEC) in memory, or the last one instead of lines that there are not: `count`
// elements each, of `parts` numbers (2 if they are complex).
typedef struct {
  long first, lines, inner, count, parts;
} lanes_of_t;
static inline long start(const lanes_of_t* l, int k) {
  const long line = min(l->first + k, l->lines - 1), outer = line / l->inner;
  return (outer * l->count * l->inner + line - outer * l->inner) * l->parts;
}
static inline int are_adjacent(const lanes_of_t* l) {
  return l->first + VEC <= l->lines && l->first % l->inner + VEC <= l->inner;
}

static inline void load_lanes(const lanes_of_t* l, __global const ST* src, __global VT* to) {
  const long step = l->inner * l->parts, rows = l->count * l->parts;
  if (are_adjacent(l)) {
    src += start(l, 0);
    for (long j = 0; j < l->count; j++, src += step, to += l->parts) {
      const VT a = CAT(VLOAD_, VEC)(0, src), b = l->parts == 2 ? CAT(VLOAD_, VEC)(1, src) : a;
      to[0] = l->parts == 2 ? (VT)(a.even, b.even) : a;
      if (l->parts == 2) to[1] = (VT)(a.odd, b.odd);
    }
    return;
  }
  long i = 0;
#if VEC == 16
  for (; l->inner == 1 && i + 16 <= rows; i += 16) {
    VT v[16];
    UNROLL for (int k = 0; k < 16; k++)
      v[k] = vload16(0, src + start(l, k) + i);
    TRANSPOSE16(VT, v)
    UNROLL for (int k = 0; k < 16; k++)
      to[i + k] = v[k];
  }
#endif
  for (; i < rows; i++) {
    lanes_t v;
    const long at = i / l->parts * step + i % l->parts;
    for (int k = 0; k < VEC; k++) v.s[k] = src[start(l, k) + at];
    to[i] = v.v;
  }
}

static inline void store_lanes(const lanes_of_t* l, __global const VT* from, ST scale, __global ST* dst) {
  const long step = l->inner * l->parts, rows = l->count * l->parts;
  if (are_adjacent(l)) {
    dst += start(l, 0);
    for (long j = 0; j < l->count; j++, dst += step, from += l->parts) {
      if (l->parts == 1) {
        CAT(VSTORE_, VEC)(from[0] * scale, 0, dst);
        continue;
      }
      const VT re = from[0] * scale, im = from[1] * scale;
      VT lo, hi;
      lo.even = re.lo;
      lo.odd = im.lo;
      hi.even = re.hi;
      hi.odd = im.hi;
      CAT(VSTORE_, VEC)(lo, 0, dst);
      CAT(VSTORE_, VEC)(hi, 1, dst);
    }
    return;
  }
  long i = 0;
#if VEC == 16
  for (; l->inner == 1 && l->first + 16 <= l->lines && i + 16 <= rows; i += 16) {
    VT v[16];
    UNROLL for (int k = 0; k < 16; k++)
      v[k] = from[i + k] * scale;
    TRANSPOSE16(VT, v)
    UNROLL for (int k = 0; k < 16; k++)
      vstore16(v[k], 0, dst + start(l, k) + i);
  }
#endif
  for (; i < rows; i++) {
    lanes_t v;
    const long at = i / l->parts * step + i % l->parts;
    v.v = from[i] * scale;
    for (int k = 0; k < VEC && l->first + k < l->lines; k++) dst[start(l, k) + at] = v.s[k];
  }
}

// The numbers to transform, from what is given: real ones, or those of a real result.
static inline void prepare(const FftLinesParams* P, __global const VT* a, __global const ST* root, __global VT* b) {
  const long n = P->n, middle = n / 2;
  if (P->real_in) {
    for (long j = 0; j < n; j++) {
      b[2 * j] = a[j];
      b[2 * j + 1] = (VT)(0);
    }
  } else if (P->length == n) {
    for (long j = 0; j < n; j++) put(j < P->in_n ? number(a, j) : conjugate(number(a, n - j)), b, j);
  } else {
    for (long k = 0; k < middle; k++) {
      pair_t x = number(a, k), y = conjugate(number(a, middle - k));
      if (k == 0) x.im = y.im = (VT)(0);
      put(turned_sum(sum(x, y), 1, rotated(difference(x, y), root + 2 * k)), b, k);
    }
  }
}
// The transform of real numbers from that of pairs of them.
static inline void finish(const FftLinesParams* P, __global const VT* a, __global const ST* root, __global VT* b) {
  const long middle = P->n / 2;
  for (long i = 0; i < P->out_n; i++) {
    const long k = min(i, P->n - i);
    const pair_t x = number(a, k == middle ? 0 : k), y = conjugate(number(a, k == 0 ? 0 : middle - k));
    const pair_t odd = rotated(scaled((ST)0.5, difference(x, y)), root + 2 * k);
    const pair_t r = turned_sum(scaled((ST)0.5, sum(x, y)), -1, odd);
    put(i == k ? r : conjugate(r), b, i);
  }
}

#define SWAP(a, b)                \
  {                               \
    __global VT* const other = a; \
    a = b;                        \
    b = other;                    \
  }
__kernel void fft_lines(BUF(out), BUF(in), BUF(root), BUF(scratch), const FftLinesParams P) {
  __global VT *a = PTR(scratch, VT) + 2 * P.rows * get_global_id(0), *b = a + P.rows;
  __global const ST* root = PTR(root, const ST);
  const int halved = P.length < P.n;
  const ST scale = P.normalization == 0 ? 1 : P.normalization == 1 ? 1 / sqrt((ST)P.normalized) : 1 / (ST)P.normalized;
  for (long first = get_global_id(0) * VEC; first < P.lines; first += get_global_size(0) * VEC) {
    const lanes_of_t in = {first, P.lines, P.inner, P.in_n, 2 - P.real_in};
    const lanes_of_t out = {first, P.lines, P.inner, P.out_n, 2 - P.real_out};
    load_lanes(&in, PTR(in, const ST), a);
    if (P.real_out || (P.real_in && !halved)) {
      prepare(&P, a, root, b);
      SWAP(a, b)
    }
    pass_t p = {a, b, root, P.length, 1, P.n, P.inverse ? 1 : -1};
    for (int k = 0; k < P.passes; k++) {
      p.from = a;
      p.to = b;
      run_pass((int)P.radices[k], &p);
      p.done *= P.radices[k];
      SWAP(a, b)
    }
    if (P.real_in && halved) {
      finish(&P, a, root, b);
      SWAP(a, b)
    } else if (P.real_out && !halved) {
      for (long j = 0; j < P.n; j++) a[j] = a[2 * j];
    }
    store_lanes(&out, a, scale, PTR(out, ST));
  }
}
