// A stable merge sort of rows, by keys that compare as unsigned integers, each with the place it came from: `runs`
// sorts short runs, `merge` doubles them (each work-item finds its own part of the result by bisection, so one long row
// keeps a device as busy as many short ones), `finish` fetches the values. `select` keeps the k first of a segment
// (topk), `pick` takes one element of a sorted row (kthvalue, median, mode). `search` is a bisection (searchsorted).
// -D: IN (dtype tag), ACC (f32 i32: keys of 32 bits; f64 i64 u64: 64), DESCENDING, RAW (unsigned type of an element's
// size), FORM_RUNS | FORM_MERGE | FORM_FINISH | FORM_SELECT | FORM_PICK | FORM_SEARCH, PICK_MEDIAN | PICK_NANMEDIAN |
// PICK_MODE, OUT and RIGHT and SORTER (search).
#include "args/sort.h"
#include "common/vector.h"

#define READ(p) LOAD(IN, ACC, 1, (__global const STORAGE(IN)*)(p), 0)

#if defined(FORM_SEARCH)
__kernel void search(BUF(out), BUF(bounds), BUF(values), BUF(sorter), const long n, const long row, const long bounds_n,
                     const long shared, const long chunk) {
  const long begin = (long)get_global_id(0) * chunk, end = min(begin + chunk, n);
  for (long i = begin; i < end; i++) {
    const ST x = LOAD(IN, ACC, 1, PTR(values, STORAGE(IN)), i);
    const long base = shared ? 0 : i / row * bounds_n;
    long low = 0, high = bounds_n;
    while (low < high) {
      const long mid = low + (high - low) / 2;
#if defined(SORTER)
      const long at = base + PTR(sorter, long)[base + mid];
#else
      const long at = base + mid;
#endif
      const ST y = LOAD(IN, ACC, 1, PTR(bounds, STORAGE(IN)), at);
#if defined(RIGHT)
      const int before = !(y > x);
#else
      const int before = !(y >= x);
#endif
      if (before)
        low = mid + 1;
      else
        high = mid;
    }
    PTR(out, STORAGE(OUT))[i] = low;
  }
}
#else

#if defined(ACC_WIDE)
typedef ulong key_t;
typedef ulong2 pair_t;
#define PAIR(key, place) ((ulong2)(key, place))
#define KEY(p) ((p).x)
#define PLACE(p) ((long)(p).y)
#define LESS(a, b) ((a).x < (b).x || ((a).x == (b).x && (a).y < (b).y))
#define LAST_PAIR ((ulong2)(ULONG_MAX, ULONG_MAX))
#define SIGN 0x8000000000000000UL
#define LAST_KEY ULONG_MAX
#else
typedef uint key_t;
typedef ulong pair_t;
#define PAIR(key, place) (((ulong)(key) << 32) | (ulong)(place))
#define KEY(p) ((uint)((p) >> 32))
#define PLACE(p) ((long)((p) & 0xffffffffUL))
#define LESS(a, b) ((a) < (b))
#define LAST_PAIR ULONG_MAX
#define SIGN 0x80000000u
#define LAST_KEY UINT_MAX
#endif

// Unsigned order: NaN is the greatest, 0 and -0 are equal.
#define bits_f32(x) as_uint(x)
#define bits_f64(x) as_ulong(x)
static inline key_t ascending_key(ST x) {
#if defined(ACC_FLOATING)
  if (isnan(x)) return LAST_KEY;
  if (x == 0) return SIGN;
  const key_t u = CAT(bits_, ACC)(x);
  return (u & SIGN) ? ~u : (u | SIGN);
#elif defined(ACC_UNSIGNED)
  return x;
#else
  return (key_t)x ^ SIGN;
#endif
}
#if defined(DESCENDING)
#define KEY_OF(x) (~ascending_key(x))
#else
#define KEY_OF(x) ascending_key(x)
#endif

typedef struct {
  long in, out0, out1;
} offsets_t;
static inline offsets_t row_offsets(const SortParams* L, long row) {
  offsets_t r = {0, 0, 0};
  for (int d = 0; d < L->ndim; d++) {
    const long q = row / L->size[d], k = row - q * L->size[d];
    r.in += k * L->in[d];
    r.out0 += k * L->out0[d];
    r.out1 += k * L->out1[d];
    row = q;
  }
  return r;
}

// A piece of work is `piece` elements of a row: [begin, end).
#define FOR_EACH_PIECE                                            \
  const SortParams* L = &params;                                  \
  const long first = (long)get_global_id(0) * L->pieces_per_item; \
  const long last = min(first + L->pieces_per_item, L->pieces);   \
  const long each = (L->n + L->piece - 1) / L->piece;             \
  for (long piece = first; piece < last; piece++)
#define PIECE const long row = piece / each, begin = (piece - row * each) * L->piece, end = min(begin + L->piece, L->n);

#if defined(FORM_RUNS)
__kernel void runs(BUF(in), BUF(to), const SortParams params) {
  FOR_EACH_PIECE {
    PIECE
    const offsets_t off = row_offsets(L, row);
    __global const uchar* src = in_buf + in_off + off.in;
    __global pair_t* to = PTR(to, pair_t) + row * L->n;
    pair_t run[kShortRun];
    for (long at = begin; at < end; at += kShortRun) {
      const int n = (int)min((long)kShortRun, end - at);
      for (int i = 0; i < n; i++) {
        const pair_t p = PAIR(KEY_OF(READ(src + (at + i) * L->in_stride)), at + i);
        int j = i;
        for (; j > 0 && LESS(p, run[j - 1]); j--) run[j] = run[j - 1];
        run[j] = p;
      }
      for (int i = 0; i < n; i++) to[at + i] = run[i];
    }
  }
}
#endif

#if defined(FORM_SELECT)
// The `take` first of each segment of `piece` elements, in order.
__kernel void select_first(BUF(in), BUF(to), const SortParams params) {
  FOR_EACH_PIECE {
    PIECE
    const offsets_t off = row_offsets(L, row);
    __global const uchar* src = in_buf + in_off + off.in;
    __global pair_t* to = PTR(to, pair_t) + piece * L->take;
    const long k = L->take;
    long held = 0;
    pair_t worst = LAST_PAIR;
    for (long i = begin; i < end; i++) {
      const pair_t p = PAIR(KEY_OF(READ(src + i * L->in_stride)), i);
      if (held == k && !LESS(p, worst)) continue;
      long j = held < k ? held++ : k - 1;
      for (; j > 0 && LESS(p, to[j - 1]); j--) to[j] = to[j - 1];
      to[j] = p;
      worst = to[held - 1];
    }
    for (; held < k; held++) to[held] = LAST_PAIR;
  }
}
#endif

#if defined(FORM_MERGE)
// Elements [begin, end) of what the runs of `width` make when merged two by two; `piece` divides 2 * width.
__kernel void merge(BUF(from), BUF(to), const SortParams params) {
  FOR_EACH_PIECE {
    PIECE
    __global const pair_t* from = PTR(from, pair_t) + row * L->n;
    __global pair_t* to = PTR(to, pair_t) + row * L->n;
    const long start = begin / (2 * L->width) * (2 * L->width);
    const long na = min(L->width, L->n - start), nb = min(L->width, L->n - start - na);
    __global const pair_t *a = from + start, *b = a + na;
    const long skip = begin - start;
    long low = max(0L, skip - nb), high = min(skip, na);
    while (low < high) {
      const long mid = low + (high - low) / 2;
      if (LESS(b[skip - 1 - mid], a[mid]))
        high = mid;
      else
        low = mid + 1;
    }
    long i = low, j = skip - low, at = begin;
    while (at < end && i < na && j < nb) {
      const pair_t x = a[i], y = b[j];
      const int second = LESS(y, x);
      to[at++] = second ? y : x;
      i += !second;
      j += second;
    }
    while (at < end && i < na) to[at++] = a[i++];
    while (at < end && j < nb) to[at++] = b[j++];
  }
}
#endif

#define FETCH(place)                                                      \
  *(__global RAW*)(out0_buf + out0_off + off.out0 + i * L->out0_stride) = \
      *(__global const RAW*)(in_buf + in_off + off.in + (place) * L->in_stride)

#if defined(FORM_FINISH)
// n is the length of a row of `from`, of which the first `take` go out.
__kernel void finish(BUF(out0), BUF(out1), BUF(in), BUF(from), const SortParams params) {
  FOR_EACH_PIECE {
    PIECE
    const offsets_t off = row_offsets(L, row);
    __global const pair_t* from = PTR(from, pair_t) + row * L->n;
    const long stop = min(end, L->take);
    for (long i = begin; i < stop; i++) {
      const long place = PLACE(from[i]);
      FETCH(place);
      *(__global long*)(out1_buf + out1_off + off.out1 + i * L->out1_stride) = place;
    }
  }
}
#endif

#if defined(FORM_PICK)
// One element of a sorted row; `take` is which (kthvalue).
__kernel void pick(BUF(out0), BUF(out1), BUF(in), BUF(from), const SortParams params) {
  FOR_EACH_PIECE {
    PIECE
    const offsets_t off = row_offsets(L, row);
    __global const pair_t* from = PTR(from, pair_t) + row * L->n;
    long at = L->take;
#if defined(ACC_FLOATING) && (defined(PICK_MEDIAN) || defined(PICK_NANMEDIAN))
    long numbers = 0, high = L->n;  // how many come before the first NaN
    while (numbers < high) {
      const long mid = numbers + (high - numbers) / 2;
      if (KEY(from[mid]) != LAST_KEY)
        numbers = mid + 1;
      else
        high = mid;
    }
#if defined(PICK_MEDIAN)
    at = numbers < L->n ? numbers : (L->n - 1) / 2;
#else
    at = numbers > 0 ? (numbers - 1) / 2 : 0;
#endif
#elif defined(PICK_MEDIAN) || defined(PICK_NANMEDIAN)
    at = (L->n - 1) / 2;
#elif defined(PICK_MODE)
    long best = 0, run = 0;
    for (long i = 0; i < L->n; i++) {
      run = i > 0 && KEY(from[i]) == KEY(from[i - 1]) ? run + 1 : 1;
      if (run > best) {
        best = run;
        at = i;
      }
    }
#endif
    const long i = 0, place = PLACE(from[at]);
    FETCH(place);
    *(__global long*)(out1_buf + out1_off + off.out1) = place;
  }
}
#endif
#endif
