// The operations whose state is one number (KIND_SIMPLE). OP is a name. An operation X defines X_MAP(x, T), applied to
// an element x of type T (a scalar or a vector); X_COMBINE, of two accumulators; X_FINISH, applied at the end; and
// X_IDENTITY, the accumulator of no elements. p0 is the operation's parameter. (Some compilers define max, min, any and
// all as macros, so no operation may have these names.)
#include "reduce/reduce.h"

#define ONE_IF(mask, T) ((mask) ? (T)(1) : (T)(0))
// A NaN counts as the extreme value.
#if defined(ACC_FLOATING)
#define FIRST_OF_MAX(a, b) (((a) > (b)) | isnan(a))
#define FIRST_OF_MIN(a, b) (((a) < (b)) | isnan(a))
#else
#define FIRST_OF_MAX(a, b) ((a) > (b))
#define FIRST_OF_MIN(a, b) ((a) < (b))
#endif

#define sum_IDENTITY 0
#define sum_MAP(x, T) (x)
#define sum_COMBINE(a, b) ((a) + (b))
#define sum_FINISH(a) (a)

#define mean_IDENTITY 0
#define mean_MAP(x, T) (x)
#define mean_COMBINE(a, b) ((a) + (b))
#define mean_FINISH(a) ((a) / p0)

#define nansum_IDENTITY 0
#define nansum_MAP(x, T) (IS_NAN(x) ? (T)(0) : (x))
#define nansum_COMBINE(a, b) ((a) + (b))
#define nansum_FINISH(a) (a)

#define prod_IDENTITY ONE
#define prod_MAP(x, T) (x)
#define prod_COMBINE(a, b) TIMES(a, b)
#define prod_FINISH(a) (a)

#define bitxor_IDENTITY 0
#define bitxor_MAP(x, T) (x)
#define bitxor_COMBINE(a, b) ((a) ^ (b))
#define bitxor_FINISH(a) (a)

#define amax_IDENTITY LOWEST
#define amax_MAP(x, T) (x)
#define amax_COMBINE(a, b) (FIRST_OF_MAX(a, b) ? (a) : (b))
#define amax_FINISH(a) (a)

#define amin_IDENTITY HIGHEST
#define amin_MAP(x, T) (x)
#define amin_COMBINE(a, b) (FIRST_OF_MIN(a, b) ? (a) : (b))
#define amin_FINISH(a) (a)

#define any_of_IDENTITY 0
#define any_of_MAP(x, T) ONE_IF((x) != (T)(0), T)
#define any_of_COMBINE(a, b) ((a) > (b) ? (a) : (b))
#define any_of_FINISH(a) (a)

#define all_of_IDENTITY 1
#define all_of_MAP(x, T) ONE_IF((x) != (T)(0), T)
#define all_of_COMBINE(a, b) ((a) < (b) ? (a) : (b))
#define all_of_FINISH(a) (a)

#define count_IDENTITY 0
#define count_MAP(x, T) ONE_IF((x) != (T)(0), T)
#define count_COMBINE(a, b) ((a) + (b))
#define count_FINISH(a) (a)

#define norm1_IDENTITY 0
#define norm1_MAP(x, T) fabs(x)
#define norm1_COMBINE(a, b) ((a) + (b))
#define norm1_FINISH(a) (a)

#define norm2_IDENTITY 0
#define norm2_MAP(x, T) ((x) * (x))
#define norm2_COMBINE(a, b) ((a) + (b))
#define norm2_FINISH(a) sqrt(a)

#define norminf_IDENTITY 0
#define norminf_MAP(x, T) fabs(x)
#define norminf_COMBINE(a, b) (FIRST_OF_MAX(a, b) ? (a) : (b))
#define norminf_FINISH(a) (a)

#define normneginf_IDENTITY HIGHEST
#define normneginf_MAP(x, T) fabs(x)
#define normneginf_COMBINE(a, b) (FIRST_OF_MIN(a, b) ? (a) : (b))
#define normneginf_FINISH(a) (a)

#define normp_IDENTITY 0
#define normp_MAP(x, T) pow(fabs(x), (T)(p0))
#define normp_COMBINE(a, b) ((a) + (b))
#define normp_FINISH(a) pow(a, 1 / p0)
