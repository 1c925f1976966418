// Advanced indexing and the index_* family. Shapes, broadcasting and masks are ATen's; an IndexSpace does the work.
#include <ATen/core/Tensor.h>  // first, since other headers of ATen rely on its includes

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/NativeFunctions.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/IndexKernel.h>
#include <ATen/native/IndexingUtils.h>
#include <ATen/native/TensorAdvancedIndexing.h>

#include "aten/support/IndexSpace.h"
#include "aten/support/Library.h"
#include "aten/support/Scalars.h"
#include "aten/support/Structured.h"

namespace netcl {
namespace {

using at::Tensor;
using structured_detail::Form;
using structured_detail::Op;
using Indices = c10::List<std::optional<Tensor>>;

// --- index, index_put -------------------------------------------------------------------------------------

// If more dimensions are indexed than a kernel has index tensors, the last of them are flattened to one dimension, and
// their indices to one index.
struct Folded {
  Tensor self, moved;  // `self` is `moved` with flattened dimensions: a view of it if possible
  Indices indices;
};

// The index of (a, b, …) in the flattened dimensions. An index out of range gives one that is out of range there too.
Tensor flat_index(const Tensor& self, at::TensorList indices, int64_t first) {
  Tensor flat, good;
  int64_t total = 1;
  for (size_t k = 0; k < indices.size(); k++) {
    const int64_t size = self.size(first + static_cast<int64_t>(k));
    const Tensor i = indices[k].to(at::kLong), inside = i.ge(-size).logical_and_(i.lt(size));
    const Tensor place = at::where(i.lt(0), i + size, i);
    flat = k ? flat * size + place : place;
    good = k ? good.logical_and_(inside) : inside;
    total *= size;
  }
  return at::where(good, flat, total);
}

std::optional<Folded> fold(const Tensor& self, const Indices& list) {
  if (self.dim() <= kMaxIndices) return std::nullopt;
  at::native::checkIndexTensorTypes(list, /*allow_int=*/true);
  std::vector<Tensor> indices = at::native::expandTensors(self, list, /*ensure_same_device=*/true);
  const auto count = std::count_if(indices.begin(), indices.end(), [](const Tensor& t) { return t.defined(); });
  if (count <= kMaxIndices || static_cast<int64_t>(indices.size()) > self.dim()) return std::nullopt;
  indices = at::expand_outplace(indices);
  indices.resize(self.dim());
  Folded f{{}, self, Indices()};
  if (!at::native::hasContiguousSubspace(indices)) {
    std::tie(f.moved, indices) = at::native::transposeToFront(self, indices);
  }
  const auto begin = std::find_if(indices.begin(), indices.end(), [](const Tensor& t) { return t.defined(); });
  const int64_t first = begin - indices.begin() + kMaxIndices - 1, behind = begin - indices.begin() + count;
  const Tensor flat = flat_index(f.moved, at::TensorList(indices).slice(first, behind - first), first);
  f.self = f.moved.flatten(first, behind - 1);
  for (int64_t d = 0; d < first; d++) {
    f.indices.push_back(indices[d].defined() ? std::optional<Tensor>(indices[d]) : std::nullopt);
  }
  f.indices.push_back(flat);
  return f;
}

Tensor run_index(Form form, Tensor out, const Tensor& self, const Indices& indices) {
  if (const auto folded = fold(self, indices)) return run_index(form, std::move(out), folded->self, folded->indices);
  Op<at::native::structured_index_out, 1> op(form);
  op.outputs[0] = std::move(out);
  auto pre = op.meta(self, at::IOptTensorListRef(indices));
  op.impl(self, pre.sizes, pre.strides, op.maybe_get_output(0));
  op.copy_back();
  return std::move(op.outputs[0]);
}
Tensor index(const Tensor& self, const Indices& indices) { return run_index(Form::kFunctional, {}, self, indices); }
Tensor& index_out(const Tensor& self, const Indices& indices, Tensor& out) {
  run_index(Form::kOut, out, self, indices);
  return out;
}

// Operands are (out, self, indices …); self has stride 0 in the indexed dimensions.
void index_kernel(at::TensorIteratorBase& iter, at::IntArrayRef sizes, at::IntArrayRef strides) {
  if (iter.numel() == 0) return;
  IndexSpace space("aten::index");
  space.from_iterator(iter, 0, 1, 2, sizes, strides);
  space.allow_negative();
  space.gather(device(iter.device(0).index()), iter.element_size(0));
}

// Operands are (self, values, indices …); self has stride 0 in the indexed dimensions.
void index_put_kernel(at::TensorIterator& iter, at::IntArrayRef sizes, at::IntArrayRef strides, bool accumulate) {
  if (iter.numel() == 0) return;
  IndexSpace space("aten::index_put_");
  space.from_iterator(iter, 0, 1, 2, sizes, strides);
  space.allow_negative();
  space.conflicts_by_index();
  Device& dev = device(iter.device(0).index());
  if (accumulate) {
    space.reduce(dev, iter.dtype(0), "sum", 1);
  } else {
    space.scatter(dev, iter.element_size(0));
  }
}

// ATen uses this for accumulate=True and in deterministic mode.
void index_put_ordered(Tensor& self, const Indices& indices_list, const Tensor& value, bool accumulate, bool unsafe) {
  constexpr const char* name = "aten::index_put_";
  TORCH_CHECK(self.scalar_type() == value.scalar_type(),
              "Index put requires the source and destination dtypes match, got ", self.scalar_type(),
              " for the destination and ", value.scalar_type(), " for the source.");
  at::native::checkIndexTensorTypes(indices_list, /*allow_int=*/true);
  std::vector<Tensor> indices = at::native::expandTensors(self, indices_list, /*ensure_same_device=*/true);
  TORCH_CHECK_INDEX(static_cast<int64_t>(indices.size()) <= self.dim(), "too many indices for tensor of dimension ",
                    self.dim(), " (got ", indices.size(), ")");
  indices = at::expand_outplace(indices);
  indices.resize(self.dim());
  Tensor target = self;
  if (!at::native::hasContiguousSubspace(indices)) {
    std::tie(target, indices) = at::native::transposeToFront(self, indices);
  }
  int64_t first = 0, count = 0;
  while (first < target.dim() && !indices[first].defined()) first++;
  while (first + count < target.dim() && indices[first + count].defined()) count++;
  TORCH_CHECK(count > 0, name, ": no index given");
  // The iteration space has the dimensions before the indexed ones, those of the indices, and those after.
  const Tensor& index0 = indices[first];
  const int64_t index_dims = index0.dim();
  const auto spread = [&](at::IntArrayRef t, at::IntArrayRef middle) {
    at::DimVector v(t.begin(), t.begin() + first);
    v.append(middle.begin(), middle.end());
    v.append(t.begin() + first + count, t.end());
    return v;
  };
  const at::DimVector sizes = spread(target.sizes(), index0.sizes());
  TORCH_CHECK(at::is_expandable_to(value.sizes(), sizes), "shape mismatch: value tensor of shape ", value.sizes(),
              " cannot be broadcast to indexing result of shape ", at::IntArrayRef(sizes));
  const Tensor source = value.to(self.device()).expand(sizes);
  if (source.numel() == 0) return;
  IndexSpace space(name);
  space.shape(sizes);
  space.destination(target.data_ptr(), spread(target.strides(), at::DimVector(index_dims, 0)), target.itemsize());
  space.source(source.const_data_ptr(), source.strides(), source.itemsize());
  std::vector<Tensor> keep;
  for (int64_t d = first; d < first + count; d++) {
    const Tensor i = keep.emplace_back(indices[d].to(at::kLong));
    at::DimVector strides(sizes.size(), 0);
    std::copy(i.strides().begin(), i.strides().end(), strides.begin() + first);
    space.index(i.const_data_ptr(), strides, at::kLong, target.size(d), target.stride(d) * target.itemsize());
  }
  space.allow_negative();
  space.conflicts_by_index();
  Device& dev = netcl::device_of(self);
  if (accumulate) {
    space.reduce(dev, self.scalar_type(), "sum", 1);
  } else {
    space.scatter(dev, self.itemsize());
  }
}

Tensor& index_put(Tensor& self, const Indices& indices, const Tensor& value, bool accumulate, bool unsafe) {
  auto folded = fold(self, indices);
  if (!folded) return at::native::_index_put_impl_(self, indices, value, accumulate, unsafe);
  at::native::_index_put_impl_(folded->self, folded->indices, value, accumulate, unsafe);
  if (!folded->self.is_alias_of(self)) folded->moved.copy_(folded->self.view(folded->moved.sizes()));
  return self;
}

// --- one index vector along a dimension -------------------------------------------------------------------

// Strides of an index vector along `dim` of an `ndim`-dimensional space.
at::DimVector along(const Tensor& index, int64_t dim, int64_t ndim) {
  at::DimVector strides(ndim, 0);
  strides[dim] = index.dim() ? index.stride(0) : 1;
  return strides;
}

void select_into(const Tensor& result_, const Tensor& self_, int64_t dim, const Tensor& index) {
  const Tensor result = at_least_1d(result_), self = at_least_1d(self_);
  IndexSpace space("aten::index_select");
  space.shape(result.sizes());
  space.destination(result.data_ptr(), result.strides(), result.itemsize());
  space.source(self.const_data_ptr(), strides_without(self, dim), self.itemsize());
  space.index(index.const_data_ptr(), along(index, dim, self.dim()), index.scalar_type(), self.size(dim),
              self.stride(dim) * self.itemsize());
  space.gather(netcl::device_of(result), result.itemsize());
}

Tensor& index_select_out(const Tensor& self, int64_t dim, const Tensor& index, Tensor& out) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK_INDEX(index.dim() <= 1, "index_select(): Index is supposed to be a vector");
  TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
              "index_select(): Expected dtype int32 or int64 for index");
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "index_select(): self and result must have the same scalar type");
  TORCH_CHECK(self.device() == index.device() && self.device() == out.device(),
              "index_select(): self, index and out must be on the same device, got ", self.device(), ", ",
              index.device(), " and ", out.device());
  TORCH_CHECK(self.dim() > 0 || index.numel() == 1, "index_select(): Index to scalar can have only 1 value, got ",
              index.numel(), " value(s)");
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  at::assert_no_overlap(out, index);
  at::DimVector sizes(self.sizes().begin(), self.sizes().end());
  if (self.dim() > 0) sizes[dim] = index.numel();
  at::native::resize_output(out, sizes);
  if (out.numel() > 0) select_into(out, self, dim, index);
  return out;
}
Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  Tensor out = at::empty({0}, self.options());
  return index_select_out(self, dim, index, out);
}

// A space over `source` whose index vector addresses `dim` of `self`.
IndexSpace along_dim(const char* op, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  IndexSpace space(op);
  space.shape(source.sizes());
  space.destination(self.data_ptr(), strides_without(self, dim), self.itemsize());
  space.source(source.const_data_ptr(), source.strides(), source.itemsize());
  space.index(index.const_data_ptr(), along(index, dim, self.dim()), index.scalar_type(), self.size(dim),
              self.stride(dim) * self.itemsize());
  space.conflicts_along(dim);
  return space;
}

struct IndexAdd : at::meta::structured_index_add {
  void impl(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, const at::Scalar& alpha,
            const Tensor& out) {
    if (!out.is_same(self)) out.copy_(self);
    if (index.numel() == 0 || source.numel() == 0) return;
    along_dim("aten::index_add", at_least_1d(out), dim, index, at_least_1d(source))
        .reduce(netcl::device_of(out), out.scalar_type(), "sum", in_dtype(alpha, out.scalar_type()));
  }
};

struct IndexReduce : at::meta::structured_index_reduce {
  void impl(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, std::string_view reduce,
            bool include_self, const Tensor& out_) {
    const auto wide = compute_type(self.scalar_type());
    if (reduce == "mean" && wide != self.scalar_type() && at::isFloatingType(self.scalar_type())) {
      // The sum is not rounded before it is divided.
      out_.copy_(at::index_reduce(self.to(wide), dim, index, source.to(wide), reduce, include_self));
      return;
    }
    if (!out_.is_same(self)) out_.copy_(self);
    if (index.numel() == 0 || source.numel() == 0) return;
    const Tensor out = at_least_1d(out_);
    const bool mean = reduce == "mean";
    const char* red = mean ? "sum" : reduce == "prod" ? "prod" : reduce == "amax" ? "amax" : "amin";
    TORCH_CHECK(mean || reduce == red, "reduce argument must be either of prod, mean, amax or amin, got ", reduce);
    if (!include_self) out.index_fill_(dim, index.to(at::kLong), neutral(red, out.scalar_type()));
    along_dim("aten::index_reduce", out, dim, index, at_least_1d(source))
        .reduce(netcl::device_of(out), out.scalar_type(), red, 1);
    if (mean) {
      Tensor counts = include_self ? at::ones_like(out) : at::zeros_like(out);
      counts.index_add_(dim, index, at::ones_like(at_least_1d(source)));
      counts.masked_fill_(counts.eq(0), 1);
      if (at::isIntegralType(out.scalar_type(), true)) {
        out.div_(counts, "floor");
      } else {
        out.div_(counts);
      }
    }
  }
  static at::Scalar neutral(std::string_view red, at::ScalarType type) {
    if (red == "sum") return 0;
    if (red == "prod") return 1;
    const bool lowest = red == "amax";
    if (at::isFloatingType(type)) {
      const double inf = std::numeric_limits<double>::infinity();
      return lowest ? -inf : inf;
    }
    if (type == at::kBool) return !lowest;
    if (type == at::kByte) return lowest ? 0 : 255;
    const int bits = static_cast<int>(8 * at::elementSize(type));
    const int64_t high = static_cast<int64_t>((uint64_t{1} << (bits - 1)) - 1);
    return lowest ? -high - 1 : high;
  }
};

// index_add, index_copy, index_reduce: their meta() returns the wrapped dim.
template <class Base, class... Args>
Tensor run_along(Form form, Tensor out, const Tensor& self, int64_t dim, const Args&... args) {
  Op<Base, 1> op(form);
  op.outputs[0] = std::move(out);
  const auto pre = op.meta(self, dim, args...);
  op.impl(self, pre.dim, args..., op.maybe_get_output(0));
  op.copy_back();
  return std::move(op.outputs[0]);
}
template <class Base, class... Args>
struct Along {
  static Tensor functional(const Tensor& self, int64_t dim, Args... args) {
    return run_along<Base>(Form::kFunctional, {}, self, dim, args...);
  }
  static Tensor& inplace(Tensor& self, int64_t dim, Args... args) {
    run_along<Base>(Form::kInplace, self, self, dim, args...);
    return self;
  }
  static Tensor& out(const Tensor& self, int64_t dim, Args... args, Tensor& out) {
    run_along<Base>(Form::kOut, out, self, dim, args...);
    return out;
  }
};

// Operands are (self, index, source); self has stride 0 along dim.
void index_copy_kernel(at::TensorIterator& iter, int64_t dim, int64_t size, int64_t stride) {
  if (iter.numel() == 0) return;
  IndexSpace space("aten::index_copy");
  const int64_t bytes = stride * static_cast<int64_t>(iter.element_size(0));
  space.from_iterator(iter, 0, 2, 1, size, bytes);
  space.conflicts_by_index();
  space.scatter(device(iter.device(0).index()), iter.element_size(0));
}

// Operands are (self, index); self has stride 0 along dim.
void index_fill_kernel(at::TensorIterator& iter, int64_t dim, int64_t size, int64_t stride, const at::Scalar& value) {
  if (iter.numel() == 0) return;
  IndexSpace space("aten::index_fill_");
  const int64_t bytes = stride * static_cast<int64_t>(iter.element_size(0));
  space.from_iterator(iter, 0, -1, 1, size, bytes);
  space.allow_negative();
  space.fill(device(iter.device(0).index()), iter.element_size(0), scalar_bits(value, iter.dtype(0)));
}

// --- take, put: an index into the flattened tensor --------------------------------------------------------

// Operands are (out, index).
void take_kernel(at::TensorIterator& iter, const at::TensorBase& input_) {
  if (iter.numel() == 0) return;
  const at::TensorBase input = input_.contiguous();
  IndexSpace space("aten::take");
  space.from_iterator(iter, 0, -1, 1, input.numel(), static_cast<int64_t>(input.element_size()));
  space.source(input.const_data_ptr(), {}, 0);
  space.allow_negative();
  space.gather(device(input.device().index()), input.element_size());
}

// Operands are (source, index).
void put_kernel(at::TensorIterator& iter, const at::TensorBase& self_, const bool accumulate) {
  if (iter.numel() == 0) return;
  const Tensor self(self_);
  const Tensor target = self.contiguous();
  const int64_t bytes = target.itemsize();
  IndexSpace space("aten::put_");
  space.from_iterator(iter, 0, 0, 1, target.numel(), bytes);
  // Every index counts from the first element.
  space.destination(target.data_ptr(), at::DimVector(iter.ndim(), 0), bytes);
  space.allow_negative();
  space.conflicts_by_index();
  if (accumulate) {
    space.reduce(netcl::device_of(self), self.scalar_type(), "sum", 1);
  } else {
    space.scatter(netcl::device_of(self), bytes);
  }
  if (!target.is_same(self)) self.copy_(target);
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("index.Tensor", &index);
  m.impl("index.Tensor_out", &index_out);
  m.impl("_index_put_impl_", &index_put);
  m.impl("index_select", &index_select);
  m.impl("index_select.out", &index_select_out);
  using Add = Along<IndexAdd, const Tensor&, const Tensor&, const at::Scalar&>;
  m.impl("index_add", &Add::functional);
  m.impl("index_add_", &Add::inplace);
  m.impl("index_add.out", &Add::out);
  using Copy = Along<at::native::structured_index_copy_out, const Tensor&, const Tensor&>;
  m.impl("index_copy", &Copy::functional);
  m.impl("index_copy_", &Copy::inplace);
  m.impl("index_copy.out", &Copy::out);
  using Reduce = Along<IndexReduce, const Tensor&, const Tensor&, std::string_view, bool>;
  m.impl("index_reduce", &Reduce::functional);
  m.impl("index_reduce_", &Reduce::inplace);
  m.impl("index_reduce.out", &Reduce::out);
  m.impl("index_fill_.int_Scalar",
         static_cast<Tensor& (*)(Tensor&, int64_t, const Tensor&, const at::Scalar&)>(at::native::index_fill_));
  m.impl("index_fill_.int_Tensor",
         static_cast<Tensor& (*)(Tensor&, int64_t, const Tensor&, const Tensor&)>(at::native::index_fill_));
  m.impl("take", &at::native::take);
  m.impl("take.out", &at::native::take_out);
  m.impl("put_", &at::native::put_);
}

}  // namespace
}  // namespace netcl

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(index_stub, &netcl::index_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(index_put_stub, &netcl::index_put_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(index_put_with_sort_stub, &netcl::index_put_ordered)
REGISTER_PRIVATEUSE1_DISPATCH(index_copy_stub, &netcl::index_copy_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(index_fill_stub, &netcl::index_fill_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(take_stub, &netcl::take_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(put_stub, &netcl::put_kernel)
}  // namespace at::native
