// GROUP_REDUCE(name, op) defines name(x, scratch), which combines a value of each of a work-group's LS work-items. It
// ends with a barrier, so `scratch`, of LS elements in local memory, may be used again.
#ifndef NETCL_GROUP_REDUCE_H
#define NETCL_GROUP_REDUCE_H
#include "common/join_group.h"
#include "common/vector.h"

#define GROUP_REDUCE(name, op)                                                    \
  ALWAYS_INLINE ST name(ST x, __local ST* s) {                                    \
    const int lid = (int)get_local_id(0);                                         \
    s[lid] = x;                                                                   \
    JOIN_GROUP(lid, LS, CLK_LOCAL_MEM_FENCE, s[lid] = op(s[lid], s[lid + apart])) \
    const ST r = s[0];                                                            \
    barrier(CLK_LOCAL_MEM_FENCE);                                                 \
    return r;                                                                     \
  }

#endif
