// Shared by the convolution kernels. A convolution is a matrix product (csrc/aten/conv):
//
//                                  n: output channels
//                                 +------------+
//     k: taps                     |            |   packed beforehand into panels of NR columns, [k][NR]
//    +------------+               +------------+
//    |            |               |            |
//    |  gathered  |   m: pixels   |    out     |   computed in tiles of MR x NR, which stay in registers
//    +------------+               +------------+
//
//   pixel    a position of the output's grid
//   tap      one of the k products of a sum: a channel of the input and a position in the kernel
//   gather   element (i, r) of the left operand is x[row[i] + tap[r]]: no im2col matrix is made. row[i] is where the
//            window of pixel i begins, tap[r] how far tap r lies from there (conv_table.cl writes it)
//   group    each group of channels is a product of its own
//
// For the gradient of the weight, pixels and taps change places. If there are few pixels and many channels, the weight
// is gathered and the pixels are packed.
//
// -D: ACC (tag of the compute type: f32 or f64), IN and OUT (storage tags of what is read and written), IDX (i32 or
// i64: dtype of a table). The product's kernels also take the tile: MR x NV vectors of VEC elements, and ENGINE_AMX or
// ENGINE_AVX512_BF16 with PARTS if a matrix engine multiplies (kernels/gemm/gemm_engine.h).
#include "args/conv.h"
#include "common/transpose.h"
#include "common/vector.h"

#ifdef IDX
typedef CTYPE(IDX) offset_t;
#endif

#if defined(ENGINE_AMX) || defined(ENGINE_AVX512_BF16)
#define ENGINE
#endif

#ifdef NV
#define NR (VEC * NV)
#ifdef ENGINE
#include "gemm/gemm_engine.h"
#else
typedef ST panel_t;
#define PARTS 1
#define SPARE_VECTORS 0
#define K_UNROLL 1
#define ENGINE_BEGIN()
#define ENGINE_END()
#endif
#define PADDED_K(k) (((k) + K_UNROLL - 1) & ~(long)(K_UNROLL - 1))
#endif

// The offsets of `count` consecutive indices from `first` on; those from `limit` on repeat the last valid one.
static inline void offsets_from(const MixedRadix* R, long first, long limit, int count, long* offset) {
  long digit[4];
  long i = first;
  for (int d = 3; d > 0; d--) {
    const long rest = i / R->size[d];
    digit[d] = i - rest * R->size[d];
    i = rest;
  }
  digit[0] = i;
  long at = digit[0] * R->stride[0] + digit[1] * R->stride[1] + digit[2] * R->stride[2] + digit[3] * R->stride[3];
  for (int j = 0; j < count; j++) {
    offset[j] = at;
    if (first + j + 1 >= limit) continue;
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
