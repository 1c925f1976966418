// One time step of an LSTM layer in one launch, for CPUs: the product with W_hh in registers, then the cell.
// -D: IO (storage tag), ACC (compute tag), VEC, MR (rows of a register tile, which is 2 vectors wide), INB = IO for
// gemm_panels.h, and for AMX those of gemm_engine.h.
// W_hh is packed once for all steps, into panels of gemm_panels.h. Forward, two panels hold the four gates of VEC
// units; backward, a panel has 2 VEC units.
#include "gemm/gemm_micro.h"
#include "gemm/gemm_panels.h"
#include "rnn/lstm_cell.h"

// Vector v of all panels is part v % parts of the units from v / parts * VEC on. Lanes beyond `hidden` may hold
// anything, since none is stored.
__kernel void lstm_pack(BUF(w), BUF(panels), const LstmPackParams P) {
  const long panel = get_global_id(0), width = P.parts == 1 ? NR : VEC;
  for (int l = 0; l < NR; l += width) {
    const long v = 2 * panel + l / VEC, unit = v / P.parts * VEC;
    pack_b(PTR(w, const STORAGE(IO)) + v % P.parts * P.part_stride + unit * P.unit_stride, P.unit_stride,
           P.level_stride, (int)min(width, P.hidden - unit), P.depth, P.depth,
           PTR(panels, panel_t) + panel * P.depth * NR + l * (sizeof(ST) / sizeof(panel_t)));
  }
}

// The product of MR rows, of `depth` elements each, with a panel: two vectors per row of `sums`.
#ifdef ENGINE
#define KEPT IO
static inline void product(__global const panel_t* a, __global const panel_t* b, long depth, VT* sums) {
  const fetch_t same = {b, 512};
  if (depth)
    multiply_panels(a, depth, b, depth / 32, 0, (ulong)sums, same);
  else UNROLL
    for (int r = 0; r < 2 * MR; r++) sums[r] = (VT)(0);
}
#else
#define KEPT ACC
#define product(a, b, depth, sums) whole_micro_kernel(a, depth, 4, b, NR, depth, sums)
#endif

// What a step multiplies: `a`, whose rows beyond the last are there and hold anything, and the panels. `next` gets what
// the next step multiplies, in the compute type or as AMX takes it.
#define STEP_BUFS BUF(next), BUF(a), BUF(panels)

// The tiles of a work-item: block of units get_global_id(0), P.rows_each rows.
#define EACH_TILE(width)                                                                           \
  __global const panel_t* rows = PTR(a, const panel_t);                                            \
  const long block = get_global_id(0), end = min((long)(get_global_id(1) + 1) * P.rows_each, P.n); \
  VT sums[width * MR];                                                                             \
  for (long first = get_global_id(1) * P.rows_each; first < end; first += MR)

#define KEEP(V, i, v) STORE(KEPT, ACC, V, PTR(next, STORAGE(KEPT)), i, v);

// `saved` holds what inputs and biases add to the gates, then the gates. `a` holds the hidden states before.
#define FORWARD(V, k0, k1, k2, k3)                                                                 \
  LSTM_CELL(V, SAVED(V, 0, 4) + k0, SAVED(V, 1, 4) + k1, SAVED(V, 2, 4) + k2, SAVED(V, 3, 4) + k3) \
  KEEP(V, row* P.hidden + j, h)

__kernel void lstm_step(LSTM_BUFS, STEP_BUFS, const LstmStepParams P) {
  ENGINE_BEGIN();
  EACH_TILE(4) {
    VT* more = sums + 2 * MR;
    __global const panel_t* b = PTR(panels, const panel_t) + block * P.depth * 4 * VEC;
    product(rows + first * P.depth, b, P.depth, sums);
    product(rows + first * P.depth, b + P.depth * 2 * VEC, P.depth, more);
    const int lanes = (int)min(P.hidden - block * VEC, (long)VEC);
    for (int r = 0; r < MR && first + r < end; r++) {
      const long row = first + r;
      if (lanes == VEC) {
        const long j = block * VEC;
        FORWARD(VEC, sums[2 * r], sums[2 * r + 1], more[2 * r], more[2 * r + 1])
      } else {
        lanes_t p, q, s, t;
        p.v = sums[2 * r];
        q.v = sums[2 * r + 1];
        s.v = more[2 * r];
        t.v = more[2 * r + 1];
        for (int x = 0; x < lanes; x++) {
          const long j = block * VEC + x;
          FORWARD(1, p.s[x], q.s[x], s.s[x], t.s[x])
        }
      }
    }
  }
  ENGINE_END();
}

// `a` holds the gradients of the gates one step later; at the last step there are none, and `depth` is 0. dc_ (compute
// type) holds the gradient of the cell states, and gets that of the cell states before. gh and gl are what reaches the
// hidden states from outside, or null.
#define BACKWARD(V, sum)                                                                         \
  VTYPE(ACC, V) dh = sum;                                                                        \
  if (gh_buf) dh += AT(gh, V, row * P.hy_row + j);                                               \
  if (gl_buf) dh += AT(gl, V, row * P.hidden + j);                                               \
  const VTYPE(ACC, V) later =                                                                    \
      P.has_dc ? LOAD(ACC, ACC, V, PTR(dc_, const ST), row * P.hidden + j) : (VTYPE(ACC, V))(0); \
  LSTM_CELL_BACKWARD(V, later)                                                                   \
  STORE(ACC, ACC, V, PTR(dc_, ST), row* P.hidden + j, dcx);                                      \
  KEEP(V, (row * 4 + 0) * P.hidden + j, d0)                                                      \
  KEEP(V, (row * 4 + 1) * P.hidden + j, d1)                                                      \
  KEEP(V, (row * 4 + 2) * P.hidden + j, d2)                                                      \
  KEEP(V, (row * 4 + 3) * P.hidden + j, d3)

__kernel void lstm_step_backward(LSTM_GRAD_BUFS, BUF(dc_), BUF(gh), BUF(gl), STEP_BUFS, const LstmStepParams P) {
  ENGINE_BEGIN();
  EACH_TILE(2) {
    __global const panel_t* b = PTR(panels, const panel_t) + block * P.depth * 2 * VEC;
    product(rows + first * P.depth, b, P.depth, sums);
    for (int r = 0; r < MR && first + r < end; r++)
      for (int m = 0; m < 2; m++) {
        const long row = first + r, unit = (2 * block + m) * VEC;
        if (unit + VEC <= P.hidden) {
          const long j = unit;
          BACKWARD(VEC, sums[2 * r + m])
        } else {
          lanes_t lanes;
          lanes.v = sums[2 * r + m];
          for (long j = unit; j < P.hidden; j++) {
            BACKWARD(1, lanes.s[j - unit])
          }
        }
      }
  }
  ENGINE_END();
}
