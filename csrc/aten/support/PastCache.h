// When a kernel stores its output past the cache, by non-temporal stores: PAST_CACHE of kernels/common/dtypes.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>

#include "aten/support/Work.h"

namespace netcl {

// Whether an output is so large that it would leave the cache before it is read.
inline bool larger_than_cache(const Device& device, int64_t bytes) { return bytes >= tuning(device).past_cache_bytes; }

// Sets PAST_CACHE if `out` (dense rows of n elements) is large, the kernel's vectors of `vec` elements are aligned in
// it, and no tensor of `read` shares its memory: an output written in place is in the cache already.
inline void past_cache(Defs& d, const Device& device, const at::Tensor& out, int64_t n, int64_t vec,
                       std::initializer_list<at::Tensor> read) {
  const auto address = reinterpret_cast<uintptr_t>(out.const_data_ptr());
  if (vec < 8 || n % vec != 0 || address % uintptr_t(vec * out.element_size()) != 0) return;
  if (!larger_than_cache(device, int64_t(out.nbytes()))) return;
  for (const at::Tensor& t : read) {
    if (t.const_data_ptr() == out.const_data_ptr()) return;
  }
  d.set("PAST_CACHE", 1);
}

}  // namespace netcl
