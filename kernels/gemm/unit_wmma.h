// AMD's WMMA of RDNA3, for waves of 32: "RDNA3 Instruction Set Architecture", 7.9 "Wave Matrix Multiply Accumulate".
// Lanes 16 to 31 hold the same rows of A and columns of B as lanes 0 to 15. A's and B's layouts are the same, so that
// the exchanged operands give the transpose of C: UNIT_DOWN asks for neighbouring rows in neighbouring lanes.
#define UNIT_M 16
#define UNIT_N 16
#define UNIT_K 16
#define UNIT_A_EACH 16
#define UNIT_B_EACH 16
#define UNIT_A_RUN 8
#define UNIT_B_RUN 8
#define UNIT_A_LINE(lane, i) ((lane) % 16)
#define UNIT_A_K(lane, i) (i)
#define UNIT_B_LINE(lane, i) ((lane) % 16)
#define UNIT_B_K(lane, i) (i)
#define UNIT_C_EACH 8
#if UNIT_DOWN
#define UNIT_ROW(lane, e) ((lane) % 16)
#define UNIT_COLUMN(lane, e) ((e) * 2 + (lane) / 16)
#define WMMA(a, b, c) CAT(wmma_, INA)((b)->v, (a)->v, c)
#else
#define UNIT_ROW(lane, e) ((e) * 2 + (lane) / 16)
#define UNIT_COLUMN(lane, e) ((lane) % 16)
#define WMMA(a, b, c) CAT(wmma_, INA)((a)->v, (b)->v, c)
#endif
#define UNIT_A_REGISTERS short16
#define UNIT_B_REGISTERS short16
#define UNIT_ACROSS 0

#ifndef EMULATED
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define wmma_f16(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(as_half16(a), as_half16(b), c)
#define wmma_bf16(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c)
#define unit_multiply(a, b, c) (*(c) = WMMA(a, b, *(c)))
#endif
