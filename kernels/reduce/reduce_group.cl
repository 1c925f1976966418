// For GPUs: WIDTH neighbours of a work-group of GROUP work-items compute one output. They read vectors if the rows are
// dense and consist of whole vectors. -D: WIDTH (a power of two up to GROUP).
#include "reduce/outputs.h"
#include "reduce/group_tree.h"

#if VEC > 1
// A vector that is aligned.
#define whole_real(p) CONVERT(ACC, VEC, *(__global const VTYPE(IN, VEC)*)(p))
#define whole_f32 whole_real
#define whole_f64 whole_real
#define whole_i8 whole_real
#define whole_i16 whole_real
#define whole_i32 whole_real
#define whole_i64 whole_real
#define whole_u8 whole_real
#define whole_u16 whole_real
#define whole_u32 whole_real
#define whole_u64 whole_real
#define whole_bool elements_of
#define whole_bf16(p) CONVERT(ACC, VEC, CAT(bf16_widen, VEC)(*(__global const CAT(ushort, VEC)*)(p)))
#ifdef NETCL_F16C
#define whole_f16 elements_of
#else
// vloada_half() is one access only with some compilers.
static inline VT whole_f16(src_t p) {
  union {
    CAT(ushort, VEC) v;
    ushort s[VEC];
  } bits;
  lanes_t r;
  bits.v = *(__global const CAT(ushort, VEC)*)p;
  UNROLL for (int k = 0; k < VEC; k++)
    r.s[k] = CONVERT(ACC, 1, vload_half(0, (const half*)&bits.s[k]));
  return r.v;
}
#endif
// A vector that may not be. Compilers would make one unaligned access of READ() and the other branch's aligned one.
static inline VT elements_of(src_t p) {
  lanes_t r;
  UNROLL for (int k = 0; k < VEC; k++)
    r.s[k] = READ1(p + k * ELEMENT);
  return r.v;
}
#define READ_VECTOR(p) (aligned ? CAT(whole_, IN)(p) : elements_of(p))
#else
#define READ_VECTOR(p) READ1(p)
#endif

__kernel FIXED_GROUP_SIZE void reduce_group(ARGS) {
  const ReduceParams* L = &params;
  const param_t p0 = P0(L);
  __local accumulator_t shared[GROUP];
  const int id = get_local_id(0);
  const long o = (long)get_group_id(0) * (GROUP / WIDTH) + id / WIDTH, segment = get_global_id(1);
  const long begin = segment * L->segment;
  const place_t end = (place_t)min(begin + L->segment, L->reduced), stride = (place_t)L->reduced_in[0];
  const place_t row_size = (place_t)L->reduced_size[0];
  // Outputs beyond the last repeat it, since all work-items meet at the barriers.
  const offsets_t off = offsets_at(&L->kept, min(o, L->outputs - 1), 0);
  const src_t src = IN_PTR + off.in;
  const int aligned = ((ulong)src & (VEC * ELEMENT - 1)) == 0;
  const ST pivot = READ1(src);
  accumulators_t v = identities(), total = identities();
  int steps = 0;
  for (place_t place = (place_t)begin + id % WIDTH * VEC; place < end; place += WIDTH * VEC) {
    const place_t row = reduced_row(L, place), at = place - row * row_size;
    const src_t p = src + reduced_offset(L, row) + at * stride;
    step(&v, FROM(READ_VECTOR(p), (VT)(pivot)), place - begin, p0);
    if (++steps == SUMS_PER_STAGE) {
      merge_lanes(&total, &v);
      v = identities();
      steps = 0;
    }
  }
  merge_lanes(&total, &v);
  accumulator_t own = lane(&total, 0, begin);
  UNROLL for (int k = 1; k < VEC; k++)
    own = merge(own, lane(&total, k, begin + k));
  const accumulator_t result = merge_group(own, shared);
  if (id % WIDTH != 0 || o >= L->outputs) return;
  if (L->has_partial)
    PARTIAL[segment * L->outputs + o] = result;
  else
    write_result(result, src, OUT0_PTR + off.out0, OUT1_PTR + off.out1, p0);
}
