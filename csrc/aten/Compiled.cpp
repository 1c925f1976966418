// Kernels that torch.compile generates (torch_netcl/inductor). They are compiled once and launched like those in
// kernels/.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_fft_c2c.h>
#include <ATen/ops/_fft_c2r.h>
#include <ATen/ops/_fft_r2c.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>

#include <deque>
#include <mutex>

#include "aten/support/Launch.h"
#include "aten/support/Library.h"
#include "aten/support/MultiTensor.h"
#include "runtime/Assertions.h"
#include "runtime/ProgramCache.h"

namespace netcl {
namespace {

// The unit of work of a work-item (for kRows on a GPU, of a work-group); torch_netcl/inductor/kernel.py writes the
// loops.
enum Shape : int64_t {
  kElements = 0,  // vectors of elements
  kRows = 1,      // whole rows, each of them reduced
  kColumns = 2,   // vectors of columns, each of them reduced
};

struct Generated {
  Kernel* kernel;
  int64_t shape;
  bool asserts;                 // whether it takes the buffer for bad indices
  int code = 0;                 // of those
  std::vector<int64_t> raised;  // the codes of the messages that it may report
};
struct GeneratedKernels {
  std::mutex mutex;
  std::deque<Generated> list;  // a deque, so that pointers to its elements stay valid
};
GeneratedKernels& generated() {
  static auto* g = new GeneratedKernels();
  return *g;
}

constexpr int64_t kVector = 16;   // VEC of kernels/common/compiled.h on a CPU
constexpr int64_t kLeast = 2048;  // elements per work-item that pay for its scheduling

int64_t compile_generated(int64_t index, const std::string& source, const std::string& name, int64_t shape,
                          bool asserts, const std::vector<std::string>& messages) {
  Device& dev = device(static_cast<c10::DeviceIndex>(index));
  Kernel& k = kernel_from_source(dev, generated_source(source), name.c_str(), "");
  auto& all = generated();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (size_t i = 0; i < all.list.size(); i++) {
    if (all.list[i].kernel == &k) return static_cast<int64_t>(i);
  }
  std::vector<int64_t> raised;
  for (const std::string& m : messages) raised.push_back(assert_message_code(dev, m));
  all.list.push_back({&k, shape, asserts, asserts ? assert_code(dev, k.name().c_str()) : 0, raised});
  return static_cast<int64_t>(all.list.size()) - 1;
}

const Generated& find_generated(int64_t id) {
  auto& all = generated();
  const std::lock_guard<std::mutex> lock(all.mutex);
  TORCH_CHECK_INDEX(id >= 0 && id < static_cast<int64_t>(all.list.size()), "netcl: no generated kernel has the number ",
                    id);
  return all.list[id];
}

// `sizes`: the kernel's scalars, then rows, elements per row, and how many elements each of those reduces.
struct Split {
  int64_t per = 1;  // units per work-item
  size_t items = 0, local = 1;
  // Each of `sets` has as many work-items.
  Split(const Generated& g, at::IntArrayRef sizes, int64_t sets) {
    TORCH_INTERNAL_ASSERT(sizes.size() >= 3);
    const int64_t reduced = sizes.back(), width = sizes[sizes.size() - 2], rows = sizes[sizes.size() - 3];
    if (rows == 0 || width == 0) return;
    Device& dev = g.kernel->device();
    const int64_t vector = g.shape == kRows ? 1 : std::min(kVector, tuning(dev).lanes);
    const int64_t units = g.shape == kRows ? rows * width : rows * ceil_div(width, vector);
    const int64_t least = ceil_div(kLeast, std::max<int64_t>(1, vector * reduced));
    per = all_or_one(dev, std::max(least, even_part(dev, units * sets)));
    local = element_group(dev).x;  // GROUP of kernels/common/compiled.h
    items = static_cast<size_t>(ceil_div(units, per)) * (g.shape == kRows ? local : 1);
    items = ceil_div(items, local) * local;
  }
};

void check_device(const Kernel& k, const at::Tensor& t) {
  const auto index = k.device().index();
  TORCH_CHECK(t.is_privateuseone() && t.device().index() == index, "netcl: ", k.name(),
              " was compiled for netcl:", int(index), " but got a tensor on ", t.device());
}

void launch_generated(int64_t id, at::TensorList tensors, at::IntArrayRef sizes) {
  const Generated& g = find_generated(id);
  Kernel& k = *g.kernel;
  const Split split(g, sizes, 1);
  if (split.items == 0) return;
  c10::SmallVector<Buf, 16> bufs;
  for (const at::Tensor& t : tensors) {
    check_device(k, t);
    bufs.push_back(buf(t));
  }
  if (g.asserts) bufs.push_back(Buf{assert_buffer(k.device())});
  c10::SmallVector<int64_t, 16> scalars(sizes.begin(), sizes.end() - 1);
  scalars.append(g.raised.begin(), g.raised.end());
  k.launch(k.name().c_str(), current_queue(k.device().index()), {split.items}, {split.local}, c10::ArrayRef<Buf>(bufs),
           c10::ArrayRef<int64_t>(scalars), split.per, g.code);
}

// The same for `count` sets of tensors, of a kernel that was generated for it.
void launch_generated_many(int64_t id, at::TensorList tensors, at::IntArrayRef sizes, int64_t count) {
  const Generated& g = find_generated(id);
  Kernel& k = *g.kernel;
  TORCH_CHECK(count > 0 && !tensors.empty() && tensors.size() % static_cast<size_t>(count) == 0, k.name(), ": ",
              tensors.size(), " tensors are no ", count, " rows of arguments");
  const Split split(g, sizes, count);
  if (split.items == 0) return;
  const size_t columns = tensors.size() / static_cast<size_t>(count);
  MultiTensor sets(k.name().c_str(), tensors[0].device(), columns, c10::kFloat);
  std::vector<const at::Tensor*> row(columns);
  for (size_t i = 0; i < static_cast<size_t>(count); i++) {
    for (size_t c = 0; c < columns; c++) {
      check_device(k, tensors[i * columns + c]);
      row[c] = &tensors[i * columns + c];
    }
    sets.add(1, row);
  }
  const c10::SmallVector<int64_t, 16> scalars(sizes.begin(), sizes.end() - 1);
  sets.launch_kernel(k, split.items, split.local, c10::ArrayRef<int64_t>(scalars), split.per,
                     static_cast<int64_t>(split.items));
}

// ATen's operators under our own names, since the memory order of our results is not that of PyTorch's meta functions.
// For convolutions, torch_netcl/inductor/passes.py declares ours; Fourier transforms are told which strides to return.
at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, int64_t groups) {
  return at::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight, at::OptionalIntArrayRef bias_sizes,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> mask) {
  return at::convolution_backward(grad, input, weight, bias_sizes, stride, padding, dilation, transposed,
                                  output_padding, groups, mask);
}

at::Tensor with_strides(const at::Tensor& result, at::IntArrayRef strides) {
  if (result.strides() == strides) return result;
  return at::empty_strided(result.sizes(), strides, result.options()).copy_(result);
}
at::Tensor fft_c2c(const at::Tensor& self, at::IntArrayRef dim, int64_t normalization, bool forward,
                   at::IntArrayRef strides) {
  return with_strides(at::_fft_c2c(self, dim, normalization, forward), strides);
}
at::Tensor fft_r2c(const at::Tensor& self, at::IntArrayRef dim, int64_t normalization, bool onesided,
                   at::IntArrayRef strides) {
  return with_strides(at::_fft_r2c(self, dim, normalization, onesided), strides);
}
at::Tensor fft_c2r(const at::Tensor& self, at::IntArrayRef dim, int64_t normalization, int64_t last_dim_size,
                   at::IntArrayRef strides) {
  return with_strides(at::_fft_c2r(self, dim, normalization, last_dim_size), strides);
}

NETCL_LIBRARY_FRAGMENT(netcl, m) {
  m.def(
      "convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, "
      "bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor",
      {at::Tag::flexible_layout});
  m.def(
      "convolution_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, SymInt[] stride, "
      "SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool[3] "
      "output_mask) -> (Tensor, Tensor, Tensor)",
      {at::Tag::flexible_layout});
  m.def("fft_c2c(Tensor self, SymInt[] dim, int normalization, bool forward, SymInt[] strides) -> Tensor");
  m.def("fft_r2c(Tensor self, int[] dim, int normalization, bool onesided, SymInt[] strides) -> Tensor");
  m.def("fft_c2r(Tensor self, int[] dim, int normalization, SymInt last_dim_size, SymInt[] strides) -> Tensor");
  m.def("compile_generated(int index, str source, str name, int shape, bool asserts, str[] messages) -> int",
        &compile_generated);
  m.def("launch_generated(int id, Tensor[] tensors, int[] sizes) -> ()", &launch_generated);
  m.def("launch_generated_many(int id, Tensor[] tensors, int[] sizes, int count) -> ()", &launch_generated_many);
}

NETCL_LIBRARY_IMPL(netcl, PrivateUse1, m) {
  m.impl("convolution", &convolution);
  m.impl("convolution_backward", &convolution_backward);
  m.impl("fft_c2c", &fft_c2c);
  m.impl("fft_r2c", &fft_r2c);
  m.impl("fft_c2r", &fft_c2r);
}

}  // namespace
}  // namespace netcl
