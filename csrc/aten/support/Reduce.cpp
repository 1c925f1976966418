// Reductions over any dimensions of tensors of any layout: decides how to split the work and launches the kernels of
// kernels/reduce.
#include "aten/support/Reduce.h"

#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/native/ReduceOpsUtils.h>

#include <algorithm>
#include <bit>

#include "args/reduce.h"
#include "aten/support/Dimensions.h"
#include "aten/support/Launch.h"
#include "aten/support/Outputs.h"
#include "runtime/OpName.h"

namespace netcl {
namespace {

constexpr int64_t kItemElements = 65536;     // elements that pay for a work-item on a CPU
constexpr int64_t kSegmentElements = 65536;  // elements that pay for a second launch
constexpr int64_t kLongRow = 32;             // a dense row at least this long is reduced along its lanes,
constexpr int64_t kLongNarrowRow = 129;      // or this long, if its lanes can be transposed
constexpr int64_t kNarrowPanel = 4;          // vectors of outputs side by side, if wide tiles are few
constexpr int64_t kTransposedPanel = 8;      // vectors of outputs side by side, if lanes are transposed
constexpr int64_t kGroup = 256;              // largest work-group of reduce_group
constexpr int64_t kGroupRow = 16;            // a dense row at least this long is reduced by several work-items of a GPU
constexpr int64_t kLeastOfGroup = 64;        // elements of an output that are worth a work-group
constexpr int64_t kOuterGroup = 128;         // largest work-group of reduce_outer on a GPU
constexpr int64_t kMaxSegment = 1L << 30;    // indices within a segment have 32 bits

struct Operand {
  const void* data = nullptr;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
};

struct Reduction {
  Operand in, out0, out1;
  Dims kept, reduced;
  void add(Dim d, bool is_reduced) {
    if (d.size == 1) return;
    if (is_reduced) d.out0 = d.out1 = 0;
    (is_reduced ? reduced : kept).push_back(d);
  }
};

// Sorts dimensions by the input's stride, smallest first and expanded ones last, and merges neighbours that form one.
void simplify(Dims& dims) {
  const auto rank = [](const Dim& d) { return d.in == 0 ? std::numeric_limits<int64_t>::max() : std::abs(d.in); };
  std::stable_sort(dims.begin(), dims.end(), [&](const Dim& a, const Dim& b) { return rank(a) < rank(b); });
  merge_neighbours(dims);
}

// If there are few dense columns but many rows, most lanes would be empty, so several rows are treated as one wider
// row. Returns how many.
int64_t fold_rows(const Device& device, Reduction& p) {
  if (p.kept.size() != 1 || p.reduced.size() != 1) return 1;
  Dim &column = p.kept[0], &row = p.reduced[0];
  const int64_t element = c10::elementSize(p.in.dtype);
  if (column.in != element || row.in != element * column.size || column.size > 64 ||
      column.size * row.size < tuning(device).folded)
    return 1;
  int64_t fold = std::min(1024 / column.size, row.size / 16);
  while (fold > 1 && row.size % fold != 0) fold--;
  if (fold <= 1) return 1;
  column.size *= fold;
  row.size /= fold;
  row.in *= fold;
  return fold;
}

struct Plan {
  const char *file, *kernel;
  int64_t vec, panel, local;  // lanes, vectors per tile, work-items per group
  Range global, group;
  int64_t width = 0;        // reduce_group: work-items per output
  bool narrow = false;      // reduce_group: whether 31 bits hold what locates an element of an output
  bool dense_rows = false;  // reduce_outer: whether each output has a short row of adjacent elements
};

void cut(ReduceParams& params, int64_t segments, int64_t multiple) {
  params.segment = std::min(round_up(ceil_div(params.reduced, std::max<int64_t>(segments, 1)), multiple), kMaxSegment);
  params.segments = ceil_div(params.reduced, params.segment);
}

Plan plan_cpu(const Device& device, const Reduction& p, int64_t lanes, ReduceParams& params) {
  const Dim &row = p.reduced[0], &column = p.kept[0];
  const int64_t element = c10::elementSize(p.in.dtype);
  const int64_t target = enough_items(device);
  const bool spread = has_many_units(device) && lanes > 1;  // narrower tiles and shorter segments, if these are few
  // Rows of 16 numbers of 32 bits are read as vectors and transposed, so that each output has a lane.
  const bool transposed = row.in == element && p.reduced.size() == 1 && column.size >= lanes && lanes == 16 &&
                          column.in > 0 && row.size < kLongNarrowRow;
  const bool dense_row = row.in == element && row.size >= kLongRow && !transposed;
  const bool inner = params.outputs == 1 || dense_row || (column.in != element && column.size < lanes) ||
                     column.size < std::min<int64_t>(lanes, 4);
  Plan plan{inner ? "reduce/reduce_inner.cl" : "reduce/reduce_outer.cl", inner ? "reduce_inner" : "reduce_outer", lanes,
            lanes == 1 ? 64 : 1024 / lanes, 1};
  if (transposed && !inner) {
    plan.dense_rows = true;
    plan.panel = kTransposedPanel;
  }
  int64_t width = 1;
  params.tiles = params.outputs;
  if (!inner) {
    const auto tiles = [&] { return ceil_div(column.size, plan.vec * plan.panel) * (params.outputs / column.size); };
    if (spread && tiles() < target) plan.panel = std::min(plan.panel, kNarrowPanel);
    width = std::min(column.size, plan.vec * plan.panel);
    params.tiles = tiles();
  }
  int64_t segments = 1;
  if (params.tiles < target) {
    const int64_t least = spread ? kSegmentElements / 4 : kSegmentElements;
    segments = std::min(ceil_div(target, params.tiles), std::max<int64_t>(params.reduced * width / least, 1));
  }
  cut(params, segments, inner ? kReduceBlock : kReduceRows);
  params.tiles_per_item =
      std::clamp<int64_t>(ceil_div(kItemElements, params.segment * width), 1, ceil_div(params.tiles, target));
  plan.global = {static_cast<size_t>(ceil_div(params.tiles, params.tiles_per_item)),
                 static_cast<size_t>(params.segments)};
  return plan;
}

// The lanes of reduce_group: as many elements as are 16 bytes, if all rows begin at whole vectors and consist of such.
// (An input that another library allocated may not begin at one; the kernel looks.)
int64_t group_lanes(const Reduction& p, int64_t most) {
  const int64_t element = c10::elementSize(p.in.dtype);
  if (p.reduced[0].in != element) return 1;
  int64_t lanes = std::min(16 / element, most);
  const auto fits = [&](const Dim& d) { return d.in % (lanes * element) == 0; };
  while (lanes > 1 && !(p.reduced[0].size % lanes == 0 && std::all_of(p.kept.begin(), p.kept.end(), fits) &&
                        std::all_of(p.reduced.begin() + 1, p.reduced.end(), fits)))
    lanes /= 2;
  return lanes;
}

bool is_narrow(const Reduction& p) {
  int64_t bytes = 0;
  for (const Dim& d : p.reduced) bytes += std::abs(d.in) * (d.size - 1);
  return std::max(bytes, product(p.reduced)) < kMaxSegment;
}

Plan plan_gpu(const Device& device, const Reduction& p, int64_t most_lanes, ReduceParams& params) {
  const Dim &row = p.reduced[0], &column = p.kept[0];
  const int64_t element = c10::elementSize(p.in.dtype), units = enough_items(device, 1);
  // Neighbouring work-items should read neighbouring elements: along the row in a group, along the columns in
  // reduce_outer.
  const bool dense = row.in == element && row.size >= kGroupRow;
  const bool groups = dense || (params.reduced >= kLeastOfGroup && (params.outputs < kOuterGroup || row.in == element ||
                                                                    (column.in != element && params.outputs < 16384)));
  const int64_t most = static_cast<int64_t>(std::bit_floor(device.info().max_work_group_size));
  const int64_t group = std::min(groups ? kGroup : kOuterGroup, most);
  Plan plan{groups ? "reduce/reduce_group.cl" : "reduce/reduce_outer.cl", groups ? "reduce_group" : "reduce_outer", 1,
            1, groups ? group : 1};
  params.tiles = params.outputs;
  params.tiles_per_item = 1;
  if (groups) {
    plan.vec = group_lanes(p, most_lanes);
    plan.narrow = is_narrow(p);
    // A work-item reads four vectors of a short row.
    const uint64_t vectors = static_cast<uint64_t>(ceil_div(params.reduced, plan.vec));
    const int64_t wanted = static_cast<int64_t>(std::bit_ceil(vectors)) / 4;
    plan.width = std::clamp(wanted, std::min<int64_t>(group, 8), group);
    const int64_t sets = ceil_div(params.outputs, group / plan.width), step = plan.width * plan.vec;
    cut(params, std::min(ceil_div(16 * units, sets), ceil_div(params.reduced, step * 16)), step);
    plan.global = {static_cast<size_t>(sets * group), static_cast<size_t>(params.segments)};
  } else {
    cut(params, std::min(ceil_div(2048 * units, params.outputs), ceil_div(params.reduced, int64_t{64})), 4);
    plan.global = {static_cast<size_t>(params.tiles), static_cast<size_t>(params.segments)};
  }
  plan.group = {static_cast<size_t>(group)};
  return plan;
}

bool is_double(const ReduceOp& op) { return op.acc == at::kDouble || op.acc == at::kComplexDouble; }

// Sets everything except how the work is split.
ReduceParams params_of(const Reduction& p, const ReduceOp& op) {
  ReduceParams params{};
  params.outputs = product(p.kept);
  params.reduced = product(p.reduced);
  params.kept = as_dimensions(p.kept);
  const Dimensions reduced = as_dimensions(p.reduced);  // their outputs do not move
  params.reduced_dims = reduced.ndim;
  std::copy_n(reduced.size, kMaxDims, params.reduced_size);
  std::copy_n(reduced.in, kMaxDims, params.reduced_in);
  params.p0 = is_double(op) ? std::bit_cast<uint64_t>(op.p0) : std::bit_cast<uint32_t>(static_cast<float>(op.p0));
  return params;
}

// Reduces a dense copy of the input, with the reduced dimensions first, into dense results.
void reduce_dense(const Device& device, const Reduction& p, const ReduceOp& op) {
  Dims all = p.reduced;
  all.append(p.kept.begin(), p.kept.end());
  const auto view = [&](const Operand& o, const Dims& dims, int64_t Dim::* stride) {
    return o.data ? strided_view(device, o.data, o.dtype, dims, stride) : at::Tensor();
  };
  const at::Tensor in = view(p.in, all, &Dim::in).contiguous();
  through_dense(view(p.out0, p.kept, &Dim::out0), view(p.out1, p.kept, &Dim::out1), [&](auto& out0, auto& out1) {
    reduce(in, ~std::bitset<64>() >> (64 - p.reduced.size()), false, out0, out1, op);
  });
}

void launch_reduction(Device& device, Reduction& p, const ReduceOp& op) {
  const OpName scope(op.aten);
  TORCH_CHECK(p.in.data || product(p.kept) * product(p.reduced) == 0, op.aten,
              ": the storage of a tensor was resized to 0 bytes");
  simplify(p.kept);
  simplify(p.reduced);
  if (std::max(p.kept.size(), p.reduced.size()) > kMaxDims) return reduce_dense(device, p, op);
  const int64_t fold = op.kind == ReduceOp::kSimple ? fold_rows(device, p) : 1;
  for (const Operand* o : {&p.in, &p.out0, &p.out1}) {
    if (o->dtype != c10::ScalarType::Undefined) check_dtype(device, o->dtype, op.aten);
  }
  check_dtype(device, op.acc, op.aten);

  ReduceParams params = params_of(p, op);
  const bool complex_acc = c10::isComplexType(op.acc), complex_abs = c10::isComplexType(p.in.dtype) && !complex_acc;
  const bool wide = c10::elementSize(op.acc) == 8 && !complex_acc;
  const int64_t lanes = complex_acc || complex_abs ? 1 : wide ? 8 : 16;
  const int64_t gpu_lanes = lanes == 1 ? 1 : wide ? 4 : 8;  // more accumulators would not fit a GPU's registers
  const Plan plan = device.is_cpu() ? plan_cpu(device, p, lanes, params) : plan_gpu(device, p, gpu_lanes, params);

  Defs defs;
  defs.set("OP", op.name).set("IN", dtype_tag(p.in.dtype)).set("ACC", dtype_tag(op.acc));
  defs.set("OUT0", dtype_tag(p.out0.dtype)).set("PANEL", plan.panel);
  if (p.out1.data) defs.set("OUT1", dtype_tag(p.out1.dtype));
  if (op.flag) defs.set(op.flag, 1);
  defs.set(op.kind == ReduceOp::kSimple ? "KIND_SIMPLE" : op.kind == ReduceOp::kArg ? "KIND_ARG" : "KIND_VAR", 1);

  at::Tensor partial;
  params.has_partial = params.segments > 1 || fold > 1;
  if (params.has_partial) {  // an accumulator takes at most 32 bytes
    partial = at::empty({params.segments * params.outputs * 32},
                        at::TensorOptions().dtype(at::kByte).device(at::kPrivateUse1, device.index()));
  }
  Queue& queue = current_queue(device.index());
  Defs first = defs;
  first.set("VEC", plan.vec).set("GROUP", plan.local);
  if (plan.width) first.set("WIDTH", plan.width);
  if (plan.narrow) first.set("NARROW", 1);
  if (plan.dense_rows) first.set("DENSE_ROWS", 1);
  kernel(device, plan.file, plan.kernel, first)
      .launch(op.aten, queue, plan.global, plan.group, Buf{p.out0.data}, Buf{p.out1.data}, Buf{p.in.data},
              buf_or_null(partial), params);
  if (params.segments == 1 && fold == 1) return;
  if (fold > 1) {  // unfolded, a segment's accumulators are those of `fold` segments
    params.outputs /= fold;
    params.kept.size[0] /= fold;
    params.segments *= fold;
  }
  const auto local = static_cast<int64_t>(element_group(device).x);
  params.tiles_per_item = all_or_one(device, std::max<int64_t>(1024 / params.segments, 1));
  defs.set("VEC", std::min(plan.vec, tuning(device).lanes)).set("GROUP", local);
  kernel(device, "reduce/reduce_combine.cl", "reduce_combine", defs)
      .launch(op.aten, queue, {static_cast<size_t>(ceil_div(params.outputs, params.tiles_per_item) * local)},
              {static_cast<size_t>(local)}, Buf{p.out0.data}, Buf{p.out1.data}, Buf{p.in.data}, buf_or_null(partial),
              params);
}

}  // namespace

c10::ScalarType sum_type(c10::ScalarType result) {
  return c10::isIntegralType(result, /*includeBool=*/true) ? at::kLong : compute_type(result);
}

c10::ScalarType value_type(c10::ScalarType input) {
  if (c10::isComplexType(input)) return c10::toRealValueType(input);
  if (c10::isFloatingType(input)) return compute_type(input);
  if (input == at::kUInt64 || input == at::kLong) return input;
  return input == at::kUInt32 ? at::kLong : at::kInt;
}

c10::ScalarType ordered_type(c10::ScalarType input, const char* op) {
  TORCH_CHECK_NOT_IMPLEMENTED(!c10::isComplexType(input), op, " is not implemented for ", input,
                              ": complex numbers have no order");
  return value_type(input);
}

void reduce(at::TensorIteratorBase& iter, const ReduceOp& op) {
  if (iter.numel() == 0) return;
  Reduction p;
  const int outs = iter.noutputs();
  for (int i = 0; i < outs; i++) {  // one element per output may be overwritten
    TORCH_CHECK(iter.numel() == iter.num_output_elements() || !may_overlap(iter.tensor(i), iter.tensor(outs)), op.aten,
                ": the output overlaps the input. Please clone() the tensor before performing the operation.");
  }
  p.in = {iter.data_ptr(outs), iter.dtype(outs)};
  p.out0 = {iter.data_ptr(0), iter.dtype(0)};
  if (outs > 1) p.out1 = {iter.data_ptr(1), iter.dtype(1)};
  for (int d = 0; d < iter.ndim(); d++) {
    const int64_t out0 = iter.strides(0)[d];
    p.add({iter.shape()[d], iter.strides(outs)[d], out0, outs > 1 ? iter.strides(1)[d] : 0}, out0 == 0);
  }
  launch_reduction(device(iter.device(0).index()), p, op);
}

void reduce(const at::Tensor& self, std::bitset<64> mask, bool keepdim, const at::Tensor& out0, const at::Tensor& out1,
            const ReduceOp& op) {
  if (self.numel() == 0) return;
  Reduction p;
  p.in = {self.const_data_ptr(), self.scalar_type()};
  p.out0 = {out0.mutable_data_ptr(), out0.scalar_type()};
  if (out1.defined()) p.out1 = {out1.mutable_data_ptr(), out1.scalar_type()};
  const int64_t size0 = out0.element_size(), size1 = out1.defined() ? out1.element_size() : 0;
  for (int64_t d = 0, k = 0; d < self.dim(); d++) {
    const bool reduced = mask[d];
    p.add({self.size(d), self.stride(d) * self.element_size(), reduced ? 0 : out0.stride(k) * size0,
           reduced || !size1 ? 0 : out1.stride(k) * size1},
          reduced);
    if (keepdim || !reduced) k++;
  }
  launch_reduction(netcl::device_of(self), p, op);
}

}  // namespace netcl
