// When kernels add with atomics, and the -D options that kernels/vision/add_to.h then needs.
#pragma once

#include <ATen/Context.h>

#include "aten/support/Launch.h"

namespace netcl {

// Whether sums by index add with atomics: not if the user wants deterministic results, or if the device cannot.
inline bool atomic_sums(const Device& dev, c10::ScalarType acc) {
  return tuning(dev).atomic_sums && !at::globalContext().deterministicAlgorithms() &&
         (c10::elementSize(acc) == 4 || dev.info().has_int64_atomics);
}
inline void define_atomic_sums(Defs& defs, c10::ScalarType acc) {
  defs.set("ATOMIC", int64_t{1}).set("BYTES", int64_t(c10::elementSize(acc)));
}

}  // namespace netcl
