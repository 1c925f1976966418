// Arguments and arithmetic of kernels for matrices. A matrix is an address and three strides in elements: batch, row,
// column.
// -D: ACC (f32, f64, c64, c128).
#define VEC 1
#include "common/vector.h"

#define MATRIX(name) BUF(name), long name##_batch, long name##_row, long name##_col
// Columns of elements side by side, and vectors of pivots or factors.
#define COLUMNS(name) BUF(name), long name##_batch, long name##_col
#define VECTOR(name) BUF(name), long name##_batch
#define AT(name, batch, i, j) PTR(name, VT)[(batch) * name##_batch + (i) * name##_row + (j) * name##_col]

#if defined(ACC_COMPLEX)
#include "common/complex.h"
#define MUL(a, b) c_mul(a, b)
#define DIV(a, b) c_div(a, b)
#define CONJ(a) c_conj(a)
#define REAL(a) (a).x
#define IMAGINARY(a) (a).y
#define FROM_REAL(r) ((VT)(r, 0))
#define NUMBER(re, im) ((VT)(re, im))
#define MAGNITUDE(a) (fabs((a).x) + fabs((a).y))
#define SQUARE(a) ((a).x * (a).x + (a).y * (a).y)
#elif defined(ACC_FLOATING)
typedef VT R;
#define MUL(a, b) ((a) * (b))
#define DIV(a, b) ((a) / (b))
#define CONJ(a) (a)
#define REAL(a) (a)
#define IMAGINARY(a) ((R)0)
#define FROM_REAL(r) (r)
#define NUMBER(re, im) (re)
#define MAGNITUDE(a) fabs(a)
#define SQUARE(a) ((a) * (a))
#endif

// Sums of squares between these bounds lose nothing to overflow or underflow that rounding would keep.
#if defined(ACC_DOUBLE)
#define EPSILON DBL_EPSILON
#define SQUARES_MIN 1e-280
#define SQUARES_MAX 1e280
#else
#define EPSILON FLT_EPSILON
#define SQUARES_MIN 1e-30f
#define SQUARES_MAX 1e30f
#endif

#if !defined(ACC_INTEGRAL)
// The power of 2 that brings numbers up to `most` to about 1.
static inline R scale_to_one(R most) {
#if defined(ACC_DOUBLE)
  const long exponent = (as_long(most) >> 52 & 2047) - 1023;
  const R scale = as_double((1023 - clamp(exponent, -1022L, 1022L)) << 52);
#else
  const int exponent = (as_int(most) >> 23 & 255) - 127;
  const R scale = as_float((127 - clamp(exponent, -126, 126)) << 23);
#endif
  return most > 0 && most < (R)INFINITY ? scale : (R)1;
}
#endif
