// Operators that join tensors or fill them by position: cat, tril/triu, flip, roll, eye, ranges.
#include <ATen/core/Tensor.h>  // first, since other headers of ATen rely on its includes

#include <ATen/NativeFunctions.h>
#include <ATen/native/IndexKernel.h>
#include <ATen/native/PixelShuffle.h>
#include <ATen/native/RangeFactories.h>
#include <ATen/native/TensorShape.h>
#include <ATen/native/UnfoldBackward.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/real.h>
#include <ATen/ops/unfold_native.h>

#include <array>
#include <bit>

#include "args/shape.h"
#include "aten/support/IndexSpace.h"
#include "aten/support/Library.h"
#include "aten/support/MultiTensor.h"
#include "aten/support/Scalars.h"
#include "aten/support/Structured.h"
#include "runtime/Assertions.h"

namespace netcl {
namespace {

using at::Tensor;
using structured_detail::Form;
using structured_detail::Op;

// --- cat --------------------------------------------------------------------------------------------------

constexpr size_t kManyInputs = 4 * kMaxCatInputs;  // so many pay for the table of cat_row()

// Inputs and output have one dtype and are contiguous in one memory format. Their rows are joined, 8 inputs per launch.
void cat_rows(const at::MaterializedITensorListRef& tensors, int64_t dim, at::MemoryFormat format, const Tensor& out) {
  int64_t inner = 1;  // elements after `dim` in memory order
  const auto order = [&]() -> c10::SmallVector<int64_t, 5> {
    if (format == at::MemoryFormat::ChannelsLast) return {0, 2, 3, 1};
    if (format == at::MemoryFormat::ChannelsLast3d) return {0, 2, 3, 4, 1};
    return {};
  }();
  if (order.empty()) {
    for (int64_t d = dim + 1; d < out.dim(); d++) inner *= out.size(d);
  } else {
    for (auto it = order.rbegin(); *it != dim; ++it) inner *= out.size(*it);
  }
  Device& dev = netcl::device_of(out);
  Defs defs;
  defs.set("BYTES", static_cast<int64_t>(out.itemsize()));
  Kernel& k = kernel(dev, "shape.cl", "cat", defs);
  CatParams args{};
  args.out_width = out.size(dim) * inner;
  args.rows = out.numel() / args.out_width;
  args.per_item = 4 * tuning(dev).grain;
  Buf in[kMaxCatInputs]{};
  int used = 0;
  int64_t start = 0, longest = 0;
  const auto flush = [&] {
    if (longest > 0) {
      k.launch("aten::cat", queue_of(out),
               {static_cast<size_t>(ceil_div(longest, args.per_item)), static_cast<size_t>(used)}, element_group(dev),
               buf(out), c10::ArrayRef<Buf>(in), args);
    }
    used = 0;
    longest = 0;
    std::fill(std::begin(in), std::end(in), Buf{});
    std::fill(std::begin(args.width), std::end(args.width), 0);
  };
  for (const Tensor& t : tensors) {
    if (at::native::cat_should_skip_tensor(t) || t.numel() == 0) continue;
    in[used] = buf(t);
    args.width[used] = t.size(dim) * inner;
    args.start[used] = start;
    start += args.width[used];
    longest = std::max(longest, t.numel());
    if (++used == kMaxCatInputs) flush();
  }
  flush();
}

// As cat_rows(), of one row: any number of inputs per launch, which reads where they lie from a table.
void cat_row(const at::MaterializedITensorListRef& tensors, const Tensor& out) {
  constexpr std::array kWords{c10::kChar, c10::kShort, c10::kInt, c10::kLong};  // of the elements' size, or halves
  const int64_t size = static_cast<int64_t>(out.itemsize()), each = size > 8 ? size / 8 : 1;
  const c10::ScalarType word = kWords[std::bit_width(static_cast<uint64_t>(size / each)) - 1];
  MultiTensor inputs("aten::cat", out.device(), 1, word);
  int64_t at = 0;
  for (const Tensor& t : tensors) {
    if (at::native::cat_should_skip_tensor(t) || t.numel() == 0) continue;
    inputs.add(t.numel() * each, {&t}, at);
    at += t.numel() * each;
  }
  inputs.launch("foreach.cl", "join", Defs().set("IN", dtype_tag(word)), buf(out));
}

struct Cat : at::meta::structured_cat {
  void impl(const at::ITensorListRef& list, int64_t dim, bool all_contiguous, bool all_same_dtype,
            at::MemoryFormat format, const Tensor& out) {
    if (out.numel() == 0) return;
    const auto tensors = list.materialize();
    if (all_contiguous && all_same_dtype && out.is_contiguous(format)) {
      const bool one_row = dim == 0 && format == at::MemoryFormat::Contiguous;
      return one_row && tensors.size() > kManyInputs ? cat_row(tensors, out) : cat_rows(tensors, dim, format, out);
    }
    int64_t at = 0;
    for (const Tensor& t : tensors) {
      if (at::native::cat_should_skip_tensor(t)) continue;
      const int64_t n = t.size(dim);
      if (t.numel() > 0) out.narrow(dim, at, n).copy_(t);
      at += n;
    }
  }
};
Tensor run_cat(Form form, Tensor out, const at::ITensorListRef& tensors, int64_t dim) {
  Op<Cat, 1> op(form);
  op.outputs[0] = std::move(out);
  const auto pre = op.meta(tensors, dim);
  op.impl(tensors, pre.dim, pre.all_contiguous, pre.all_same_dtype, pre.memory_format, op.maybe_get_output(0));
  op.copy_back();
  return std::move(op.outputs[0]);
}
Tensor cat(const at::ITensorListRef& tensors, int64_t dim) { return run_cat(Form::kFunctional, {}, tensors, dim); }
Tensor& cat_out(const at::ITensorListRef& tensors, int64_t dim, Tensor& out) {
  run_cat(Form::kOut, out, tensors, dim);
  return out;
}

// --- tril, triu -------------------------------------------------------------------------------------------

void triangle(const char* name, const Tensor& self, int64_t diagonal, bool upper, const Tensor& out) {
  if (out.numel() == 0) return;
  Device& dev = netcl::device_of(out);
  const int64_t nd = out.dim();
  TriangleParams a{};
  a.rows = out.size(-2);
  a.columns = out.size(-1);
  a.batches = out.numel() / (a.rows * a.columns);
  a.diagonal = diagonal;
  a.upper = upper;
  a.out_row = out.stride(-2), a.out_column = out.stride(-1);
  a.in_row = self.stride(-2), a.in_column = self.stride(-1);
  for (int64_t d = nd - 3; d >= 0; d--) {
    const int64_t size = out.size(d), os = out.stride(d), ss = self.stride(d);
    if (size == 1) continue;
    const int64_t k = a.ndim - 1;
    if (k >= 0 && os == a.size[k] * a.out_stride[k] && ss == a.size[k] * a.in_stride[k]) {
      a.size[k] *= size;
      continue;
    }
    TORCH_CHECK(a.ndim < kMaxTriangleDims, name, ": too many batch dimensions for netcl; make the input contiguous");
    a.size[a.ndim] = size, a.out_stride[a.ndim] = os, a.in_stride[a.ndim] = ss;
    a.ndim++;
  }
  a.rows_per_item = std::max<int64_t>(1, tuning(dev).grain / a.columns);
  Defs defs;
  defs.set("BYTES", static_cast<int64_t>(out.itemsize()));
  kernel(dev, "shape.cl", "triangle", defs)
      .launch(name, queue_of(out), {static_cast<size_t>(ceil_div(a.rows * a.batches, a.rows_per_item))},
              element_group(dev), buf(out), buf(self), a);
}
struct Tril : at::meta::structured_tril {
  void impl(const Tensor& self, int64_t diagonal, const Tensor& out) {
    triangle("aten::tril", self, diagonal, false, out);
  }
};
struct Triu : at::meta::structured_triu {
  void impl(const Tensor& self, int64_t diagonal, const Tensor& out) {
    triangle("aten::triu", self, diagonal, true, out);
  }
};

// In row i, clamp(i + shift, 0, columns) columns lie below the triangle (tril: in it).
Tensor triangle_indices(const char* name, int64_t rows, int64_t columns, int64_t offset, bool upper,
                        const at::TensorOptions& options) {
  TORCH_CHECK(rows >= 0 && columns >= 0, name, ": row and col must be non-negative, got ", rows, " and ", columns);
  TORCH_CHECK(options.layout() == at::kStrided, name, ": only the strided layout is supported");
  const int64_t shift = upper ? offset : offset + 1;
  int64_t total = 0;  // in closed form, as `before` of kernels/shape.cl
  {
    const int64_t grow = std::clamp<int64_t>(-shift, 0, rows), full = std::clamp<int64_t>(columns - shift, grow, rows);
    const int64_t k = full - grow;
    total = k * (grow + shift) + k * (k - 1) / 2 + (rows - full) * columns;
    if (upper) total = rows * columns - total;
  }
  const auto type = c10::optTypeMetaToScalarType(options.dtype_opt()).value_or(at::kLong);
  TORCH_CHECK(at::isIntegralType(type, false), name, ": an integral dtype is needed, got ", type);
  Tensor out = at::empty({2, total}, options.dtype(type));
  if (total == 0) return out;
  Device& dev = netcl::device_of(out);
  Defs defs;
  defs.set("OUT", dtype_tag(type)).set("ACC", "i64");
  kernel(dev, "shape.cl", "triangle_indices", defs)
      .launch(name, queue_of(out), {static_cast<size_t>(rows)}, element_group(dev), buf(out), rows, columns, shift,
              static_cast<int32_t>(upper), total);
  return out;
}
at::TensorOptions options_of(std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                             std::optional<at::Device> device, std::optional<bool> pin) {
  return at::TensorOptions().dtype(dtype).layout(layout).device(device).pinned_memory(pin);
}
Tensor tril_indices(int64_t row, int64_t col, int64_t offset, std::optional<at::ScalarType> dtype,
                    std::optional<at::Layout> layout, std::optional<at::Device> device, std::optional<bool> pin) {
  return triangle_indices("aten::tril_indices", row, col, offset, /*upper=*/false,
                          options_of(dtype, layout, device, pin));
}
Tensor triu_indices(int64_t row, int64_t col, int64_t offset, std::optional<at::ScalarType> dtype,
                    std::optional<at::Layout> layout, std::optional<at::Device> device, std::optional<bool> pin) {
  return triangle_indices("aten::triu_indices", row, col, offset, /*upper=*/true,
                          options_of(dtype, layout, device, pin));
}

// --- flip: ATen gives the output negative strides ---------------------------------------------------------

void flip_kernel(at::TensorIterator& iter, const bool quantized) {
  TORCH_CHECK(!quantized, "aten::flip: quantized tensors are not supported on netcl");
  if (iter.numel() == 0) return;
  IndexSpace space("aten::flip");
  space.from_iterator(iter, 0, 1, 2, {}, {});
  space.gather(device(iter.device(0).index()), iter.element_size(0));
}

// --- sequences --------------------------------------------------------------------------------------------

Tensor& eye_out(int64_t n, int64_t m, Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be greater or equal to 0, got ", n);
  TORCH_CHECK(m >= 0, "m must be greater or equal to 0, got ", m);
  at::native::resize_output(out, {n, m});
  out.zero_();
  const int64_t k = std::min(n, m);
  if (k > 0) out.as_strided({k}, {out.stride(0) + out.stride(1)}, out.storage_offset()).fill_(1);
  return out;
}
Tensor& eye_out_square(int64_t n, Tensor& out) { return eye_out(n, n, out); }

// The sequences of kernels/shape.cl, computed in T.
constexpr int kLinear = 0, kPower = 1, kStep = 2;
template <class T>
struct Sequence {
  int kind;
  T start, end, step, base;
};
template <class T>
void launch_sequence(const char* name, const Tensor& out, const Sequence<T>& s) {
  Device& dev = netcl::device_of(out);
  const auto acc = c10::CppTypeToScalarType<T>::value;
  Defs defs;
  defs.set("OUT", dtype_tag(out.scalar_type())).set("ACC", dtype_tag(acc));
  const int64_t n = out.numel(), chunk = tuning(dev).grain;
  const auto bits = [&](T x) { return pack_scalar(x, acc).bits(); };
  kernel(dev, "shape.cl", "sequence", defs)
      .launch(name, queue_of(out), {static_cast<size_t>(ceil_div(n, chunk))}, element_group(dev), buf(out),
              SequenceParams{s.kind, n, chunk, bits(s.start), bits(s.end), bits(s.step), bits(s.base)});
}

// Sequences between two ends are computed in floating point; those of integers in double if the device has it.
void spaced(const char* name, Tensor& out, int kind, const at::Scalar& start, const at::Scalar& end, int64_t steps,
            double base) {
  const auto type = out.scalar_type();
  TORCH_CHECK(!at::isComplexType(type), name, ": complex sequences are not supported on netcl; use exp of a linspace");
  Device& dev = netcl::device_of(out);
  check_dtype(dev, type, name);
  const at::Scalar first = in_dtype(start, type), last = in_dtype(end, type);  // as on the CPU; raises on overflow
  const bool integral = at::isIntegralType(type, true);
  const auto acc = type == at::kDouble || (integral && dev.info().has_fp64) ? at::kDouble : at::kFloat;
  const Tensor to = out.is_contiguous() ? out : at::empty_like(out, at::MemoryFormat::Contiguous);
  if (acc == at::kDouble) {
    const double a = first.to<double>(), b = last.to<double>();
    launch_sequence<double>(name, to, {kind, a, b, steps > 1 ? (b - a) / static_cast<double>(steps - 1) : 0, base});
  } else {
    const float a = first.to<float>(), b = last.to<float>();
    launch_sequence<float>(
        name, to, {kind, a, b, steps > 1 ? (b - a) / static_cast<float>(steps - 1) : 0, static_cast<float>(base)});
  }
  if (!to.is_same(out)) out.copy_(to);
}

Tensor& linspace_out(const at::Scalar& start, const at::Scalar& end, int64_t steps, Tensor& out) {
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  if (out.numel() != steps) out.resize_({steps});
  if (steps == 1) {
    out.fill_(start);
  } else if (steps > 1 && out.is_complex()) {
    const Tensor parts = at::view_as_real(out);
    const auto a = start.to<c10::complex<double>>(), b = end.to<c10::complex<double>>();
    Tensor re = parts.select(-1, 0), im = parts.select(-1, 1);
    linspace_out(a.real(), b.real(), steps, re);
    linspace_out(a.imag(), b.imag(), steps, im);
  } else if (steps > 1) {
    spaced("aten::linspace", out, kLinear, start, end, steps, 0);
  }
  return out;
}
Tensor& logspace_out(const at::Scalar& start, const at::Scalar& end, int64_t steps, double base, Tensor& out) {
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  if (out.numel() != steps) out.resize_({steps});
  if (out.is_complex() && steps > 0) {
    const Tensor exponents = at::linspace(start, steps == 1 ? start : end, steps, out.options());
    return out.copy_(at::pow(c10::complex<double>(base), exponents));
  }
  if (steps > 0) spaced("aten::logspace", out, kPower, start, steps == 1 ? start : end, steps, base);
  return out;
}
Tensor& range_out(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step, Tensor& out) {
  const double a = start.to<double>(), b = end.to<double>(), s = step.to<double>();
  TORCH_CHECK(s > 0 || s < 0, "step must be nonzero");
  TORCH_CHECK(std::isfinite(a) && std::isfinite(b), "unsupported range: ", a, " -> ", b);
  TORCH_CHECK((s > 0 && b >= a) || (s < 0 && b <= a), "upper bound and lower bound inconsistent with step sign");
  const bool integral = at::isIntegralType(out.scalar_type(), false);
  const int64_t n = integral && start.isIntegral(false) && end.isIntegral(false) && step.isIntegral(false)
                        ? (end.to<int64_t>() - start.to<int64_t>()) / step.to<int64_t>() + 1
                        : static_cast<int64_t>((b - a) / s + 1);
  if (out.numel() != n) out.resize_({n});
  const Tensor to = out.is_contiguous() ? out : at::empty_like(out, at::MemoryFormat::Contiguous);
  check_dtype(netcl::device_of(out), out.scalar_type(), "aten::range");
  if (integral) {
    launch_sequence<int64_t>("aten::range", to, {kStep, start.to<int64_t>(), 0, step.to<int64_t>(), 0});
  } else if (out.scalar_type() == at::kDouble) {
    launch_sequence<double>("aten::range", to, {kStep, a, 0, s, 0});
  } else {
    launch_sequence<float>("aten::range", to, {kStep, static_cast<float>(a), 0, static_cast<float>(s), 0});
  }
  if (!to.is_same(out)) out.copy_(to);
  return out;
}

// --- the rest ---------------------------------------------------------------------------------------------

void unfold_backward_kernel(Tensor& grad_in, const Tensor& grad_, int64_t dim, int64_t size, int64_t step) {
  check_sizes("aten::unfold_backward", "grad", grad_, at::native::unfold(grad_in, dim, size, step).sizes());
  if (grad_in.numel() == 0) return;
  dim = at::maybe_wrap_dim(dim, grad_in.dim());
  if (at::isComplexType(grad_in.scalar_type())) {
    for (const auto part : {&at::real, &at::imag}) {
      Tensor sum = at::empty(grad_in.sizes(), grad_in.options().dtype(c10::toRealValueType(grad_in.scalar_type())));
      unfold_backward_kernel(sum, part(grad_), dim, size, step);
      part(grad_in).copy_(sum);
    }
    return;
  }
  TORCH_CHECK(grad_in.is_contiguous(), "aten::unfold_backward: needs a contiguous gradient on netcl");
  const Tensor grad = grad_.contiguous();
  Device& dev = netcl::device_of(grad_in);
  UnfoldBackwardParams a{};
  a.length = grad_in.dim() ? grad_in.size(dim) : 1;
  a.inner = 1;
  for (int64_t d = dim + 1; d < grad_in.dim(); d++) a.inner *= grad_in.size(d);
  a.windows = grad.size(dim);
  a.size = size;
  a.step = step;
  a.total = grad_in.numel();
  a.per_item = std::max<int64_t>(1, tuning(dev).grain / 4);
  Defs defs;
  defs.set("OUT", dtype_tag(grad.scalar_type())).set("ACC", compute_tag(grad.scalar_type()));
  kernel(dev, "shape.cl", "unfold_backward", defs)
      .launch("aten::unfold_backward", queue_of(grad_in), {static_cast<size_t>(ceil_div(a.total, a.per_item))},
              element_group(dev), buf(grad_in), buf(grad), a);
}

Tensor repeat_interleave(const Tensor& repeats, std::optional<int64_t> output_size) {
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  TORCH_CHECK(repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt,
              "repeats has to be Long or Int tensor");
  if (repeats.size(0) == 0) return at::empty_like(repeats, at::MemoryFormat::Contiguous);
  const Tensor r = repeats.contiguous(), ends = r.cumsum(0);
  int64_t total = 0;
  if (output_size) {
    total = *output_size;
  } else {
    TORCH_CHECK(r.min().item<int64_t>() >= 0, "repeats can not be negative");
    total = ends[-1].item<int64_t>();
  }
  Tensor out = at::empty({total}, r.options());
  Device& dev = netcl::device_of(out);
  Defs defs;
  defs.set("OUT", dtype_tag(r.scalar_type())).set("ACC", "i64");
  kernel(dev, "shape.cl", "repeat_interleave", defs)
      .launch("aten::repeat_interleave", queue_of(r), {static_cast<size_t>(r.numel())}, element_group(dev), buf(out),
              buf(r), buf(ends), r.numel(), total, Buf{assert_buffer(dev)},
              static_cast<int32_t>(assert_code(dev, "aten::repeat_interleave")));
  return out;
}

Tensor trace(const Tensor& self) {
  TORCH_CHECK(self.dim() == 2, "trace: expected a matrix");
  return self.diagonal().sum();
}

// ATen's version copies host memory.
Tensor& narrow_copy_out(const Tensor& self, int64_t dim, int64_t start, int64_t length, Tensor& out) {
  TORCH_CHECK(self.scalar_type() == out.scalar_type(), "narrow_copy: expected out of dtype ", self.scalar_type(),
              ", got ", out.scalar_type());
  const Tensor part = self.narrow(dim, start, length);
  at::native::resize_output(out, part.sizes());
  return out.copy_(part);
}

// The operator is one copy between views of input and output, so channels_last is kept.
Tensor like(const Tensor& self, at::IntArrayRef sizes) {
  return at::empty(sizes, self.options().memory_format(self.suggest_memory_format()));
}
Tensor channel_shuffle(const Tensor& self, int64_t groups) {
  TORCH_CHECK(self.dim() > 2, "channel_shuffle expects input with > 2 dims, but got input with sizes ", self.sizes());
  const int64_t c = self.size(1);
  TORCH_CHECK(groups > 0, "Number of groups to divide channels in must be positive. Value of groups:", groups);
  TORCH_CHECK(c % groups == 0, "Number of channels must be divisible by groups. Got ", c, " channels and ", groups,
              " groups.");
  Tensor out = like(self, self.sizes());
  if (out.numel() == 0) return out;
  out.unflatten(1, {c / groups, groups}).copy_(self.unflatten(1, {groups, c / groups}).transpose(1, 2));
  return out;
}
// A view of (..., c * r * r, h, w) as (..., c, h, r, w, r).
Tensor pixel_blocks(const Tensor& deep, int64_t r) {
  return deep.unflatten(-3, {deep.size(-3) / (r * r), r, r}).movedim({-4, -3}, {-3, -1});
}
// The same view of (..., c, h * r, w * r).
Tensor pixel_grid(const Tensor& wide, int64_t r) {
  return wide.unflatten(-1, {wide.size(-1) / r, r}).unflatten(-3, {wide.size(-2) / r, r});
}
Tensor pixel_shuffle(const Tensor& self, int64_t r) {
  at::native::check_pixel_shuffle_shapes(self, r);
  c10::DimVector sizes(self.sizes());
  sizes.end()[-3] /= r * r;
  sizes.end()[-2] *= r;
  sizes.end()[-1] *= r;
  Tensor out = like(self, sizes);
  if (out.numel() > 0) pixel_grid(out, r).copy_(pixel_blocks(self, r));
  return out;
}
Tensor pixel_unshuffle(const Tensor& self, int64_t r) {
  at::native::check_pixel_unshuffle_shapes(self, r);
  c10::DimVector sizes(self.sizes());
  sizes.end()[-3] *= r * r;
  sizes.end()[-2] /= r;
  sizes.end()[-1] /= r;
  Tensor out = like(self, sizes);
  if (out.numel() > 0) pixel_blocks(out, r).copy_(pixel_grid(self, r));
  return out;
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("cat", &cat);
  m.impl("cat.out", &cat_out);
  structured<Tril>(m, "tril", "tril_", "tril.out");
  structured<Triu>(m, "triu", "triu_", "triu.out");
  m.impl("tril_indices", &tril_indices);
  m.impl("triu_indices", &triu_indices);
  m.impl("flip", &at::native::flip);
  m.impl("roll", &at::native::roll);
  m.impl("eye.out", &eye_out_square);
  m.impl("eye.m_out", &eye_out);
  m.impl("linspace.out", &linspace_out);
  m.impl("logspace.out", &logspace_out);
  m.impl("range.out", &range_out);
  m.impl("unfold_backward", &at::native::unfold_backward);
  m.impl("repeat_interleave.Tensor", &repeat_interleave);
  m.impl("trace", &trace);
  m.impl("narrow_copy.out", &narrow_copy_out);
  m.impl("channel_shuffle", &at::native::channel_shuffle);
  m.impl("native_channel_shuffle", &channel_shuffle);
  m.impl("pixel_shuffle", &pixel_shuffle);
  m.impl("pixel_unshuffle", &pixel_unshuffle);
}

}  // namespace
}  // namespace netcl

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(flip_stub, &netcl::flip_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(unfold_backward_stub, &netcl::unfold_backward_kernel)
}  // namespace at::native
