// AMD's MFMA of CDNA, for waves of 64: "AMD Instinct MI200 Instruction Set Architecture", 7.1 "Matrix Arithmetic", and
// AMD's matrix instruction calculator, for v_mfma_f32_16x16x16f16. A's and B's layouts are the same, so that the
// exchanged operands give the transpose of C. Then a lane has four neighbours of a row.
#define UNIT_M 16
#define UNIT_N 16
#define UNIT_K 16
#define UNIT_A_EACH 4
#define UNIT_B_EACH 4
#define UNIT_A_RUN 4
#define UNIT_B_RUN 4
#define UNIT_A_LINE(lane, i) ((lane) % 16)
#define UNIT_A_K(lane, i) ((lane) / 16 * 4 + (i))
#define UNIT_B_LINE(lane, i) ((lane) % 16)
#define UNIT_B_K(lane, i) ((lane) / 16 * 4 + (i))
#define UNIT_C_EACH 4
#define UNIT_ROW(lane, e) ((lane) % 16)
#define UNIT_COLUMN(lane, e) ((lane) / 16 * 4 + (e))
#define UNIT_A_REGISTERS short4
#define UNIT_B_REGISTERS short4
#define UNIT_ACROSS 0

#ifndef EMULATED
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define mfma_f16(a, b, c) __builtin_amdgcn_mfma_f32_16x16x16f16(as_half4(a), as_half4(b), c, 0, 0, 0)
#if UNIT_MFMA >= 2
#define mfma_bf16(a, b, c) __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0)
#else
// CDNA 1 has only depth 8, two elements per lane. Both operands' k are permuted alike, which does not change the sum.
#define mfma_bf16_8(a, b, c) __builtin_amdgcn_mfma_f32_16x16x8bf16(a, b, c, 0, 0, 0)
#define mfma_bf16(a, b, c) mfma_bf16_8((a).hi, (b).hi, mfma_bf16_8((a).lo, (b).lo, c))
#endif
#define unit_multiply(a, b, c) (*(c) = CAT(mfma_, INA)((b)->v, (a)->v, *(c)))
#endif
