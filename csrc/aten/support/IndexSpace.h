// The iteration space of indexed operators: sizes and byte strides of a destination, a source and index tensors. They
// are reduced to the few dimensions that kernels/common/index_space.h walks, and split among work-items.
#pragma once

#include <ATen/native/TensorIterator.h>

#include <array>

#include "args/index_space.h"
#include "aten/support/Launch.h"

namespace netcl {

// The bits of an element of any dtype.
Bits scalar_bits(const c10::Scalar& value, c10::ScalarType type);

// A tensor's strides, with 0 along `dim`, whose position an index gives.
at::DimVector strides_without(const at::Tensor& t, int64_t dim);
inline at::Tensor at_least_1d(const at::Tensor& t) { return t.dim() ? t : t.unsqueeze(0); }

class IndexSpace {
 public:
  // `op` names the operator in errors; it must be a string literal.
  explicit IndexSpace(const char* op) : op_(op) {}

  // Define the space either operand by operand (in elements; dimensions in any order) …
  void shape(at::IntArrayRef sizes);
  void destination(const void* data, at::IntArrayRef strides, int64_t itemsize);
  void source(const void* data, at::IntArrayRef strides, int64_t itemsize);
  // `lookup_size` and `lookup_stride` (bytes) describe the dimension that the index selects from.
  void index(const void* data, at::IntArrayRef strides, c10::ScalarType type, int64_t lookup_size,
             int64_t lookup_stride);
  // … or from a TensorIterator, by the numbers of the operands that are the destination, the source (-1: none), and the
  // first of `lookup_sizes.size()` indices.
  void from_iterator(const at::TensorIteratorBase& iter, int destination, int source, int first_index,
                     at::IntArrayRef lookup_sizes, at::IntArrayRef lookup_strides);

  // Lets negative indices count from the end; otherwise they are errors.
  void allow_negative() { wrap_ = true; }
  // Positions along this dimension (of shape()) may address the same element of the destination.
  void conflicts_along(int64_t dim) { dims_[dim].serial = true; }
  // The same for every dimension along which an index changes.
  void conflicts_by_index();

  // Copies elements of `itemsize` bytes; the indices select from the source.
  void gather(Device& device, int64_t itemsize);
  // The same, but the indices select the destination. In deterministic mode the last of several writes to an element
  // wins.
  void scatter(Device& device, int64_t itemsize);
  void fill(Device& device, int64_t itemsize, Bits value);
  // destination = destination (red) source * alpha; with `fill`, (red) alpha. `red`: sum, prod, amax, amin. Sums and
  // products of floats that are computed in a wider type are rounded once.
  void reduce(Device& device, c10::ScalarType type, const char* red, const c10::Scalar& alpha, bool fill = false);

  int64_t numel() const;

 private:
  struct Dim {
    int64_t size = 1;
    std::array<int64_t, kMaxIndexOps> stride{};
    bool serial = false;
  };
  struct Plan {
    IndexSpaceParams args;
    Range global, local;
  };

  void move(Device& device, int64_t itemsize, std::string_view mode, Bits value);
  void operand(int k, const void* data, at::IntArrayRef strides, int64_t itemsize);
  void normalize();
  template <class F>
  void in_parts(const F& f);
  Plan plan(const Device& device, bool serial) const;
  // The number of work-items that can run without conflicts if each serial dimension stays within one of them.
  int64_t parallelism() const;
  bool has_serial() const;
  // Whether a GPU's work-items without conflicts are few, or do much one after another.
  bool is_slow(const Device& device) const;
  Defs defs() const;
  // A plan without conflicts, and what sorting finds: the destinations in ascending order, and the rows in that order.
  struct Sorted {
    Plan plan;
    at::Tensor keys, order;
  };
  Sorted sort_rows(Device& device);
  // Makes rows of single elements, if an index changes along a row.
  void fix_indices_along_rows();
  struct Reduction {
    c10::ScalarType type, source_type;  // of the destination and the source
    const char* red;
    c10::Scalar alpha;
    bool fill, round_once;
  };
  void run_reduction(Device& device, const Reduction& r);
  template <class F>
  bool sum_in_copies(Device& device, const Reduction& r, const F& run);
  // The destination's part that indices and positions can reach; f(size, stride in bytes) is called for each dimension.
  template <class F>
  void each_destination_dim(const F& f);
  at::Tensor reachable(const Device& device, c10::ScalarType type);
  void redirect(const at::Tensor& destination);
  // scatter() and reduce() in an order that does not depend on timing, by many work-items for each element.
  void scatter_sorted(Device& device, const Defs& defs);
  void reduce_sorted(Device& device, const Defs& defs, const IndexedTerm& term);
  template <class... Args>
  void launch(const char* file, const char* name, const Defs& defs, const Plan& plan, const Args&... args);

  const char* op_;
  c10::SmallVector<Dim, 8> dims_;
  std::array<const void*, kMaxIndexOps> data_{};
  std::array<int64_t, kMaxIndices> lookup_size_{}, lookup_stride_{};
  int indices_ = 0;
  c10::ScalarType index_type_ = at::kLong;
  bool wrap_ = false;
  bool from_iterator_ = false;
};

}  // namespace netcl
