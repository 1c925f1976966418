// Launches over many tensors (csrc/aten/support/MultiTensor.h, kernels/common/multi_tensor.h).
#pragma once
#include "args/args.h"
BEGIN_ARGS

CONSTANT(kChunk, 4096)  // elements that a work-group takes of a tensor

END_ARGS
