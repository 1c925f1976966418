// Merges the accumulators of WIDTH neighbours in a work-group of LOCAL work-items (default: of all).
#ifndef NETCL_GROUP_TREE_H
#define NETCL_GROUP_TREE_H
#include "common/join_group.h"
#include "reduce/accumulators.h"

#ifndef WIDTH
#define WIDTH LOCAL
#endif

#if LOCAL > 1
// It ends with a barrier, so `shared` may be used again.
ALWAYS_INLINE accumulator_t merge_group(accumulator_t a, __local accumulator_t* shared) {
  const int id = get_local_id(0);
  shared[id] = a;
  JOIN_GROUP(id % WIDTH, WIDTH, CLK_LOCAL_MEM_FENCE, shared[id] = merge(shared[id], shared[id + apart]))
  const accumulator_t r = shared[id - id % WIDTH];
  barrier(CLK_LOCAL_MEM_FENCE);
  return r;
}
#endif

#endif
