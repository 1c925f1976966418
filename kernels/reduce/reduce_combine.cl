// Merges the accumulators of all segments of an output, by one work-item on a CPU, by a group of GROUP on a GPU.
#include "reduce/outputs.h"
#include "reduce/group_tree.h"

__kernel FIXED_GROUP_SIZE void reduce_combine(ARGS) {
  const ReduceParams* L = &params;
  const param_t p0 = P0(L);
#if GROUP > 1
  __local accumulator_t shared[GROUP];
#endif
  const long first = (long)get_group_id(0) * L->tiles_per_item, last = min(first + L->tiles_per_item, L->outputs);
  for (long o = first; o < last; o++) {
    accumulator_t total = identity(), stage = identity();
    int merged = 0;
    for (long s = get_local_id(0); s < L->segments; s += GROUP) {
      stage = merge(stage, PARTIAL[s * L->outputs + o]);
      if (++merged == SUMS_PER_STAGE) {
        total = merge(total, stage);
        stage = identity();
        merged = 0;
      }
    }
    total = merge(total, stage);
#if GROUP > 1
    total = merge_group(total, shared);
#endif
    if (get_local_id(0) == 0) {
      const offsets_t off = offsets_at(&L->kept, o, 0);
      write_result(total, IN_PTR + off.in, OUT0_PTR + off.out0, OUT1_PTR + off.out1, p0);
    }
  }
}
