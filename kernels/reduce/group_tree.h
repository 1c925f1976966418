// Merges the accumulators of WIDTH neighbours in a work-group of GROUP work-items (default: of all).
#include "common/join_group.h"
#include "reduce/accumulators.h"

#ifndef WIDTH
#define WIDTH GROUP
#endif

#if GROUP > 1
GROUP_REDUCE(merge_group, accumulator_t, WIDTH, merge)
#endif
