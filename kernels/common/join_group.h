// JOIN_GROUP(lane, width, fence, step): joins the values of `width` neighbouring work-items, a power of two, in halves.
// `step` joins what the work-item `apart` places behind has in local memory into this one's; it may hold no comma
// outside brackets. `lane` is the work-item's number among its neighbours. All of the work-group come here; `fence`
// says which memory its barriers order. The last one lets each work-item read the result.

#define JOIN_GROUP(lane, width, fence, step)             \
  barrier(fence);                                        \
  for (int apart = (width) / 2; apart > 0; apart /= 2) { \
    if ((lane) < apart) {                                \
      step;                                              \
    }                                                    \
    barrier(fence);                                      \
  }

// GROUP_REDUCE(name, T, width, op) defines name(x, scratch): the values of type T of `width` neighbours joined by `op`.
// It ends with a barrier, so `scratch`, of one element per work-item in local memory, may be used again.
#define GROUP_REDUCE(name, T, width, op)                                                       \
  ALWAYS_INLINE T name(T x, __local T* s) {                                                    \
    const int lid = (int)get_local_id(0);                                                      \
    s[lid] = x;                                                                                \
    JOIN_GROUP(lid % (width), width, CLK_LOCAL_MEM_FENCE, s[lid] = op(s[lid], s[lid + apart])) \
    const T r = s[lid - lid % (width)];                                                        \
    barrier(CLK_LOCAL_MEM_FENCE);                                                              \
    return r;                                                                                  \
  }
