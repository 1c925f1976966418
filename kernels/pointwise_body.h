// The two kernels behind every element-wise operator; see pointwise.h.
// `flat`: operands that collapse to one dimension. `rows`: the rest; a work-item covers `chunk` columns of
// `rows_per` rows. An operand's inner stride (bytes) decides how it is read: the element size (one vector load),
// 0 (splat), anything else (lane by lane); STRIDE_IMMEDIATE marks a CPU scalar passed by value.
#define STRIDE_IMMEDIATE (-1L)
#define MAX_OUTER 5
#define NARGS (NIN + NOUT)

typedef struct {
  long n;       // length of the inner dimension
  long chunk;   // columns a work-item
  long rows, rows_per, ndim;
  long inner[NARGS];
  ulong imm[NIN + 1][2];
} flat_t;
typedef struct {
  long size[MAX_OUTER];
  long stride[MAX_OUTER][NARGS];  // bytes; outputs first
} outer_t;

#if defined(ACC_COMPLEX) && defined(ACC_DOUBLE)
#define IMMEDIATE(u) ((VT)(as_double((u)[0]), as_double((u)[1])))
#elif defined(ACC_COMPLEX)
#define IMMEDIATE(u) ((VT)(as_float((uint)(u)[0]), as_float((uint)(u)[1])))
#elif defined(ACC_DOUBLE)
#define IMMEDIATE(u) ((VT)(as_double((u)[0])))
#elif defined(ACC_FLOATING)
#define IMMEDIATE(u) ((VT)(as_float((uint)(u)[0])))
#else
#define IMMEDIATE(u) ((VT)((ST)(u)[0]))
#endif

// One element, VEC elements, or `lanes` of them; in the common dtype.
#ifdef CAST_INPUTS
#define AS_COMMON(V, x) ROUND(COMMON, ACC, V, x)
#else
#define AS_COMMON(V, x) (x)
#endif
#define READ1(S, p) AS_COMMON(1, LOAD(S, ACC, 1, (__global const STORAGE(S) *)(p), 0))
#if VEC == 1
#define READ_VEC(S, p) READ1(S, p)
#else
#define READ_VEC(S, p) AS_COMMON(VEC, LOAD(S, ACC, VEC, (__global const STORAGE(S) *)(p), 0))
#endif
#define DEFINE_READ(k)                                                                                    \
  inline VT read##k(__global const uchar *p, long stride, int lanes, VT imm) {                            \
    if (stride == STRIDE_IMMEDIATE) return imm;                                                           \
    if (stride == sizeof(STORAGE(IN##k)) && lanes == VEC) return READ_VEC(IN##k, p);                      \
    if (stride == 0) return (VT)(READ1(IN##k, p));                                                        \
    lanes_t r;                                                                                            \
    for (int j = 0; j < VEC; j++) r.s[j] = READ1(IN##k, p + stride * min(j, lanes - 1));                  \
    return r.v;                                                                                           \
  }
#define DEFINE_WRITE(k)                                                                                   \
  inline void write##k(__global uchar *p, long stride, int lanes, VT v) {                                 \
    if (stride == sizeof(STORAGE(OUT##k)) && lanes == VEC) {                                              \
      STORE(OUT##k, ACC, VEC, (__global STORAGE(OUT##k) *)p, 0, v);                                       \
      return;                                                                                             \
    }                                                                                                     \
    lanes_t r;                                                                                            \
    r.v = v;                                                                                              \
    for (int j = 0; j < lanes; j++)                                                                       \
      STORE(OUT##k, ACC, 1, (__global STORAGE(OUT##k) *)(p + stride * j), 0, r.s[j]);                     \
  }

#if NOUT > 0
DEFINE_WRITE(0)
#define OUT_BUF0 BUF(o0),
#define OUT_ARG0 o0_buf + o0_off,
#define OUT_PARAM0 __global uchar *o0,
#else
#define OUT_BUF0
#define OUT_ARG0
#define OUT_PARAM0
#endif
#if NOUT > 1
DEFINE_WRITE(1)
#define OUT_BUF1 BUF(o1),
#define OUT_ARG1 o1_buf + o1_off,
#define OUT_PARAM1 __global uchar *o1,
#else
#define OUT_BUF1
#define OUT_ARG1
#define OUT_PARAM1
#endif
#if NIN > 0
DEFINE_READ(0)
#define IN_BUF0 BUF(i0),
#define IN_ARG0 i0_buf + i0_off,
#define IN_PARAM0 __global const uchar *i0,
#define IN_READ0 read0(i0 + at * L.inner[NOUT + 0], L.inner[NOUT + 0], lanes, IMMEDIATE(L.imm[0]))
#else
#define IN_BUF0
#define IN_ARG0
#define IN_PARAM0
#endif
#if NIN > 1
DEFINE_READ(1)
#define IN_BUF1 BUF(i1),
#define IN_ARG1 i1_buf + i1_off,
#define IN_PARAM1 __global const uchar *i1,
#define IN_READ1 read1(i1 + at * L.inner[NOUT + 1], L.inner[NOUT + 1], lanes, IMMEDIATE(L.imm[1]))
#else
#define IN_BUF1
#define IN_ARG1
#define IN_PARAM1
#endif
#if NIN > 2
DEFINE_READ(2)
#define IN_BUF2 BUF(i2),
#define IN_ARG2 i2_buf + i2_off,
#define IN_PARAM2 __global const uchar *i2,
#define IN_READ2 read2(i2 + at * L.inner[NOUT + 2], L.inner[NOUT + 2], lanes, IMMEDIATE(L.imm[2]))
#else
#define IN_BUF2
#define IN_ARG2
#define IN_PARAM2
#endif
#if NIN > 3
DEFINE_READ(3)
#define IN_BUF3 BUF(i3),
#define IN_ARG3 i3_buf + i3_off,
#define IN_PARAM3 __global const uchar *i3,
#define IN_READ3 read3(i3 + at * L.inner[NOUT + 3], L.inner[NOUT + 3], lanes, IMMEDIATE(L.imm[3]))
#else
#define IN_BUF3
#define IN_ARG3
#define IN_PARAM3
#endif
#if NIN > 4
DEFINE_READ(4)
#define IN_BUF4 BUF(i4),
#define IN_ARG4 i4_buf + i4_off,
#define IN_PARAM4 __global const uchar *i4,
#define IN_READ4 read4(i4 + at * L.inner[NOUT + 4], L.inner[NOUT + 4], lanes, IMMEDIATE(L.imm[4]))
#else
#define IN_BUF4
#define IN_ARG4
#define IN_PARAM4
#endif
#if NIN > 5
DEFINE_READ(5)
#define IN_BUF5 BUF(i5),
#define IN_ARG5 i5_buf + i5_off,
#define IN_PARAM5 __global const uchar *i5,
#define IN_READ5 read5(i5 + at * L.inner[NOUT + 5], L.inner[NOUT + 5], lanes, IMMEDIATE(L.imm[5]))
#else
#define IN_BUF5
#define IN_ARG5
#define IN_PARAM5
#endif
#if NSCALARS > 0
#define S_PARAM0 , const ST s0_arg
#define S_ARG0 , s0_arg
#define S_SPLAT0 const VT s0 = (VT)(s0_arg);
#else
#define S_PARAM0
#define S_ARG0
#define S_SPLAT0
#endif
#if NSCALARS > 1
#define S_PARAM1 , const ST s1_arg
#define S_ARG1 , s1_arg
#define S_SPLAT1 const VT s1 = (VT)(s1_arg);
#else
#define S_PARAM1
#define S_ARG1
#define S_SPLAT1
#endif
#if NSCALARS > 2
#define S_PARAM2 , const ST s2_arg
#define S_ARG2 , s2_arg
#define S_SPLAT2 const VT s2 = (VT)(s2_arg);
#else
#define S_PARAM2
#define S_ARG2
#define S_SPLAT2
#endif
#if NSCALARS > 3
#define S_PARAM3 , const ST s3_arg
#define S_ARG3 , s3_arg
#define S_SPLAT3 const VT s3 = (VT)(s3_arg);
#else
#define S_PARAM3
#define S_ARG3
#define S_SPLAT3
#endif
#define BUFS OUT_BUF0 OUT_BUF1 IN_BUF0 IN_BUF1 IN_BUF2 IN_BUF3 IN_BUF4 IN_BUF5
#define BUF_ARGS OUT_ARG0 OUT_ARG1 IN_ARG0 IN_ARG1 IN_ARG2 IN_ARG3 IN_ARG4 IN_ARG5
#define BUF_PARAMS OUT_PARAM0 OUT_PARAM1 IN_PARAM0 IN_PARAM1 IN_PARAM2 IN_PARAM3 IN_PARAM4 IN_PARAM5
#define SCALARS S_PARAM0 S_PARAM1 S_PARAM2 S_PARAM3
#define SCALAR_ARGS S_ARG0 S_ARG1 S_ARG2 S_ARG3
#define SPLAT_SCALARS S_SPLAT0 S_SPLAT1 S_SPLAT2 S_SPLAT3
#if NIN == 0
#define APPLY OP()
#endif
// Operands are named, so that an expression may use one twice.
#if NIN == 1
#define READ_ALL const VT x0 = IN_READ0;
#define APPLY OP(x0)
#endif
#if NIN == 2
#define READ_ALL const VT x0 = IN_READ0; const VT x1 = IN_READ1;
#define APPLY OP(x0, x1)
#endif
#if NIN == 3
#define READ_ALL const VT x0 = IN_READ0; const VT x1 = IN_READ1; const VT x2 = IN_READ2;
#define APPLY OP(x0, x1, x2)
#endif
#if NIN == 4
#define READ_ALL const VT x0 = IN_READ0; const VT x1 = IN_READ1; const VT x2 = IN_READ2; const VT x3 = IN_READ3;
#define APPLY OP(x0, x1, x2, x3)
#endif
#if NIN == 5
#define READ_ALL const VT x0 = IN_READ0; const VT x1 = IN_READ1; const VT x2 = IN_READ2; const VT x3 = IN_READ3; const VT x4 = IN_READ4;
#define APPLY OP(x0, x1, x2, x3, x4)
#endif
#if NIN == 6
#define READ_ALL const VT x0 = IN_READ0; const VT x1 = IN_READ1; const VT x2 = IN_READ2; const VT x3 = IN_READ3; const VT x4 = IN_READ4; const VT x5 = IN_READ5;
#define APPLY OP(x0, x1, x2, x3, x4, x5)
#endif
#if NIN == 0
#define READ_ALL
#endif
#if NOUT > 1
#define DECLARE_R1 VT r1;
#define WRITE_R1 write1(o1 + at * L.inner[1], L.inner[1], lanes, r1);
#else
#define DECLARE_R1
#define WRITE_R1
#endif

inline void run(BUF_PARAMS const flat_t L, long begin, long end SCALARS) {
  SPLAT_SCALARS
  for (long at = begin; at < end; at += VEC) {
    const int lanes = (int)min((long)VEC, end - at);
#ifdef INDEXED
    lanes_t ramp;
    for (int k = 0; k < VEC; k++) ramp.s[k] = (ST)(at + k);
    const VT index = ramp.v;  // position in a flat range, for arange and its like
#endif
    READ_ALL
    DECLARE_R1
    const VT r0 = APPLY;
    write0(o0 + at * L.inner[0], L.inner[0], lanes, r0);
    WRITE_R1
  }
}

__kernel void flat(BUFS const flat_t L SCALARS) {
  const long begin = (long)get_global_id(0) * L.chunk;
  run(BUF_ARGS L, begin, min(begin + L.chunk, L.n) SCALAR_ARGS);
  STORES_DONE();
}

// The operands of one row.
#if NOUT > 0
#define ROW_OUT0 o0_buf + o0_off + off[0],
#else
#define ROW_OUT0
#endif
#if NOUT > 1
#define ROW_OUT1 o1_buf + o1_off + off[1],
#else
#define ROW_OUT1
#endif
#if NIN > 0
#define ROW_IN0 i0_buf + i0_off + off[NOUT + 0],
#else
#define ROW_IN0
#endif
#if NIN > 1
#define ROW_IN1 i1_buf + i1_off + off[NOUT + 1],
#else
#define ROW_IN1
#endif
#if NIN > 2
#define ROW_IN2 i2_buf + i2_off + off[NOUT + 2],
#else
#define ROW_IN2
#endif
#if NIN > 3
#define ROW_IN3 i3_buf + i3_off + off[NOUT + 3],
#else
#define ROW_IN3
#endif
#if NIN > 4
#define ROW_IN4 i4_buf + i4_off + off[NOUT + 4],
#else
#define ROW_IN4
#endif
#if NIN > 5
#define ROW_IN5 i5_buf + i5_off + off[NOUT + 5],
#else
#define ROW_IN5
#endif
#define ROW_ARGS ROW_OUT0 ROW_OUT1 ROW_IN0 ROW_IN1 ROW_IN2 ROW_IN3 ROW_IN4 ROW_IN5

__kernel void rows(BUFS const flat_t L, const outer_t O SCALARS) {
  const long begin = (long)get_global_id(0) * L.chunk;
  const long end = min(begin + L.chunk, L.n);
  const long last = min((long)(get_global_id(1) + 1) * L.rows_per, L.rows);
  for (long row = get_global_id(1) * L.rows_per; row < last; row++) {
    long off[NARGS];
    for (int k = 0; k < NARGS; k++) off[k] = 0;
    long rest = row;
    for (int d = 0; d < L.ndim; d++) {
      const long q = rest / O.size[d], r = rest - q * O.size[d];
      for (int k = 0; k < NARGS; k++) off[k] += r * O.stride[d][k];
      rest = q;
    }
    run(ROW_ARGS L, begin, end SCALAR_ARGS);
  }
  STORES_DONE();
}
