// Arguments of random numbers (csrc/aten/Random.cpp, csrc/aten/Sampling.cpp).
#pragma once
#include "args/scalar.h"
BEGIN_ARGS

// random.cl, dropout.cl, sampling.cl: n numbers. A work-item takes `per` elements, or `per` groups of Philox blocks. a
// and b are the distribution's parameters; dropout's are the probability to keep an element, and its factor then.
typedef struct {
  int64_t n, per;
  int64_t code;  // for assertions
  Bits a, b;
} RandomParams;
SAME_SIZE(RandomParams, 7 * 8)

// randperm.cl: a permutation of n numbers, which have high_bits and low_bits. A work-item takes `per` of them.
typedef struct {
  int64_t n, per;
  int32_t high_bits, low_bits;
} PermutationParams;
SAME_SIZE(PermutationParams, 3 * 8)

// multinomial.cl: n draws, `samples` from each row of `classes` weights.
typedef struct {
  int64_t n, per, samples, classes;
  int64_t code;
} PickParams;
SAME_SIZE(PickParams, 5 * 8)

END_ARGS
