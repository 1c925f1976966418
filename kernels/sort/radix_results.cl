// One element of each sorted row (kthvalue, median, mode), on GPUs. `in` holds the sorted elements, `order` their
// places before. -D: those of radix.h, and for `pick_sorted` OP: which element (nth, median, nanmedian).
#include "common/join_group.h"
#include "sort/radix.h"

#define PICK_ARGS BUF(value), BUF(index), BUF(in), BUF(order)
typedef struct {
  __global const uchar* in;
  long stride;
  uint n;
} sorted_t;
static inline sorted_t sorted_row(const RadixParams* L, __global const uchar* in) {
  const sorted_t s = {in, L->in_stride, (uint)L->n};
  return s;
}
static inline key_t sorted_key(const sorted_t* s, uint i) {
  return key_of(*(__global const elem_t*)(s->in + i * s->stride));
}

// Of the elements from `low` to `high`, those equal to the first come first. Returns the place behind them.
static inline uint equals_end(const sorted_t* s, uint low, uint high) {
  const key_t key = sorted_key(s, low);
  while (low < high) {
    const uint mid = low + (high - low) / 2;
    if (sorted_key(s, mid) == key)
      low = mid + 1;
    else
      high = mid;
  }
  return low;
}
// How many elements of a row are not NaN.
static inline long numbers_of(const sorted_t* s) {
  uint low = 0, high = s->n;
#if INFINITY_BITS
  while (low < high) {
    const uint mid = low + (high - low) / 2;
    if (sorted_key(s, mid) != LAST_KEY)
      low = mid + 1;
    else
      high = mid;
  }
#endif
  return high;
}
static inline long nth_of(const sorted_t* s, long nth) { return nth; }
static inline long median_of(const sorted_t* s, long nth) {
  const long numbers = numbers_of(s);
  return numbers < s->n ? numbers : ((long)s->n - 1) / 2;  // a NaN wins
}
static inline long nanmedian_of(const sorted_t* s, long nth) {
  const long numbers = numbers_of(s);
  return numbers > 0 ? (numbers - 1) / 2 : 0;
}

#define WRITE_PICKED(at)                                                                  \
  do {                                                                                    \
    const long place = off.in / (long)sizeof(elem_t) + (at);                              \
    *(__global elem_t*)(value_buf + value_off + off.out0) = PTR(in, const elem_t)[place]; \
    *(__global long*)(index_buf + index_off + off.out1) = PTR(order, const long)[place];  \
  } while (0)

// A work-item takes a row. `take` is the nth.
__kernel void pick_sorted(PICK_ARGS, const RadixParams params) {
  const long row = get_global_id(0);
  if (row >= params.rows) return;
  const offsets_t off = offsets_at(&params.dims, row, 0);
  const sorted_t s = sorted_row(&params, in_buf + in_off + off.in);
  WRITE_PICKED(CAT(OP, _of)(&s, params.take));
}

// A group takes a row: the longest run of equals, the first of several; of its places, the last.
__kernel FIXED_GROUP_SIZE void pick_mode(PICK_ARGS, const RadixParams params) {
  __local uint lengths[GROUP], ends[GROUP];
  const uint t = get_local_id(0);
  const offsets_t off = offsets_at(&params.dims, get_group_id(0), 0);
  const sorted_t s = sorted_row(&params, in_buf + in_off + off.in);
  uint length = 0, end = 0;
  for (ulong next = t; next < s.n; next += GROUP) {  // next and apart may exceed 32 bits
    const uint i = (uint)next;
    if (i > 0 && sorted_key(&s, i) == sorted_key(&s, i - 1)) continue;
    // Runs are mostly short, so the end is looked for in steps that double.
    ulong apart = 1;
    while (apart < s.n - i && sorted_key(&s, i + (uint)apart) == sorted_key(&s, i)) apart *= 2;
    const uint behind = equals_end(&s, i, i + (uint)min(apart, (ulong)(s.n - i)));
    if (behind - i > length) {
      length = behind - i;
      end = behind;
    }
  }
  lengths[t] = length;
  ends[t] = end;
#define TAKE_LONGER(i)                                                              \
  if (lengths[i] > lengths[t] || (lengths[i] == lengths[t] && ends[i] < ends[t])) { \
    lengths[t] = lengths[i];                                                        \
    ends[t] = ends[i];                                                              \
  }
  JOIN_GROUP((int)t, GROUP, CLK_LOCAL_MEM_FENCE, TAKE_LONGER(t + (uint)apart))
  if (t == 0) WRITE_PICKED((long)ends[0] - 1);
}
