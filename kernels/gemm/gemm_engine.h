// The matrix engines of x86 CPUs (AMX; AVX512-BF16) for the products of gemm_cpu.cl and conv_gemm.cl: bfloat16
// operands, float sums. gemm.h and conv.h include it if ENGINE_AMX or ENGINE_AVX512_BF16 is defined;
// csrc/aten/gemm/MatrixEngine.h says when.
//
// Panels hold bfloat16 in blocks of 32 along k, padded with zeros: A as [k / 32][PARTS][MR][32], B as [k /
// 32][PARTS][16][NR][2], since the engines multiply pairs along k. With PARTS 1 a number is rounded to bfloat16. With
// PARTS 2 it is the sum of two, which is exact for half and keeps 16 bits of a float.

#include "gemm/engine_parts.h"

typedef ushort panel_t;
#define K_UNROLL 32
// The number of elements in one part of 32 columns of a panel of A, or of 32 rows of a panel of B.
#define A_PART (32 * MR)
#define B_PART (32 * NR)

// --- packing ------------------------------------------------------------------------------------------------------
// Two rows of V columns of B (or two columns of V rows of A), as pairs.
#define PAIRS(S, V, p, ks, part) \
  (CAT(convert_uint, V)(PART(S, V, p, part)) | CAT(convert_uint, V)(PART(S, V, (p) + (ks), part)) << 16)
// 32 consecutive elements along k as pairs.
#define PAIRS_ALONG_K(S, p, part) (uint16)(as_uint8(PART(S, 16, p, part)), as_uint8(PART(S, 16, (p) + 16, part)))

// The position of element (i, kk) of A, or (kk, j) of B, in its panel.
#define AT_A(i, kk) (((kk) >> 5) * (A_PART * PARTS) + (i) * 32 + ((kk) & 31))
#define AT_B(j, kk) (((kk) >> 5) * (B_PART * PARTS) + (((kk) & 31) >> 1) * (2 * NR) + (j) * 2 + ((kk) & 1))

// Stores pairs of 16 columns, each with 32 consecutive elements, to rows [kk, kk + 32) and columns [j, j + 16) of a
// panel of B.
ALWAYS_INLINE void store_b_pairs(uint16* v, __global panel_t* panel, int j, long kk) {
  TRANSPOSE16(uint16, v)
  UNROLL for (int i = 0; i < 16; i++)
    vstore16(v[i], 0, (__global uint*)(panel + AT_B(j, kk + 2 * i)));
}

#ifdef MR
#if MR >= 16
#define A_ROWS 16
#define SIXTEEN(v) (v)
#else
#define A_ROWS MR
#define SIXTEEN(v) ((uint16)(v, v))
#endif
#endif
#if defined(INA) && defined(MR)
static inline void pack_a(__global const STORAGE(INA)* from, long rs, long ks, int rows, long k, long kp,
                          __global panel_t* panel) {
  for (int part = 0; part < PARTS; part++) {
    __global panel_t* to = panel + part * A_PART;
    long kk = 0;
    if (ks == 1) {
      for (; kk + 32 <= k; kk += 32)
        for (int i = 0; i < MR; i++)
          vstore16(PAIRS_ALONG_K(INA, from + min(i, rows - 1) * rs + kk, part), 0, (__global uint*)(to + AT_A(i, kk)));
    } else if (rs == 1 && rows == MR) {
#if A_ROWS == 8
      // Of eight rows, two blocks of 32 at once fill the vectors.
      for (; kk + 64 <= k; kk += 64) {
        uint16 v[16];
        UNROLL for (int x = 0; x < 16; x++)
          v[x] = (uint16)(PAIRS(INA, 8, from + (kk + 2 * x) * ks, ks, part),
                          PAIRS(INA, 8, from + (kk + 2 * x + 32) * ks, ks, part));
        TRANSPOSE16(uint16, v)
        UNROLL for (int x = 0; x < 16; x++)
          vstore16(v[x], 0, (__global uint*)(to + AT_A(x % 8, kk + x / 8 * 32)));
      }
#endif
      for (; kk + 32 <= k; kk += 32)
        for (int i = 0; i < MR; i += A_ROWS) {
          uint16 v[16];
          UNROLL for (int x = 0; x < 16; x++)
            v[x] = SIXTEEN(PAIRS(INA, A_ROWS, from + (kk + 2 * x) * ks + i, ks, part));
          TRANSPOSE16(uint16, v)
          UNROLL for (int x = 0; x < A_ROWS; x++)
            vstore16(v[x], 0, (__global uint*)(to + AT_A(i + x, kk)));
        }
    }
    for (; kk < kp; kk++)
      for (int i = 0; i < rows; i++) to[AT_A(i, kk)] = kk < k ? PART(INA, 1, from + i * rs + kk * ks, part) : (ushort)0;
  }
}
#endif

#ifdef INB
static inline void pack_b(__global const STORAGE(INB)* from, long cs, long ks, int cols, long k, long kp,
                          __global panel_t* panel) {
  for (int part = 0; part < PARTS; part++) {
    __global panel_t* to = panel + part * B_PART;
    long kk = 0;
    if (cols == NR && cs == 1) {
      for (; kk + 2 <= k; kk += 2)
        for (int j = 0; j < NR; j += 16)
          vstore16(PAIRS(INB, 16, from + kk * ks + j, ks, part), 0, (__global uint*)(to + AT_B(j, kk)));
    } else if (ks == 1) {
      for (; kk + 32 <= k; kk += 32)
        for (int j = 0; j < cols; j += 16) {
          uint16 v[16];
          UNROLL for (int x = 0; x < 16; x++)
            v[x] = PAIRS_ALONG_K(INB, from + min(j + x, cols - 1) * cs + kk, part);
          store_b_pairs(v, to, j, kk);
        }
    }
    for (; kk < kp; kk++)
      for (int j = 0; j < cols; j++) to[AT_B(j, kk)] = kk < k ? PART(INB, 1, from + j * cs + kk * ks, part) : (ushort)0;
  }
}
#endif

// --- the product --------------------------------------------------------------------------------------------------
// The compiler does not know of these registers, so they are used only within one asm statement, except for the tiles,
// which nothing else uses.
#ifdef ENGINE_AMX
#if MR != 32 || VEC != 16
#error "two by two tiles of 16 x 16"
#endif
// Palette 1; eight tiles of 16 rows (bytes 48..) of 64 bytes (bytes 16.., two each).
__constant uchar tile_config[64] __attribute__((aligned(64))) = {
    1,  0, 0,  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 64, 0, 64, 0,  64, 0,  64, 0,  64, 0,
    64, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0, 0,  0, 16, 16, 16, 16, 16, 16, 16, 16};
#define ENGINE_BEGIN() __asm__ volatile("ldtilecfg (%0)" ::"r"(tile_config) : "memory")
// Otherwise the operating system would save the tiles at each switch of threads.
#define ENGINE_END() __asm__ volatile("tilerelease" ::: "memory")
#define SPARE_VECTORS 0

// Steps of 32 along k. tmm0 to 3 are the sums, 4 and 5 the tiles of A, 6 and 7 those of B. Each step prefetches 512
// bytes of what comes next into the second-level cache.
#define LOAD_A(at) "tileloadd " #at "(%[a], %[line], 1), %%tmm4\n\ttileloadd " #at "(%[below], %[line], 1), %%tmm5\n\t"
#define LOAD_B(at0, at1) \
  "tileloadd " #at0 "(%[b], %[row], 1), %%tmm6\n\ttileloadd " #at1 "(%[b], %[row], 1), %%tmm7\n\t"
#define FETCH(at) "prefetcht1 " #at "(%[next])\n\t"
#define FETCH_TWO(at0, at1) FETCH(at0) FETCH(at1)
#define MULTIPLY                         \
  "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\t" \
  "tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t" \
  "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\t" \
  "tdpbf16ps %%tmm7, %%tmm5, %%tmm3\n\t"
#if PARTS == 2
// Both parts of A by both of B; each product loads what the one before it did not have.
#define FIRST_BY_FIRST LOAD_A(0) LOAD_B(0, 64) FETCH_TWO(0, 64) MULTIPLY
#define FIRST_BY_SECOND LOAD_B(2048, 2112) FETCH_TWO(128, 192) MULTIPLY
#define SECOND_BY_SECOND(second) LOAD_A(second) FETCH_TWO(256, 320) MULTIPLY
#define SECOND_BY_FIRST LOAD_B(0, 64) FETCH_TWO(384, 448) MULTIPLY
#define STEP(second) FIRST_BY_FIRST FIRST_BY_SECOND SECOND_BY_SECOND(second) SECOND_BY_FIRST
#else
#define STEP(second) \
  LOAD_A(0) LOAD_B(0, 64) FETCH_TWO(0, 64) FETCH_TWO(128, 192) FETCH_TWO(256, 320) FETCH_TWO(384, 448) MULTIPLY
#endif
#define EACH_TILE(X) X(0, 0) X(64, 1) X(2048, 2) X(2112, 3)
#define FETCH_SUMS(at, n) "tileloadd " #at "(%[t], %[row], 1), %%tmm" #n "\n\t"
#define KEEP_SUMS(at, n) "tilestored %%tmm" #n ", " #at "(%[t], %[row], 1)\n\t"
#define CLEAR_SUMS(at, n) "tilezero %%tmm" #n "\n\t"

// What a product prefetches: 512 bytes per step along k, `step` bytes apart.
typedef struct {
  __global const void* at;
  long step;
} fetch_t;
// Adds the products of `blocks` steps. The tiles of A are at `a` and `below`, rows `line` and steps `apart` bytes
// apart. The second part of A lies `second` bytes after the first.
#define NETCL_ADD(name, second)                                                                                          \
  static inline void name(__global const panel_t* a, __global const panel_t* below, long line, long apart,               \
                          __global const panel_t* b, long blocks, fetch_t next) {                                        \
    __asm__ volatile("1:\n\t" STEP(second) "addq %[on], %[next]\n\taddq %[apart], %[a]\n\taddq %[apart], %[below]\n\t" \
                                          "addq %[ahead], %[b]\n\tdecq %[n]\n\tjnz 1b\n\t"                          \
                     : [a] "+r"(a), [below] "+r"(below), [b] "+r"(b), [n] "+r"(blocks), [next] "+r"(next.at)         \
                     : [line] "r"(line), [row] "r"(128L), [apart] "r"(apart), [ahead] "r"(2048L * PARTS),            \
                       [on] "r"(next.step)                                                                           \
                     : "memory", "cc"); \
  }
NETCL_ADD(add_panels, 2048)
NETCL_ADD(add_rows_in_place, 64)
#define SET_SUMS(SET, from) __asm__ volatile(EACH_TILE(SET)::[t] "r"(from), [row] "r"(128L) : "memory")

// to = the product (+ the sums at `from`, unless it is null) of `blocks` steps. The rows of A lie `stride` elements
// apart: 32 in a panel, or more where they are read in place.
static inline void multiply_panels(__global const panel_t* a, long stride, __global const panel_t* b, long blocks,
                                   ulong from, ulong to, fetch_t next) {
  if (from)
    SET_SUMS(FETCH_SUMS, from);
  else
    SET_SUMS(CLEAR_SUMS, from);
  add_panels(a, a + 16 * stride, 2 * stride, stride == 32 ? 2048 * PARTS : 64, b, blocks, next);
  SET_SUMS(KEEP_SUMS, to);
}
#else
#if MR != 8 || VEC != 16
#error "eight rows of two vectors"
#endif
#define ENGINE_BEGIN()
#define ENGINE_END()
#define SPARE_VECTORS 19
// zmm(2 r) and zmm(2 r + 1) hold the sums of row r, zmm18 the row's pair in every lane, zmm16 and zmm17 the pairs of B.
// Not every compiler of OpenCL C knows the registers' names, so their contents are saved after t.
#define ROWS8(X) X(0, 0, 1) X(1, 2, 3) X(2, 4, 5) X(3, 6, 7) X(4, 8, 9) X(5, 10, 11) X(6, 12, 13) X(7, 14, 15)
#define SAVE(n) "vmovups %%zmm" #n ", 1024+64*" #n "(%[t])\n\t"
#define RESTORE(n) "vmovups 1024+64*" #n "(%[t]), %%zmm" #n "\n\t"
#define SAVE_ROW(r, l, h) SAVE(l) SAVE(h)
#define RESTORE_ROW(r, l, h) RESTORE(l) RESTORE(h)
#define FETCH_ROW(r, l, h)             \
  "vmovups 128*" #r "(%[t]), %%zmm" #l \
  "\n\t"                               \
  "vmovups 128*" #r "+64(%[t]), %%zmm" #h "\n\t"
#define KEEP_ROW(r, l, h)        \
  "vmovups %%zmm" #l ", 128*" #r \
  "(%[t])\n\t"                   \
  "vmovups %%zmm" #h ", 128*" #r "+64(%[t])\n\t"
#define ADD_ROW(r, l, h)                 \
  "vpbroadcastd 64*" #r                  \
  "(%[a]), %%zmm18\n\t"                  \
  "vdpbf16ps %%zmm16, %%zmm18, %%zmm" #l \
  "\n\t"                                 \
  "vdpbf16ps %%zmm17, %%zmm18, %%zmm" #h "\n\t"
// t (MR x NR floats, and SPARE_VECTORS vectors after them) += a panel of A times a panel of B.
static inline void multiply_panels(__global const panel_t* a, __global const panel_t* b, long blocks, float* t) {
  long pairs;
  __asm__ volatile(
      ROWS8(SAVE_ROW) SAVE(16) SAVE(17) SAVE(18)
      ROWS8(FETCH_ROW)
      "1:\n\t"
      "movq $16, %[pairs]\n"
      "2:\n\t"
      "vmovups (%[b]), %%zmm16\n\t"
      "vmovups 64(%[b]), %%zmm17\n\t"
      ROWS8(ADD_ROW)
      "addq $4, %[a]\n\t"
      "addq $128, %[b]\n\t"
      "decq %[pairs]\n\t"
      "jnz 2b\n\t"
      "addq %[skip_a], %[a]\n\t"
      "decq %[n]\n\t"
      "jnz 1b\n\t"
      ROWS8(KEEP_ROW)
      ROWS8(RESTORE_ROW) RESTORE(16) RESTORE(17) RESTORE(18)
      : [a] "+r"(a), [b] "+r"(b), [n] "+r"(blocks), [pairs] "=&r"(pairs)
      : [t] "r"(t), [skip_a] "r"(2L * A_PART - 64)
      : "memory", "cc");
}
#endif

#ifdef OUT
// `cols` columns are wanted; all are computed.
static inline void micro_kernel(__global const panel_t* a, __global const panel_t* b, long k, long cols, VT* t) {
#ifdef ENGINE_AMX
  if (k > 0) {
    const fetch_t same = {b, 512};
    multiply_panels(a, 32, b, k / 32, 0, (ulong)t, same);
    return;
  }
#endif
  for (int i = 0; i < 2 * MR; i++) t[i] = (VT)(0);
#ifndef ENGINE_AMX
  if (k > 0) multiply_panels(a, b, k / 32, (float*)t);
#endif
}
#endif
