// Helpers that pass ATen tensors to the runtime's kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

#include "aten/support/Dtypes.h"
#include "aten/support/Work.h"
#include "runtime/Kernel.h"

namespace netcl {

// The address of a tensor's first element, as a kernel argument.
inline Buf buf(const at::Tensor& t) { return {t.const_data_ptr()}; }
inline Buf buf_or_null(const at::Tensor& t) { return {t.defined() ? t.const_data_ptr() : nullptr}; }

inline Device& device_of(const at::Tensor& t) { return device(t.device().index()); }
inline Queue& queue_of(const at::Tensor& t) { return current_queue(t.device().index()); }

// How a one-dimensional range of n elements is split: `chunk` elements per work-item (a multiple of `vec`), and `items`
// work-items in groups of `local`.
struct Split {
  int64_t chunk;
  size_t items, local;
};
Split split(const Device& device, int64_t n, int64_t vec);

// The tile of sums that a CPU's matrix kernel keeps in registers: `rows` x 2 vectors of `vec` elements, beside two
// vectors of one operand and one of the other. AVX-512 has 32 registers of 16 floats, AVX2 has 16 of 8. A GPU's
// work-item has less.
struct RegisterTile {
  int64_t vec, rows;
};
inline RegisterTile register_tile(const Device& device, c10::ScalarType acc) {
  if (!device.is_cpu()) return {4, 8};
  const int64_t floats = device.info().native_floats >= 16 ? 16 : 8;
  return {c10::elementSize(acc) == 8 ? floats / 2 : floats, floats == 16 ? 12 : 6};
}

}  // namespace netcl
