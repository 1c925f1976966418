// Merges the accumulators of WIDTH neighbours in a work-group of LOCAL work-items (default: of all).
#ifndef NETCL_GROUP_TREE_H
#define NETCL_GROUP_TREE_H
#include "common/join_group.h"
#include "reduce/accumulators.h"

#ifndef WIDTH
#define WIDTH LOCAL
#endif

#if LOCAL > 1
GROUP_REDUCE(merge_group, accumulator_t, WIDTH, merge)
#endif

#endif
