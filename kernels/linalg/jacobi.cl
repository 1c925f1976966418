// Singular values by the one-sided Jacobi method: pairs of columns of W = A V are rotated until all are orthogonal;
// then their lengths are the singular values. The eigenvectors of a Hermitian matrix H are the left singular vectors of
// W = H + shift I, where the shift makes all its eigenvalues positive; the eigenvalues are their Rayleigh quotients.
// Columns of W, V and H are contiguous. One work-group per matrix, or per pair of blocks of columns (jacobi_round).
// -D: those of linalg/columns.h.
#include "linalg/columns.h"

#include "args/linalg.h"

// Finite matrices take about 10 sweeps.
#define SWEEPS 40

// Lane parts of the sums |x|^2, |y|^2 and conj(x) y.
static inline void products_part(CONST_COLUMN x, CONST_COLUMN y, long n, R* xx, R* yy, VT* xy) {
  long i = 0;
  R8 a8 = 0, b8 = 0, same = 0, crossed = 0;
  EIGHTS(n, i) {
    const R8 a = LOAD8(x, i), b = LOAD8(y, i);
    a8 += a * a;
    b8 += b * b;
    same += a * b;
    if (PARTS == 2) crossed += SWAP8(a) * b;
  }
  R a2 = sum_of_8(a8), b2 = sum_of_8(b8);
  VT ab = NUMBER(sum_of_8(same), sum_of_8(crossed * SIGNS8));
  ELEMENTS(n, i) {
    a2 += SQUARE(x[i]);
    b2 += SQUARE(y[i]);
    ab += MUL(CONJ(x[i]), y[i]);
  }
  *xx = a2;
  *yy = b2;
  *xy = ab;
}

// x - (z y + k x) and y + (conj(z) x - k y), the second of which is stored in x and the first in y if `swap`. z is a
// sine, times a phase, and k is 1 minus the cosine: a rounded cosine would make all columns longer, or shorter.
static inline void rotate_part(COLUMN x, COLUMN y, long n, R k, VT z, int swap) {
  COLUMN first = swap ? y : x;
  COLUMN second = swap ? x : y;
  long i = 0;
  const R re = REAL(z);
  const R8 turn = IMAGINARY(z) * SIGNS8;
  EIGHTS(n, i) {
    const R8 a = LOAD8(x, i), b = LOAD8(y, i);
    STORE8(PARTS == 2 ? a - (b * re + SWAP8(b) * turn + a * k) : a - (b * re + a * k), first, i);
    STORE8(PARTS == 2 ? b + (a * re - SWAP8(a) * turn - b * k) : b + (a * re - b * k), second, i);
  }
  ELEMENTS(n, i) {
    const VT a = x[i], b = y[i];
    first[i] = a - (MUL(b, z) + a * k);
    second[i] = b + (MUL(a, CONJ(z)) - b * k);
  }
}

static inline R magnitude(VT a) { return PARTS == 2 ? hypot(REAL(a), IMAGINARY(a)) : fabs(REAL(a)); }

// The columns that are rotated: `n` columns of w, of `rows` elements, with those of v, of `v_rows` elements;
// these are 0 if V is not wanted.
typedef struct {
  COLUMN w;
  COLUMN v;
  long rows, v_rows, n;
} columns_t;

// Makes columns p and q of W orthogonal, the longer first. Whether they were not. `active`: this team has a pair.
ALWAYS_INLINE int rotate_pair(columns_t m, long p, long q, int active, __local VT* scratch) {
  COLUMN x = m.w + p * m.rows;
  COLUMN y = m.w + q * m.rows;
  R xx, yy;
  VT xy;
  // A team without a pair reads nothing, since another team may write the column that it was given.
  products_part(x, y, active ? m.rows : 0, &xx, &yy, &xy);
  xx = REAL(team_sum(FROM_REAL(xx), scratch));
  yy = REAL(team_sum(FROM_REAL(yy), scratch));
  xy = team_sum(xy, scratch);
  const R size = magnitude(xy), least = EPSILON * sqrt((R)m.rows) * sqrt(xx) * sqrt(yy);
  if (!active || fmin(xx, yy) < SQUARES_MIN || !(size > least)) return 0;
  const R zeta = (yy - xx) / (2 * size), far = fabs(zeta);
  const R root = far > (R)1e15f ? far : sqrt(1 + zeta * zeta);
  const R t = copysign(1 / (far + root), zeta), c = 1 / sqrt(1 + t * t), s = t * c;
  const VT z = CONJ(xy) / size * s;
  const R k = s * s / (1 + c);
  const int swap = xx - t * size < yy + t * size;
  rotate_part(x, y, m.rows, k, z, swap);
  rotate_part(m.v + p * m.v_rows, m.v + q * m.v_rows, m.v_rows, k, z, swap);
  return 1;
}

// One sweep over all pairs. On a GPU the rounds of a tournament: the pairs of a round share no column.
ALWAYS_INLINE int sweep(columns_t m, __local VT* scratch) {
  int rotated = 0;
  for (long p = 0; GROUP == 1 && p < m.n - 1; p++) {
    for (long q = p + 1; q < m.n; q++) rotated |= rotate_pair(m, p, q, 1, scratch);
  }
  if (GROUP == 1) return rotated;
  const long even = m.n + (m.n & 1);
  for (long round = 0; round < even - 1; round++) {
    for (long first = 0; first < even / 2; first += TEAMS) {
      const long i = first + TEAM_ID;
      const long a = i == 0 ? even - 1 : (round + i) % (even - 1), b = (round + even - 1 - i) % (even - 1);
      const int active = i < even / 2 && max(a, b) < m.n;
      rotated |= rotate_pair(m, active ? min(a, b) : 0, active ? max(a, b) : 0, active, scratch);
    }
    SYNC();
  }
  return rotated;
}

// The pairs of a column of the block that begins at 0 and a column of the block that begins at `second`.
ALWAYS_INLINE int sweep_across(columns_t m, long second, long block, __local VT* scratch) {
  int rotated = 0;
  for (long round = 0; round < block; round++) {
    for (long first = 0; first < block; first += TEAMS) {
      const long i = first + TEAM_ID, q = second + (i + round) % block;
      const int active = i < block && q < m.n;
      rotated |= rotate_pair(m, active ? i : 0, active ? q : 0, active, scratch);
    }
    SYNC();
  }
  return rotated;
}

// Whether a work-item of the group says so.
ALWAYS_INLINE int any_item(int x, __local VT* scratch) {
  if (GROUP == 1) return x;
  __local int* s = (__local int*)scratch;
  SYNC();
  if (LID == 0) s[0] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (x) s[0] = 1;
  barrier(CLK_LOCAL_MEM_FENCE);
  const int any = s[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  return any;
}

// Sweeps until all columns are orthogonal; whether they are.
ALWAYS_INLINE int sweeps(columns_t m, __local VT* scratch) {
  for (int i = 0; i < SWEEPS; i++) {
    if (!any_item(sweep(m, scratch), scratch)) return 1;
  }
  return 0;
}

// One round of a tournament of blocks of columns, one work-group per pair: rotates each pair of columns of the two
// blocks; in the first round also those within a block. A sweep whose predecessor rotated nothing does nothing.
// flags[batch][sweep]: whether the sweep rotated.
__kernel void jacobi_round(BUF(work), BUF(right), BUF(flags), JacobiRoundParams p) {
  __local VT scratch[GROUP];
  const long i = get_group_id(0), batch = get_global_id(1), last = p.blocks - 1;
  __global int* done = PTR(flags, int) + batch * p.sweeps + p.sweep;
  if (any_item(p.sweep > 0 && done[-1] == 0, scratch)) return;
  const long a = i == 0 ? last : (p.round + i) % last, b = (p.round + last - i) % last;
  const long first = min(a, b) * p.block, second = max(a, b) * p.block;
  columns_t m = {PTR(work, VT) + batch * p.rows * p.columns, PTR(right, VT) + batch * p.columns * p.columns, p.rows,
                 right_buf ? p.columns : 0, p.columns};
  int rotated = 0;
  for (int k = 0; k < 2 && p.round == 0; k++) {
    columns_t part = m;
    const long start = k ? second : first;
    part.w += start * p.rows;
    part.v += start * p.columns;
    part.n = clamp(p.columns - start, 0L, p.block);
    rotated |= sweep(part, scratch);
  }
  m.w += first * p.rows;
  m.v += first * p.columns;
  m.n -= first;
  rotated |= sweep_across(m, second - first, p.block, scratch);
  if (rotated) *done = 1;
}

// Places of the columns in the order of their values: `descending` for singular values.
static inline void sort_columns(__global const R* value, __global int* order, long n, int descending) {
  for (long c = LID; c < n; c += GROUP) {
    long place = 0;
    for (long k = 0; k < n; k++) {
      const int before = descending ? value[k] > value[c] : value[k] < value[c];
      place += before || (value[k] == value[c] && k < c);
    }
    order[place] = (int)c;
  }
  SYNC();
}

// The length of a column, which is divided by it; 0 if it is too short to have a direction.
ALWAYS_INLINE R normalize(COLUMN x, long n, int active, __local VT* scratch) {
  const R square = REAL(team_sum(FROM_REAL(square_part(x, n)), scratch)), length = sqrt(square);
  if (active && square >= SQUARES_MIN) {
    for (long i = LANE; i < n; i += TEAM) x[i] = x[i] / length;
  }
  return square >= SQUARES_MIN ? length : (R)0;
}

// Makes column order[known] a unit vector that is orthogonal to those before it in the order. It begins as the axis
// that is farthest from their span, and is projected twice.
ALWAYS_INLINE void complete_column(COLUMN w, __global const int* order, long known, long rows, __local VT* scratch) {
  COLUMN y = w + order[known] * rows;
  R least = INFINITY;
  long axis = 0;
  for (long i = LID; i < rows; i += GROUP) {
    R share = 0;
    for (long k = 0; k < known; k++) share += SQUARE(w[order[k] * rows + i]);
    axis = share < least ? i : axis;
    least = fmin(share, least);
  }
  int winner = 0;
  if (GROUP > 1) {
    scratch[LID] = FROM_REAL(least);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 1; k < GROUP; k++) winner = REAL(scratch[k]) < REAL(scratch[winner]) ? k : winner;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (long i = LID; i < rows; i += GROUP) y[i] = 0;
  SYNC();
  if (LID == winner) y[axis] = FROM_REAL((R)1);
  SYNC();
  for (long k = 0; k < 2 * known; k++) {
    CONST_COLUMN x = w + order[k % known] * rows;
    const VT share = team_sum(dot_part(x, y, rows), scratch);
    if (TEAM_ID == 0) add_scaled(y, -share, x, rows);
    SYNC();
  }
  normalize(y, rows, TEAM_ID == 0, scratch);
  SYNC();
}

// W and V, a number per column and an int per column.
#define WORKSPACE BUF(work), BUF(right), BUF(values), BUF(order)

// A = L S R^H for a matrix `a` of at least as many rows as columns. Bit 0, 1, 2 of `conjugate`: a is conj(A), l is to
// be conj(L), r conj(R).
__kernel void svd_small(MATRIX(a), MATRIX(l), MATRIX(r), BUF(s), BUF(info), WORKSPACE, const JacobiParams P) {
  __local VT scratch[GROUP];
  const long batch = get_group_id(0), rows = P.rows, columns = P.columns;
  columns_t m = {PTR(work, VT) + batch * rows * columns, PTR(right, VT) + batch * columns * columns, rows,
                 P.vectors ? columns : 0, columns};
  __global R* value = PTR(values, R) + batch * columns;
  __global R* singular = PTR(s, R) + batch * columns;
  __global int* place = PTR(order, int) + batch * columns;
  R most = 0;
  for (long j = TEAM_ID; j < columns; j += TEAMS) {
    for (long i = LANE; i < rows; i += TEAM) {
      const VT x = AT(a, batch, i, j);
      m.w[j * rows + i] = P.conjugate & 1 ? CONJ(x) : x;
    }
    const R here = most_part(m.w + j * rows, rows);
    most = here > most || isnan(here) ? here : most;
    for (long i = LANE; i < m.v_rows; i += TEAM) m.v[j * columns + i] = FROM_REAL((R)(i == j));
  }
  most = group_most(most, scratch);
  const int finite = most < (R)INFINITY;
  if (LID == 0) PTR(info, int)[batch] = isnan(most) ? -4 : 0;
  const R scale = scale_to_one(most);
  for (long i = LID; i < rows * columns; i += GROUP) m.w[i] = finite ? m.w[i] * scale : (VT)NAN;
  SYNC();
  // PoCL takes a condition around a barrier for the same in all work-items. So what is not finite has no columns to
  // rotate, and the columns to complete are counted.
  columns_t swept = m;
  swept.n = finite ? columns : 0;
  const int converged = sweeps(swept, scratch);
  if ((LID == 0) & !converged) PTR(info, int)[batch] = 1;
  for (long c0 = 0; c0 < columns; c0 += TEAMS) {
    const long c = c0 + TEAM_ID;
    const R length = normalize(m.w + min(c, columns - 1) * rows, rows, c < columns, scratch);
    if ((c < columns) & (LANE == 0)) {
      value[c] = length;
      place[c] = (int)c;
    }
  }
  SYNC();
  sort_columns(value, place, columns, 1);
  for (long k = LID; k < columns; k += GROUP) singular[k] = finite ? value[place[k]] / scale : (R)NAN;
  const long completed = P.vectors && finite ? columns : 0;
  long known = 0;
  while (known < completed && value[place[known]] != 0) known++;
  for (; known < completed; known++) complete_column(m.w, place, known, rows, scratch);
  for (long k = TEAM_ID; P.vectors && k < columns; k += TEAMS) {
    CONST_COLUMN x = m.w + place[k] * rows;
    CONST_COLUMN y = m.v + place[k] * columns;
    for (long i = LANE; i < rows; i += TEAM) AT(l, batch, i, k) = P.conjugate & 2 ? CONJ(x[i]) : x[i];
    for (long i = LANE; i < columns; i += TEAM) AT(r, batch, i, k) = P.conjugate & 4 ? CONJ(y[i]) : y[i];
  }
}

// Eigenvalues in ascending order, and the eigenvectors in place of the Hermitian matrix of which `a` holds a triangle.
__kernel void eigh_small(MATRIX(a), BUF(s), BUF(info), WORKSPACE, const JacobiParams P) {
  __local VT scratch[GROUP];
  const long batch = get_group_id(0), n = P.columns;
  columns_t m = {PTR(work, VT) + batch * n * n, PTR(right, VT) + batch * n * n, n, 0, n};
  __global R* value = PTR(values, R) + batch * n;
  __global R* eigenvalue = PTR(s, R) + batch * n;
  __global int* place = PTR(order, int) + batch * n;
  R most = 0;
  for (long j = TEAM_ID; j < n; j += TEAMS) {
    for (long i = LANE; i < n; i += TEAM) {
      const int stored = P.upper ? i <= j : i >= j;
      const VT x = stored ? AT(a, batch, i, j) : CONJ(AT(a, batch, j, i));
      m.v[j * n + i] = i == j ? FROM_REAL(REAL(x)) : x;
    }
    const R here = most_part(m.v + j * n, n);
    most = here > most || isnan(here) ? here : most;
  }
  most = group_most(most, scratch);
  const int finite = most < (R)INFINITY;
  if (LID == 0) PTR(info, int)[batch] = isnan(most) ? (int)max(n - 1, 1L) : 0;
  const R scale = scale_to_one(most);
  R square = 0;
  for (long i = LID; i < n * n; i += GROUP) {
    m.v[i] = finite ? m.v[i] * scale : (VT)NAN;
    square += SQUARE(m.v[i]);
    m.w[i] = m.v[i];
  }
  square = group_sum(square, scratch);
  SYNC();
  for (long j = LID; j < n; j += GROUP) m.w[j * n + j] += FROM_REAL((R)1.5f * sqrt(square));
  SYNC();
  const int converged = !finite || sweeps(m, scratch);
  if ((LID == 0) & !converged) PTR(info, int)[batch] = (int)n;
  for (long c0 = 0; c0 < n; c0 += TEAMS) {
    const long c = c0 + TEAM_ID;
    COLUMN x = m.w + min(c, n - 1) * n;
    const R length = normalize(x, n, c < n, scratch);
    SYNC();
    R quotient = 0;
    for (long i = 0; i < n; i++) {
      quotient += REAL(MUL(CONJ(x[i]), team_sum(dot_part(m.v + i * n, x, n), scratch)));
    }
    if ((c < n) & (LANE == 0)) {
      value[c] = length > 0 ? quotient : (R)0;  // only a matrix of zeros has columns without length
      place[c] = (int)c;
    }
  }
  SYNC();
  sort_columns(value, place, n, 0);
  for (long k = LID; k < n; k += GROUP) eigenvalue[k] = finite ? value[place[k]] / scale : (R)NAN;
  for (long k = TEAM_ID; P.vectors && k < n; k += TEAMS) {
    for (long i = LANE; i < n; i += TEAM) {
      AT(a, batch, i, k) = square > 0 || !finite ? m.w[place[k] * n + i] : FROM_REAL((R)(i == k));
    }
  }
}
