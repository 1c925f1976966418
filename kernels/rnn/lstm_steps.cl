// One time step of an LSTM layer in one launch, for CPUs: the product with W_hh in registers, then the cell.
// -D: IO (storage tag), ACC (compute tag), VEC, ROWS (of a register tile, which is 2 vectors wide), INB = IO for
// gemm_panels.h, and for AMX those of gemm_engine.h (MR = ROWS).
// W_hh is packed once for all steps, into panels of gemm_panels.h. Forward, two panels hold the four gates of VEC
// units; backward, a panel has 2 VEC units.
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

#ifdef ENGINE
#define KEPT IO
// Rows beyond the last are there, and hold anything.
static inline void product(__global const panel_t* from, long a_row, long first, long n, __global const panel_t* b,
                           long depth, VT* sums) {
  const fetch_t same = {b, 512};
  if (depth)
    multiply_panels(from + first * a_row, a_row, b, depth / 32, 0, (ulong)sums, same);
  else UNROLL
    for (int r = 0; r < 2 * ROWS; r++) sums[r] = (VT)(0);
}
#else
#define KEPT ACC
#define ENGINE_BEGIN()
#define ENGINE_END()
#define THREE_ROWS(X) X(0) X(1) X(2)
#define SIX_ROWS(X) THREE_ROWS(X) X(3) X(4) X(5)
#define EIGHT_ROWS(X) SIX_ROWS(X) X(6) X(7)
#if ROWS == 12
#define EACH_ROW(X) EIGHT_ROWS(X) X(8) X(9) X(10) X(11)
#elif ROWS == 8
#define EACH_ROW EIGHT_ROWS
#elif ROWS == 6
#define EACH_ROW SIX_ROWS
#elif ROWS == 3
#define EACH_ROW THREE_ROWS
#elif ROWS == 1
#define EACH_ROW(X) X(0)
#else
#error "ROWS must be 1, 3, 6, 8 or 12"
#endif
// A row beyond the last repeats the last, and is not stored. Variables with names stay in registers; arrays may not.
#define DECLARE(r)                                                \
  __global const ST* a##r = from + min(first + r, n - 1) * a_row; \
  VT p##r = (VT)(0), q##r = (VT)(0);
#define STEP(r)                 \
  {                             \
    const VT x = (VT)(a##r[k]); \
    p##r = x * b0 + p##r;       \
    q##r = x * b1 + q##r;       \
  }
#define KEEP(r)       \
  sums[2 * r] = p##r; \
  sums[2 * r + 1] = q##r;

// The product of the rows from `first` on, of `depth` elements each, with a panel: two vectors per row of `sums`.
static inline void product(__global const ST* from, long a_row, long first, long n, __global const ST* b, long depth,
                           VT* sums) {
  EACH_ROW(DECLARE)
  for (long k = 0; k < depth; k++) {
    const VT b0 = CAT(VLOAD_, VEC)(0, b), b1 = CAT(VLOAD_, VEC)(1, b);
    EACH_ROW(STEP)
    b += 2 * VEC;
  }
  EACH_ROW(KEEP)
}
#endif

// What a step multiplies: `a` and the panels. `wide` gets what the next step multiplies, in the compute type or as AMX
// takes it; it is null if IO is ACC.
#define STEP_BUFS BUF(wide), BUF(a), BUF(panels)

// The tiles of a work-item: block of units get_global_id(0), P.rows_each rows.
#define EACH_TILE(width)                                                                           \
  const long block = get_global_id(0), end = min((long)(get_global_id(1) + 1) * P.rows_each, P.n); \
  VT sums[width * ROWS];                                                                           \
  for (long first = get_global_id(1) * P.rows_each; first < end; first += ROWS)

#define KEEP_WIDE(V, i, v) \
  if (wide_buf) STORE(KEPT, ACC, V, PTR(wide, STORAGE(KEPT)), i, v);

// `saved` holds what inputs and biases add to the gates, then the gates. `a` holds the hidden states before.
#define FORWARD(V, k0, k1, k2, k3)                                                                 \
  LSTM_CELL(V, SAVED(V, 0, 4) + k0, SAVED(V, 1, 4) + k1, SAVED(V, 2, 4) + k2, SAVED(V, 3, 4) + k3) \
  KEEP_WIDE(V, row* P.hidden + j, h)

__kernel void lstm_step(LSTM_BUFS, STEP_BUFS, const LstmStepParams P) {
  ENGINE_BEGIN();
  EACH_TILE(4) {
    VT* more = sums + 2 * ROWS;
    __global const panel_t* b = PTR(panels, const panel_t) + block * P.depth * 4 * VEC;
    product(PTR(a, const panel_t), P.a_row, first, P.n, b, P.depth, sums);
    product(PTR(a, const panel_t), P.a_row, first, P.n, b + P.depth * 2 * VEC, P.depth, more);
    const int lanes = (int)min(P.hidden - block * VEC, (long)VEC);
    for (int r = 0; r < ROWS && first + r < end; r++) {
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
  KEEP_WIDE(V, (row * 4 + 0) * P.hidden + j, d0)                                                 \
  KEEP_WIDE(V, (row * 4 + 1) * P.hidden + j, d1)                                                 \
  KEEP_WIDE(V, (row * 4 + 2) * P.hidden + j, d2)                                                 \
  KEEP_WIDE(V, (row * 4 + 3) * P.hidden + j, d3)

__kernel void lstm_step_backward(LSTM_GRAD_BUFS, BUF(dc_), BUF(gh), BUF(gl), STEP_BUFS, const LstmStepParams P) {
  ENGINE_BEGIN();
  EACH_TILE(2) {
    __global const panel_t* b = PTR(panels, const panel_t) + block * P.depth * 2 * VEC;
    product(PTR(a, const panel_t), P.a_row, first, P.n, b, P.depth, sums);
    for (int r = 0; r < ROWS && first + r < end; r++)
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
