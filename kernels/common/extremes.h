// LOWEST and HIGHEST are the ends of the compute type's range: infinities if it has them. -D: ACC (compute tag).
#include "common/common.h"

// These are expanded within a CAT, so they use CAT3.
#define LOWEST CAT3(lowest_, ACC, )
#define HIGHEST CAT3(highest_, ACC, )
#define lowest_f32 (-INFINITY)
#define highest_f32 INFINITY
#define lowest_f64 ((double)-INFINITY)
#define highest_f64 ((double)INFINITY)
#define lowest_c64 ((float2)(-INFINITY, 0))
#define lowest_c128 ((double2)(-INFINITY, 0))
#define lowest_i8 CHAR_MIN
#define highest_i8 CHAR_MAX
#define lowest_i16 SHRT_MIN
#define highest_i16 SHRT_MAX
#define lowest_i32 INT_MIN
#define highest_i32 INT_MAX
#define lowest_i64 LONG_MIN
#define highest_i64 LONG_MAX
#define lowest_u8 0
#define highest_u8 UCHAR_MAX
#define lowest_u64 0UL
#define highest_u64 ULONG_MAX
