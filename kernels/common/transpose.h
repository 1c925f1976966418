// Transposes a matrix of 16 x 16 numbers of 32 bits in registers, by four perfect shuffles.
#include "common/vector.h"

#define ZIP_LO(T, a, b)                                                                                               \
  (T)((a).s0, (b).s0, (a).s1, (b).s1, (a).s2, (b).s2, (a).s3, (b).s3, (a).s4, (b).s4, (a).s5, (b).s5, (a).s6, (b).s6, \
      (a).s7, (b).s7)
#define ZIP_HI(T, a, b)                                                                                               \
  (T)((a).s8, (b).s8, (a).s9, (b).s9, (a).sa, (b).sa, (a).sb, (b).sb, (a).sc, (b).sc, (a).sd, (b).sd, (a).se, (b).se, \
      (a).sf, (b).sf)
// `v` is an array of 16 vectors of type T (float16 or uint16).
#define TRANSPOSE16(T, v)                           \
  for (int s_ = 0; s_ < 4; s_++) {                  \
    T t_[16];                                       \
    UNROLL for (int k_ = 0; k_ < 8; k_++) {         \
      t_[2 * k_] = ZIP_LO(T, v[k_], v[k_ + 8]);     \
      t_[2 * k_ + 1] = ZIP_HI(T, v[k_], v[k_ + 8]); \
    }                                               \
    UNROLL for (int k_ = 0; k_ < 16; k_++)          \
      v[k_] = t_[k_];                               \
  }
