// Attention for GPUs, with the algorithm of FlashAttention-2 (Dao 2023, "FlashAttention-2: Faster Attention with Better
// Parallelism and Work Partitioning"): scores exist only in registers and local memory, and the maxima and sums of the
// softmax are corrected from block to block. No pass adds to memory that another work-group adds to.
//
// A work-group of SIDE_X x SIDE_Y work-items owns LINES queries (or keys, in attention_flash_keys) of a head and goes
// through the others in blocks of SPAN. Of a block's scores, work-item (x, y) computes those of lines 4 * y … 4 * y + 3
// with the others 4 * x … 4 * x + 3. It owns HEAD / SIDE_X sums of each of its lines.
//
// Arrays in registers are indexed by constants only, without loops: Intel's compiler would keep them in memory.
//
// -D: IO (storage tag: f32, f16 or bf16), BIAS (the same, if a bias is added to the scores), SIDE_X, SIDE_Y,
// HEAD: columns of a head, rounded up to a multiple of 32 (csrc/aten/FlashAttention.cpp); for attention_flash_keys
// GRADS, which gradients are wanted: 1, that of the keys, 2, that of the values, or 3, both.
#define WORK_GROUPS
#define ACC f32
#include "args/attention.h"
#include "common/vector.h"

#define ITEMS (SIDE_X * SIDE_Y)
#define LINES (SIDE_Y * 4)
#define SPAN (SIDE_X * 4)
// Columns of queries and keys in local memory at a time: two blocks of them lie where the tile of scores will be.
#define STEP (LINES * SPAN >= 4096 ? 32 : 16)
// Rows of values in local memory at a time.
#define MOST_ROWS (HEAD <= 32 ? 64 : HEAD <= 64 ? 32 : 16)
#define CHUNK (MOST_ROWS < SPAN ? MOST_ROWS : SPAN)

// Blocks in local memory that are read across lines lie column beside column. The groups of 4 lines change places from
// every 4th column to the next, so that neither those who write a line nor those who read a column meet in a bank.
#define PLACE(group, column) (((group) ^ ((column) / 4 % 8)) * 4)
#define LOCAL4(p) (*(__local float4*)(p))
#define EACH_ROW(M) M(0) M(1) M(2) M(3)

// Four lines by four others. A part of the sums: four lines by LANES columns, of which x * LANES + i * SIDE_X * LANES
// is the first one of part i.
typedef struct {
  float4 r0, r1, r2, r3;
} tile_t;
#if HEAD % (4 * SIDE_X) == 0
#define LANES 4
#else
#define LANES 2
#endif
#define PARTS (HEAD / SIDE_X / LANES)
typedef VTYPE(f32, LANES) lanes_v;
typedef struct {
  lanes_v r0, r1, r2, r3;
} part_t;
#if HEAD / SIDE_X / LANES == 1
#define EACH_PART(M) M(0)
#elif HEAD / SIDE_X / LANES == 2
#define EACH_PART(M) M(0) M(1)
#elif HEAD / SIDE_X / LANES == 3
#define EACH_PART(M) M(0) M(1) M(2)
#else
#define EACH_PART(M) M(0) M(1) M(2) M(3)
#endif
// t += the product of a number for each line and one for each column.
#define MULTIPLY(t, lines, columns) \
  (t).r0 += (lines).x * (columns);  \
  (t).r1 += (lines).y * (columns);  \
  (t).r2 += (lines).z * (columns);  \
  (t).r3 += (lines).w * (columns);

// What a work-item reads from global memory at once: 16 bytes.
#define reads_f32 4
#define reads_f16 8
#define reads_bf16 8
#define READ CAT(reads_, IO)
#define EACH_READ(M) EACH_ROW(M) CAT(more_than_4_, IO)(M)
#define more_than_4_f32(M)
#define more_than_4_f16(M) M(4) M(5) M(6) M(7)
#define more_than_4_bf16 more_than_4_f16
typedef VTYPE(f32, READ) read_t;
#define read_f32(p) (*(__global const float4*)(p))
// Of two 16-bit numbers in a word the first one is in the lower half. Read as shorts, clang's code for NVIDIA would
// take two accesses.
#define READ_PAIRS(p) const uint4 w = *(__global const uint4*)(p);
static inline float8 read_bf16(__global const void* p) {
  READ_PAIRS(p)
  const float4 low = as_float4(w << 16), high = as_float4(w & 0xffff0000u);
  return (float8)(low.x, high.x, low.y, high.y, low.z, high.z, low.w, high.w);
}
#ifdef HAVE_FP16
#define PAIR(w) convert_float2(as_half2(w))
#else
static inline float widen_half(uint x) {
  const ushort bits = (ushort)x;
  return vload_half(0, (const half*)&bits);
}
#define PAIR(w) (float2)(widen_half(w), widen_half((w) >> 16))
#endif
static inline float8 read_f16(__global const void* p) {
  READ_PAIRS(p)
  return (float8)(PAIR(w.x), PAIR(w.y), PAIR(w.z), PAIR(w.w));
}

// Some rows of a head: `count` exist, of `columns` elements each.
typedef struct {
  __global const STORAGE(IO)* p;
  int stride, count, columns, aligned;
} rows_t;
#define ROWS_OF(name, strides, head, first, count, columns) \
  rows_of(PTR(name, const STORAGE(IO)), strides, b, head, first, count, (int)(columns))
static inline rows_t rows_of(__global const STORAGE(IO)* p, const HeadStrides s, int b, int h, long first, int count,
                             int columns) {
  rows_t r;
  r.p = p + b * s.b + h * s.h + first * s.row;
  r.stride = (int)s.row;
  r.count = count;
  r.columns = columns;
  r.aligned = (int)s.aligned;
  return r;
}
// READ columns of a row; those that do not exist are 0.
static inline read_t read_part(const rows_t* m, int row, int column) {
  __global const STORAGE(IO)* p = m->p + row * m->stride + column;
  const int room = row < m->count ? m->columns - column : 0;
  if (m->aligned && room >= READ) return CAT(read_, IO)(p);
  read_t w = (read_t)(0);
#define READ_ONE(j) \
  if (j < room) w.s##j = LOAD(IO, f32, 1, p, j);
  EACH_READ(READ_ONE)
  return w;
}

// Puts STEP columns of `lines` rows into local memory, column beside column.
ALWAYS_INLINE void put_columns(__local float* block, const int lines, const rows_t* m, int from, int id) {
  const int parts = lines * STEP / READ;
  UNROLL for (int i = 0; i < (parts + ITEMS - 1) / ITEMS; i++) {
    const int n = id + i * ITEMS, k = n % (STEP / READ) * READ, row = n / (STEP / READ);
    if (parts % ITEMS == 0 || n < parts) {
      const read_t w = read_part(m, row, from + k);
#define PUT_ONE(j) block[(k + j) * lines + PLACE(row / 4, k + j) + row % 4] = w.s##j;
      EACH_READ(PUT_ONE)
    }
  }
}
// Puts CHUNK rows, from row `from` on, into local memory, row beside row.
ALWAYS_INLINE void put_rows(__local float* block, const rows_t* m, int from, int id) {
  const int parts = CHUNK * HEAD / READ;
  UNROLL for (int i = 0; i < (parts + ITEMS - 1) / ITEMS; i++) {
    const int n = id + i * ITEMS, k = n % (HEAD / READ) * READ, row = n / (HEAD / READ);
    if (parts % ITEMS == 0 || n < parts) {
      *(__local read_t*)(block + row * HEAD + k) = read_part(m, from + row, k);
    }
  }
}

// The products of a's rows with b's rows. `area` holds a block of each; nothing there is needed afterwards.
ALWAYS_INLINE tile_t multiply_rows(const rows_t* a, const rows_t* b, __local float* area, int id) {
  const int x = id % SIDE_X, y = id / SIDE_X;
  tile_t t;
  t.r0 = t.r1 = t.r2 = t.r3 = (float4)(0);
  for (int from = 0; from < a->columns; from += STEP) {
    put_columns(area, LINES, a, from, id);
    put_columns(area + STEP * LINES, SPAN, b, from, id);
    barrier(CLK_LOCAL_MEM_FENCE);
    NO_UNROLL for (int k = 0; k < STEP; k += 4) {
      __local const float* lines = area + k * LINES + PLACE(y, k);
      __local const float* others = area + STEP * LINES + k * SPAN + PLACE(x, k);
#define MULTIPLY_COLUMN(j)                      \
  {                                             \
    const float4 u = LOCAL4(lines + j * LINES); \
    const float4 v = LOCAL4(others + j * SPAN); \
    MULTIPLY(t, u, v)                           \
  }
      EACH_ROW(MULTIPLY_COLUMN)
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  return t;
}

// Stores the tiles of all work-items in local memory, column beside column.
ALWAYS_INLINE void put_tile(__local float* all, const tile_t* t, int id) {
  const int x = id % SIDE_X, y = id / SIDE_X;
#define PUT_COLUMN(j) \
  LOCAL4(all + (4 * x + j) * LINES + PLACE(y, 4 * x)) = (float4)(t->r0.s##j, t->r1.s##j, t->r2.s##j, t->r3.s##j);
  EACH_ROW(PUT_COLUMN)
}
// sums += these tiles times m's rows, of which `side` holds a part; nothing in local memory is needed afterwards.
ALWAYS_INLINE void multiply_tile(part_t* sums, __local const float* all, const rows_t* m, __local float* side, int id) {
  const int x = id % SIDE_X, y = id / SIDE_X;
  for (int from = 0; from < m->count; from += CHUNK) {
    put_rows(side, m, from, id);
    barrier(CLK_LOCAL_MEM_FENCE);
    NO_UNROLL for (int k = 0; k < CHUNK; k += 4) {
      __local const float* lines = all + (from + k) * LINES + PLACE(y, from + k);
      __local const float* row = side + k * HEAD + x * LANES;
#define MULTIPLY_PART(i)                                                   \
  {                                                                        \
    const lanes_v v = *(__local const lanes_v*)(row + i * SIDE_X * LANES); \
    MULTIPLY(sums[i], u, v)                                                \
  }
#define MULTIPLY_LINE(j)                        \
  {                                             \
    const float4 u = LOCAL4(lines + j * LINES); \
    EACH_PART(MULTIPLY_PART)                    \
    row += HEAD;                                \
  }
      EACH_ROW(MULTIPLY_LINE)
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}

#define ZERO_PART(i) sums[i].r0 = sums[i].r1 = sums[i].r2 = sums[i].r3 = (lanes_v)(0);
static inline void zero(part_t* sums) { EACH_PART(ZERO_PART); }
#define SCALE_PART(i) \
  sums[i].r0 *= s.x;  \
  sums[i].r1 *= s.y;  \
  sums[i].r2 *= s.z;  \
  sums[i].r3 *= s.w;
static inline void scale_lines(part_t* sums, float4 s) { EACH_PART(SCALE_PART); }

static inline void store_lanes(__global STORAGE(IO)* p, int room, lanes_v v) {
  if (room >= LANES) {
    STORE(IO, f32, LANES, p, 0, v);
    return;
  }
#define STORE_ONE(j) \
  if (j < room) STORE(IO, f32, 1, p, j, v.s##j);
  STORE_ONE(0)
  STORE_ONE(1)
#if LANES == 4
  STORE_ONE(2)
#endif
}
// Stores a work-item's sums as rows of `columns` columns, of which `count` exist from its first line on.
static inline void store_rows(const part_t* sums, __global STORAGE(IO)* p, int stride, int count, int columns, int x) {
#define STORE_LINE(i, n) \
  if (n < count)         \
    store_lanes(p + n * stride + (x + i * SIDE_X) * LANES, columns - (x + i * SIDE_X) * LANES, sums[i].r##n);
#define STORE_PART(i) STORE_LINE(i, 0) STORE_LINE(i, 1) STORE_LINE(i, 2) STORE_LINE(i, 3)
  EACH_PART(STORE_PART)
}
#define STORE_SUMS(sums, name, strides, head, columns)                                                                \
  store_rows(sums,                                                                                                    \
             PTR(name, STORAGE(IO)) + b * (strides).b + (head) * (strides).h + (long)(first + 4 * y) * (strides).row, \
             (int)(strides).row, lines - 4 * y, (int)(columns), x);

// The scores of a line with the work-item's four others: products times the scale, plus the bias. `room` of them exist.
// `p` points to the bias of the line with the first of the four, from which the next one lies `apart`.
#ifdef BIAS
#define BIAS_PARAM BUF(bias),
#define BIAS_OF(head, query, key) \
  (PTR(bias, const STORAGE(BIAS)) + P.bias_b * b + (head) * P.bias_h + (query) * P.bias_q + (key) * P.bias_k)
static inline float4 scores_of(float4 products, float scale, __global const STORAGE(BIAS)* p, int apart, int room) {
  float4 w = (float4)(0);
#define BIAS_ONE(j) \
  if (j < room) w.s##j = LOAD(BIAS, f32, 1, p, j * apart);
  EACH_ROW(BIAS_ONE)
  return products * scale + w;
}
#define SCORES(products, bias, apart, seen) scores_of(products, P.scale, bias, (int)(apart), (seen) - 4 * x)
// The bias of a work-item's first line with its first other of the block. It moves from block to block: offsets that do
// not change would stay in registers, and these would not suffice.
#define BEGIN_BIAS __global const STORAGE(BIAS)* line_bias = BIAS_OF(at, first + 4 * y, 4 * x);
#define NEXT_BIAS line_bias += SPAN * P.bias_k;
#else
#define BIAS_PARAM
#define SCORES(products, bias, apart, seen) ((products) * P.scale)
#define BEGIN_BIAS
#define NEXT_BIAS
#endif

// Of a work-item's four others, counted from the first one.
#define INDICES ((int4)(0, 1, 2, 3))

#define QKV BUF(q), BUF(k), BUF(v)
#define REST BIAS_PARAM const FlashParams P
// The place of a work-group: a block of lines of a head.
#define PLACE_OF_GROUP(lines_, heads_)                                                     \
  const int id = (int)get_local_id(0), x = id % SIDE_X, y = id / SIDE_X;                   \
  const uint blocks = ((uint)(lines_) + LINES - 1) / LINES, group = (uint)get_group_id(0); \
  const int head = (int)(group / blocks), b = head / (int)(heads_), at = head - b * (int)(heads_);
#define BLOCKS_IN_LOCAL_MEMORY                                   \
  __local float area[LINES * SPAN] __attribute__((aligned(16))); \
  __local float side[CHUNK * HEAD] __attribute__((aligned(16)));

// Number `column` of a line of all tiles. Work-items share a line if they are LINES apart, and take every SHARING-th
// column.
#define SHARING (ITEMS / LINES)
#define OF_LINE(column) area[(column) * LINES + PLACE(line / 4, column) + line % 4]
// The `op` of the values v of the work-items that share a line.
#define COMBINE(v, op)                     \
  side[id] = v;                            \
  barrier(CLK_LOCAL_MEM_FENCE);            \
  v = side[line];                          \
  UNROLL for (int j = 1; j < SHARING; j++) \
    v = op(v, side[line + j * LINES]);
#define ADD(a, b) ((a) + (b))
// Replaces a line's scores by their exponentials.
#define EXP_OF_LINE(base, STEP_WITH)                           \
  NO_UNROLL for (int c = id / LINES; c < SPAN; c += SHARING) { \
    const float e = exp(OF_LINE(c) - (base));                  \
    OF_LINE(c) = e;                                            \
    STEP_WITH(e)                                               \
  }
#define ADD_TO_TOTAL(e) total += e;
#define NO_MORE(e)

// Turns the products of queries and keys into scores; -inf are those of keys that a query does not see.
#define MASK_ROWS EACH_ROW(MASK_ROW) NEXT_BIAS
#define MASK_ROW(n)                                                                                           \
  {                                                                                                           \
    const int row = 4 * y + n, seen = row < lines ? min(others, P.causal ? first + row + 1 - key : SPAN) : 0; \
    const float4 s = SCORES(t.r##n, line_bias + n * (int)P.bias_q, P.bias_k, seen);                           \
    t.r##n = INDICES < (int4)(seen - 4 * x) ? s : (float4)(-INFINITY);                                        \
  }

// clang-format off
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void attention_flash_forward(BUF(out), BUF(lse), QKV, REST) {
  // clang-format on
  BLOCKS_IN_LOCAL_MEMORY
  __local float scales[LINES] __attribute__((aligned(16)));
  PLACE_OF_GROUP(P.queries, P.heads)
  // With a causal mask the last queries have most work, so they begin first.
  const int first = (int)(blocks - 1 - group % blocks) * LINES, lines = min((int)P.queries - first, LINES);
  const int keys = P.causal ? min((int)P.keys, first + lines) : (int)P.keys;
  const int shared = at / (int)(P.heads / P.kv_heads), line = id % LINES;
  const rows_t queries = ROWS_OF(q, P.q, at, first, lines, P.depth);
  part_t sums[PARTS];
  zero(sums);
  float most = -INFINITY, total = 0;  // of `line`; the total only of this work-item's columns
  BEGIN_BIAS
  for (int key = 0; key < keys; key += SPAN) {
    const int others = min(keys - key, SPAN);
    const rows_t ks = ROWS_OF(k, P.k, shared, key, others, P.depth);
    const rows_t vs = ROWS_OF(v, P.v, shared, key, others, P.width);
    tile_t t = multiply_rows(&queries, &ks, area, id);
    MASK_ROWS
    put_tile(area, &t, id);
    barrier(CLK_LOCAL_MEM_FENCE);
    float top = -INFINITY;
    NO_UNROLL for (int c = id / LINES; c < SPAN; c += SHARING) top = fmax(top, OF_LINE(c));
    COMBINE(top, fmax)
    top = fmax(most, top);
    // Of a query that has not seen a key yet, all probabilities are 0.
    const float base = top == -INFINITY ? 0 : top, scale = exp(most - base);
    most = top;
    total *= scale;
    EXP_OF_LINE(base, ADD_TO_TOTAL)
    if (id < LINES) scales[id] = scale;
    barrier(CLK_LOCAL_MEM_FENCE);
    scale_lines(sums, LOCAL4(scales + 4 * y));
    multiply_tile(sums, area, &vs, side, id);
  }
  COMBINE(total, ADD)
  if (id < LINES) {
    if (id < lines) PTR(lse, float)[head * P.queries + first + id] = (most == -INFINITY ? 0 : most) + log(total);
    scales[id] = total == 0 ? 0 : 1 / total;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  scale_lines(sums, LOCAL4(scales + 4 * y));
  STORE_SUMS(sums, out, P.out, at, P.width)
}

// delta = the sum of the products of a query's output and its gradient. A row has DELTA_ITEMS work-items.
#define DELTA_ITEMS 8
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void attention_flash_delta(BUF(delta), BUF(out), BUF(grad),
                                                                                    const FlashParams P, long rows) {
  __local float parts[64];
  const int id = (int)get_local_id(0);
  const long row = (long)get_group_id(0) * (64 / DELTA_ITEMS) + id / DELTA_ITEMS, head = row / P.queries;
  const int b = (int)(head / P.heads), at = (int)(head % P.heads);
  const rows_t o = ROWS_OF(out, P.out, at, row - head * P.queries, row < rows, P.width);
  const rows_t g = ROWS_OF(grad, P.grad, at, row - head * P.queries, row < rows, P.width);
  read_t sum = (read_t)(0);
  for (int c = id % DELTA_ITEMS * READ; c < HEAD; c += DELTA_ITEMS * READ)
    sum += read_part(&o, 0, c) * read_part(&g, 0, c);
  float total = 0;
#define ADD_ONE(j) total += sum.s##j;
  EACH_READ(ADD_ONE)
  parts[id] = total;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (id % DELTA_ITEMS == 0 && row < rows) {
    for (int j = 1; j < DELTA_ITEMS; j++) total += parts[id + j];
    PTR(delta, float)[row] = total;
  }
}

// Four numbers of a row, of which `count` exist.
static inline float4 four_of(__global const float* p, int count) {
  float4 w = (float4)(0);
#define FOUR_ONE(j) \
  if (j < count) w.s##j = p[j];
  EACH_ROW(FOUR_ONE)
  return w;
}
// The logarithm of a query's sum. If the query sees no key, it is -inf, and so are all scores.
static inline float finite_sum(float lse) { return lse == -INFINITY ? 0 : lse; }

// Replaces a work-item's probabilities by the gradients of the scores: g is that of the probabilities. A score that
// does not count has none. DOT(j): delta of the tile's column j.
#define GRADIENTS(DOT)                                                  \
  {                                                                     \
    __local float* column_ = area + 4 * x * LINES + PLACE(y, 4 * x);    \
    GRADIENT(0, DOT) GRADIENT(1, DOT) GRADIENT(2, DOT) GRADIENT(3, DOT) \
  }
#define GRADIENT(j, DOT)                                                                  \
  {                                                                                       \
    const float4 p = LOCAL4(column_ + j * LINES);                                         \
    const float4 d = p * ((float4)(g.r0.s##j, g.r1.s##j, g.r2.s##j, g.r3.s##j) - DOT(j)); \
    LOCAL4(column_ + j * LINES) = p == (float4)(0) ? (float4)(0) : d;                     \
  }

// The gradient of the queries.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void attention_flash_queries(BUF(dq), BUF(grad), QKV,
                                                                                         BUF(lse), BUF(delta), REST) {
  BLOCKS_IN_LOCAL_MEMORY
  PLACE_OF_GROUP(P.queries, P.heads)
  const int first = (int)(blocks - 1 - group % blocks) * LINES, lines = min((int)P.queries - first, LINES);
  const int keys = P.causal ? min((int)P.keys, first + lines) : (int)P.keys;
  const int shared = at / (int)(P.heads / P.kv_heads), line = id % LINES;
  const rows_t queries = ROWS_OF(q, P.q, at, first, lines, P.depth);
  const rows_t grads = ROWS_OF(grad, P.grad, at, first, lines, P.width);
  const long place = head * P.queries + first;
  const float base = line < lines ? finite_sum(PTR(lse, const float)[place + line]) : 0;
  const float4 dot = four_of(PTR(delta, const float) + place + 4 * y, lines - 4 * y);
#define DOT_OF_LINES(j) dot
  part_t sums[PARTS];
  zero(sums);
  BEGIN_BIAS
  for (int key = 0; key < keys; key += SPAN) {
    const int others = min(keys - key, SPAN);
    const rows_t ks = ROWS_OF(k, P.k, shared, key, others, P.depth);
    const rows_t vs = ROWS_OF(v, P.v, shared, key, others, P.width);
    const tile_t g = multiply_rows(&grads, &vs, area, id);
    tile_t t = multiply_rows(&queries, &ks, area, id);
    MASK_ROWS
    put_tile(area, &t, id);
    barrier(CLK_LOCAL_MEM_FENCE);
    EXP_OF_LINE(base, NO_MORE)
    barrier(CLK_LOCAL_MEM_FENCE);
    GRADIENTS(DOT_OF_LINES)
    barrier(CLK_LOCAL_MEM_FENCE);
    multiply_tile(sums, area, &ks, side, id);
  }
  scale_lines(sums, (float4)(P.scale));
  STORE_SUMS(sums, dq, P.dq, at, P.depth)
}

#define DOT_OF_COLUMN(j) dot.s##j
#define OF_KEYS (GRADS & 1)
#define OF_VALUES (GRADS & 2)
// The gradients of keys and values. Lines are keys; the queries of all heads that share them come one after the other.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void attention_flash_keys(BUF(dk), BUF(dv), BUF(grad), QKV,
                                                                                      BUF(lse), BUF(delta), REST) {
  BLOCKS_IN_LOCAL_MEMORY
  __local float bases[SPAN];
  PLACE_OF_GROUP(P.keys, P.kv_heads)
  const int first = (int)(group % blocks) * LINES, lines = min((int)P.keys - first, LINES), line = id % LINES;
  const int sharing = (int)(P.heads / P.kv_heads), begin = P.causal ? first / SPAN * SPAN : 0;
  const rows_t ks = ROWS_OF(k, P.k, at, first, lines, P.depth);
  const rows_t vs = ROWS_OF(v, P.v, at, first, lines, P.width);
  part_t k_sums[PARTS], v_sums[PARTS];
  zero(k_sums);
  zero(v_sums);
  const int spans = max(0, ((int)P.queries - begin + SPAN - 1) / SPAN);
  for (int step = 0; step < sharing * spans; step++) {
    const int h = at * sharing + step / spans, query = begin + step % spans * SPAN;
    const int others = min((int)P.queries - query, SPAN);
    const rows_t qs = ROWS_OF(q, P.q, h, query, others, P.depth);
    const rows_t grads = ROWS_OF(grad, P.grad, h, query, others, P.width);
    const long place = (b * P.heads + h) * P.queries + query;
    tile_t g;
    float4 dot;
    if (OF_KEYS) {
      g = multiply_rows(&vs, &grads, area, id);
      dot = four_of(PTR(delta, const float) + place + 4 * x, others - 4 * x);
    }
    tile_t t = multiply_rows(&ks, &qs, area, id);
#define MASK_KEY(n)                                                                                          \
  {                                                                                                          \
    const int row = 4 * y + n, seen = row < lines ? others : 0, unseen = P.causal ? first + row - query : 0; \
    const float4 s = SCORES(t.r##n, BIAS_OF(h, query + 4 * x, first + row), P.bias_q, seen);                 \
    t.r##n = INDICES < (int4)(unseen - 4 * x) || INDICES >= (int4)(seen - 4 * x) ? (float4)(-INFINITY) : s;  \
  }
    EACH_ROW(MASK_KEY)
    put_tile(area, &t, id);
    if (id < SPAN) bases[id] = id < others ? finite_sum(PTR(lse, const float)[place + id]) : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    EXP_OF_LINE(bases[c], NO_MORE)
    barrier(CLK_LOCAL_MEM_FENCE);
    if (OF_VALUES) multiply_tile(v_sums, area, &grads, side, id);
    if (OF_KEYS) {
      GRADIENTS(DOT_OF_COLUMN)
      barrier(CLK_LOCAL_MEM_FENCE);
      multiply_tile(k_sums, area, &qs, side, id);
    }
  }
  if (OF_KEYS) {
    scale_lines(k_sums, (float4)(P.scale));
    STORE_SUMS(k_sums, dk, P.dk, at, P.depth)
  }
  if (OF_VALUES) STORE_SUMS(v_sums, dv, P.dv, at, P.width)
}
