// NVIDIA's mma.sync, with ldmatrix for 16-bit elements: PTX ISA, "Matrix Fragments for mma.m16n8k16 with
// floating point type", "... for mma.m16n8k8" (tf32), "Warp-level matrix load instruction: ldmatrix". A fragment is
// 16 x 16, two of mma's side by side. Capability 7.5 has only m16n8k8 for half, whose fragments are the halves of
// m16n8k16's. tf32 is float without its last 13 bits.
#define UNIT_M 16
#define UNIT_N 16
#define UNIT_C_EACH 8
#define UNIT_ROW(lane, e) ((lane) / 4 + (e) / 2 % 2 * 8)
#define UNIT_COLUMN(lane, e) ((lane) % 4 * 2 + (e) % 2 + (e) / 4 * 8)
#define UNIT_A_REGISTERS uint4
#define UNIT_B_REGISTERS uint4
#define UNIT_ACROSS 1

#if TYPE_IS_16(INA)
#define UNIT_K 16
#define MMA_SIZE "m16n8k16"
#define UNIT_A_EACH 8
#define UNIT_B_EACH 8
#define UNIT_A_RUN 2
#define UNIT_B_RUN 2
#define UNIT_A_LINE(lane, i) ((lane) / 4 + (i) / 2 % 2 * 8)
#define UNIT_A_K(lane, i) ((lane) % 4 * 2 + (i) % 2 + (i) / 4 * 8)
#define UNIT_B_LINE(lane, i) ((lane) / 4 + (i) / 4 * 8)
#define UNIT_B_K(lane, i) ((lane) % 4 * 2 + (i) % 2 + (i) / 2 % 2 * 8)

// ldmatrix reads four matrices of 8 x 8, of which lane l names the row l % 8 of matrix l / 8. These are the upper and
// lower half of A (left and right half of B), and there the lower and higher k.
#define MATRIX_A_LINE(lane) ((lane) / 8 % 2 * 8)
#define MATRIX_A_K(lane) ((lane) / 16 * 8)
#define MATRIX_B_LINE(lane) ((lane) / 16 * 8)
#define MATRIX_B_K(lane) ((lane) / 8 % 2 * 8)
#define TAKE(x, X)                                                                                          \
  ALWAYS_INLINE uint x##_matrix(uint line, uint kk, uint lane) {                                            \
    return x##_at(line + MATRIX_##X##_LINE(lane) + (x##_along ? lane % 8 : 0),                              \
                  kk + MATRIX_##X##_K(lane) + (x##_along ? 0 : lane % 8));                                  \
  }                                                                                                         \
  ALWAYS_INLINE void x##_take(__local const element_t* block, uint line, uint kk, uint lane, x##_unit* u) { \
    LOAD_MATRICES(x, block, line, kk, lane, u)                                                              \
  }
#ifndef EMULATED
ALWAYS_INLINE uint4 load_matrices(__local const ushort* row, int along) {
  uint4 v;
  const uint at = (uint)(size_t)row;
  if (along)
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(at)
                     : "memory");
  else
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(at)
                     : "memory");
  return v;
}
#define LOAD_MATRICES(x, block, line, kk, lane, u) u->v = load_matrices(block + x##_matrix(line, kk, lane), x##_along);
#else
// Unrolled, so that the union is kept in registers: PoCL 3.0 does not look through the bitcasts that reach a union's
// members, so it takes a union in memory for the same in all work-items, and keeps one for all.
#define LOAD_MATRICES(x, block, line, kk, lane, u)                                                   \
  UNROLL for (int m = 0; m < 4; m++) UNROLL                                                          \
    for (int j = 0; j < 2; j++)                                                                      \
      u->s[2 * m + j] = x##_along ? block[x##_matrix(line, kk, 8 * m + lane / 4) + lane % 4 * 2 + j] \
                                  : block[x##_matrix(line, kk, 8 * m + lane % 4 * 2 + j) + lane / 4];
#endif
#else
#define UNIT_K 8
#define MMA_SIZE "m16n8k8"
#define UNIT_A_EACH 4
#define UNIT_B_EACH 4
#define UNIT_A_RUN 1
#define UNIT_B_RUN 1
#define UNIT_A_LINE(lane, i) ((lane) / 4 + (i) % 2 * 8)
#define UNIT_A_K(lane, i) ((lane) % 4 + (i) / 2 * 4)
#define UNIT_B_LINE(lane, i) ((lane) / 4 + (i) / 2 * 8)
#define UNIT_B_K(lane, i) ((lane) % 4 + (i) % 2 * 4)
// Rounds to tf32, ties away from zero.
static inline float unit_round(float x) {
#ifdef EMULATED
  const uint bits = as_uint(x);
  return (bits & 0x7f800000) == 0x7f800000 ? x : as_float((bits + 0x1000) & 0xffffe000);
#else
  uint bits;
  __asm__("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return as_float(bits);
#endif
}
#define UNIT_ROUND unit_round
#endif

#ifndef EMULATED
#define MMA_TYPES_f16 "f16.f16.f32"
#define MMA_TYPES_bf16 "bf16.bf16.f32"
#define MMA_TYPES_f32 "tf32.tf32.f32"
#define MMA(size) "mma.sync.aligned." size ".row.col.f32." CAT(MMA_TYPES_, INA)
// Four sums of 16 x 8 by 16: registers a of A, b0 and b1 of B.
ALWAYS_INLINE float4 multiply_mma(float4 c, uint4 a, uint b0, uint b1) {
#if TYPE_IS_16(INA) && UNIT_MMA < 80
  __asm__(MMA("m16n8k8") " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
          : "+f"(c.x), "+f"(c.y), "+f"(c.z), "+f"(c.w)
          : "r"(a.x), "r"(a.y), "r"(b0));
  __asm__(MMA("m16n8k8") " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
          : "+f"(c.x), "+f"(c.y), "+f"(c.z), "+f"(c.w)
          : "r"(a.z), "r"(a.w), "r"(b1));
#else
  __asm__(MMA(MMA_SIZE) " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(c.x), "+f"(c.y), "+f"(c.z), "+f"(c.w)
          : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
#endif
  return c;
}
#define unit_multiply(a, b, c) \
  (*(c) =                      \
       (float8)(multiply_mma((c)->lo, (a)->v, (b)->v.x, (b)->v.y), multiply_mma((c)->hi, (a)->v, (b)->v.z, (b)->v.w)))
#endif
