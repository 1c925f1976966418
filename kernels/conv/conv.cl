// Convolution as an indirect matrix product: C[i][j] = sum_r X[a(i) + b(r)] * B[r][j].
// In the forward direction i is an output pixel, r a tap (channel, kernel position) and j an output channel, X is
// the input with its padding written out, and no im2col matrix exists. The gradient of the weight exchanges the
// roles of pixels and taps. Where pixels are few and channels many, i is the channel, X the weight and B the
// packed columns of pixels. See csrc/aten/conv/Convolution.cpp.
// -D CONV_<kernel>, ACC (compute tag, f32 or f64), IN / OUT (storage tags), OFFSET (int or long), and the shape of the
// register tile: ROWS x NV*VEC; TRANSPOSE where ACC is f32 and that is a multiple of 16. With ENGINE_AMX or
// ENGINE_AVX512_BF16 and PARTS, a matrix engine multiplies; panels are then as gemm_engine.h has them, and X (storage tag
// of the operand that is not packed beforehand, else ACC) is what the tensors hold.
#include "args/conv.h"
#include "common/dtypes.h"
#include "common/transpose.h"
#ifndef X
#define X ACC
#endif

typedef CTYPE(ACC) ST;
typedef VTYPE(ACC, VEC) VT;
#define COLS (VEC * NV)
#if defined(ENGINE_AMX) || defined(ENGINE_AVX512_BF16)
#define ENGINE
#define MR ROWS
#define NR COLS
#include "gemm/gemm_engine.h"
#endif

inline long radix_offset(const MixedRadix *R, long i) {
  long off = 0;
  for (int d = 3; d > 0; d--) {
    if (R->size[d] == 1) continue;
    const long q = i / R->size[d];
    off += (i - q * R->size[d]) * R->stride[d];
    i = q;
  }
  return off + i * R->stride[0];
}

// Offsets of `count` consecutive indices from `first` on; those at or past `limit` repeat the last valid one.
inline void radix_run(const MixedRadix *R, long first, long limit, int count, long *off) {
  long digit[4];
  long i = first;
  for (int d = 3; d > 0; d--) {
    const long q = i / R->size[d];
    digit[d] = i - q * R->size[d];
    i = q;
  }
  digit[0] = i;
  long at = digit[0] * R->stride[0] + digit[1] * R->stride[1] + digit[2] * R->stride[2] + digit[3] * R->stride[3];
  for (int k = 0; k < count; k++) {
    off[k] = at;
    if (first + k + 1 >= limit) continue;
    at += R->stride[3];
    if (++digit[3] == R->size[3]) {
      at += R->stride[2] - R->size[3] * R->stride[3];
      digit[3] = 0;
      if (++digit[2] == R->size[2]) {
        at += R->stride[1] - R->size[2] * R->stride[2];
        digit[2] = 0;
        if (++digit[1] == R->size[1]) {
          at += R->stride[0] - R->size[1] * R->stride[1];
          digit[1] = 0;
        }
      }
    }
  }
}

// Of 16 bits that stay what they are (RAW), the bits move.
#ifdef RAW
typedef ushort move_t;
#define MOVE(V, from, to, i) CAT(store_bits, V)(CAT(load_bits, V)((from) + (i)), (to) + (i))
#else
typedef STORAGE(X) move_t;
#define MOVE(V, from, to, i) STORE(X, ACC, V, to, i, LOAD(IN, ACC, V, from, i))
#endif
// Whole vectors; the last one overlaps the one before it.
#define COPY_BY(V, from, to, n) \
  for (long x = 0; x < (n); x += V) MOVE(V, from, to, min(x, (n) - V));
#define COPY_ROW(from, to, n)                                                                                  \
  if ((n) >= 16) {                                                                                             \
    COPY_BY(16, from, to, n)                                                                                   \
  } else if ((n) >= 8) {                                                                                       \
    COPY_BY(8, from, to, n)                                                                                    \
  } else if ((n) >= 4) {                                                                                       \
    COPY_BY(4, from, to, n)                                                                                    \
  } else {                                                                                                     \
    COPY_BY(1, from, to, n)                                                                                    \
  }

#define ZEROS(begin, end) \
  for (long x = begin; x < end; x++) to[x] = 0;  // of every dtype, all bits

#ifdef CONV_PAD
__kernel void conv_pad(BUF(src), BUF(dst), const ConvPadParams P) {
#ifdef RAW
  typedef ushort in_t;
#else
  typedef STORAGE(IN) in_t;
#endif
  __global const in_t *src = PTR(src, const in_t);
  __global move_t *dst = PTR(dst, move_t);
  const long first = (long)get_global_id(0) * P.rows_per_item;
  const long last = min(first + P.rows_per_item, P.rows);
  long zy = first / P.out_h, y = first - zy * P.out_h - P.pad_h;
  long plane = zy / P.out_d, z = zy - plane * P.out_d - P.pad_d;
  const long n = min(P.in_w, P.out_w - P.pad_w);
  for (long row = first; row < last; row++) {
    __global move_t *to = dst + row * P.out_w;
    if (y < 0 || y >= P.in_h || z < 0 || z >= P.in_d) {
      ZEROS(0, P.out_w)
    } else {
      __global const in_t *from = src + ((plane * P.in_d + z) * P.in_h + y) * P.in_w;
      ZEROS(0, P.pad_w)
      COPY_ROW(from, to + P.pad_w, n)
      ZEROS(P.pad_w + n, P.out_w)
    }
    if (++y == P.out_h - P.pad_h) {
      y = -P.pad_h;
      if (++z == P.out_d - P.pad_d) {
        z = -P.pad_d;
        plane++;
      }
    }
  }
}
#endif

// table[i] = offset(i)
#ifdef CONV_TABLE
__kernel void conv_table(BUF(table), const MixedRadix R, long n, long chunk) {
  __global OFFSET *table = PTR(table, OFFSET);
  const long first = (long)get_global_id(0) * chunk, last = min(first + chunk, n);
  for (long at = first; at < last; at += 16) {
    long off[16];
    radix_run(&R, at, last, 16, off);
    for (int k = 0; k < 16 && at + k < last; k++) table[at + k] = (OFFSET)off[k];
  }
}
#endif

// Panels of COLS columns: dst[group][panel][r][COLS] = src[group * src_group + cols(j) + table[r]].
#ifdef ENGINE
// Vectors of 16 bits to memory of any alignment, as store_bits() does in global memory.
#define PUT(Q, V, v_, p) (((Q packed_bits##V *)(p))->v = (v_))
// Levels [q, q + count) of a line, where table[r] says, to consecutive places in Q memory. `left`: of the run that q is
// in.
#define COPY_LEVELS(Q, S, line, table, q, count, left, run, to, part)                 \
  for (int l_ = 0, left_ = left; l_ < (count);) {                                  \
    const int n_ = min(min(left_, 16), (count) - l_);                              \
    __global const STORAGE(S) *f_ = (line) + table[(q) + l_];                      \
    if (n_ == 16) {                                                                \
      PUT(Q, 16, PART(S, 16, f_, part), (to) + l_);                                \
    } else if (n_ >= 8) {                                                          \
      PUT(Q, 8, PART(S, 8, f_, part), (to) + l_);                                  \
      PUT(Q, 8, PART(S, 8, f_ + n_ - 8, part), (to) + l_ + n_ - 8);                \
    } else if (n_ >= 4) {                                                          \
      PUT(Q, 4, PART(S, 4, f_, part), (to) + l_);                                  \
      PUT(Q, 4, PART(S, 4, f_ + n_ - 4, part), (to) + l_ + n_ - 4);                \
    } else {                                                                       \
      for (int i_ = 0; i_ < n_; i_++) (to)[l_ + i_] = PART(S, 1, f_ + i_, part);   \
    }                                                                              \
    l_ += n_;                                                                      \
    left_ = left_ == n_ ? (int)(run) : left_ - n_;                                 \
  }
#endif

#ifdef CONV_PACK
__kernel void conv_pack(BUF(src), BUF(table), BUF(dst), const MixedRadix cols, const ConvPackParams P) {
  const long panel = get_global_id(1), group = get_global_id(2);
#ifdef ENGINE
  const long nred = (P.k + 31) & ~31L;
#else
  const long nred = P.k;
#endif
  const long first = (long)get_global_id(0) * P.k_per_item, last = min(first + P.k_per_item, nred);
  if (first >= last) return;
  __global const STORAGE(IN) *src = PTR(src, const STORAGE(IN)) + group * P.src_group;
  __global const OFFSET *table = PTR(table, const OFFSET);
  const int width = (int)min((long)COLS, P.n - panel * COLS);
  long off[COLS];
  radix_run(&cols, panel * COLS, P.n, COLS, off);
#ifdef ENGINE
  for (long q = first; q < last; q += 32) {
    const int left = (int)(P.contiguous - q % P.contiguous), whole = q + 32 <= P.k;
    for (int part = 0; part < PARTS; part++) {
      __global panel_t *dst = PTR(dst, panel_t) + (group * P.panels + panel) * nred * COLS * PARTS + part * B_BLOCK;
      if (whole && left >= 32) {
        for (int l = 0; l < COLS; l += 16) {
#define LINE(i) src + off[l + (i)] + table[q]
          PACK_B_LINES(IN, LINE, dst, l, q, part)
        }
      } else if (whole && P.contiguous >= 4) {
        for (int l = 0; l < COLS; l += 16) {
          union {
            ushort levels[32];
            uint16 pairs;
          } line[16];
          for (int i = 0; i < 16; i++)
            COPY_LEVELS(__private, IN, src + off[l + i], table, q, 32, left, P.contiguous, line[i].levels, part)
          uint16 v[16];
#pragma unroll
          for (int i = 0; i < 16; i++) v[i] = line[i].pairs;
          TRANSPOSE16(uint16, v)
#pragma unroll
          for (int i = 0; i < 16; i++) vstore16(v[i], 0, (__global uint *)(dst + AT_B(l, q + 2 * i)));
        }
      } else {
        for (long r = q; r < q + 32; r++)
          for (int j = 0; j < COLS; j++)
            dst[AT_B(j, r)] = r < P.k ? PART(IN, 1, src + off[j] + table[r], part) : (ushort)0;
      }
    }
  }
#else
  __global ST *dst = PTR(dst, ST) + (group * P.panels + panel) * P.k * COLS;
  long r = first;
#ifdef TRANSPOSE
  if (width == COLS) {
    while (r < last) {
      // A run of neighbours is transposed, 16 at once; what a vector reads beyond the run must still exist.
      const long at = table[r];
      const int left = (int)min(16L, last - r);
      int run = 1;
      while (run < left && table[r + run] - at == run) run++;
      if (run < 4 || off[COLS - 1] + at + 16 > P.src_end - group * P.src_group) {
        for (int k = 0; k < run; k++, r++)
          for (int j = 0; j < COLS; j++) dst[r * COLS + j] = LOAD(IN, ACC, 1, src, off[j] + table[r]);
        continue;
      }
#pragma unroll
      for (int h = 0; h < COLS / 16; h++) {
        float16 v[16];
#pragma unroll
        for (int k = 0; k < 16; k++) v[k] = LOAD(IN, ACC, 16, src, off[h * 16 + k] + at);
        TRANSPOSE16(float16, v)
#pragma unroll
        for (int k = 0; k < 16; k++)
          if (k < run) vstore16(v[k], 0, dst + (r + k) * COLS + h * 16);
      }
      r += run;
    }
  }
#endif
  for (; r < last; r++) {
    const long at = table[r];
    for (int j = 0; j < width; j++) dst[r * COLS + j] = LOAD(IN, ACC, 1, src, off[j] + at);
    for (int j = width; j < COLS; j++) dst[r * COLS + j] = 0;
  }
#endif
}
#endif

// rows: a(i); out_rows and out_cols: where C[i][j] goes. The reduction may be split; split s then writes its sum
// to out + s * out_split.
#define MAD_TILE                                                                                                \
  {                                                                                                             \
    VT w[NV];                                                                                                   \
    _Pragma("unroll") for (int v = 0; v < NV; v++) w[v] = CAT(VLOAD_, VEC)(v, bp);                              \
    _Pragma("unroll") for (int i = 0; i < ROWS; i++) {                                                          \
      const VT xi = (VT)(X_AT(i));                                                                              \
      _Pragma("unroll") for (int v = 0; v < NV; v++) acc[i][v] = fma(xi, w[v], acc[i][v]);                      \
    }                                                                                                           \
  }
#define BLOCK 256

#if defined(ENGINE) && defined(CONV_GEMM)
// Whether `count` rows from a[0] on are neighbours in runs of `run`; the offsets of rows only grow.
inline bool are_runs(const long *a, int count, int run) {
  for (int i = 0; i < count; i += run)
    if (a[i + run - 1] - a[i] != run - 1) return false;
  return true;
}

// Two levels of A_ROWS rows as pairs, from x[a[i]]: all neighbours, or in runs of four.
#define PAIRS_OF_ROWS(V, p, l0, l1, part) \
  (CAT(convert_uint, V)(PART(X, V, (p) + (l0), part)) | CAT(convert_uint, V)(PART(X, V, (p) + (l1), part)) << 16)
#if MR >= 16
#define ROWS_BY_FOUR(x, a, l0, l1, part)                                                                  \
  (uint16)(PAIRS_OF_ROWS(4, (x) + (a)[0], l0, l1, part), PAIRS_OF_ROWS(4, (x) + (a)[4], l0, l1, part),    \
           PAIRS_OF_ROWS(4, (x) + (a)[8], l0, l1, part), PAIRS_OF_ROWS(4, (x) + (a)[12], l0, l1, part))
#else
#define ROWS_BY_FOUR(x, a, l0, l1, part) \
  (uint8)(PAIRS_OF_ROWS(4, (x) + (a)[0], l0, l1, part), PAIRS_OF_ROWS(4, (x) + (a)[4], l0, l1, part))
#endif
#define PACK_ROWS(load)                                                                        \
  for (int l = 0; l < ROWS; l += A_ROWS) {                                                     \
    uint16 v[16];                                                                              \
    _Pragma("unroll") for (int i = 0; i < 16; i++) {                                           \
      const long l0 = table[q + 2 * i], l1 = table[q + 2 * i + 1];                             \
      v[i] = SIXTEEN(load);                                                                    \
    }                                                                                          \
    TRANSPOSE16(uint16, v)                                                                     \
    _Pragma("unroll") for (int i = 0; i < A_ROWS; i++)                                         \
        vstore16(v[i], 0, (__global uint *)(to + AT_A(l + i, q - r0)));                        \
  }

// The panel of a tile's rows: levels [r0, r1) of x[a[i] + table[r]], zeros behind.
inline void pack_lines(__global const STORAGE(X) *x, __global const OFFSET *table, const long *a, int height, long r0,
                       long r1, long run, __global panel_t *lines) {
  const bool whole = height == ROWS && are_runs(a, ROWS, A_ROWS);
  const bool fours = height == ROWS && are_runs(a, ROWS, 4);
  for (int part = 0; part < PARTS; part++) {
    __global panel_t *to = lines + part * A_BLOCK;
    for (long q = r0; q < r1; q += 32) {
      const int count = (int)min(32L, r1 - q);
      if (count == 32 && whole && run < 16) {
        PACK_ROWS(PAIRS_OF_ROWS(A_ROWS, x + a[l], l0, l1, part))
      } else if (count == 32 && fours && run < 8) {
        PACK_ROWS(ROWS_BY_FOUR(x, a + l, l0, l1, part))
      } else if (count == 32 && run < 4) {
        for (int i = 0; i < ROWS; i++) {
          __global uint *line = (__global uint *)(to + AT_A(i, q - r0));
          __global const STORAGE(X) *from = x + a[i];
#pragma unroll
          for (int l = 0; l < 16; l++)
            line[l] = PART(X, 1, from + table[q + 2 * l], part) | (uint)PART(X, 1, from + table[q + 2 * l + 1], part) << 16;
        }
      } else {
        const int left = (int)(run - q % run);
        for (int i = 0; i < ROWS; i++) {
          __global panel_t *line = to + AT_A(i, q - r0);
          COPY_LEVELS(__global, X, x + a[i], table, q, count, left, run, line, part)
          for (int l = count; l < 32; l++) line[l] = 0;
        }
      }
    }
  }
}
#endif

#ifdef CONV_GEMM
__kernel void conv_gemm(BUF(x), BUF(table), BUF(b), BUF(bias), BUF(out), const MixedRadix rows, const MixedRadix out_rows,
                        const MixedRadix out_cols, BUF(lines), const ConvGemmParams G) {
  const long panel0 = get_global_id(1) * G.n_panels_per_item, panel1 = min(panel0 + G.n_panels_per_item, G.n_panels);
  const long split = (long)get_global_id(2) / G.groups, group = get_global_id(2) - split * G.groups;
  const long r0 = split * G.k_slice, r1 = min(r0 + G.k_slice, G.k);
  __global const STORAGE(X) *x = PTR(x, const STORAGE(X)) + group * G.x_group;
  __global const OFFSET *table = PTR(table, const OFFSET);
#ifdef ENGINE
  const long item = (get_global_id(2) * get_global_size(1) + get_global_id(1)) * get_global_size(0) + get_global_id(0);
  const long levels = (r1 - r0 + 31) & ~31L, all_levels = (G.k + 31) & ~31L;
  __global const panel_t *b = PTR(b, const panel_t) + (group * G.n_panels * all_levels + r0) * COLS * PARTS;
  __global panel_t *lines = PTR(lines, panel_t) + item * ((G.k_slice + 31) & ~31L) * ROWS * PARTS;
  ENGINE_BEGIN();
#else
  __global const ST *b = PTR(b, const ST) + group * G.n_panels * G.k * COLS;
#endif
  __global STORAGE(OUT) *out = PTR(out, STORAGE(OUT)) + split * G.out_slice + group * G.out_group;
  long tile_at = (long)get_global_id(0) * G.m_tiles * ROWS;
  for (long t = 0; t < G.m_tiles && tile_at < G.m; t++, tile_at += ROWS) {
    long a[ROWS];
    radix_run(&rows, tile_at, G.m, ROWS, a);
    const int height = (int)min((long)ROWS, G.m - tile_at);
#ifdef ENGINE
    pack_lines(x, table, a, height, r0, r1, G.contiguous, lines);
#else
    const int neighbours = height == ROWS && a[ROWS - 1] - a[0] == ROWS - 1;  // offsets of rows only grow
#endif
    long orow[ROWS];
    radix_run(&out_rows, tile_at, G.m, ROWS, orow);
    // All panels at once: the elements of x that a tile takes are the same ones.
    for (long panel = panel0; panel < panel1; panel++) {
      const long col0 = panel * COLS;
      const int width = (int)min((long)COLS, G.n - col0);
#ifdef ENGINE
      VT acc[ROWS + (SPARE + 1) / 2][NV];
      micro(lines, b + panel * all_levels * COLS * PARTS, levels, (VT *)acc);
#else
      // Sums of at most BLOCK products are added up: an error grows with the root of a block and of their number,
      // not of both together. `total` lives in memory, the register tile does not feel it.
      VT acc[ROWS][NV], total[ROWS][NV];
      _Pragma("unroll") for (int i = 0; i < ROWS; i++)
          _Pragma("unroll") for (int v = 0; v < NV; v++) acc[i][v] = (VT)(0);
      __global const ST *bp = b + (panel * G.k + r0) * COLS;
      for (long block = r0; block < r1; block += BLOCK) {
        const long end = min(block + BLOCK, r1);
        if (block > r0) {
          for (int i = 0; i < ROWS; i++)
            for (int v = 0; v < NV; v++) {
              total[i][v] = block == r0 + BLOCK ? acc[i][v] : total[i][v] + acc[i][v];
              acc[i][v] = (VT)(0);
            }
        }
        if (neighbours) {
          __global const STORAGE(X) *x0 = x + a[0];
          for (long r = block; r < end; r++, bp += COLS) {
            __global const STORAGE(X) *xp = x0 + table[r];
#define X_AT(i) xp[i]
            MAD_TILE
#undef X_AT
          }
        } else {
          for (long r = block; r < end; r++, bp += COLS) {
            __global const STORAGE(X) *xp = x + table[r];
#define X_AT(i) xp[a[i]]
            MAD_TILE
#undef X_AT
          }
        }
      }
      if (r1 - r0 > BLOCK) {
        _Pragma("unroll") for (int i = 0; i < ROWS; i++)
            _Pragma("unroll") for (int v = 0; v < NV; v++) acc[i][v] += total[i][v];
      }
#endif
      if (bias_buf) {
        __global const ST *bias = PTR(bias, const ST) + group * G.bias_group + tile_at * G.bias_row + col0 * G.bias_col;
        ST add[COLS];
        if (G.bias_col) {
          for (int j = 0; j < COLS; j++) add[j] = bias[min(j, width - 1)];
#pragma unroll
          for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int v = 0; v < NV; v++) acc[i][v] += CAT(VLOAD_, VEC)(v, add);
        } else {
#pragma unroll
          for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int v = 0; v < NV; v++) acc[i][v] += (VT)(bias[min(i, height - 1) * G.bias_row]);
        }
      }
      ST tile[ROWS * COLS];
#pragma unroll
      for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int v = 0; v < NV; v++) CAT(VSTORE_, VEC)(acc[i][v], i * NV + v, tile);
      if (G.cols_linear) {
        const long cs = out_cols.stride[3];
        if (height == ROWS && orow[ROWS - 1] - orow[0] == ROWS - 1) {
          __global STORAGE(OUT) *to = out + orow[0] + col0 * cs;
          for (int j = 0; j < width; j++, to += cs)
#pragma unroll
            for (int i = 0; i < ROWS; i++) STORE(OUT, ACC, 1, to, i, tile[i * COLS + j]);
        } else {
          for (int i = 0; i < height; i++) {
            __global STORAGE(OUT) *to = out + orow[i] + col0 * cs;
            for (int j = 0; j < width; j++) STORE(OUT, ACC, 1, to, j * cs, tile[i * COLS + j]);
          }
        }
      } else {
        long ocol[COLS];
        radix_run(&out_cols, col0, G.n, COLS, ocol);
        for (int i = 0; i < height; i++)
          for (int j = 0; j < width; j++) STORE(OUT, ACC, 1, out, orow[i] + ocol[j], tile[i * COLS + j]);
      }
    }
  }
#ifdef ENGINE
  ENGINE_END();
#endif
}
#endif

// sum[i] = (first ? 0 : sum[i]) + part[0][i] + part[1][i] + …; the last one goes to `out` in its own dtype.
#ifdef CONV_SUM
__kernel void conv_sum(BUF(part), BUF(sum), BUF(out), long n, long parts, long chunk, int first, int final) {
  __global const ST *part = PTR(part, const ST);
  __global ST *sum = PTR(sum, ST);
  __global STORAGE(OUT) *out = PTR(out, STORAGE(OUT));
  const long begin = (long)get_global_id(0) * chunk, end = min(begin + chunk, n);
  long i = begin;
  for (; i + VEC <= end; i += VEC) {
    VT s = first ? (VT)(0) : LOAD(ACC, ACC, VEC, sum, i);
    for (long p = 0; p < parts; p++) s += LOAD(ACC, ACC, VEC, part, p * n + i);
    if (final) STORE(OUT, ACC, VEC, out, i, s);
    else STORE(ACC, ACC, VEC, sum, i, s);
  }
  for (; i < end; i++) {
    ST s = first ? 0 : sum[i];
    for (long p = 0; p < parts; p++) s += part[p * n + i];
    if (final) STORE(OUT, ACC, 1, out, i, s);
    else sum[i] = s;
  }
}
#endif
