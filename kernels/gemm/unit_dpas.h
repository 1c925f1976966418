// Intel's systolic arrays, for sub-groups of 8: cl_intel_subgroup_matrix_multiply_accumulate. Each register of A holds
// two neighbours along k of one row, each register of B those of the lane's column.
#define UNIT_M 8
#define UNIT_N 8
#define UNIT_K 16
#define UNIT_A_EACH 16
#define UNIT_B_EACH 16
#define UNIT_A_RUN 2
#define UNIT_B_RUN 8
#define UNIT_A_LINE(lane, i) ((i) / 2)
#define UNIT_A_K(lane, i) ((lane) * 2 + (i) % 2)
#define UNIT_B_LINE(lane, i) (lane)
#define UNIT_B_K(lane, i) (i)
#define UNIT_C_EACH 8
#define UNIT_ROW(lane, e) (e)
#define UNIT_COLUMN(lane, e) (lane)
#define UNIT_A_REGISTERS int8
#define UNIT_B_REGISTERS int8
#define UNIT_ACROSS 0

#ifndef EMULATED
#define UNIT_KERNEL __attribute__((intel_reqd_sub_group_size(LANES)))
// Some compilers' headers lack them.
float8 __attribute__((overloadable)) intel_sub_group_f16_f16_matrix_mad_k16(int8 a, int8 b, float8 c);
float8 __attribute__((overloadable)) intel_sub_group_bf16_bf16_matrix_mad_k16(int8 a, int8 b, float8 c);
#define dpas_f16 intel_sub_group_f16_f16_matrix_mad_k16
#define dpas_bf16 intel_sub_group_bf16_bf16_matrix_mad_k16
#define unit_multiply(a, b, c) (*(c) = CAT(dpas_, INA)((a)->v, (b)->v, *(c)))
#endif
