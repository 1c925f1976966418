// Fragments without matrix units, to test the rest: the lanes put their elements into local memory, where the unit_*.h
// say they belong, and each lane sums the products for its own elements of C.
#define UNIT_SCRATCH(name) __local element_t name[SIDE_X * SIDE_Y * (UNIT_M + UNIT_N) * UNIT_K]
#define UNIT_LOOP NO_UNROLL
#define UNIT_MULTIPLY(u, v, t) \
  emulated_multiply(&(u), &(v), &(t), I.exchange + (I.y * SIDE_X + I.x) * (UNIT_M + UNIT_N) * UNIT_K, I.lane);

#define widen_f32(x) (x)
#define widen_bf16(x) bf16_widen1(x)
#define widen_f16(x) widen_half(x)
static inline float widen_half(ushort x) { return vload_half(0, (const half*)&x); }
#define WIDEN CAT(widen_, INA)

ALWAYS_INLINE void emulated_multiply(const a_unit* u, const b_unit* v, sums_t* t, __local element_t* a, uint lane) {
  __local element_t* b = a + UNIT_M * UNIT_K;
  for (int i = 0; i < UNIT_A_EACH; i++) a[UNIT_A_LINE(lane, i) * UNIT_K + UNIT_A_K(lane, i)] = u->s[i];
  for (int i = 0; i < UNIT_B_EACH; i++) b[UNIT_B_LINE(lane, i) * UNIT_K + UNIT_B_K(lane, i)] = v->s[i];
  barrier(CLK_LOCAL_MEM_FENCE);
  sums_by_number sums;
  sums.v = *t;
  for (int e = 0; e < UNIT_C_EACH; e++) {
    __local const element_t* row = a + UNIT_ROW(lane, e) * UNIT_K;
    __local const element_t* column = b + UNIT_COLUMN(lane, e) * UNIT_K;
    for (int k = 0; k < UNIT_K; k++) sums.s[e] += WIDEN(row[k]) * WIDEN(column[k]);
  }
  *t = sums.v;
  barrier(CLK_LOCAL_MEM_FENCE);
}
