// torchvision's pooling of regions of interest: roi_align, roi_pool, ps_roi_align, ps_roi_pool, and their gradients.
// -D: IN, ACC, BLOCK (the most channels per work-item), FILTER (what a bin takes from the input); ATOMIC and BYTES for
// the gradients, see add_to.h.
#include "args/vision.h"
#include "vision/add_to.h"

enum { POINTS, MOST, MEAN };  // interpolated points (the align operators), the largest pixel, the mean of all pixels

// What a work-item takes. `image` is -1 if it takes one region, whatever the image.
typedef struct {
  long roi, last_roi, image, channel, channels, bin, last_bin;
} share_t;
static inline share_t share_of(const RoiParams* p, long item) {
  const long bins = p->out_h * p->out_w, blocks = (p->out_channels + p->block - 1) / p->block;
  const long parts = (bins + p->bins_per - 1) / p->bins_per;
  const long first = item / parts / blocks;
  share_t s;
  s.image = p->by_image ? first : -1;
  s.roi = p->by_image ? 0 : first;
  s.last_roi = p->by_image ? (first < p->images ? p->rois : 0) : min(first + 1, (long)p->rois);
  s.channel = item / parts % blocks * p->block;
  s.channels = min((long)p->block, p->out_channels - s.channel);
  s.bin = item % parts * p->bins_per;
  s.last_bin = min(s.bin + p->bins_per, bins);
  return s;
}

// The channel of the input that belongs to a channel of the output.
#define CHANNEL(c, bin) (p.by_position ? (c) * (p.out_h * p.out_w) + (bin) : (c))
#define PLANE(image, c, bin) (((image) * p.channels + CHANNEL(c, bin)) * p.height * p.width)
#define RESULT(roi, c, bin) (((roi) * p.out_channels + (c)) * p.out_h * p.out_w + (bin))

// A NaN becomes 0; a value beyond int's range becomes a number of that size.
static inline int to_int(ST v) { return v == v ? (int)clamp(v, (ST)-2e9f, (ST)2e9f) : 0; }

// A region's image, and its left, upper, right and lower edge in pixels of the input.
typedef struct {
  long image;
  ST edge[4];
} roi_t;
static inline roi_t load_roi(__global const STORAGE(IN)* rois, long r, ST scale) {
  roi_t roi;
  roi.image = to_int(LOAD(IN, ACC, 1, rois, 5 * r));
  for (int k = 0; k < 4; k++) roi.edge[k] = LOAD(IN, ACC, 1, rois, 5 * r + 1 + k) * scale;
  return roi;
}
// An image that does not exist is reported; image 0 is read instead.
static inline void check_image(roi_t* roi, long images, __global int* err, int code) {
  if (roi->image >= 0 && roi->image < images) return;
  netcl_report(err, code, roi->image, images);
  roi->image = 0;
}

// Whether a region adds to what a work-item computes: an image that does not exist has been reported.
static inline int belongs(const roi_t* roi, const share_t* s, long images) {
  return roi->image >= 0 && roi->image < images && (s->image < 0 || roi->image == s->image);
}

// What both kernels take.
#define ROI_PARAMS \
  BUF(rois), BUF(e), int code, float scale, float scale_low, int sampling, int aligned, const RoiParams p
#define SCALE ((ST)scale + (ST)scale_low)

// One dimension of a region for the align operators: its bins begin at `start` and have the size `bin`; each is sampled
// at `points` points.
typedef struct {
  ST start, bin;
  int points;
} span_t;
static inline span_t span_of(ST low, ST high, long bins, int sampling, int aligned) {
  const ST shift = aligned ? 0.5f : 0.0f, size = (high - shift) - (low - shift);
  span_t s;
  s.start = low - shift;
  s.bin = (aligned ? size : fmax(size, (ST)1)) / (ST)bins;
  s.points = sampling > 0 ? sampling : to_int(ceil(s.bin));
  return s;
}
// The points of a bin that may lie in the input. Without this, a region of 1e9 pixels would take as many steps.
static inline void points_of(const span_t* s, long bin, long size, int* first, int* last) {
  *first = 0;
  *last = s->points;
  if (s->points < 1024 || !(s->bin > 0)) return;
  const ST start = s->start + (ST)bin * s->bin, per = (ST)s->points / s->bin;
  *first = max(*first, to_int(floor((-1 - start) * per)) - 2);
  *last = min(*last, to_int(ceil(((ST)size - start) * per)) + 2);
}
static inline ST point(const span_t* s, long bin, int k) {
  return s->start + (ST)bin * s->bin + ((ST)k + 0.5f) * s->bin / (ST)s->points;
}

// The four pixels around a point, and their weights; false if the point lies outside, or is NaN.
typedef struct {
  long at[4];
  ST w[4];
} taps_t;
static inline int taps_of(ST y, ST x, long height, long width, taps_t* t) {
  if (!(y >= -1 && y <= (ST)height && x >= -1 && x <= (ST)width)) return 0;
  y = fmax(y, (ST)0);
  x = fmax(x, (ST)0);
  const long top = min((long)y, height - 1), left = min((long)x, width - 1);
  const long bottom = min(top + 1, height - 1), right = min(left + 1, width - 1);
  const ST dy = top == bottom ? 0 : y - (ST)top, dx = left == right ? 0 : x - (ST)left;
  t->at[0] = top * width + left;
  t->at[1] = top * width + right;
  t->at[2] = bottom * width + left;
  t->at[3] = bottom * width + right;
  t->w[0] = (1 - dy) * (1 - dx);
  t->w[1] = (1 - dy) * dx;
  t->w[2] = dy * (1 - dx);
  t->w[3] = dy * dx;
  return 1;
}

// Loops over the points of bin `bin` of the region `roi` that lie in the input, with their taps t. `count` is the
// number of all points. roi_align divides by 1 if there are none, ps_roi_align by 0.
#define FOR_POINTS                                                                                    \
  const span_t across = span_of(roi.edge[0], roi.edge[2], p.out_w, sampling, aligned);                \
  const span_t down = span_of(roi.edge[1], roi.edge[3], p.out_h, sampling, aligned);                  \
  const ST all = (ST)down.points * (ST)across.points, count = p.by_position ? all : fmax(all, (ST)1); \
  const long bin_y = bin / p.out_w, bin_x = bin % p.out_w;                                            \
  int y0, y1, x0, x1;                                                                                 \
  points_of(&down, bin_y, p.height, &y0, &y1);                                                        \
  points_of(&across, bin_x, p.width, &x0, &x1);                                                       \
  taps_t t;                                                                                           \
  for (int y = y0; y < y1; y++)                                                                       \
    for (int x = x0; x < x1; x++)                                                                     \
      if (taps_of(point(&down, bin_y, y), point(&across, bin_x, x), p.height, p.width, &t))

// The rows, or columns, of a bin of the pool operators: [x, y). `extra` is 1 if the region includes its end.
static inline long2 rows_of(ST low, ST high, int extra, long bin, long bins, long limit) {
  const long start = to_int(round(low)), size = max((long)to_int(round(high)) - start + extra, 1L);
  const ST per = (ST)size / (ST)bins;
  return (long2)(clamp(to_int(floor((ST)bin * per)) + start, 0L, limit),
                 clamp(to_int(ceil((ST)(bin + 1) * per)) + start, 0L, limit));
}
// `less`: how many rows and columns at the end of the input do not count.
#define REGION(extra, less)                                                                                \
  const long2 down = rows_of(roi.edge[1], roi.edge[3], extra, bin / p.out_w, p.out_h, p.height - (less));  \
  const long2 across = rows_of(roi.edge[0], roi.edge[2], extra, bin % p.out_w, p.out_w, p.width - (less)); \
  const long area = (down.y - down.x) * (across.y - across.x);
#define EACH_OF_REGION                   \
  for (long y = down.x; y < down.y; y++) \
    for (long x = across.x; x < across.y; x++)

// `places` is for MOST alone: where the largest value of a bin lies. Like torchvision, it takes no NaN, and starts from
// -FLT_MAX in every dtype.
__kernel void roi_pool(BUF(out), BUF(places), BUF(in), ROI_PARAMS) {
  const share_t s = share_of(&p, get_global_id(0));
  if (s.roi >= s.last_roi) return;
  roi_t roi = load_roi(PTR(rois, const STORAGE(IN)), s.roi, SCALE);
  check_image(&roi, p.images, PTR(e, int), code);
  for (long bin = s.bin; bin < s.last_bin; bin++) {
    if (FILTER == POINTS) {
      ST sum[BLOCK];
      for (int c = 0; c < BLOCK; c++) sum[c] = 0;
      FOR_POINTS
      for (int c = 0; c < s.channels; c++) {
        __global const STORAGE(IN)* plane = PTR(in, const STORAGE(IN)) + PLANE(roi.image, s.channel + c, bin);
        for (int k = 0; k < 4; k++) sum[c] += t.w[k] * LOAD(IN, ACC, 1, plane, t.at[k]);
      }
      for (int c = 0; c < s.channels; c++)
        STORE(IN, ACC, 1, PTR(out, STORAGE(IN)), RESULT(s.roi, s.channel + c, bin), sum[c] / count);
      continue;
    }
    REGION(FILTER == MOST, FILTER == MEAN)
    for (long c = s.channel; c < s.channel + s.channels; c++) {
      __global const STORAGE(IN)* plane = PTR(in, const STORAGE(IN)) + PLANE(roi.image, c, bin);
      ST result = FILTER == MOST && area > 0 ? -FLT_MAX : 0;
      long place = -1;
      EACH_OF_REGION {
        const ST v = LOAD(IN, ACC, 1, plane, y * p.width + x);
        if (FILTER == MEAN) {
          result += v;
        } else if (v > result) {
          result = v;
          place = y * p.width + x;
        }
      }
      if (FILTER == MEAN && area > 0) result /= (ST)area;
      STORE(IN, ACC, 1, PTR(out, STORAGE(IN)), RESULT(s.roi, c, bin), result);
      if (FILTER == MOST) PTR(places, int)[RESULT(s.roi, c, bin)] = (int)place;
    }
  }
}

// torchvision's gradient of MEAN counts the last row and column, which its forward pass leaves out.
__kernel void roi_backward(BUF(gin), BUF(grad), BUF(places), ROI_PARAMS) {
  const share_t s = share_of(&p, get_global_id(0));
  for (long r = s.roi; r < s.last_roi; r++) {
    const roi_t roi = load_roi(PTR(rois, const STORAGE(IN)), r, SCALE);
    if (!belongs(&roi, &s, p.images)) continue;
    for (long c = s.channel; FILTER == MOST && c < s.channel + s.channels; c++)
      for (long bin = s.bin; bin < s.last_bin; bin++) {
        const long place = PTR(places, const int)[RESULT(r, c, bin)];
        if (place < 0 || place >= p.height * p.width) continue;
        const ST g = LOAD(IN, ACC, 1, PTR(grad, const STORAGE(IN)), RESULT(r, c, bin));
        add_to(PTR(gin, ST) + PLANE(roi.image, c, bin) + place, g);
      }
    for (long bin = s.bin; FILTER != MOST && bin < s.last_bin; bin++) {
      if (FILTER == POINTS) {
        FOR_POINTS
        for (long c = s.channel; c < s.channel + s.channels; c++) {
          const ST g = LOAD(IN, ACC, 1, PTR(grad, const STORAGE(IN)), RESULT(r, c, bin));
          __global ST* plane = PTR(gin, ST) + PLANE(roi.image, c, bin);
          for (int k = 0; k < 4; k++) add_to(plane + t.at[k], g * t.w[k] / count);
        }
        continue;
      }
      REGION(0, 0)
      for (long c = s.channel; area > 0 && c < s.channel + s.channels; c++) {
        const ST g = LOAD(IN, ACC, 1, PTR(grad, const STORAGE(IN)), RESULT(r, c, bin)) / (ST)area;
        __global ST* plane = PTR(gin, ST) + PLANE(roi.image, c, bin);
        EACH_OF_REGION add_to(plane + y * p.width + x, g);
      }
    }
  }
}
