// A dtype is a tag (f32 f16 bf16 f64 i8 i16 i32 i64 u8 u16 u32 u64 bool c32 c64 c128, and those of float8.h). Its
// storage type and its compute type may differ. For a storage tag S, a compute tag A and a vector width V (1, 2, 4, 8
// or 16):
//   STORAGE(S)               the storage type, CTYPE(A) the compute type, VTYPE(A, V) a vector of it
//   LOAD(S, A, V, ptr, i)    V consecutive elements from element i on, converted to A
//   STORE(S, A, V, ptr, i, v)
// `ptr` is a `__global STORAGE(S)*` that is aligned to one element. Every device stores half (vload_half needs no
// extension); bf16 is stored as a ushort, rounded to nearest even. half, bf16, c32 and the float8 dtypes are never
// compute types. Complex numbers are pairs and have vectors of width 1 only.
#include "common/common.h"

// Clang's built-in conversions, if the CPU has the instructions: PoCL converts half one by one with integer arithmetic.
#if defined(__F16C__) && defined(HAVE_CPU_BUILTINS) && __has_builtin(__builtin_ia32_vcvtph2ps256) && \
    __has_builtin(__builtin_ia32_vcvtps2ph256)
#define NETCL_F16C
#endif

#define STORAGE(S) CAT(st_, S)
#define st_f32 float
#define st_f64 double
#define st_i8 char
#define st_i16 short
#define st_i32 int
#define st_i64 long
#define st_u8 uchar
#define st_u16 ushort
#define st_u32 uint
#define st_u64 ulong
#define st_bool uchar
#define st_c64 float2
#define st_c128 double2
#ifdef NETCL_F16C
#define st_f16 ushort
#else
#define st_f16 half
#endif
#define st_bf16 ushort
#define st_c32 ushort2

#define CTYPE(A) STORAGE(A)  // compute types are stored as they are

// The suffix of a vector type's name: none for width 1.
#define V_1
#define V_2 2
#define V_4 4
#define V_8 8
#define V_16 16
#define VTYPE(A, V) CAT(CTYPE(A), CAT(V_, V))
// vload and vstore by width; OpenCL has none for width 1.
#define VLOAD_1(i, p) ((p)[i])
#define VLOAD_2 vload2
#define VLOAD_4 vload4
#define VLOAD_8 vload8
#define VLOAD_16 vload16
#define VSTORE_1(v, i, p) ((p)[i] = (v))
#define VSTORE_2 vstore2
#define VSTORE_4 vstore4
// PAST_CACHE: non-temporal stores, for outputs larger than the cache. An ordinary store reads each cache line before it
// writes it. Whole vectors must be aligned, which is checked here: the host does not know it of foreign memory
// (CL_MEM_USE_HOST_PTR). On x86 later stores may become visible earlier, so a kernel that uses these ends with
// STORES_DONE().
#if defined(PAST_CACHE) && defined(HAVE_CPU_BUILTINS) && __has_builtin(__builtin_nontemporal_store)
#define PAST_CACHE_STORE(store, v, i, p) \
  ((ulong)(p) % sizeof(v) ? store(v, i, p) : __builtin_nontemporal_store(v, (__global __typeof__(v)*)(p) + (i)))
#define VSTORE_8(v, i, p) PAST_CACHE_STORE(vstore8, v, i, p)
#define VSTORE_16(v, i, p) PAST_CACHE_STORE(vstore16, v, i, p)
#if __has_builtin(__builtin_ia32_sfence)
#define STORES_DONE() __builtin_ia32_sfence()
#endif
#endif
#ifndef STORES_DONE
#define STORES_DONE()
#endif
#ifndef VSTORE_16
#define VSTORE_8 vstore8
#define VSTORE_16 vstore16
#endif

// CONVERT(A, V, x): converts a real vector x to compute type A.
#define CONVERT(A, V, x) CAT(convert_, CLASS(A))(A, V, x)
#define convert_floating(A, V, x) CAT(convert_, VTYPE(A, V))(x)
#define convert_integer convert_floating
#define convert_truth convert_floating
#define convert_complex(A, V, x) ((CTYPE(A))(x, 0))

#define LOAD(S, A, V, p, i) CAT(ld_, CLASS(S))(S, A, V, (p) + (i))
#define ld_floating(S, A, V, p) CONVERT(A, V, CAT(VLOAD_, V)(0, p))
#define ld_integer ld_floating
// Any byte except 0 is True, whoever wrote it; every operator reads it as 1.
#define ld_truth(S, A, V, p) CONVERT(A, V, CAT(truth_, V)(CAT(VLOAD_, V)(0, p)))
#define truth_1(x) ((uchar)((x) != 0))
#define truth_2(x) min(x, (uchar2)(1))
#define truth_4(x) min(x, (uchar4)(1))
#define truth_8(x) min(x, (uchar8)(1))
#define truth_16(x) min(x, (uchar16)(1))
#define ld_f16(S, A, V, p) CONVERT(A, V, CAT(half_load, V)(p))
#define ld_bf16(S, A, V, p) CONVERT(A, V, CAT(bf16_widen, V)(CAT(load_bits, V)(p)))
// A complex number read as a real number gives its real part; read as a bool, it is True unless it is 0.
#define ld_complex(S, A, V, p) CAT(of_complex_, CLASS(A))(A, (p)[0])
#define ld_c32(S, A, V, p) CAT(of_complex_, CLASS(A))(A, half_load2((__global const STORAGE(f16)*)(p)))
#define of_complex_floating(A, z) CONVERT(A, 1, (z).x)
#define of_complex_integer of_complex_floating
#define of_complex_truth(A, z) ((uchar)((z).x != 0 || (z).y != 0))
#define of_complex_complex(A, z) CAT(convert_, CTYPE(A))(z)

#define STORE(S, A, V, p, i, v) CAT(sto_, S)(A, V, (p) + (i), v)
#define sto_as(T, A, V, p, v) CAT(VSTORE_, V)(CONVERT(T, V, v), 0, p)
#define sto_f32(A, V, p, v) sto_as(f32, A, V, p, REAL_PART(A, v))
#define sto_f64(A, V, p, v) sto_as(f64, A, V, p, REAL_PART(A, v))
#define sto_i32(A, V, p, v) sto_as(i32, A, V, p, REAL_PART(A, v))
#define sto_i64(A, V, p, v) sto_as(i64, A, V, p, REAL_PART(A, v))
// A float outside the range of a narrow or unsigned integer wraps through int64, as on the CPU.
#define sto_i8(A, V, p, v) sto_as(i8, A, V, p, INTEGER_OF(A, V, v))
#define sto_i16(A, V, p, v) sto_as(i16, A, V, p, INTEGER_OF(A, V, v))
#define sto_u8(A, V, p, v) sto_as(u8, A, V, p, INTEGER_OF(A, V, v))
#define sto_u16(A, V, p, v) sto_as(u16, A, V, p, INTEGER_OF(A, V, v))
#define sto_u32(A, V, p, v) sto_as(u32, A, V, p, INTEGER_OF(A, V, v))
#define sto_u64(A, V, p, v) sto_as(u64, A, V, p, INTEGER_OF(A, V, v))
#define sto_bool(A, V, p, v) CAT(VSTORE_, V)(CONVERT(u8, V, NONZERO(A, V, v)) & (uchar)1, 0, p)
#define sto_f16(A, V, p, v) CAT(half_store, V)(CONVERT(f32, V, REAL_PART(A, v)), p)
#define sto_bf16(A, V, p, v) CAT(store_bits, V)(CAT(bf16_narrow, V)(CONVERT(f32, V, REAL_PART(A, v))), p)
#define sto_c32(A, V, p, v) half_store2(COMPLEX_OF(float, A, v), (__global STORAGE(f16)*)(p))
#define sto_c64(A, V, p, v) ((p)[0] = COMPLEX_OF(float, A, v))
#define sto_c128(A, V, p, v) ((p)[0] = COMPLEX_OF(double, A, v))

// The real part of a number, and what a narrow integer is made from.
#define REAL_PART(A, v) CAT(real_, CLASS(A))(v)
#define real_floating(v) (v)
#define real_integer(v) (v)
#define real_truth(v) (v)
#define real_complex(v) ((v).x)
#define INTEGER_OF(A, V, v) CAT(integer_of_, CLASS(A))(V, v)
#define integer_of_floating(V, v) CONVERT(i64, V, v)
#define integer_of_integer(V, v) (v)
#define integer_of_truth(V, v) (v)
// A comparison gives -1 in a vector, but 1 in a scalar.
#define NONZERO(A, V, v) CAT(nonzero_, CLASS(A))(A, V, v)
#define nonzero_floating(A, V, v) ((v) != (VTYPE(A, V))(0))
#define nonzero_integer nonzero_floating
#define nonzero_truth nonzero_floating
#define nonzero_complex(A, V, v) ((v).x != 0 || (v).y != 0)
#define COMPLEX_OF(T, A, v) CAT(complex_of_, CLASS(A))(T, v)
#define complex_of_floating(T, v) ((T##2)(convert_##T(v), 0))
#define complex_of_integer complex_of_floating
#define complex_of_truth complex_of_floating
#define complex_of_complex(T, v) convert_##T##2(v)

// ROUND(S, A, V, x) rounds a compute value to a narrow storage dtype S, as an explicit cast would.
#define ROUND(S, A, V, x) CAT(rnd_, CLASS(S))(S, A, V, x)
#define rnd_floating(S, A, V, x) (x)
#define rnd_integer rnd_floating
#define rnd_truth rnd_floating
#define rnd_complex rnd_floating
#define rnd_c32(S, A, V, x) half_round2(x)
#define rnd_bf16(S, A, V, x) CONVERT(A, V, CAT(bf16_widen, V)(CAT(bf16_narrow, V)(CONVERT(f32, V, x))))
#define rnd_f16(S, A, V, x) CONVERT(A, V, CAT(half_round, V)(CONVERT(f32, V, x)))

// PoCL splits vload and vstore of a vector of shorts into accesses of 8 bytes or less, which halves the speed of a cast
// to bfloat16. A packed struct needs no alignment either, and costs a CPU nothing.
#if defined(DEVICE_CPU)
#define NETCL_LOAD_BITS(W)                 \
  typedef struct __attribute__((packed)) { \
    ushort##W v;                           \
  } packed_bits##W;                        \
  static inline ushort##W load_bits##W(__global const ushort* p) { return ((__global const packed_bits##W*)p)->v; }
#else
#define NETCL_LOAD_BITS(W) \
  static inline ushort##W load_bits##W(__global const ushort* p) { return VLOAD_##W(0, p); }
#endif
#if defined(DEVICE_CPU) && !defined(PAST_CACHE)
#define NETCL_STORE_BITS(W) \
  static inline void store_bits##W(ushort##W v, __global ushort* p) { ((__global packed_bits##W*)p)->v = v; }
#else
#define NETCL_STORE_BITS(W) \
  static inline void store_bits##W(ushort##W v, __global ushort* p) { VSTORE_##W((ushort##W)(v), 0, p); }
#endif
#define NETCL_BITS(W) NETCL_LOAD_BITS(W) NETCL_STORE_BITS(W)
// One element may also lie in private memory.
#define load_bits1(p) (*(p))
#define store_bits1(v, p) (*(p) = (v))
NETCL_BITS(2)
NETCL_BITS(4)
NETCL_BITS(8)
NETCL_BITS(16)

#define NETCL_NARROW(W, F, U, US)                                              \
  static inline F bf16_widen##W(US x) { return as_##F(convert_##U(x) << 16); } \
  static inline US bf16_narrow##W(F x) {                                       \
    const U u = as_##U(x);                                                     \
    const U r = (u + (U)(0x7fffu) + ((u >> 16) & (U)(1u))) >> 16;              \
    return convert_##US(x != x ? (U)(0x7fc0u) : r);                            \
  }
NETCL_NARROW(1, float, uint, ushort)
NETCL_NARROW(2, float2, uint2, ushort2)
NETCL_NARROW(4, float4, uint4, ushort4)
NETCL_NARROW(8, float8, uint8, ushort8)
NETCL_NARROW(16, float16, uint16, ushort16)

#ifdef NETCL_F16C
static inline float8 half_widen8(ushort8 h) { return __builtin_ia32_vcvtph2ps256(as_short8(h)); }
static inline ushort8 half_narrow8(float8 x) { return as_ushort8(__builtin_ia32_vcvtps2ph256(x, 0)); }
static inline float4 half_widen4(ushort4 h) { return __builtin_ia32_vcvtph2ps((short8)(as_short4(h), (short4)(0))); }
static inline ushort4 half_narrow4(float4 x) { return as_ushort8(__builtin_ia32_vcvtps2ph(x, 0)).lo; }
static inline float2 half_widen2(ushort2 h) { return half_widen4((ushort4)(h, 0, 0)).lo; }
static inline ushort2 half_narrow2(float2 x) { return half_narrow4((float4)(x, 0, 0)).lo; }
static inline float half_widen1(ushort h) { return half_widen4((ushort4)(h, 0, 0, 0)).x; }
static inline ushort half_narrow1(float x) { return half_narrow4((float4)(x, 0, 0, 0)).x; }
static inline float16 half_widen16(ushort16 h) { return (float16)(half_widen8(h.lo), half_widen8(h.hi)); }
static inline ushort16 half_narrow16(float16 x) { return (ushort16)(half_narrow8(x.lo), half_narrow8(x.hi)); }
#define half_load1(p) half_widen1(*(p))
#define half_store1(x, p) (*(p) = half_narrow1(x))
static inline float half_round1(float x) { return half_widen1(half_narrow1(x)); }
#define NETCL_HALF(W, F)                                                                             \
  static inline F half_load##W(__global const ushort* p) { return half_widen##W(load_bits##W(p)); }  \
  static inline void half_store##W(F x, __global ushort* p) { store_bits##W(half_narrow##W(x), p); } \
  static inline F half_round##W(F x) { return half_widen##W(half_narrow##W(x)); }
#else
#define half_load1(p) vload_half(0, p)
#define half_store1(x, p) vstore_half(x, 0, p)
static inline float half_round1(float x) {
  ushort h;
  vstore_half(x, 0, (half*)&h);
  return vload_half(0, (const half*)&h);
}
#define NETCL_HALF(W, F)                                                               \
  static inline F half_load##W(__global const half* p) { return vload_half##W(0, p); } \
  static inline void half_store##W(F x, __global half* p) { vstore_half##W(x, 0, p); } \
  static inline F half_round##W(F x) {                                                 \
    ushort h[W];                                                                       \
    vstore_half##W(x, 0, (half*)h);                                                    \
    return vload_half##W(0, (half*)h);                                                 \
  }
#endif
NETCL_HALF(2, float2)
NETCL_HALF(4, float4)
NETCL_HALF(8, float8)
NETCL_HALF(16, float16)

#if defined(FLOAT8_e4m3) || defined(FLOAT8_e5m2) || defined(FLOAT8_e4m3z) || defined(FLOAT8_e5m2z) || \
    defined(FLOAT8_e8m0)
#include "common/float8.h"
#endif
