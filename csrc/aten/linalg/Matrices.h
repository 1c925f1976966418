// Batches of matrices as kernels take them: one batch dimension, an address and three strides in elements.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>

#include "aten/support/Fallback.h"
#include "aten/support/Launch.h"
#include "runtime/AddressSpace.h"
#include "runtime/Copies.h"
#include "runtime/Waits.h"

namespace netcl {

// Matrices as a tensor of three dimensions. If that needs a copy, finish() writes it back.
class Batch {
 public:
  explicit Batch(const at::Tensor& t) : given_(t), flat_(t.dim() == 2 ? t.unsqueeze(0) : t.flatten(0, -3)) {}
  const at::Tensor& get() const { return flat_; }
  void finish() const {
    if (!flat_.is_alias_of(given_)) given_.copy_(flat_.view(given_.sizes()));
  }

 protected:
  const at::Tensor given_;
  at::Tensor flat_;
};

// The same, in columns that are contiguous.
class ColumnBatch : public Batch {
 public:
  explicit ColumnBatch(const at::Tensor& t) : Batch(t) {
    if (flat_.stride(1) != 1 && flat_.size(1) > 1) flat_ = flat_.mT().contiguous().mT();
  }
};

// `a`, expanded to the batch dimensions of `b`, with one batch dimension.
inline at::Tensor batch_like(const at::Tensor& a, const at::Tensor& b) {
  c10::DimVector sizes(b.sizes().slice(0, b.dim() - 2));
  sizes.append({a.size(-2), a.size(-1)});
  const at::Tensor wide = a.resolve_conj().resolve_neg().expand(sizes);
  return wide.dim() == 2 ? wide.unsqueeze(0) : wide.flatten(0, -3);
}

inline size_t count(int64_t n) { return static_cast<size_t>(n); }

inline at::Tensor block(const at::Tensor& a, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  return a.narrow(1, row, rows).narrow(2, column, columns);
}

// Whether LAPACK takes matrices of so many elements: more than `most`. It waits, which a capture cannot.
inline bool host_is_faster(const at::Tensor& t, int64_t elements, int64_t Tuning::* most = &Tuning::host_matrix) {
  return elements > tuning(netcl::device_of(t)).*most && cpu_fallback_mode() != "error" &&
         !current_capture(t.device().index());
}

// Calls `call` with the tensors as tensors of the CPU: their own memory where the host can access it, else copies, of
// which the first `written` are copied back.
template <size_t N, class Call>
void on_host(const char* op, size_t written, const std::array<at::Tensor, N>& tensors, const Call& call) {
  count_host_call(op, /*by_choice=*/true);
  report_wait();
  synchronize(queue_of(tensors[0]));
  std::array<at::Tensor, N> hosts;
  for (size_t i = 0; i < N; i++) {
    const at::Tensor& t = tensors[i];
    char* const bytes = locate(t.const_data_ptr()).host;
    hosts[i] = bytes ? at::from_blob(bytes, t.sizes(), t.strides(), t.options().device(at::kCPU)) : t.cpu();
    if (!bytes) continue;
    hosts[i]._set_conj(t.is_conj());
    hosts[i]._set_neg(t.is_neg());
  }
  call(hosts);
  for (size_t i = 0; i < written; i++) {
    if (!locate(tensors[i].const_data_ptr()).host) tensors[i].copy_(hosts[i]);
  }
}

// Raises NotImplementedError for what the kernels of matrices do not take: half, bfloat16 and integers, as on the CPU.
// `moved`: the kernel only moves elements.
inline void check_matrix_dtype(const Device& device, c10::ScalarType type, const char* name, bool moved = false) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      c10::elementSize(type) >= 4 && (moved || !c10::isIntegralType(type, true)), name, " not implemented for ", type,
      " on netcl: solves and factorisations of matrices take float32, float64 and their complex numbers. Convert the "
      "matrix first. If autocast made it so (as in svd_lowrank and pca_lowrank), disable autocast around the call.");
  check_dtype(device, type, name);
}

// The -D options of kernels that compute with elements of `type`.
inline Defs matrix_defs(c10::ScalarType type) {
  Defs defs;
  defs.set("ACC", dtype_tag(type));
  return defs;
}

// Work-groups of kernels/linalg/columns.h: teams of work-items, each with a column; at most `teams`.
inline int64_t teams_of(const at::Tensor& t, int64_t teams = 8) {
  const Device& device = netcl::device_of(t);
  const int64_t team = tuning(device).team;
  return std::max(static_cast<int64_t>(group_of(device, count(team * teams))) / team, int64_t{1});
}
inline Defs column_defs(const at::Tensor& t, int64_t teams = 8) {
  Defs defs = matrix_defs(t.scalar_type());
  const int64_t team = tuning(netcl::device_of(t)).team;
  if (team > 1) defs.set("TEAM", team).set("TEAMS", teams_of(t, teams));
  return defs;
}

// A kernel of kernels/linalg, whose work-groups have group_items() work-items.
inline Kernel& column_kernel(const at::Tensor& t, const char* file, const char* name, int64_t teams = 8) {
  Device& device = netcl::device_of(t);
  check_matrix_dtype(device, t.scalar_type(), name);
  return kernel(device, file, name, column_defs(t, teams));
}
inline size_t group_items(const at::Tensor& t, int64_t teams = 8) {
  return count(tuning(netcl::device_of(t)).team * teams_of(t, teams));
}

}  // namespace netcl
