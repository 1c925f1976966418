// combine(base, offset, v) reduces v into the element at a byte offset of global memory.
// -D: OUT (storage tag), ACC (compute tag), OP (sum, prod, amax, amin);
// ATOMIC if work-items may meet in one place, with BYTES, the size of OUT, and perhaps NATIVE, the built-in
// function that does it.
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
#define REDUCE CAT(RED_, OP)

#if defined(NATIVE)
static inline void combine(__global uchar* base, ulong offset, ST v) {
  NATIVE((volatile __global STORAGE(OUT)*)(base + offset), (STORAGE(OUT))v);
}
#elif defined(ATOMIC)
#define bits_1 uchar
#define bits_2 ushort
// A compare-and-swap on the word of 4 or 8 bytes that holds the element.
#if BYTES == 8
typedef ulong word_t;
#define SWAP(p, old, new) atom_cmpxchg(p, old, new)
#else
typedef uint word_t;
#define SWAP(p, old, new) atomic_cmpxchg(p, old, new)
#endif
// The element is taken out of the word by value. A cast pointer into the word would break the aliasing rules, on which
// compilers rely.
#if BYTES >= 4
static inline word_t combined(word_t word, uint shift, ST v) {
  union {
    word_t w;
    STORAGE(OUT) v;
  } slot;
  slot.w = word;
  const ST a = LOAD(OUT, ACC, 1, &slot.v, 0);
  STORE(OUT, ACC, 1, &slot.v, 0, REDUCE(a, v));
  return slot.w;
}
#else
typedef CAT(bits_, BYTES) bits_t;
static inline word_t combined(word_t word, uint shift, ST v) {
  bits_t bits = (bits_t)(word >> shift);
  const ST a = LOAD(OUT, ACC, 1, (STORAGE(OUT)*)&bits, 0);
  STORE(OUT, ACC, 1, (STORAGE(OUT)*)&bits, 0, REDUCE(a, v));
  return (word & ~(((1u << (8 * BYTES)) - 1) << shift)) | ((word_t)bits << shift);
}
#endif
// An old value costs one more round, no more, so a plain read will do, except for tools that look for races.
#ifdef ATOMIC_READS
#define LOOK_AT(p) SWAP(p, 0, 0)
#else
#define LOOK_AT(p) (*(p))
#endif
static inline void combine(__global uchar* base, ulong offset, ST v) {
  const ulong within = offset & (sizeof(word_t) - 1);
  volatile __global word_t* p = (volatile __global word_t*)(base + (offset - within));
  word_t seen = LOOK_AT(p), held;
  do {
    held = seen;
    seen = SWAP(p, held, combined(held, (uint)(8 * within), v));
  } while (seen != held);
}
#else
static inline void combine(__global uchar* base, ulong offset, ST v) {
  __global STORAGE(OUT)* p = (__global STORAGE(OUT)*)(base + offset);
  const ST a = LOAD(OUT, ACC, 1, p, 0);
  STORE(OUT, ACC, 1, p, 0, REDUCE(a, v));
}
#endif
