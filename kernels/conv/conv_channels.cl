// Convolutions of channels_last images on a CPU, with vectors along the channels of the result: depthwise ones, and
// those with few channels per group. See conv_channels.h. -D: also KW (taps along a row), STEP and APART (distance of a
// row's pixels, and of its taps, in the source; it is negative if a row's last tap comes first there), CI and NCO
// (source and output channels per group; both are powers of two, or NCO is at least VEC), SOURCE_VEC (elements of the
// source in a vector of it, at most VEC), BLOCK (output channels of a work-item), SPACE (elements of the weights of
// BLOCK channels).
#include "conv/conv_channels.h"

#define REVERSED ((APART) < 0)
#define BESIDE (REVERSED ? -(APART) : (APART))
// The pixels of the source from the first tap of MR pixels to the last.
#define SPAN ((MR - 1) * STEP + (KW - 1) * BESIDE + 1)

typedef union {
  VTYPE(ACC, SOURCE_VEC) v;
  ST s[SOURCE_VEC];
} source_t;

#if NCO < VEC
// A vector of the result holds VEC / NCO groups. Their source channels are loaded at once.
#define SOURCES (VEC / NCO * CI / SOURCE_VEC)
#define FIRST_SOURCE(channel) ((channel) * CI / NCO)

ALWAYS_INLINE void load_pixel(__global const STORAGE(IO)* x, source_t* v) {
  UNROLL for (int s = 0; s < SOURCES; s++)
    v[s].v = LOAD(IO, ACC, SOURCE_VEC, x, s * SOURCE_VEC);
}

// Source channel c of each group, in the lanes of the group's results.
ALWAYS_INLINE VT spread(const source_t* v, int c) {
  lanes_t t;
  UNROLL for (int l = 0; l < VEC; l++)
    t.s[l] = v[(l / NCO * CI + c) / SOURCE_VEC].s[(l / NCO * CI + c) % SOURCE_VEC];
  return t.v;
}

// Loads SPAN pixels of the source, from pixel `first` of its row on; missing ones are zeros.
ALWAYS_INLINE void load_pixels(__global const STORAGE(IO)* x, long first, bool inside, const ConvChannelsParams* P,
                               source_t (*v)[SOURCES]) {
  UNROLL for (int j = 0; j < SPAN; j++) {
    if (inside || (first + j >= 0 && first + j < P->in_w)) {
      load_pixel(x + j * P->point, v[j]);
    } else {
      UNROLL for (int s = 0; s < SOURCES; s++)
        v[j][s].v = (VTYPE(ACC, SOURCE_VEC))(0);
    }
  }
}
#else
#define FIRST_SOURCE(channel) ((channel) / NCO * CI)
#endif

// The weights of up to BLOCK channels, from `first` on: [tap][source channel of a group][channel].
static inline void write_table(__global const STORAGE(IO)* w, long first, int count, const ConvChannelsParams* P,
                               ST* table) {
  for (long z = 0; z < P->taps_z; z++)
    for (long y = 0; y < P->taps_y; y++)
      for (int k = 0; k < KW; k++) {
        __global const STORAGE(IO)* from = w + z * P->w_z + y * P->w_y + (REVERSED ? KW - 1 - k : k) * P->w_x;
        for (int g = 0; g < CI; g++, from += P->w_in, table += BLOCK)
          for (int c = 0; c < count; c++)
            table[c] = LOAD(IO, ACC, 1, from, (first + c) / NCO * P->w_group + (first + c) % NCO * P->w_out);
      }
}

// Adds the products of a row of taps, whose first one lies at pixel `first` of the source's row, for `count` pixels.
// If `inside` is true, all taps exist, and the sums from `count` on may have any value.
#if NCO < VEC
ALWAYS_INLINE void add_row(__global const STORAGE(IO)* x, const ST* w, long first, int count, bool inside,
                           const ConvChannelsParams* P, VT* sum) {
  source_t v[SPAN][SOURCES];
  load_pixels(x, first, inside, P, v);
  UNROLL for (int k = 0; k < KW; k++) UNROLL
    for (int c = 0; c < CI; c++) {
      const VT weight = CAT(VLOAD_, VEC)(0, w + (k * CI + c) * BLOCK);
      UNROLL for (int i = 0; i < MR; i++)
        sum[i] = fma(spread(v[i * STEP + k * BESIDE], c), weight, sum[i]);
    }
}
#else
ALWAYS_INLINE void add_row(__global const STORAGE(IO)* x, const ST* w, long first, int count, bool inside,
                           const ConvChannelsParams* P, VT* sum) {
  UNROLL for (int k = 0; k < KW; k++) {
    __global const STORAGE(IO)* from = x + k * BESIDE * P->point;
    const ST* weights = w + k * CI * BLOCK;
    const long begin = first + k * BESIDE;
    if (inside || (count == MR && begin >= 0 && begin + (MR - 1) * STEP < P->in_w)) {
      for (int c = 0; c < CI; c++) {
        const VT weight = CAT(VLOAD_, VEC)(0, weights + c * BLOCK);
        UNROLL for (int i = 0; i < MR; i++)
          sum[i] = fma((VT)(LOAD(IO, ACC, 1, from + i * STEP * P->point, c)), weight, sum[i]);
      }
      continue;
    }
    UNROLL for (int i = 0; i < MR; i++) {
      const long at = begin + i * STEP;
      if (i >= count || at < 0 || at >= P->in_w) continue;
      for (int c = 0; c < CI; c++)
        sum[i] = fma((VT)(LOAD(IO, ACC, 1, from + i * STEP * P->point, c)), CAT(VLOAD_, VEC)(0, weights + c * BLOCK),
                     sum[i]);
    }
  }
}
#endif

__kernel void conv_channels(BUF(x), BUF(w), BUF(bias), BUF(out), const ConvChannelsParams P) {
  const long begin = get_global_id(0) * P.rows_per_item, end = min(begin + P.rows_per_item, P.rows);
  const long first_channel = get_global_id(1) * BLOCK;
  const int channels = (int)min((long)BLOCK, P.channels - first_channel);
  ST table[SPACE];
  write_table(PTR(w, const STORAGE(IO)), first_channel, channels, &P, table);
  for (long row = begin; row < end; row++) {
    GridRow R;
    find_row(&P, row, &R);
    for (long next = 0; next < P.width; next += MR) {
      const long at = max(min(next, P.width - MR), 0L);  // the last pixels overlap the previous ones
      const long first = at * STEP + P.first_x;
      const int count = (int)min((long)MR, P.width - at);
      const bool inside = first >= 0 && first + SPAN <= P.in_w;
      __global STORAGE(IO)* to = PTR(out, STORAGE(IO)) + R.at + at * P.out_x + first_channel;
      for (int c = 0; c < channels; c += VEC) {
        const int channel = min(c, channels - VEC);  // the last vector overlaps the previous one
        __global const STORAGE(IO)* from =
            PTR(x, const STORAGE(IO)) + first * P.point + FIRST_SOURCE(first_channel + channel);
        VT sum[MR];
        VT start = (VT)(0);
        if (bias_buf) start = CAT(VLOAD_, VEC)(0, PTR(bias, const ST) + first_channel + channel);
        UNROLL for (int i = 0; i < MR; i++)
          sum[i] = start;
        for (int r = 0; r < R.count; r++) {
          const ST* weights = table + R.tap[r] * (KW * CI * BLOCK) + channel;
          if (inside)
            add_row(from + R.from[r], weights, first, count, true, &P, sum);
          else
            add_row(from + R.from[r], weights, first, count, false, &P, sum);
        }
        UNROLL for (int i = 0; i < MR; i++)
          if (i < count) STORE(IO, ACC, VEC, to + i * P.out_x + channel, 0, sum[i]);
      }
    }
  }
}

// --- the gradient of the weight -------------------------------------------------------------------------------------

// The sums that are kept in registers: SUMS source channels of KW taps of TAP_ROWS rows.
#define MOST_SUMS 12
#define SUMS \
  (KW * CI <= MOST_SUMS ? CI : KW * 4 <= MOST_SUMS && CI % 4 == 0 ? 4 : KW * 2 <= MOST_SUMS && CI % 2 == 0 ? 2 : 1)
// Not two rows of five taps: of five rows, the last pass would have only one.
#define TAP_ROWS (KW * SUMS * 3 <= MOST_SUMS ? 3 : KW * SUMS * 2 <= 8 ? 2 : 1)

// sum[k][c] += source channel c0 + c at tap k of each of MR pixels * dy of the pixel.
ALWAYS_INLINE void add_products(__global const STORAGE(IO)* x, const VT* dy, int c0, const ConvChannelsParams* P,
                                VT (*sum)[SUMS]) {
#if NCO < VEC
  source_t v[SPAN][SOURCES];
  load_pixels(x, 0, true, P, v);
#endif
  UNROLL for (int i = 0; i < MR; i++) UNROLL
    for (int k = 0; k < KW; k++) UNROLL
      for (int c = 0; c < SUMS; c++) {
        const int place = i * STEP + k * BESIDE;
#if NCO < VEC
        const VT s = spread(v[place], c0 + c);
#else
        const VT s = (VT)(LOAD(IO, ACC, 1, x + place * P->point, c0 + c));
#endif
        sum[k][c] = fma(s, dy[i], sum[k][c]);
      }
}
// The same for one pixel, whose first tap lies at pixel `first` of the source's row. Taps that do not exist are
// skipped.
ALWAYS_INLINE void add_pixel(__global const STORAGE(IO)* x, VT dy, long first, int c0, const ConvChannelsParams* P,
                             VT (*sum)[SUMS]) {
  UNROLL for (int k = 0; k < KW; k++) {
    if (first + k * BESIDE < 0 || first + k * BESIDE >= P->in_w) continue;
#if NCO < VEC
    source_t v[SOURCES];
    load_pixel(x + k * BESIDE * P->point, v);
#endif
    UNROLL for (int c = 0; c < SUMS; c++) {
#if NCO < VEC
      const VT s = spread(v, c0 + c);
#else
      const VT s = (VT)(LOAD(IO, ACC, 1, x + k * BESIDE * P->point, c0 + c));
#endif
      sum[k][c] = fma(s, dy, sum[k][c]);
    }
  }
}

// The pixels [begin, end) of a row of the grid, TAP_ROWS rows of taps and their rows of the source, and the first of
// SUMS source channels of a group.
typedef struct {
  const ConvChannelsParams* P;
  int c0;
  long begin, end, first_tap;
  long z, y, image;
  long tap_z[TAP_ROWS], tap_y[TAP_ROWS];  // from the grid's row, in the source
  bool exists[TAP_ROWS];
  long from[TAP_ROWS];
} TapRows;

ALWAYS_INLINE void set_taps(long first_tap, TapRows* R) {
  const ConvChannelsParams* P = R->P;
  R->first_tap = first_tap;
  UNROLL for (int r = 0; r < TAP_ROWS; r++) {
    const uint tap = (uint)first_tap + r, kz = tap / (uint)P->taps_y, ky = tap - kz * (uint)P->taps_y;
    // Outside of every source if there is no such row of taps.
    R->tap_z[r] = kz < P->taps_z ? P->first_z + kz * P->apart_z : LONG_MIN / 2;
    R->tap_y[r] = P->first_y + ky * P->apart_y;
  }
}

ALWAYS_INLINE void set_row(long row, TapRows* R) {
  const ConvChannelsParams* P = R->P;
  const long plane = row / P->height;
  R->y = row - plane * P->height;
  R->image = plane / P->depth;
  R->z = plane - R->image * P->depth;
}

ALWAYS_INLINE void find_taps(TapRows* R) {
  const ConvChannelsParams* P = R->P;
  UNROLL for (int r = 0; r < TAP_ROWS; r++) {
    const long z = R->z * P->step_z + R->tap_z[r], y = R->y * P->step_y + R->tap_y[r];
    R->exists[r] = z >= 0 && z < P->in_d && y >= 0 && y < P->in_h;
    R->from[r] = R->exists[r] ? ((R->image * P->in_d + z) * P->in_h + y) * P->in_w * P->point : 0;
  }
}

// The taps of a row that are known to exist: none, those along the row, or all of them.
enum { NO_TAPS, TAPS_OF_ROWS, ALL_TAPS };

// sum += the products of the pixels [at, end) of a row of the grid: a multiple of MR, unless `known` is NO_TAPS.
ALWAYS_INLINE void add_pixels(__global const STORAGE(IO)* x, __global const STORAGE(IO)* dy, const TapRows* R, long at,
                              long end, int known, VT (*sum)[KW][SUMS]) {
  const ConvChannelsParams* P = R->P;
  const int step = known == NO_TAPS ? 1 : MR;
  const long next = step * STEP * P->point;
  long first = at * STEP + P->first_x;
  x += first * P->point;
  dy += at * P->out_x;
  for (; at < end; at += step, first += step * STEP, x += next, dy += step * P->out_x) {
    VT g[MR];
    UNROLL for (int i = 0; i < step; i++)
      g[i] = LOAD(IO, ACC, VEC, dy, i * P->out_x);
    UNROLL for (int r = 0; r < TAP_ROWS; r++) {
      if (known != ALL_TAPS && !R->exists[r]) continue;
      if (known == NO_TAPS)
        add_pixel(x + R->from[r], g[0], first, R->c0, P, sum[r]);
      else
        add_products(x + R->from[r], g, R->c0, P, sum[r]);
    }
  }
}

// sum += the products of R's pixels.
ALWAYS_INLINE void add_grid_row(__global const STORAGE(IO)* x, __global const STORAGE(IO)* dy, const TapRows* R,
                                VT (*sum)[KW][SUMS]) {
  const ConvChannelsParams* P = R->P;
  // The pixels [begin, end) have all their taps along the row.
  const long begin = clamp((STEP - 1 - P->first_x) / STEP, R->begin, R->end);
  const long past = P->in_w - (KW - 1) * BESIDE - P->first_x + STEP - 1;
  const long most = min(max(past, 0L) / STEP, R->end), end = begin + max(most - begin, 0L) / MR * MR;
  bool all = true;
  UNROLL for (int r = 0; r < TAP_ROWS; r++)
    all = all && R->exists[r];
  add_pixels(x, dy, R, R->begin, begin, NO_TAPS, sum);
  if (all)
    add_pixels(x, dy, R, begin, end, ALL_TAPS, sum);
  else
    add_pixels(x, dy, R, begin, end, TAPS_OF_ROWS, sum);
  add_pixels(x, dy, R, end, R->end, NO_TAPS, sum);
}

// table[tap][source channel of a group][channel] += the sums over R's pixels of `rows` rows of the grid, from R's row
// on, for R's taps and a vector of channels.
ALWAYS_INLINE void add_grid_rows(__global const STORAGE(IO)* x, __global const STORAGE(IO)* dy, TapRows R, long rows,
                                 ST* table) {
  const ConvChannelsParams* P = R.P;
  VT sum[TAP_ROWS][KW][SUMS];
  UNROLL for (int r = 0; r < TAP_ROWS; r++) UNROLL
    for (int k = 0; k < KW; k++) UNROLL
      for (int c = 0; c < SUMS; c++) sum[r][k][c] = (VT)(0);
  for (long row = 0;;) {
    add_grid_row(x, dy + R.image * P->out_image + R.z * P->out_z + R.y * P->out_y, &R, sum);
    if (++row == rows) break;
    if (++R.y == P->height) {
      R.y = 0;
      if (++R.z == P->depth) R.z = 0, R.image++;
    }
    find_taps(&R);
  }
  UNROLL for (int r = 0; r < TAP_ROWS; r++) {
    if (R.first_tap + r >= P->taps_z * P->taps_y) continue;
    UNROLL for (int k = 0; k < KW; k++) UNROLL
      for (int c = 0; c < SUMS; c++) {
        ST* to = table + (((R.first_tap + r) * KW + k) * CI + R.c0 + c) * BLOCK;
        CAT(VSTORE_, VEC)(CAT(VLOAD_, VEC)(0, to) + sum[r][k][c], 0, to);
      }
  }
}

// Writes the sums of a work-item. A single one for all rows writes the gradient; several write
// part[item][tap][source channel of a group][channel], which conv_sum_taps in conv_sum.cl adds up.
static inline void store_table(const ST* table, long first_channel, int channels, long taps,
                               const ConvChannelsParams* P, __global ST* part, __global STORAGE(IO)* out) {
  for (long t = 0; t < taps; t++, table += BLOCK)
    for (int c = 0; c < channels; c++) {
      if (get_global_size(0) > 1)
        part[(get_global_id(0) * taps + t) * P->channels + first_channel + c] = table[c];
      else
        STORE(IO, ACC, 1, out, (first_channel + c) * taps + t, table[c]);
    }
}

// Pixels that stay cached while every tap and channel vector uses them. Their sums are added to the table at once:
// short sums lose less.
#define CACHED 12288  // elements
#define PIXELS_AT_ONCE (CACHED / (BLOCK + TAP_ROWS * STEP * max(FIRST_SOURCE(BLOCK), 1)) / MR * MR)

// Fetches the channels of `pixels` pixels, `distance` apart.
ALWAYS_INLINE void fetch_pixels(__global const STORAGE(IO)* p, long pixels, long distance, int channels) {
  for (long i = 0; i < pixels; i++, p += distance)
    for (int c = 0; c < channels; c += 64 / (int)sizeof(STORAGE(IO))) FETCH_LINE(p + c);
}

// Fetches what the next pixels of a row add: their last row of taps, and dy. Beyond the row lies the next one.
ALWAYS_INLINE void fetch_next(const TapRows* R, __global const STORAGE(IO)* x, __global const STORAGE(IO)* dy, long at,
                              long pixels, int channels) {
  const ConvChannelsParams* P = R->P;
  const long z = R->z * P->step_z, y = R->y * P->step_y + P->first_y + (P->taps_y - 1) * P->apart_y;
  x += (((R->image * P->in_d + z) * P->in_h + y) * P->in_w + at * STEP) * P->point;
  dy += R->image * P->out_image + R->z * P->out_z + R->y * P->out_y + at * P->out_x;
  fetch_pixels(x, pixels * STEP, P->point, max(channels * CI / NCO, 1));
  fetch_pixels(dy, pixels, P->out_x, channels);
}

__kernel void conv_channels_weight(BUF(x), BUF(dy), BUF(part), BUF(out), const ConvChannelsParams P) {
  const long begin = get_global_id(0) * P.rows_per_item, end = min(begin + P.rows_per_item, P.rows);
  const long first_channel = get_global_id(1) * BLOCK, tap_rows = P.taps_z * P.taps_y;
  const int channels = (int)min((long)BLOCK, P.channels - first_channel);
  const long pixels = max(PIXELS_AT_ONCE, 4 * MR), rows = max(pixels / P.width, 1L);
  // A row's first part also has the pixels that lack a tap, so that each part has whole groups of MR pixels.
  const long lead = clamp((STEP - 1 - P.first_x) / STEP, 0L, P.width) % MR;
  ST table[SPACE];
  for (int i = 0; i < SPACE; i += VEC) CAT(VSTORE_, VEC)((VT)(0), 0, table + i);
  for (long row = begin; row < end; row += rows) {
    TapRows R;
    R.P = &P;
    set_row(row, &R);
    for (long at = 0, to; at < P.width; at = to) {
      to = min(at + pixels + (at == 0 ? lead : 0), P.width);
      fetch_next(&R, PTR(x, const STORAGE(IO)) + FIRST_SOURCE(first_channel),
                 PTR(dy, const STORAGE(IO)) + first_channel, rows > 1 ? rows * P.width : to,
                 rows > 1 ? rows * P.width : pixels, channels);
      for (long first = 0; first < tap_rows; first += TAP_ROWS) {
        R.begin = at;
        R.end = to;
        set_taps(first, &R);
        find_taps(&R);
        for (int c = 0; c < channels; c += VEC) {
          // The last vector overlaps the previous one: its first lanes are added to a place that is not read.
          const int channel = min(c, channels - VEC);
          __global const STORAGE(IO)* x = PTR(x, const STORAGE(IO)) + FIRST_SOURCE(first_channel + channel);
          __global const STORAGE(IO)* dy = PTR(dy, const STORAGE(IO)) + first_channel + channel;
          UNROLL for (int c0 = 0; c0 < CI; c0 += SUMS) {
            R.c0 = c0;
            add_grid_rows(x, dy, R, min(rows, end - row), table + c);
          }
        }
      }
    }
  }
  // Move the last vector's tail lanes to their final position.
  const int spare = (VEC - channels % VEC) % VEC;
  for (int i = 0; spare > 0 && i < SPACE; i += BLOCK)
    for (int c = channels / VEC * VEC; c < channels; c++) table[i + c] = table[i + c + spare];
  store_table(table, first_channel, channels, tap_rows * KW * CI, &P, PTR(part, ST), PTR(out, STORAGE(IO)));
}
