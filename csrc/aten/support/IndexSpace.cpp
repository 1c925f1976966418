#include "aten/support/IndexSpace.h"

#include <ATen/Context.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <bit>

#include "args/sort.h"
#include "aten/support/Dimensions.h"
#include "aten/support/RadixSort.h"
#include "runtime/AddressSpace.h"
#include "runtime/Assertions.h"

namespace netcl {
namespace {

constexpr int64_t kFewColumns = 16;  // per compute unit
constexpr int kDestination = 0, kSource = 1, kFirstIndex = 2;
constexpr std::string_view kGather = "GATHER", kScatter = "SCATTER", kFill = "FILL";  // OP of indexing.cl

// The function of OpenCL C that reduces into an element, if there is one.
const char* native_atomic(c10::ScalarType type, std::string_view red) {
  if (type == at::kLong) return red == "sum" ? "atom_add" : nullptr;
  if (type != at::kInt) return nullptr;
  return red == "sum" ? "atomic_add" : red == "amax" ? "atomic_max" : red == "amin" ? "atomic_min" : nullptr;
}

}  // namespace

Bits scalar_bits(const c10::Scalar& value, c10::ScalarType type) {
  uint64_t raw[2] = {0, 0};
  AT_DISPATCH_V2(type, "scalar_bits", AT_WRAP([&] {
                   const auto x = value.to<scalar_t>();
                   static_assert(sizeof(x) <= sizeof(raw));
                   std::memcpy(raw, &x, sizeof(x));
                 }),
                 AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES),
                 AT_EXPAND(AT_FLOAT8_TYPES), at::kHalf, at::kBFloat16, at::kBool, at::kComplexHalf);
  return {raw[0], raw[1]};
}

at::DimVector strides_without(const at::Tensor& t, int64_t dim) {
  at::DimVector strides(t.strides().begin(), t.strides().end());
  strides[dim] = 0;
  return strides;
}

void IndexSpace::shape(at::IntArrayRef sizes) {
  dims_.resize(sizes.size());
  for (size_t d = 0; d < sizes.size(); d++) dims_[d].size = sizes[d];
}

void IndexSpace::operand(int k, const void* data, at::IntArrayRef strides, int64_t itemsize) {
  data_[k] = data;
  for (size_t d = 0; d < dims_.size() && d < strides.size(); d++) dims_[d].stride[k] = strides[d] * itemsize;
}
void IndexSpace::destination(const void* data, at::IntArrayRef strides, int64_t itemsize) {
  operand(kDestination, data, strides, itemsize);
}
void IndexSpace::source(const void* data, at::IntArrayRef strides, int64_t itemsize) {
  operand(kSource, data, strides, itemsize);
}
void IndexSpace::index(const void* data, at::IntArrayRef strides, c10::ScalarType type, int64_t lookup_size,
                       int64_t lookup_stride) {
  TORCH_CHECK(indices_ < kMaxIndices, op_, ": more than ", kMaxIndices, " index tensors in one kernel");
  TORCH_CHECK(type == at::kLong || type == at::kInt, op_, ": indices must be int32 or int64, got ", type);
  index_type_ = type;
  operand(kFirstIndex + indices_, data, strides, static_cast<int64_t>(c10::elementSize(type)));
  lookup_size_[indices_] = lookup_size;
  lookup_stride_[indices_] = lookup_stride;
  indices_++;
}

void IndexSpace::from_iterator(const at::TensorIteratorBase& iter, int destination, int source, int first_index,
                               at::IntArrayRef lookup_sizes, at::IntArrayRef lookup_strides) {
  from_iterator_ = true;
  shape(iter.shape());
  const auto take = [&](int k, int arg) { operand(k, iter.data_ptr(arg), iter.strides(arg), 1); };
  take(kDestination, destination);
  if (source >= 0) take(kSource, source);
  TORCH_CHECK(lookup_sizes.size() <= static_cast<size_t>(kMaxIndices), op_, ": more than ", kMaxIndices,
              " index tensors in one kernel");
  for (size_t k = 0; k < lookup_sizes.size(); k++) {
    const int arg = first_index + static_cast<int>(k);
    TORCH_CHECK(iter.dtype(arg) == at::kLong || iter.dtype(arg) == at::kInt, op_, ": indices must be int32 or int64");
    index_type_ = iter.dtype(arg);
    take(kFirstIndex + indices_, arg);
    lookup_size_[indices_] = lookup_sizes[k];
    lookup_stride_[indices_] = lookup_strides[k];
    indices_++;
  }
}

void IndexSpace::conflicts_by_index() {
  for (Dim& d : dims_) {
    d.serial |= d.stride[kDestination] == 0;  // an expanded index
    for (int k = 0; k < indices_; k++) d.serial |= d.stride[kFirstIndex + k] != 0;
  }
}

int64_t IndexSpace::numel() const {
  int64_t n = 1;
  for (const Dim& d : dims_) n *= d.size;
  return n;
}

// Drops dimensions of size 1, orders the rest innermost first, and merges neighbours.
void IndexSpace::normalize() {
  const int ops = kFirstIndex + indices_;
  c10::SmallVector<Dim, 8> kept;
  for (const Dim& d : dims_) {
    if (d.size != 1) kept.push_back(d);
  }
  if (!from_iterator_) {
    std::reverse(kept.begin(), kept.end());
    // The stable order by stride that TensorIterator uses: the first operand whose strides differ decides.
    const auto before = [&](const Dim& a, const Dim& b) {
      for (int k = 0; k < ops; k++) {
        if (a.stride[k] == 0 || b.stride[k] == 0 || a.stride[k] == b.stride[k]) continue;
        return a.stride[k] < b.stride[k];
      }
      return false;
    };
    for (size_t i = 1; i < kept.size(); i++) {
      for (size_t j = i; j > 0 && before(kept[j], kept[j - 1]); j--) std::swap(kept[j], kept[j - 1]);
    }
  }
  dims_.clear();
  for (const Dim& d : kept) {
    bool merge = !dims_.empty() && dims_.back().serial == d.serial;
    for (int k = 0; merge && k < ops; k++) merge = d.stride[k] == dims_.back().size * dims_.back().stride[k];
    if (merge) {
      dims_.back().size *= d.size;
    } else {
      dims_.push_back(d);
    }
  }
  if (dims_.empty()) dims_.emplace_back();
  for (int k = 0; k < indices_; k++) {
    TORCH_CHECK_INDEX(lookup_size_[k] > 0 || numel() == 0, op_, ": index is out of bounds for a dimension of size 0");
  }
}

// Calls f once if the kernel has enough dimensions, else at each position along the others.
template <class F>
void IndexSpace::in_parts(const F& f) {
  if (dims_.size() <= kMaxIndexOuter + 1) return f();
  const Dim outer = dims_.back();
  const auto data = data_;
  dims_.pop_back();
  for (int64_t i = 0; i < outer.size; i++) {
    for (int k = 0; k < kMaxIndexOps; k++) data_[k] = static_cast<const char*>(data[k]) + i * outer.stride[k];
    in_parts(f);
  }
  dims_.push_back(outer);
  data_ = data;
}

bool IndexSpace::has_serial() const {
  return std::any_of(dims_.begin(), dims_.end(), [](const Dim& d) { return d.serial; });
}
int64_t IndexSpace::parallelism() const {
  int64_t n = 1;
  for (const Dim& d : dims_) n *= d.serial ? 1 : d.size;
  return n;
}

bool IndexSpace::is_slow(const Device& device) const {
  return parallelism() < 1024 || numel() / parallelism() > tuning(device).summed_alone;
}

IndexSpace::Plan IndexSpace::plan(const Device& device, bool serial) const {
  Plan p{};
  IndexSpaceParams& a = p.args;
  a.n = dims_[0].size;
  a.wrap = wrap_;
  a.rows = 1;
  // Rows that may conflict belong to one work-item, so they come first in the order of rows.
  int64_t together = 1;
  const auto add_outer = [&](const Dim& d) {
    a.size[a.ndim] = d.size;
    for (int k = 0; k < kMaxIndexOps; k++) a.stride[a.ndim][k] = d.stride[k];
    a.ndim++;
    a.rows *= d.size;
  };
  for (size_t i = 1; serial && i < dims_.size(); i++) {
    if (dims_[i].serial) add_outer(dims_[i]);
  }
  together = a.rows;
  for (size_t i = 1; i < dims_.size(); i++) {
    if (!(serial && dims_[i].serial)) add_outer(dims_[i]);
  }
  for (int k = 0; k < kMaxIndexOps; k++) a.inner[k] = dims_[0].stride[k];
  for (int k = 0; k < indices_; k++) {
    a.index_size[k] = lookup_size_[k];
    a.index_stride[k] = lookup_stride_[k];
  }
  // With more than three index tensors, the kernel reads the largest number of them; missing ones must pass the bounds
  // check.
  for (int k = indices_; indices_ > 3 && k < kMaxIndices; k++) a.index_size[k] = INT64_MAX;

  const bool whole = serial && dims_[0].serial;  // the inner dimension must not be split
  const int64_t groups = a.rows / together;
  p.local = {1, 1};
  if (device.is_cpu()) {
    const int64_t grain = tuning(device).grain;
    a.n_per_item = whole ? a.n : std::min(a.n, grain);
    if (!whole && serial && together > 1) {
      // If few columns and many rows belong together, split the columns so that every core has work.
      const int64_t wanted = ceil_div(enough_items(device, 2), groups);
      a.n_per_item = std::min(a.n_per_item, round_up<int64_t>(ceil_div(a.n, wanted), 16));
    }
    a.rows_per_item =
        together * std::max<int64_t>(1, std::min(grain / std::max<int64_t>(1, a.n_per_item * together), groups));
  } else if (!whole && a.n >= 32) {
    a.n_per_item = 1;
    a.rows_per_item = together;
    p.local = {64, 1};
  } else {
    a.n_per_item = a.n;
    a.rows_per_item = together;
    p.local = {1, 64};
  }
  p.global = {static_cast<size_t>(ceil_div(a.n, a.n_per_item)), static_cast<size_t>(ceil_div(a.rows, a.rows_per_item))};
  return p;
}

Defs IndexSpace::defs() const {
  Defs d;
  d.set("NIDX", static_cast<int64_t>(indices_ > 3 ? kMaxIndices : indices_)).set("IDX", dtype_tag(index_type_));
  return d;
}

template <class... Args>
void IndexSpace::launch(const char* file, const char* name, const Defs& defs, const Plan& plan, const Args&... args) {
  Device& dev = device(locate(data_[kDestination]).device);
  Queue& queue = current_queue(dev.index());
  Kernel& k = kernel(dev, file, name, defs);
  const Buf o{data_[kDestination]}, s{data_[kSource]}, err{assert_buffer(dev)};
  const int32_t code = indices_ ? assert_code(dev, op_) : 0;
  // A missing index repeats the first one; its strides of 0 add nothing.
  const auto i = [&](int n) { return Buf{data_[kFirstIndex + (n < indices_ ? n : 0)]}; };
  switch (indices_) {
    case 0:
      return k.launch(op_, queue, plan.global, plan.local, o, s, err, code, args..., plan.args);
    case 1:
      return k.launch(op_, queue, plan.global, plan.local, o, s, i(0), err, code, args..., plan.args);
    case 2:
      return k.launch(op_, queue, plan.global, plan.local, o, s, i(0), i(1), err, code, args..., plan.args);
    case 3:
      return k.launch(op_, queue, plan.global, plan.local, o, s, i(0), i(1), i(2), err, code, args..., plan.args);
    default:
      return k.launch(op_, queue, plan.global, plan.local, o, s, i(0), i(1), i(2), i(3), i(4), i(5), i(6), i(7), err,
                      code, args..., plan.args);
  }
}

void IndexSpace::move(Device& device, int64_t itemsize, std::string_view mode, Bits value) {
  if (numel() == 0) return;
  normalize();
  // The order of equal values does not matter.
  const bool serial = mode == kScatter && has_serial() && at::globalContext().deterministicAlgorithms();
  Defs d = defs();
  d.set("BYTES", itemsize);
  if (serial && is_slow(device) && numel() > tuning(device).summed_alone) return scatter_sorted(device, d);
  d.set("OP", mode.data());
  in_parts([&] { launch("indexing.cl", "indexed", d, plan(device, serial), value); });
}

void IndexSpace::gather(Device& device, int64_t itemsize) { move(device, itemsize, kGather, {}); }
void IndexSpace::scatter(Device& device, int64_t itemsize) { move(device, itemsize, kScatter, {}); }
void IndexSpace::fill(Device& device, int64_t itemsize, Bits value) { move(device, itemsize, kFill, value); }

template <class F>
void IndexSpace::each_destination_dim(const F& f) {
  for (Dim& d : dims_) {
    if (d.size > 1 && d.stride[kDestination] != 0) f(d.size, d.stride[kDestination]);
  }
  for (int k = 0; k < indices_; k++) f(lookup_size_[k], lookup_stride_[k]);
}

at::Tensor IndexSpace::reachable(const Device& device, c10::ScalarType type) {
  Dims dims;
  each_destination_dim([&](int64_t size, int64_t stride) { dims.push_back({size, stride, 0, 0}); });
  return strided_view(device, data_[kDestination], type, dims, &netcl::Dim::in);
}

void IndexSpace::redirect(const at::Tensor& destination) {
  data_[kDestination] = destination.data_ptr();
  int64_t dim = 0;
  each_destination_dim([&](int64_t, int64_t& stride) { stride = destination.stride(dim++) * destination.itemsize(); });
}

void IndexSpace::reduce(Device& device, c10::ScalarType type, const char* red, const c10::Scalar& alpha, bool fill) {
  if (numel() == 0) return;
  check_dtype(device, type, op_);
  TORCH_CHECK_NOT_IMPLEMENTED(!c10::isComplexType(type) || red[0] != 'a', op_, ": ", red, " is not implemented for ",
                              type, ": complex numbers have no order");
  normalize();
  const c10::ScalarType acc = compute_type(type);
  const bool rounds = acc != type && !c10::isIntegralType(type, /*includeBool=*/true) && has_serial() && red[0] != 'a';
  if (!rounds) return run_reduction(device, {type, type, red, alpha, fill, false});
  const at::Tensor part = reachable(device, type);
  // Sorting costs less than a wide copy of a destination of which little can change.
  if (part.numel() > 8 * numel() && dims_.size() <= kMaxIndexOuter) {
    return run_reduction(device, {type, type, red, alpha, fill, true});
  }
  const at::Tensor wide = part.to(acc);
  redirect(wide);
  run_reduction(device, {acc, type, red, alpha, fill, false});
  part.copy_(wide);
}

void IndexSpace::run_reduction(Device& device, const Reduction& r) {
  const c10::ScalarType type = r.type, acc = compute_type(type);
  const int64_t bytes = static_cast<int64_t>(c10::elementSize(type));
  const bool can_swap = bytes <= 4 || (bytes == 8 && device.info().has_int64_atomics);
  // Without atomics the result does not depend on timing. They are used if there would be too few work-items without
  // them, or if a GPU's would have long ways. A contended compare-and-swap costs a CPU ten times as much as a plain
  // addition.
  const bool slow = device.is_cpu() ? parallelism() < ceil_div(enough_items(device, 1), int64_t{8}) : is_slow(device);
  const bool atomic = has_serial() && can_swap && !at::globalContext().deterministicAlgorithms() && slow &&
                      numel() > 1024 && !r.round_once;
  const bool serial = has_serial() && !atomic;
  const bool sorted = r.round_once || (serial && slow && numel() > tuning(device).summed_alone);
  Defs d = defs();
  d.set("OUT", dtype_tag(type)).set("IN", dtype_tag(r.source_type)).set("ACC", dtype_tag(acc));
  d.set("OP", r.red).set("BYTES", bytes);
  d.set("VEC", static_cast<int64_t>(c10::isComplexType(type) ? 1 : bytes == 8 ? 8 : 16));
  if (atomic) d.set("ATOMIC", int64_t{1});
  if (const char* native = native_atomic(type, r.red); atomic && native) d.set("NATIVE", native);
  const IndexedTerm term{scalar_bits(r.alpha, acc), !r.fill && !r.alpha.equal(1), r.fill};
  if (sorted) return reduce_sorted(device, d, term);
  const auto run = [&] {
    in_parts([&] { launch("scatter_gather.cl", "indexed_reduce", d, plan(device, serial), term); });
  };
  if (!serial || !sum_in_copies(device, r, run)) run();
}

// Compute units that could share few columns only, or none, add to copies of a small destination instead, each a part
// of the positions. The copies are then added up.
template <class F>
bool IndexSpace::sum_in_copies(Device& device, const Reduction& r, const F& run) {
  const int64_t copies = enough_items(device, 1, /*gpu=*/1);
  const auto longest = std::max_element(dims_.begin(), dims_.end(), [](const Dim& a, const Dim& b) {
    return (a.serial ? a.size : 0) < (b.serial ? b.size : 0);
  });
  const int64_t each = longest->size / copies, rest = longest->size % copies;
  if (copies == 1 || each == 0 || r.red != std::string_view("sum") || r.type == at::kBool ||
      parallelism() >= kFewColumns * copies)
    return false;
  const at::Tensor part = reachable(device, r.type);
  if (numel() < 4 * copies * part.numel()) return false;
  at::DimVector sizes(part.sizes());
  sizes.insert(sizes.begin(), copies);
  const at::Tensor sums = at::zeros(sizes, part.options());
  redirect(sums[0]);
  Dim copy = *longest;
  copy.size = copies;
  copy.serial = false;
  for (int64_t& stride : copy.stride) stride *= each;
  copy.stride[kDestination] += sums.stride(0) * sums.itemsize();
  longest->size = each;
  const size_t which = longest - dims_.begin();
  dims_.push_back(copy);
  run();
  dims_.pop_back();
  if (rest > 0) {
    Dim& last = dims_[which];
    for (int k = 0; k < kMaxIndexOps; k++)
      data_[k] = static_cast<const char*>(data_[k]) + copies * each * last.stride[k];
    last.size = rest;
    run();
  }
  part.add_(sums.sum(0, /*keepdim=*/false, r.type));
  return true;
}

void IndexSpace::fix_indices_along_rows() {
  bool along_row = dims_[0].serial;
  for (int k = 0; k < indices_; k++) along_row |= dims_[0].stride[kFirstIndex + k] != 0;
  if (along_row) dims_.insert(dims_.begin(), Dim{});
}

IndexSpace::Sorted IndexSpace::sort_rows(Device& device) {
  Plan p = plan(device, false);
  const int64_t rows = p.args.rows;
  TORCH_CHECK_NOT_IMPLEMENTED(rows < std::numeric_limits<uint32_t>::max(), op_, ": more than 2^32 indices");
  int64_t furthest = 0;
  for (const Dim& d : dims_) furthest += (d.size - 1) * d.stride[kDestination];
  for (int k = 0; k < indices_; k++) furthest += (lookup_size_[k] - 1) * lookup_stride_[k];
  const auto options = at::TensorOptions().device(at::kPrivateUse1, device.index()).dtype(at::kLong);
  const at::Tensor keys = at::empty({rows}, options), sorted = at::empty_like(keys), order = at::empty_like(keys);
  p.local = element_group(device);
  p.global = {static_cast<size_t>(rows)};
  launch("indexing.cl", "destinations", defs(), p, buf(keys));
  if (!tuning(device).radix_sort) {
    const auto [values, places] = keys.sort(/*stable=*/true, 0, /*descending=*/false);
    return {p, values, places};
  }
  radix_sort({op_, keys, sorted, order, 0, /*descending=*/false}, rows,
             std::bit_width(static_cast<uint64_t>(furthest)));
  return {p, sorted, order};
}

void IndexSpace::scatter_sorted(Device& device, const Defs& defs) {
  fix_indices_along_rows();
  in_parts([&] {
    auto [p, keys, order] = sort_rows(device);
    p.global = {static_cast<size_t>(p.args.rows * p.args.n)};
    launch("indexing.cl", "last_rows", defs, p, buf(keys), buf(order));
  });
}

void IndexSpace::reduce_sorted(Device& device, const Defs& defs, const IndexedTerm& term) {
  const char* file = "scatter_sorted.cl";
  fix_indices_along_rows();
  constexpr int64_t kAccBytes = 16;  // of the largest compute type
  in_parts([&] {
    auto [p, keys, order] = sort_rows(device);
    const int64_t chunks = ceil_div(p.args.rows, int64_t{kSortedChunk});
    const at::Tensor partial = at::empty({2 * chunks * p.args.n * kAccBytes}, keys.options().dtype(at::kByte));
    p.global = {static_cast<size_t>(chunks * p.args.n)};
    launch(file, "reduce_sorted", defs, p, buf(keys), buf(order), buf(partial), term);
    launch(file, "join_sorted", defs, p, buf(keys), buf(partial));
  });
}

}  // namespace netcl
