// Householder reflectors H = I - tau v v^H, stored as LAPACK stores them: v[0] = 1 is not stored, and the rest of v
// lies below the diagonal. Columns of `a` are contiguous; one work-group per matrix unless a kernel says otherwise. -D:
// those of linalg/columns.h.
#include "linalg/columns.h"

#define COLUMN_OF(name, batch, i, j) (&PTR(name, VT)[(batch) * name##_batch + (i) + (j) * name##_col])

typedef struct {
  VT beta, tau, factor;
  R scale;  // v = factor * (scale * x); their product would overflow for denormal numbers
} reflector_t;

// The reflector that takes (alpha, x) to (beta, 0) for a vector x with this sum of squares.
static inline reflector_t reflector(VT alpha, R square) {
  reflector_t h;
  h.beta = alpha;
  h.tau = h.factor = 0;
  h.scale = 1;
  const R head = REAL(alpha), whole = SQUARE(alpha) + square;
#if defined(ACC_COMPLEX)
  if (square == 0 && alpha.y == 0) return h;
  const R beta = -copysign(sqrt(whole), head);
  h.tau = (VT)((beta - head) / beta, -alpha.y / beta);
#else
  if (square == 0) return h;
  const R beta = -copysign(sqrt(whole), head);
  h.tau = (beta - head) / beta;
#endif
  h.beta = FROM_REAL(beta);
  h.factor = DIV(FROM_REAL((R)1), alpha - h.beta);
  return h;
}

// The same for x, which lies behind alpha in a column of n elements. If squares would overflow or vanish, it is scaled.
ALWAYS_INLINE reflector_t reflector_of(COLUMN x, long n, __local VT* scratch) {
  const VT alpha = x[0];
  const R square = REAL(team_sum(FROM_REAL(square_part(x + 1, n - 1)), scratch)), whole = SQUARE(alpha) + square;
  if (isnan(whole) || (whole > SQUARES_MIN && whole < SQUARES_MAX)) return reflector(alpha, square);
  const R most = team_most(most_part(x, n), scratch), scale = scale_to_one(most);
  VT sum = 0;
  long i = LANE + 1;
  for (; i < n; i += TEAM) sum += FROM_REAL(SQUARE(x[i] * scale));
  reflector_t h = reflector(alpha * scale, REAL(team_sum(sum, scratch)));
  h.beta = h.beta / scale;
  h.scale = scale;
  return h;
}

// y = (I - t v v^H) y for a team's column of n elements, if it is to be stored; v is 1, x[1], x[2], ... The whole group
// calls it.
ALWAYS_INLINE void reflect(CONST_COLUMN x, COLUMN y, long n, VT t, int stores, __local VT* scratch) {
  const VT head = y[0], factor = -MUL(t, head + team_sum(dot_part(x + 1, y + 1, n - 1), scratch));
  if (!stores) return;
  add_scaled(y + 1, factor, x + 1, n - 1);
  if (LANE == 0) y[0] = head + factor;
}

// A = Q R of `columns` columns: R and the reflectors replace A, as geqr2 leaves them.
__kernel void qr_panel(COLUMNS(a), VECTOR(tau), long rows, long columns) {
  __local VT scratch[GROUP];
  const long batch = get_group_id(0), steps = min(rows, columns);
  for (long j = 0; j < steps; j++) {
    COLUMN x = COLUMN_OF(a, batch, j, j);
    const long n = rows - j;
    const reflector_t h = reflector_of(x, n, scratch);
    SYNC();
    if (TEAM_ID == 0) {
      for (long i = LANE + 1; i < n; i += TEAM) x[i] = MUL(h.factor, x[i] * h.scale);
      if (LANE == 0) {
        x[0] = h.beta;
        PTR(tau, VT)[batch * tau_batch + j] = h.tau;
      }
    }
    SYNC();
    for (long c0 = j + 1; c0 < columns; c0 += TEAMS) {
      const long c = c0 + TEAM_ID, last = min(c, columns - 1);
      reflect(x, COLUMN_OF(a, batch, j, last), n, CONJ(h.tau), c < columns, scratch);
    }
    SYNC();
  }
}

// The first `columns` columns of Q = H_0 H_1 ... replace the reflectors in a, as org2r computes them.
__kernel void form_q(COLUMNS(a), VECTOR(tau), long rows, long columns, long reflectors) {
  __local VT scratch[GROUP];
  const long batch = get_group_id(0);
  for (long c = reflectors + TEAM_ID; c < columns; c += TEAMS) {
    COLUMN y = COLUMN_OF(a, batch, 0, c);
    for (long i = LANE; i < rows; i += TEAM) y[i] = FROM_REAL((R)(i == c));
  }
  SYNC();
  for (long j = reflectors - 1; j >= 0; j--) {
    COLUMN x = COLUMN_OF(a, batch, j, j);
    const long n = rows - j;
    const VT t = PTR(tau, const VT)[batch * tau_batch + j];
    for (long c0 = j + 1; c0 < columns; c0 += TEAMS) {
      const long c = c0 + TEAM_ID, last = min(c, columns - 1);
      reflect(x, COLUMN_OF(a, batch, j, last), n, t, c < columns, scratch);
    }
    SYNC();
    if (TEAM_ID == 0) {
      for (long i = LANE + 1; i < n; i += TEAM) x[i] = MUL(-t, x[i]);
      if (LANE == 0) x[0] = FROM_REAL((R)1) - t;
      for (long i = LANE - j; i < 0; i += TEAM) x[i] = FROM_REAL((R)0);
    }
    SYNC();
  }
}

// C = Q C or Q^H C with the reflectors in a, in place; one team per column of C.
__kernel void apply_q(COLUMNS(a), VECTOR(tau), COLUMNS(c), long rows, long columns, long reflectors, int adjoint) {
  __local VT scratch[GROUP];
  const long batch = get_global_id(1), c = get_group_id(0) * TEAMS + TEAM_ID;
  for (long s = 0; s < reflectors; s++) {
    const long j = adjoint ? s : reflectors - 1 - s, n = rows - j;
    CONST_COLUMN x = COLUMN_OF(a, batch, j, j);
    const VT given = PTR(tau, const VT)[batch * tau_batch + j], t = adjoint ? CONJ(given) : given;
    reflect(x, COLUMN_OF(c, batch, j, min(c, columns - 1)), n, t, c < columns, scratch);
    SYNC();
  }
}

// The triangle T of Q = I - V T V^H for reflectors with the products `gram` = V^H V, as larft computes it. Rows do not
// depend on each other; one work-item per row.
__kernel void compact_wy(MATRIX(gram), VECTOR(tau), MATRIX(t), long n) {
  const long i = get_global_id(0), batch = get_global_id(1);
  if (i >= n) return;
  for (long j = 0; j < n; j++) {
    const VT tau_j = PTR(tau, const VT)[batch * tau_batch + j];
    VT sum = 0;
    for (long k = i; k < j; k++) sum += MUL(AT(t, batch, i, k), AT(gram, batch, k, j));
    AT(t, batch, i, j) = j < i ? FROM_REAL((R)0) : j == i ? tau_j : -MUL(tau_j, sum);
  }
}
