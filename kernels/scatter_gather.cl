// Reductions into indexed places: scatter_add, scatter_reduce, index_add, index_put(accumulate), put(accumulate).
// -D: VAL (storage tag), VAL_BYTES (its size), ACC (compute tag), RED (sum, prod, amax, amin), VEC, NIDX, IDX,
// ACC_FLOATING | ACC_INTEGRAL | ACC_COMPLEX, and ATOMIC if work-items may meet in one place. Without ATOMIC, the host
// lays out the space so that they cannot.
#include "common/index_space.h"
#include "common/vector.h"

#define RED_sum(a, b) ((a) + (b))
#if defined(ACC_COMPLEX)
#define RED_prod(a, b) C_MUL(ST, a, b)
#else
#define RED_prod(a, b) ((a) * (b))
#endif
// A NaN counts as the extreme value, as everywhere in PyTorch.
#if defined(ACC_FLOATING)
#define RED_amax(a, b) ((a) != (a) || (a) > (b) ? (a) : (b))
#define RED_amin(a, b) ((a) != (a) || (a) < (b) ? (a) : (b))
#else
#define RED_amax(a, b) max(a, b)
#define RED_amin(a, b) min(a, b)
#endif
#define REDUCE CAT(RED_, RED)

#ifdef ATOMIC
#define bits_1 uchar
#define bits_2 ushort
// A compare-and-swap on the word of 4 or 8 bytes that holds the element.
#if VAL_BYTES == 8
typedef ulong word_t;
#define SWAP(p, old, new) atom_cmpxchg(p, old, new)
#else
typedef uint word_t;
#define SWAP(p, old, new) atomic_cmpxchg(p, old, new)
#endif
// The element is taken out of the word by value. A cast pointer into the word would break the aliasing rules, on which
// compilers rely.
#if VAL_BYTES >= 4
static inline word_t combined(word_t word, uint shift, ST v) {
  union {
    word_t w;
    STORAGE(VAL) v;
  } slot;
  slot.w = word;
  const ST a = LOAD(VAL, ACC, 1, &slot.v, 0);
  STORE(VAL, ACC, 1, &slot.v, 0, REDUCE(a, v));
  return slot.w;
}
#else
typedef CAT(bits_, VAL_BYTES) bits_t;
static inline word_t combined(word_t word, uint shift, ST v) {
  bits_t bits = (bits_t)(word >> shift);
  const ST a = LOAD(VAL, ACC, 1, (STORAGE(VAL)*)&bits, 0);
  STORE(VAL, ACC, 1, (STORAGE(VAL)*)&bits, 0, REDUCE(a, v));
  return (word & ~(((1u << (8 * VAL_BYTES)) - 1) << shift)) | ((word_t)bits << shift);
}
#endif
static inline void combine(__global uchar* base, ulong offset, ST v) {
  const ulong within = offset & (sizeof(word_t) - 1);
  volatile __global word_t* p = (volatile __global word_t*)(base + (offset - within));
  word_t seen = *p, held;
  do {
    held = seen;
    seen = SWAP(p, held, combined(held, (uint)(8 * within), v));
  } while (seen != held);
}
#else
static inline void combine(__global uchar* base, ulong offset, ST v) {
  __global STORAGE(VAL)* p = (__global STORAGE(VAL)*)(base + offset);
  const ST a = LOAD(VAL, ACC, 1, p, 0);
  STORE(VAL, ACC, 1, p, 0, REDUCE(a, v));
}
#endif

// `scaled`: source values are multiplied by alpha first (index_add). `fill`: the value is alpha itself.
__kernel void indexed_reduce(BUF(o), BUF(s), INDEX_BUFS BUF(e), int code, int scaled, int fill, ulong2 alpha_bits,
                             const IndexSpaceParams L) {
  union {
    ulong2 bits;
    ST value;
  } arg;
  arg.bits = alpha_bits;
  const ST alpha = arg.value;
  __global int* err = PTR(e, int);
  const long begin = (long)get_global_id(0) * L.n_per_item, end = min(begin + L.n_per_item, L.n);
  long row = (long)get_global_id(1) * L.rows_per_item;
  const long last = min(row + L.rows_per_item, L.rows);
  if (row >= last || begin >= end) return;
  const long os = L.inner[0], ss = L.inner[1];
  row_t r = first_row(&L, row);
  for (;;) {
    const ulong o = o_off + r.off[0];
    __global const uchar* s = s_buf + s_off + r.off[1];
    const int fixed = INDEX_FIXED;
    long at = fixed ? INDEXED_OFFSET(begin) : 0, j = begin;
#if VEC > 1 && !defined(ATOMIC)
    if (fixed && os == sizeof(STORAGE(VAL)) && ss == sizeof(STORAGE(VAL)) && !scaled && !fill) {
      __global STORAGE(VAL)* po = (__global STORAGE(VAL)*)(o_buf + o + at);
      __global const STORAGE(VAL)* ps = (__global const STORAGE(VAL)*)s;
      for (; j + VEC <= end; j += VEC) {
        const VTYPE(ACC, VEC) a = LOAD(VAL, ACC, VEC, po, j);
        const VTYPE(ACC, VEC) b = LOAD(VAL, ACC, VEC, ps, j);
        STORE(VAL, ACC, VEC, po, j, REDUCE(a, b));
      }
    }
#endif
    for (; j < end; j++) {
      if (!fixed) at = INDEXED_OFFSET(j);
      ST v = alpha;
      if (!fill) {
        v = LOAD(VAL, ACC, 1, (__global const STORAGE(VAL)*)(s + j * ss), 0);
        if (scaled) v = RED_prod(v, alpha);
      }
      combine(o_buf, o + at + j * os, v);
    }
    if (++row >= last) break;
    next_row(&L, &r);
  }
}
