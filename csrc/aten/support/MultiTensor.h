// One launch over many tensors, for the foreach operators, the fused optimizers and GradScaler.
//
// A call gathers rows. A row holds one tensor of each of a few parallel lists (parameter, gradient, state …), of equal
// length and layout, and one scalar. Tensors share a few cl_mem slabs, so a kernel gets the slabs as arguments and a
// table of (slab, offset, length) rows, and processes all their chunks at once. Rows are grouped by the slabs that they
// use; nearly always there is one group, so one launch. Nothing here waits for the device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "aten/support/Launch.h"
#include "runtime/AddressSpace.h"

namespace netcl {

class MultiTensor {
 public:
  // `columns`: the number of tensors (1 to kMaxColumns) per row. `compute`: the dtype that the kernel computes in (its
  // ACC).
  MultiTensor(const char* op, c10::Device device, size_t columns, c10::ScalarType compute);

  // Adds a row of `numel` elements. `tensors[k]` has as many in memory, or the kernel reads only one element of it. A
  // row without elements is dropped, unless `keep_empty`.
  void add(int64_t numel, c10::ArrayRef<const at::Tensor*> tensors, const c10::Scalar& scalar = 0,
           bool keep_empty = false);

  // The chunks of all rows so far, numbered in the order of the rows.
  int64_t chunks() const { return chunks_; }
  int64_t rows() const { return rows_; }

  // Runs `name` of kernels/<file> on every chunk of every row; its arguments are MT_PARAMS, then `args`.
  template <class... Args>
  void launch(const char* file, const char* name, Defs defs, const Args&... args) {
    run(file, name, std::move(defs), /*per_row=*/false, args...);
  }
  // The same with one work-item per row, for what follows a reduction.
  template <class... Args>
  void launch_rows(const char* file, const char* name, Defs defs, const Args&... args) {
    run(file, name, std::move(defs), /*per_row=*/true, args...);
  }
  // Runs a kernel of another source with `items` work-items for every row, a multiple of `local`.
  template <class... Args>
  void launch_kernel(Kernel& k, size_t items, size_t local, const Args&... args) {
    for (Group& g : groups_) enqueue(k, g, g.table.size() / (kHeader + columns_) * items, local, args...);
  }

  static constexpr size_t kMaxColumns = 8;

 private:
  static constexpr size_t kSlabs = kMaxColumns;  // slabs per launch, as in MT_PARAMS
  static constexpr size_t kHeader = 3;           // words of a row before its addresses
  static constexpr size_t kMaxTable = 32768;     // bytes per table; uploads of this size are staged and never wait

  struct Group {
    std::array<cl_mem, kSlabs> slabs{};
    size_t used = 0;
    std::vector<uint64_t> table;  // kHeader + columns words per row: first chunk, length, scalar, (slab, offset)…
    int64_t chunks = 0;           // chunks of this group
    int64_t base = 0;             // chunks of the groups before this one
    c10::DataPtr uploaded;        // a capture takes it
    const void* table_at = nullptr;
    std::vector<const void*> addresses;  // of the tensors, in the order of the table; during a capture only
    struct CapturedTable* captured = nullptr;
  };
  friend struct CapturedTable;
  Group& group_for(c10::ArrayRef<Location> where);
  std::pair<Mems, Buf> upload(Group& group);
  void finish(Defs& defs);

  template <class... Args>
  void enqueue(Kernel& k, Group& g, size_t items, size_t local, const Args&... args) {
    const auto rows = static_cast<int64_t>(g.table.size() / (kHeader + columns_));
    const auto [slabs, table] = upload(g);
    k.launch(op_, queue_, {items}, {local}, slabs, table, rows, g.base, args...);
  }

  template <class... Args>
  void run(const char* file, const char* name, Defs defs, bool per_row, const Args&... args) {
    if (groups_.empty()) return;
    finish(defs);
    Kernel& k = kernel(device_, file, name, defs);
    for (Group& g : groups_) {
      const size_t rows = g.table.size() / (kHeader + columns_);
      const size_t items = per_row ? rows : static_cast<size_t>(g.chunks) * lanes_;
      if (items != 0) enqueue(k, g, items, per_row ? 1 : lanes_, args...);
    }
  }

  const char* op_;
  Device& device_;
  Queue& queue_;
  size_t columns_, lanes_;
  c10::ScalarType compute_;
  int64_t chunks_ = 0, rows_ = 0;
  c10::SmallVector<Group, 1> groups_;
};

}  // namespace netcl
