// Functions of vectors that are kept in registers.
#ifndef NETCL_VECTOR_H
#define NETCL_VECTOR_H

// For functions that take an array of a caller's registers: a compiler that calls them keeps the array in memory.
#define ALWAYS_INLINE inline __attribute__((always_inline))

// 0, 1, 2, … for a vector of V elements, behind its type: (float4)LANE_NUMBERS(4).
#define LANE_NUMBERS(V) CAT(LANE_NUMBERS_, V)
#define LANE_NUMBERS_1 (0)
#define LANE_NUMBERS_2 (0, 1)
#define LANE_NUMBERS_4 (0, 1, 2, 3)
#define LANE_NUMBERS_8 (0, 1, 2, 3, 4, 5, 6, 7)
#define LANE_NUMBERS_16 (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)

#endif
