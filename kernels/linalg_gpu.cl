// The blocks and panels of linalg.cl on GPUs, where the work-items of a work-group share them.
// -D: those of linalg/matrices.h, GROUP (work-items per work-group, a power of two), SIDE (a power of two, not less
// than the rows of a block; not for lu_panel).
#define WORK_GROUPS
#include "args/linalg.h"
#include "common/join_group.h"
#include "linalg/matrices.h"

#define LID ((int)get_local_id(0))
#define SYNC() barrier(CLK_LOCAL_MEM_FENCE)

// Local memory has room for 1024 elements, which are the blocks of some matrices. A team of work-items takes each.
#define BLOCKS (1024 / (SIDE * SIDE))
#define TEAM (GROUP / BLOCKS)
#define BLOCK_BATCH ((long)get_group_id(0) * BLOCKS + LID / TEAM)
#define TILE_AT(i, j) tile[(j) * SIDE + (i)]
// A team's loop over the elements (i, j) of the columns [from, to), column by column.
#define FOR_ELEMENTS(i, j, from, to)                                               \
  for (int at_ = LID % TEAM + (from) * SIDE, i, j; at_ < (to) * SIDE; at_ += TEAM) \
    if (i = at_ % SIDE, j = at_ / SIDE, true)

// A = L L^H in place of A's lower triangle. info: the first row (1-based) whose minor is not positive.
__kernel FIXED_GROUP_SIZE void cholesky_block(MATRIX(a), BUF(info), long batches, int n, int first) {
  __local VT tiles[BLOCKS * SIDE * SIDE];
  __local VT* tile = tiles + LID / TEAM * (SIDE * SIDE);
  const long batch = BLOCK_BATCH;
  const int there = batch < batches;
  FOR_ELEMENTS(i, j, 0, n) if (there && i < n && j <= i) TILE_AT(i, j) = AT(a, batch, i, j);
  SYNC();
  int failed = 0;
  for (int k = 0; k < n; k++) {
    const R square = REAL(TILE_AT(k, k)), root = sqrt(square);
    if (!(square > 0) && failed == 0) failed = first + k + 1;
    for (int i = k + 1 + LID % TEAM; i < n; i += TEAM) TILE_AT(i, k) = TILE_AT(i, k) / root;
    SYNC();
    FOR_ELEMENTS(i, j, k + 1, n)
    if (i < n && j <= i) TILE_AT(i, j) -= MUL(TILE_AT(i, k), CONJ(TILE_AT(j, k)));
    SYNC();
  }
  FOR_ELEMENTS(i, j, 0, n)
  if (there && i < n && j <= i) AT(a, batch, i, j) = i == j ? FROM_REAL(sqrt(REAL(TILE_AT(i, i)))) : TILE_AT(i, j);
  if (there && LID % TEAM == 0 && failed && PTR(info, int)[batch] == 0) PTR(info, int)[batch] = failed;
}

// As lu_panel, for a panel of up to SIDE rows.
__kernel FIXED_GROUP_SIZE void lu_block(MATRIX(a), VECTOR(pivot), BUF(info), const PanelParams P) {
  const int rows = P.rows, columns = P.columns, first = P.first;
  __local VT tiles[BLOCKS * SIDE * SIDE];
  __local VT* tile = tiles + LID / TEAM * (SIDE * SIDE);
  const long batch = BLOCK_BATCH;
  const int there = batch < P.batches;
  FOR_ELEMENTS(i, j, 0, columns) if (i < rows) TILE_AT(i, j) = there ? AT(a, batch, i, j) : FROM_REAL((R)0);
  SYNC();
  int failed = 0;
  for (int k = 0; k < min(rows, columns); k++) {
    int p = k;
    R best = MAGNITUDE(TILE_AT(k, k));
    for (int i = k + 1; P.exchange && i < rows; i++) {
      const R other = MAGNITUDE(TILE_AT(i, k));
      p = other > best ? i : p;
      best = other > best ? other : best;
    }
    if (best == 0 && failed == 0) failed = first + k + 1;
    if (there && LID % TEAM == 0) PTR(pivot, int)[batch * pivot_batch + k] = first + p + 1;
    SYNC();
    for (int j = LID % TEAM; j < columns && p != k; j += TEAM) {
      const VT other = TILE_AT(p, j);
      TILE_AT(p, j) = TILE_AT(k, j);
      TILE_AT(k, j) = other;
    }
    SYNC();
    const VT head = TILE_AT(k, k);
    for (int i = k + 1 + LID % TEAM; i < rows && best != 0; i += TEAM) TILE_AT(i, k) = DIV(TILE_AT(i, k), head);
    SYNC();
    FOR_ELEMENTS(i, j, k + 1, columns)
    if (k < i && i < rows && best != 0) TILE_AT(i, j) -= MUL(TILE_AT(i, k), TILE_AT(k, j));
    SYNC();
  }
  FOR_ELEMENTS(i, j, 0, columns) if (there && i < rows) AT(a, batch, i, j) = TILE_AT(i, j);
  if (there && LID % TEAM == 0 && failed && PTR(info, int)[batch] == 0) PTR(info, int)[batch] = failed;
}

// Solves A X = B in place of B for an n x n block A of which one triangle is read. SIDE work-items take a column of all
// columns of all matrices; each keeps one element, and subtracts what is found from it.
__kernel FIXED_GROUP_SIZE void solve_block(MATRIX(a), MATRIX(b), long batches, int n, long columns, int upper,
                                           int unit) {
  __local VT found[2][GROUP / SIDE];
  const int own = LID % SIDE, mine = LID / SIDE, row = upper ? n - 1 - own : own;
  const long at = (long)get_group_id(0) * (GROUP / SIDE) + mine, batch = at / columns, column = at - batch * columns;
  const int there = batch < batches && own < n;
  VT left = 0, next = 0;
  if (there) {
    left = AT(b, batch, row, column);
    next = AT(a, batch, row, upper ? n - 1 : 0);
  }
  for (int s = 0; s < n; s++) {
    const VT factor = next;
    if (there && s < own) next = AT(a, batch, row, upper ? n - 2 - s : s + 1);  // early, for the next step
    if (s == own) {
      if (!unit) left = DIV(left, factor);
      found[s % 2][mine] = left;
    }
    SYNC();
    if (s < own) left -= MUL(factor, found[s % 2][mine]);
  }
  if (there) AT(b, batch, row, column) = left;
}
#define MOST_COLUMNS 32
// Of equal candidates the first counts.
#define TAKE_BETTER(i)                                                                \
  if (bests[i] > bests[LID] || (bests[i] == bests[LID] && places[i] < places[LID])) { \
    bests[LID] = bests[i];                                                            \
    places[LID] = places[i];                                                          \
  }

// P A = L U of a panel, in place, as in linalg.cl. A work-group takes the panel of a matrix, and a work-item some rows,
// in which it finds the candidate for the next pivot while it updates them.
__kernel FIXED_GROUP_SIZE void lu_panel(MATRIX(a), VECTOR(pivot), BUF(info), const PanelParams P) {
  __local R bests[GROUP];
  __local int places[GROUP];
  __local VT line[MOST_COLUMNS];
  const long batch = get_group_id(0), rows = P.rows;
  const int columns = P.columns, first = P.first, exchange = P.exchange;
  int place = 0, failed = 0;
  R best = -1;
  for (long i = 1 + LID; exchange && i < rows; i += GROUP) {
    const R other = MAGNITUDE(AT(a, batch, i, 0));
    place = other > best ? (int)i : place;
    best = other > best ? other : best;
  }
  for (int k = 0; k < min(rows, (long)columns); k++) {
    const R head = MAGNITUDE(AT(a, batch, k, k));
    bests[LID] = best;
    places[LID] = place;
    // Its first barrier comes when all have read the rows that will be exchanged.
    JOIN_GROUP(LID, GROUP, CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE, TAKE_BETTER(LID + apart))
    const int moves = bests[0] > head,
              p = moves ? places[0] : k;  // the first of equal ones, and no NaN below the diagonal
    const int singular = !moves && head == 0;
    if (singular && failed == 0) failed = first + k + 1;
    if (LID == 0) PTR(pivot, int)[batch * pivot_batch + k] = first + p + 1;
    for (int j = LID; j < columns; j += GROUP) {
      const VT chosen = AT(a, batch, p, j);
      if (moves) {
        AT(a, batch, p, j) = AT(a, batch, k, j);
        AT(a, batch, k, j) = chosen;
      }
      line[j] = chosen;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    best = -1;
    for (long i = k + 1 + LID; i < rows; i += GROUP) {
      if (!singular) {
        const VT factor = DIV(AT(a, batch, i, k), line[k]);
        AT(a, batch, i, k) = factor;
        for (int j = k + 1; j < columns; j++) AT(a, batch, i, j) -= MUL(factor, line[j]);
      }
      if (!exchange || k + 1 >= columns || i == k + 1) continue;
      const R other = MAGNITUDE(AT(a, batch, i, k + 1));
      place = other > best ? (int)i : place;
      best = other > best ? other : best;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  }
  if (LID == 0 && failed && PTR(info, int)[batch] == 0) PTR(info, int)[batch] = failed;
}
