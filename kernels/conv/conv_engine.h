// How conv_pack and conv_gemm write gathered numbers to the panels of a matrix engine (kernels/gemm/gemm_engine.h): in
// blocks of 32 taps, each as PARTS numbers of 16 bits.

#ifdef OUT
#define TO __global
#else
#define TO __private
#endif

// Stores vectors of 16 bits to memory of any alignment, as store_bits() does to global memory.
#define PUT_BITS(V, value, p) (((TO packed_bits##V*)(p))->v = (value))

// Copies `count` taps of one row or column, x[tap[0]] …, to consecutive elements. `left` of their offsets are
// consecutive, then `contiguous` at a time.
static inline void gather(__global const STORAGE(IN)* x, __global const offset_t* tap, int count, int left,
                          long contiguous, int part, TO panel_t* to) {
  for (int i = 0; i < count;) {
    const int n = min(min(left, 16), count - i);
    __global const STORAGE(IN)* from = x + tap[i];
    if (n == 16) {
      PUT_BITS(16, PART(IN, 16, from, part), to + i);
    } else if (n >= 8) {
      PUT_BITS(8, PART(IN, 8, from, part), to + i);
      PUT_BITS(8, PART(IN, 8, from + n - 8, part), to + i + n - 8);
    } else if (n >= 4) {
      PUT_BITS(4, PART(IN, 4, from, part), to + i);
      PUT_BITS(4, PART(IN, 4, from + n - 4, part), to + i + n - 4);
    } else {
      for (int j = 0; j < n; j++) to[i + j] = PART(IN, 1, from + j, part);
    }
    i += n;
    left = left == n ? (int)contiguous : left - n;
  }
}

// --- columns: conv_pack -------------------------------------------------------------------------------------------
#ifndef OUT
// Packs the taps [r, r + 32) of all columns of a panel.
ALWAYS_INLINE void pack_k_block(__global const STORAGE(IN)* src, const long* col, __global const offset_t* tap, long r,
                                int part, const ConvPackParams* P, __global panel_t* panel) {
  const int left = (int)(P->contiguous - r % P->contiguous);
  const bool whole = r + 32 <= P->k;
  if (whole && left < 32 && col[NR - 1] - col[0] == NR - 1) {  // columns are adjacent, since their offsets only grow
    for (long kk = r; kk < r + 32; kk += 2) {
      __global const STORAGE(IN)* from = src + col[0] + tap[kk];
      const long next = tap[kk + 1] - tap[kk];
      for (int j = 0; j < NR; j += 16)
        vstore16(PAIRS(IN, 16, from + j, next, part), 0, (__global uint*)(panel + AT_B(j, kk)));
    }
    return;
  }
  if (!whole || (left < 32 && P->contiguous < 4)) {
    for (long kk = r; kk < r + 32; kk++)
      for (int j = 0; j < NR; j++)
        panel[AT_B(j, kk)] = kk < P->k ? PART(IN, 1, src + col[j] + tap[kk], part) : (ushort)0;
    return;
  }
  for (int j = 0; j < NR; j += 16) {
    uint16 v[16];
    if (left >= 32) {
      UNROLL for (int i = 0; i < 16; i++)
        v[i] = PAIRS_ALONG_K(IN, src + col[j + i] + tap[r], part);
    } else {
      union {
        ushort numbers[32];
        uint16 pairs;
      } line[16];
      for (int i = 0; i < 16; i++) gather(src + col[j + i], tap + r, 32, left, P->contiguous, part, line[i].numbers);
      UNROLL for (int i = 0; i < 16; i++)
        v[i] = line[i].pairs;
    }
    store_b_pairs(v, panel, j, r);
  }
}

// --- rows: conv_gemm ----------------------------------------------------------------------------------------------
#else
// Whether the rows of a tile are adjacent in stretches of n; their offsets only grow.
static inline bool in_stretches(const long* row, int n) {
  for (int i = 0; i < MR; i += n)
    if (row[i + n - 1] - row[i] != n - 1) return false;
  return true;
}

// Taps t0 and t1 of A_ROWS rows as pairs, for rows that are adjacent, or adjacent in stretches of four.
#define ROW_PAIRS CAT(uint, A_ROWS)
ALWAYS_INLINE ROW_PAIRS pairs_of_neighbours(__global const STORAGE(IN)* x, const long* row, long t0, long t1,
                                            int part) {
  return PAIRS(IN, A_ROWS, x + row[0] + t0, t1 - t0, part);
}
ALWAYS_INLINE ROW_PAIRS pairs_by_four(__global const STORAGE(IN)* x, const long* row, long t0, long t1, int part) {
#define FOUR(i) PAIRS(IN, 4, x + row[i] + t0, t1 - t0, part)
#if MR >= 16
  return (uint16)(FOUR(0), FOUR(4), FOUR(8), FOUR(12));
#else
  return (uint8)(FOUR(0), FOUR(4));
#endif
#undef FOUR
}

// Packs 32 taps of a tile's rows, which are read across the rows and transposed.
ALWAYS_INLINE void pack_across(__global const STORAGE(IN)* x, const long* row, __global const offset_t* tap,
                               bool neighbours, int part, __global panel_t* to) {
  for (int l = 0; l < MR; l += A_ROWS) {
    uint16 v[16];
    UNROLL for (int i = 0; i < 16; i++)
      v[i] = SIXTEEN(neighbours ? pairs_of_neighbours(x, row + l, tap[2 * i], tap[2 * i + 1], part)
                                : pairs_by_four(x, row + l, tap[2 * i], tap[2 * i + 1], part));
    TRANSPOSE16(uint16, v)
    UNROLL for (int i = 0; i < A_ROWS; i++)
      vstore16(v[i], 0, (__global uint*)(to + AT_A(l + i, 0)));
  }
}
#if A_ROWS == 8
// 64 taps of eight rows that lie side by side: 32 in each half of the vectors.
ALWAYS_INLINE void pack_two_across(__global const STORAGE(IN)* x, const long* row, __global const offset_t* tap,
                                   int part, __global panel_t* to) {
  uint16 v[16];
  UNROLL for (int i = 0; i < 16; i++)
    v[i] = (uint16)(pairs_of_neighbours(x, row, tap[2 * i], tap[2 * i + 1], part),
                    pairs_of_neighbours(x, row, tap[2 * i + 32], tap[2 * i + 33], part));
  TRANSPOSE16(uint16, v)
  UNROLL for (int i = 0; i < 16; i++)
    vstore16(v[i], 0, (__global uint*)(to + AT_A(i % 8, i / 8 * 32)));
}
#endif
// Packs 32 taps of each row, one by one.
ALWAYS_INLINE void pack_each(__global const STORAGE(IN)* x, const long* row, __global const offset_t* tap, int part,
                             __global panel_t* to) {
  for (int i = 0; i < MR; i++) {
    __global uint* line = (__global uint*)(to + AT_A(i, 0));
    __global const STORAGE(IN)* from = x + row[i];
    UNROLL for (int l = 0; l < 16; l++)
      line[l] = PART(IN, 1, from + tap[2 * l], part) | (uint)PART(IN, 1, from + tap[2 * l + 1], part) << 16;
  }
}

// Packs the panel of a tile's rows: taps [T->begin, T->end), followed by zeros.
ALWAYS_INLINE void prepare_rows(const Tile* T) {
  if (T->step) return;
  const bool full = T->height == MR;
  const bool neighbours = full && in_stretches(T->row, A_ROWS), fours = full && in_stretches(T->row, 4);
  const long contiguous = T->contiguous;
  for (int part = 0; part < PARTS; part++)
    for (long r = T->begin; r < T->end; r += 32) {
      __global const offset_t* tap = T->tap + r;
      __global panel_t* to = T->packed + part * A_PART + (r - T->begin) * (MR * PARTS);
      const int count = (int)min(32L, T->end - r);
#if A_ROWS == 8
      if (neighbours && contiguous < 16 && r + 64 <= T->end) {
        pack_two_across(T->x, T->row, tap, part, to);
        r += 32;
        continue;
      }
#endif
      if (count == 32 && contiguous - r % contiguous >= 32) {
        for (int i = 0; i < MR; i++)
          vstore16(PAIRS_ALONG_K(IN, T->x + T->row[i] + tap[0], part), 0, (__global uint*)(to + AT_A(i, 0)));
      } else if (count == 32 && neighbours && contiguous < 16) {
        pack_across(T->x, T->row, tap, true, part, to);
      } else if (count == 32 && fours && contiguous < 8) {
        pack_across(T->x, T->row, tap, false, part, to);
      } else if (count == 32 && contiguous < 4) {
        pack_each(T->x, T->row, tap, part, to);
      } else {
        for (int i = 0; i < MR; i++) {
          __global panel_t* line = to + AT_A(i, 0);
          gather(T->x + T->row[i], tap, count, (int)(contiguous - r % contiguous), contiguous, part, line);
          for (int l = count; l < 32; l++) line[l] = 0;
        }
      }
    }
}
ALWAYS_INLINE void accumulate(const Tile* T, __global const panel_t* b, VT (*sum)[NV]) {
#ifdef ENGINE_AMX
  if (T->step) {
    SET_SUMS(CLEAR_SUMS, 0L);
    for (long r = T->begin; r < T->end; r += T->contiguous) {
      __global const panel_t* a = (__global const panel_t*)T->x + T->row[0] + T->tap[r];
      const long blocks = min(T->contiguous, T->end - r) / 32;
      const fetch_t same = {b, 512};
      add_rows_in_place(a, a + 16 * T->step, 2 * T->step, 64 * PARTS, b + (r - T->begin) * NR * PARTS, blocks, same);
    }
    SET_SUMS(KEEP_SUMS, (ulong)sum);
    return;
  }
#endif
  micro_kernel(T->packed, b, PADDED_K(T->end - T->begin), NR, (VT*)sum);
}
#endif
