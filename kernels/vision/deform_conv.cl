// torchvision's deform_conv2d as matrix products over columns: the columns, and the gradients of input, offsets and
// mask.
// `mask` and its gradient are null if points have no factors. -D: IN, ACC; ATOMIC and BYTES for the input's gradient,
// see add_to.h. A point is (image, group of offsets, tap of the kernel, pixel of the output). Work-items take `per`
// points in the first dimension, `block` channels of the group in the second.
#include "args/vision.h"
#include "vision/add_to.h"

typedef struct {
  long image, group, tap, pixel;
  ST y, x, factor;
} point_t;
static inline point_t point_of(const DeformParams* p, long place, __global const STORAGE(IN)* offset,
                               __global const STORAGE(IN)* mask) {
  const long pixels = p->out_h * p->out_w, taps = p->kernel_h * p->kernel_w;
  point_t at;
  at.pixel = place % pixels;
  at.tap = place / pixels % taps;
  at.group = place / pixels / taps % p->groups;
  at.image = place / pixels / taps / p->groups;
  const long y = at.pixel / p->out_w * p->stride_h - p->pad_h + at.tap / p->kernel_w * p->dilation_h;
  const long x = at.pixel % p->out_w * p->stride_w - p->pad_w + at.tap % p->kernel_w * p->dilation_w;
  // The offsets of a tap are (y, x), so they lie where the factors would in a tensor of twice as many taps.
  const long pair = 2 * (place - at.pixel) + at.pixel;
  at.y = (ST)y + LOAD(IN, ACC, 1, offset, pair);
  at.x = (ST)x + LOAD(IN, ACC, 1, offset, pair + pixels);
  at.factor = mask ? LOAD(IN, ACC, 1, mask, place) : (ST)1;
  return at;
}
#define FOR_POINTS                                                                       \
  const long first = (long)get_global_id(0) * p.per;                                     \
  const long points = p.images * p.groups * p.kernel_h * p.kernel_w * p.out_h * p.out_w; \
  for (long place = first; place < min(first + (long)p.per, points); place++)
#define POINT point_of(&p, place, PTR(offset, const STORAGE(IN)), PTR(mask, const STORAGE(IN)))
#define GROUP_CHANNELS (p.channels / p.groups)
#define FOR_CHANNELS                                                                                                 \
  for (long c = (long)get_global_id(1) * p.block, last_c = min(c + (long)p.block, (long)GROUP_CHANNELS); c < last_c; \
       c++)
#define PLANE (((at.image * p.channels) + at.group * GROUP_CHANNELS + c) * p.height * p.width)
#define COLUMN                                                                                                        \
  ((((at.group * GROUP_CHANNELS + c) * p.kernel_h * p.kernel_w + at.tap) * p.images + at.image) * p.out_h * p.out_w + \
   at.pixel)

// The pixels around a point, -1 for those outside of the image, and the distance to the first.
typedef struct {
  long at[4];
  ST dy, dx;
  int inside;  // whether the point counts in the forward pass
} corners_t;
static inline corners_t corners_of(ST y, ST x, long height, long width) {
  const ST top = floor(y), left = floor(x), h = (ST)height, w = (ST)width;
  // False if they are NaN or too large for a long.
  const int up = top >= 0 && top < h, down = top >= -1 && top < h - 1;
  const int before = left >= 0 && left < w, behind = left >= -1 && left < w - 1;
  const long row = up || down ? (long)top : 0, column = before || behind ? (long)left : 0;
  corners_t c;
  c.at[0] = up && before ? row * width + column : -1;
  c.at[1] = up && behind ? row * width + column + 1 : -1;
  c.at[2] = down && before ? (row + 1) * width + column : -1;
  c.at[3] = down && behind ? (row + 1) * width + column + 1 : -1;
  c.dy = y - top;
  c.dx = x - left;
  c.inside = !(y <= -1 || y >= h || x <= -1 || x >= w);
  return c;
}
#define CORNER_WEIGHTS(c) {(1 - (c).dy) * (1 - (c).dx), (1 - (c).dy) * (c).dx, (c).dy * (1 - (c).dx), (c).dy * (c).dx}
static inline void load_corners(__global const STORAGE(IN)* plane, const corners_t* c, ST* v) {
  for (int k = 0; k < 4; k++) v[k] = c->at[k] >= 0 ? LOAD(IN, ACC, 1, plane, c->at[k]) : (ST)0;
}

__kernel void deform_columns(BUF(columns), BUF(in), BUF(offset), BUF(mask), const DeformParams p) {
  FOR_POINTS {
    const point_t at = POINT;
    const corners_t around = corners_of(at.y, at.x, p.height, p.width);
    const ST w[4] = CORNER_WEIGHTS(around);
    FOR_CHANNELS {
      ST v[4] = {0, 0, 0, 0};
      if (around.inside) load_corners(PTR(in, const STORAGE(IN)) + PLANE, &around, v);
      // An offset of NaN makes the weights NaN; one of infinity must not.
      const ST sum = around.inside ? w[0] * v[0] + w[1] * v[1] + w[2] * v[2] + w[3] * v[3] : (ST)0;
      STORE(IN, ACC, 1, PTR(columns, STORAGE(IN)), COLUMN, at.factor * sum);
    }
  }
}

// `columns` is the gradient of the columns from here on.
__kernel void deform_backward_input(BUF(gin), BUF(columns), BUF(offset), BUF(mask), const DeformParams p) {
  FOR_POINTS {
    const point_t at = POINT;
    const corners_t around = corners_of(at.y, at.x, p.height, p.width);
    if (!around.inside) continue;
    const ST w[4] = CORNER_WEIGHTS(around);
    FOR_CHANNELS {
      const ST g = at.factor * LOAD(IN, ACC, 1, PTR(columns, const STORAGE(IN)), COLUMN);
      for (int k = 0; k < 4; k++)
        if (around.at[k] >= 0 && w[k] != 0) add_to(PTR(gin, ST) + PLANE + around.at[k], g * w[k]);
    }
  }
}

// A work-item takes all channels of the group.
__kernel void deform_backward_offset(BUF(goffset), BUF(gmask), BUF(columns), BUF(in), BUF(offset), BUF(mask),
                                     const DeformParams p) {
  const long pixels = p.out_h * p.out_w;
  FOR_POINTS {
    const point_t at = POINT;
    const corners_t around = corners_of(at.y, at.x, p.height, p.width);
    const ST w[4] = CORNER_WEIGHTS(around);
    ST gy = 0, gx = 0, gm = 0;
    for (long c = 0; c < GROUP_CHANNELS; c++) {
      ST v[4];
      load_corners(PTR(in, const STORAGE(IN)) + PLANE, &around, v);
      const ST g = LOAD(IN, ACC, 1, PTR(columns, const STORAGE(IN)), COLUMN);
      gy += g * (around.dx * (v[3] - v[1]) + (1 - around.dx) * (v[2] - v[0]));
      gx += g * (around.dy * (v[3] - v[2]) + (1 - around.dy) * (v[1] - v[0]));
      if (around.inside) gm += g * (w[0] * v[0] + w[1] * v[1] + w[2] * v[2] + w[3] * v[3]);
    }
    const long pair = 2 * (place - at.pixel) + at.pixel;
    STORE(IN, ACC, 1, PTR(goffset, STORAGE(IN)), pair, at.factor * gy);
    STORE(IN, ACC, 1, PTR(goffset, STORAGE(IN)), pair + pixels, at.factor * gx);
    if (gmask_buf) STORE(IN, ACC, 1, PTR(gmask, STORAGE(IN)), place, gm);
  }
}
