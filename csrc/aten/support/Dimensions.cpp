#include "aten/support/Dimensions.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

namespace netcl {

void merge_neighbours(Dims& dims) {
  size_t n = 0;
  for (const Dim& d : dims) {
    if (n > 0) {
      Dim& p = dims[n - 1];
      if (d.in == p.in * p.size && d.out0 == p.out0 * p.size && d.out1 == p.out1 * p.size) {
        p.size *= d.size;
        continue;
      }
    }
    dims[n++] = d;
  }
  dims.resize(n);
  if (n == 0) dims.push_back({1, 0, 0, 0});
}

int64_t product(const Dims& dims) {
  int64_t n = 1;
  for (const Dim& d : dims) n *= d.size;
  return n;
}

at::Tensor strided_view(const Device& device, const void* data, c10::ScalarType type, const Dims& dims,
                        int64_t Dim::* stride) {
  at::DimVector sizes, strides;
  for (const Dim& d : dims) {
    sizes.push_back(d.size);
    strides.push_back(d.*stride / static_cast<int64_t>(c10::elementSize(type)));
  }
  const c10::Device where(at::kPrivateUse1, static_cast<c10::DeviceIndex>(device.index()));
  const auto options = at::device(where).dtype(type);
  return at::for_blob(const_cast<void*>(data), sizes)
      .strides(strides)
      .options(options)
      .target_device(where)
      .make_tensor();
}

Dimensions as_dimensions(const Dims& dims) {
  TORCH_INTERNAL_ASSERT(dims.size() <= kMaxDims);
  Dimensions result{};
  result.ndim = static_cast<int64_t>(dims.size());
  for (size_t d = 0; d < dims.size(); d++) {
    result.size[d] = dims[d].size;
    result.in[d] = dims[d].in;
    result.out0[d] = dims[d].out0;
    result.out1[d] = dims[d].out1;
  }
  return result;
}

}  // namespace netcl
