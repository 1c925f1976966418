// The numbers as which a matrix engine of a CPU multiplies an element: PARTS numbers of bfloat16.

// Part `part` of each number. The first of two parts is truncated, not rounded, so that no finite number becomes Inf.
// The second one has the same sign. It is never 0, so that Inf times it is Inf, unless the number is 0 or (float) less
// than 2^-100; so it is at least 2^-126, which changes no sum.
#if PARTS == 2
#define NETCL_PART_OF(V)                                                                             \
  static inline ushort##V part_of##V(float##V v, int part) {                                         \
    const uint##V bits = as_uint##V(v), top = bits & 0xffff0000u, size = bits & 0x7fffffffu;         \
    if (!part) return convert_ushort##V((size > 0x7f800000u ? (uint##V)(0x7fc00000u) : top) >> 16);  \
    const uint##V rest = as_uint##V(v - as_float##V(top)), far = (rest & 0x7fffffffu) - 0x00800000u; \
    const uint##V least = size < 0x0d800000u ? (uint##V)(0) : (bits & 0x80000000u) | 0x00800000u;    \
    return bf16_narrow##V(as_float##V(far < 0x7f000000u ? rest : least));                            \
  }
#else
#define NETCL_PART_OF(V) \
  static inline ushort##V part_of##V(float##V v, int part) { return bf16_narrow##V(v); }
#endif
NETCL_PART_OF(4)
NETCL_PART_OF(8)
NETCL_PART_OF(16)
static inline ushort part_of1(float v, int part) { return part_of8((float8)(v), part).s0; }

// The part of V numbers of storage tag S at p; a bfloat16 is its own first part.
#define PART(S, V, p, part) CAT(PART_, S)(V, p, part)
#define PART_f32(V, p, part) CAT(part_of, V)(LOAD(f32, f32, V, p, 0), part)
#define PART_f16(V, p, part) CAT(part_of, V)(LOAD(f16, f32, V, p, 0), part)
#if PARTS == 2
#define PART_bf16(V, p, part) ((part) ? (CAT(ushort, CAT(V_, V)))(0) : CAT(load_bits, V)(p))
#else
#define PART_bf16(V, p, part) CAT(load_bits, V)(p)
#endif

// The storage tag of elements that are in two parts already: the first parts of 32, then their second ones.
#define st_bf16x2 ushort
#define PART_bf16x2(V, p, part) CAT(load_bits, V)((p) + 32 * (part))
