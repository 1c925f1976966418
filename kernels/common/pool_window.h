// The windows of pooling along one dimension. -D: IDX (i32 or i64), the dtype that covering() computes positions in.
#include "args/pool.h"
#include "common/dtypes.h"

// The window of an output: elements [begin, end), and the number that an average divides by.
typedef struct {
  long begin, end, length;
} window_t;

static inline window_t window(const PoolParams* P, int d, long o) {
  window_t w;
  if (P->adaptive) {
    w.begin = o * P->in[d] / P->out[d];
    w.end = ((o + 1) * P->in[d] + P->out[d] - 1) / P->out[d];
    w.length = w.end - w.begin;
    return w;
  }
  const long begin = o * P->stride[d] - P->pad[d];
  const long end = min(begin + (P->ker[d] - 1) * P->dil[d] + 1, P->in[d] + P->pad[d]);
  w.begin = begin;
  while (w.begin < 0) w.begin += P->dil[d];
  w.end = min(end, P->in[d]);
  w.length = P->include_pad ? end - begin : max(w.end - w.begin, 0L);
  return w;
}

// window(), from lists if the divisions of adaptive windows would take most of the time. A GPU's registers have no room
// for them.
#ifdef DEVICE_CPU
#define LISTED 64
typedef struct {
  int listed;
  window_t list[3][LISTED];
} windows_t;

static inline void list_windows(const PoolParams* P, windows_t* all) {
  all->listed = P->adaptive && max(P->out[0], max(P->out[1], P->out[2])) <= LISTED;
  if (!all->listed) return;
  for (int d = 0; d < 3; d++)
    for (long o = 0; o < P->out[d]; o++) all->list[d][o] = window(P, d, o);
}
static inline window_t window_of(const PoolParams* P, const windows_t* all, int d, long o) {
  return all->listed ? all->list[d][o] : window(P, d, o);
}
#else
typedef int windows_t;
#define list_windows(P, all)
#define window_of(P, all, d, o) window(P, d, o)
#endif

// Whether all these outputs have windows of P->even elements.
static inline int even_along(const PoolParams* P, int d, window_t w) {
  return w.begin >= P->even_begin[d] && w.end <= P->even_end[d];
}

#ifdef IDX
typedef CTYPE(IDX) index_t;
// The outputs whose windows may hold input `i`: [begin, end).
static inline window_t covering(const PoolParams* P, int d, index_t i) {
  const index_t in = (index_t)P->in[d], out = (index_t)P->out[d], stride = (index_t)P->stride[d];
  window_t w;
  w.length = 0;
  if (P->adaptive) {
    w.begin = i * out / in;
    w.end = ((i + 1) * out + in - 1) / in;
    return w;
  }
  const index_t at = i + (index_t)P->pad[d], reach = (index_t)((P->ker[d] - 1) * P->dil[d]);
  w.begin = at > reach ? (at - reach - 1) / stride + 1 : 0;
  w.end = min(at / stride + 1, out);
  return w;
}
#endif
