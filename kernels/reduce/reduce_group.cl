// For GPUs: a work-group of LOCAL work-items computes one output.
#include "reduce/outputs.h"
#include "reduce/group_tree.h"

__kernel __attribute__((reqd_work_group_size(LOCAL, 1, 1))) void reduce_group(ARGS) {
  const ReduceParams* L = &params;
  const param_t p0 = P0(L);
  __local accumulator_t shared[LOCAL];
  const long o = get_group_id(0), segment = get_group_id(1);
  const long begin = segment * L->segment, end = min(begin + L->segment, L->reduced);
  const offsets_t off = offsets_at(&L->kept, o, 0);
  const src_t src = IN_PTR + off.in;
  const ST pivot = READ1(src);
  accumulators_t v = identities(), total = identities();
  int steps = 0;
  for (long place = begin + get_local_id(0); place < end; place += LOCAL) {
    const long row = reduced_row(L, place), at = place - row * L->reduced_size[0];
    const src_t p = src + reduced_offset(L, row) + at * L->reduced_in[0];
    step(&v, FROM(READ1(p), pivot), place - begin, p0);
    if (++steps == SUMS_PER_STAGE) {
      merge_lanes(&total, &v);
      v = identities();
      steps = 0;
    }
  }
  merge_lanes(&total, &v);
  const accumulator_t result = merge_group(lane(&total, 0, begin), shared);
  if (get_local_id(0) != 0) return;
  if (L->has_partial)
    PARTIAL[segment * L->outputs + o] = result;
  else
    write_result(result, src, OUT0_PTR + off.out0, OUT1_PTR + off.out1, p0);
}
