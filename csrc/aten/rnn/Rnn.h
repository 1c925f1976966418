// The kernels of kernels/rnn/rnn.cl: one cell of a recurrent layer, alone or as a step of a whole layer.
#pragma once

#include "aten/support/Launch.h"

namespace netcl {

// Launches `name` over `n` rows of `hidden` units of `type`. One work-item takes up to `chunk` units of one row.
// `biased` (-D FLAG): the kernel reads two biases.
template <class... Args>
void launch_cell(const char* op, const char* name, Queue& queue, c10::ScalarType type, bool biased, int64_t n,
                 int64_t hidden, const Args&... args) {
  if (n == 0 || hidden == 0) return;
  Device& dev = queue.device();
  const int64_t vec = dev.is_cpu() ? 16 : 1;
  const int64_t chunk = dev.is_cpu() ? 256 : 1;
  const size_t local = dev.is_cpu() ? 1 : 64;
  Defs d;
  d.set("S", dtype_tag(type)).set("A", compute_tag(type)).set("VEC", vec).set("FLAG", int64_t(biased));
  kernel(dev, "rnn/rnn.cl", name, d)
      .launch(op, queue, {size_t(ceil_div(hidden, chunk)), size_t(n)}, {local, 1}, args..., hidden, chunk);
}

}  // namespace netcl
