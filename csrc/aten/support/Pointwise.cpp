#include "aten/support/Pointwise.h"

#include <ATen/core/Tensor.h>
#include <c10/util/bit_cast.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "args/pointwise.h"
#include "aten/support/Launch.h"
#include "aten/support/PastCache.h"
#include "aten/support/Scalars.h"
#include "aten/support/SoftDouble.h"
#include "runtime/CachingAllocator.h"
#include "runtime/OpName.h"
#include "runtime/ProgramCache.h"

namespace netcl {

namespace {

constexpr int kMaxInputs = 6, kMaxOutputs = 2, kMaxArgs = kMaxInputs + kMaxOutputs;

constexpr std::array<const char*, kMaxInputs> kInNames{"IN0", "IN1", "IN2", "IN3", "IN4", "IN5"};
constexpr std::array<const char*, kMaxOutputs> kOutNames{"OUT0", "OUT1"};

// What a launch needs, with room for as many operands as there can be. pack() takes out what a kernel of fewer reads.
struct PointwiseSpace : PointwiseParams<kMaxInputs, kMaxArgs>, PointwiseOuter<kMaxInputs, kMaxArgs> {};

// Undefined if the iterator computed no common dtype; its accessor would assert.
struct Promoted : at::TensorIteratorBase {
  static c10::ScalarType of(const at::TensorIteratorBase& iter) { return iter.*(&Promoted::common_dtype_); }
};

struct Packed {
  std::array<int64_t, sizeof(PointwiseOuter<kMaxInputs, kMaxArgs>) / sizeof(int64_t)> words;
  size_t count = 0;
  void put(int64_t v) { words[count++] = v; }
  Bytes bytes() const { return {words.data(), count * sizeof(int64_t)}; }
};
static_assert(sizeof(PointwiseParams<kMaxInputs, kMaxArgs>) <= sizeof(Packed::words));

// PointwiseParams<nin, nargs>.
Packed pack(const PointwiseSpace& l, int nin, int nargs) {
  using Params = PointwiseParams<1, 3>;
  static_assert(offsetof(Params, inner) == 6 * 8 && offsetof(Params, immediate) == (6 + 3) * 8);
  static_assert(sizeof(Params) == (6 + 3 + 2 * 2) * 8);
  Packed packed;
  for (const int64_t v : {l.n, l.n_per_item, l.rows, l.rows_per_item, l.ndim, l.period}) packed.put(v);
  for (int k = 0; k < nargs; k++) packed.put(l.inner[k]);
  for (int k = 0; k <= nin; k++) {
    packed.put(static_cast<int64_t>(l.immediate[k][0]));
    packed.put(static_cast<int64_t>(l.immediate[k][1]));
  }
  return packed;
}

// PointwiseOuter<nin, nargs>.
Packed pack_outer(const PointwiseSpace& l, int nargs) {
  using Outer = PointwiseOuter<1, 3>;
  static_assert(offsetof(Outer, stride) == kMaxPointwiseOuter * 8 && sizeof(Outer) == kMaxPointwiseOuter * (1 + 3) * 8);
  Packed packed;
  for (int d = 0; d < kMaxPointwiseOuter; d++) packed.put(l.size[d]);
  for (int d = 0; d < kMaxPointwiseOuter; d++) {
    for (int k = 0; k < nargs; k++) packed.put(l.stride[d][k]);
  }
  return packed;
}

// The kernels of pointwise_body.h, as Variant::rows.
enum : uint8_t { kFlat, kRows, kAcross };
// What its programs for dense operands know of rows, as Variant::dense and as DENSE of pointwise_body.h: that they are
// shorter than a vector, or have periodic inputs.
enum : uint8_t { kNotDense, kDense, kShortRows, kPeriodic };

// All that a kernel's -D options follow from. `file` and `op` are literals, so that the same address means the same
// text.
struct Variant {
  const char *file, *op;
  std::array<c10::ScalarType, kMaxArgs> types;  // outputs first
  c10::ScalarType acc, common;
  uint8_t nin, nout, nscalars, vec, rows : 2, dense : 2, past_cache : 2, round_result : 2;
  c10::DeviceIndex device;
  bool operator==(const Variant&) const = default;
};
static_assert(std::has_unique_object_representations_v<Variant>);

constexpr std::pair<c10::ScalarType, const char*> kStored[] = {
    {c10::kComplexHalf, "c32"},       {c10::kFloat8_e4m3fn, "e4m3"},    {c10::kFloat8_e5m2, "e5m2"},
    {c10::kFloat8_e4m3fnuz, "e4m3z"}, {c10::kFloat8_e5m2fnuz, "e5m2z"}, {c10::kFloat8_e8m0fnu, "e8m0"}};

// dtype_tag(), and the dtypes that only element-wise kernels know.
const char* operand_tag(c10::ScalarType type) {
  for (const auto& [stored, tag] : kStored) {
    if (stored == type) return tag;
  }
  return dtype_tag(type);
}

// As on CPU and CUDA, there is no arithmetic of float8.
void check_float8(const Variant& v) {
  constexpr std::array<std::string_view, 5> known{"copy", "fill", "where", "eq", "ne"};
  TORCH_CHECK_NOT_IMPLEMENTED(
      !c10::isFloat8Type(v.common) || std::find(known.begin(), known.end(), v.op) != known.end(), '"', v.op,
      "\" not implemented for '", c10::toString(v.common), "' on netcl");
}

// Declares the float8 dtypes of a kernel, whose conversions are defined only where they are used.
void set_float8(Defs& defs, const Variant& v) {
  for (const auto& [type, tag] : c10::ArrayRef(kStored).slice(1)) {
    if (type != v.common && std::find(v.types.begin(), v.types.end(), type) == v.types.end()) continue;
    defs.set((std::string("FLOAT8_") + tag).c_str(), "1");
  }
}

Defs defs_of(const Variant& v) {
  Defs defs;
  defs.set("OP", ("OP_" + std::string(v.op)).c_str());
  defs.set("NIN", v.nin).set("NOUT", v.nout).set("NSCALARS", v.nscalars);
  defs.set("VEC", v.vec).set("ACC", dtype_tag(v.acc)).set("COMMON", operand_tag(v.common));
  if (v.dense != kNotDense) defs.set("DENSE", v.dense);
  if (v.past_cache) defs.set("PAST_CACHE", "1");
  if (v.round_result) defs.set("ROUND_RESULT", "1");
  // A cast's time is to no small part that of rounding, which inputs of the common dtype do not need.
  const auto ins = c10::ArrayRef(v.types).slice(v.nout, v.nin);
  if (std::any_of(ins.begin(), ins.end(), [&](auto t) { return t != v.common; })) defs.set("CAST_INPUTS", "1");
  for (int k = 0; k < v.nout + v.nin; k++) {
    defs.set(k < v.nout ? kOutNames[k] : kInNames[k - v.nout], operand_tag(v.types[k]));
  }
  set_float8(defs, v);
  return defs;
}

// The classes of a compute type, as kernels/common/common.h defines them by its tag.
std::string classes_of(const Variant& v) {
  const bool complex = c10::isComplexType(v.acc), floating = c10::isFloatingType(v.acc);
  std::string classes = complex ? "ACC_COMPLEX" : floating ? "ACC_FLOATING" : "ACC_INTEGRAL";
  if (v.acc == c10::ScalarType::Double || v.acc == c10::ScalarType::ComplexDouble) classes += " ACC_DOUBLE";
  if (v.common == c10::ScalarType::Bool) classes += " ACC_BOOL";
  return classes;
}

bool has_operator(const Variant& v) { return surely_defines(v.file, "OP_" + std::string(v.op), classes_of(v)); }

// A file defines an operator for some of the classes of dtypes (integers, floats, complex numbers). For another class,
// the compiler does not know OP_<op>, which clang says in one of two ways.
bool lacks_operator(std::string_view log, const std::string& op) {
  return log.find("identifier 'OP_" + op + "'") != std::string_view::npos ||
         log.find("function 'OP_" + op + "'") != std::string_view::npos;
}

Kernel& build(Device& device, const Variant& v) {
  check_float8(v);
  try {
    Kernel& k = kernel(device, v.file, v.rows == kAcross ? "across" : v.rows == kRows ? "rows" : "flat", defs_of(v));
    if (!k.built() && !has_operator(v)) k.wait();
    return k;
  } catch (const c10::Error& error) {
    TORCH_CHECK_NOT_IMPLEMENTED(!lacks_operator(error.what(), v.op), '"', v.op, "\" not implemented for '",
                                c10::toString(v.common), "' on netcl");
    throw;
  }
}

// The last variants and their kernels: to write the options and hash them would take as long as the rest of a launch.
Kernel& kernel_of(Device& device, const Variant& v) {
  struct Slot {
    Variant variant;
    Kernel* kernel;
  };
  static thread_local std::array<Slot, 256> recent{};
  uint64_t hash = 0;
  for (const uint64_t word : c10::bit_cast<std::array<uint64_t, sizeof(Variant) / sizeof(uint64_t)>>(v)) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 32;
  }
  Slot& slot = recent[hash % recent.size()];
  // One whose build failed is built again.
  if (!slot.kernel || !(slot.variant == v) || (!slot.kernel->built() && slot.kernel->failed())) {
    slot = {v, &build(device, v)};
  }
  return *slot.kernel;
}

// Whether outputs are so large that they would leave the cache before they are read, and aligned for non-temporal
// stores. An output that is written in place is in the cache already.
bool past_cache(const Device& device, const Variant& v, const PointwiseSpace& l, c10::ArrayRef<Buf> bufs) {
  if (v.vec < 8) return false;
  for (int k = 0; k < v.nout; k++) {
    const int64_t element = static_cast<int64_t>(c10::elementSize(v.types[k])), line = element * v.vec;
    if (l.inner[k] != element || !larger_than_cache(device, l.n * l.rows * element)) return false;
    uint64_t places = c10::bit_cast<uintptr_t>(bufs[k].address);
    for (int d = 0; d < l.ndim; d++) places |= static_cast<uint64_t>(l.stride[d][k]);
    if (places % static_cast<uint64_t>(line) != 0) return false;
    for (int i = v.nout; i < v.nout + v.nin; i++) {
      if (l.inner[i] != kStrideImmediate && bufs[i].address == bufs[k].address) return false;
    }
  }
  return true;
}

// Whether a CPU's program for dense operands serves: the last input may be a number by value, and in rows, inputs may
// have one value a row.
bool dense(const Variant& v, const PointwiseSpace& l) {
  if (v.vec == 1) return false;
  for (int k = 0; k < v.nout + v.nin; k++) {
    const bool number = v.nin > 1 && k == v.nout + v.nin - 1 && l.inner[k] == kStrideImmediate;
    const bool once = k >= v.nout && l.inner[k] == 0 && (l.ndim > 0 || l.period > 0);
    if (!number && !once && l.inner[k] != kStridePeriodic &&
        l.inner[k] != static_cast<int64_t>(c10::elementSize(v.types[k])))
      return false;
  }
  return true;
}

// Short rows of which some inputs are the same in each row, and that follow each other without gaps in all other
// operands, as in x * weight.view(1, -1, 1, 1) with few channels, channels last: they become one long row, and those
// inputs periodic.
void join_rows(const Variant& v, PointwiseSpace& l) {
  constexpr int64_t kFewRows = 8;  // fewer do not pay for the table of a period
  if (v.vec == 1 || l.ndim == 0 || l.n > kMaxPointwisePeriod || l.size[0] < kFewRows || l.n * l.size[0] < v.vec) return;
  if (!dense(v, l)) return;
  for (int k = 0; k < v.nout + v.nin; k++) {
    const bool same = k >= v.nout && l.stride[0][k] == 0;  // a number, too
    if (!same && (l.inner[k] == 0 || l.stride[0][k] != l.n * l.inner[k])) return;
  }
  for (int k = v.nout; k < v.nout + v.nin; k++) {
    if (l.inner[k] > 0 && l.stride[0][k] == 0) l.inner[k] = kStridePeriodic;
  }
  l.period = l.n;
  l.n *= l.size[0];
  l.rows /= l.size[0];
  l.ndim--;
  for (int d = 0; d < l.ndim; d++) {
    l.size[d] = l.size[d + 1];
    for (int k = 0; k < v.nout + v.nin; k++) l.stride[d][k] = l.stride[d + 1][k];
  }
}

// Exchanges two of the dimensions, of which the first is the inner one.
void swap_dims(const Variant& v, PointwiseSpace& l, int a, int b) {
  std::swap(a == 0 ? l.n : l.size[a - 1], l.size[b - 1]);
  for (int k = 0; k < v.nout + v.nin; k++) {
    if (l.inner[k] != kStrideImmediate) std::swap(a == 0 ? l.inner[k] : l.stride[a - 1][k], l.stride[b - 1][k]);
  }
}

// If an operand runs along the rows (its elements in a column are neighbours, those in a row are not), makes the
// columns the first outer dimension.
bool across_rows(const Variant& v, PointwiseSpace& l) {
  for (int k = v.nout; k < v.nout + v.nin; k++) {
    const auto element = static_cast<int64_t>(c10::elementSize(v.types[k]));
    if (l.inner[k] == element || l.inner[k] <= 0) continue;
    for (int d = 0; d < l.ndim; d++) {
      if (l.stride[d][k] != element || (d > 0 && l.size[d] < 16)) continue;
      if (d > 0) swap_dims(v, l, 1, d + 1);
      return true;
    }
  }
  return false;
}

// Very short rows that are not dense, as in the gradient of pixel_shuffle, channels last: a longer dimension becomes
// the inner one.
void lengthen_rows(const Variant& v, PointwiseSpace& l) {
  if (l.n >= 8 || l.period || dense(v, l)) return;
  for (int d = 0; d < l.ndim; d++) {
    if (l.size[d] < 16) continue;
    l.rows = l.rows / l.size[d] * l.n;
    return swap_dims(v, l, 0, d + 1);
  }
}

void launch(Device& device, Variant variant, PointwiseSpace& l, c10::ArrayRef<Buf> bufs, c10::ArrayRef<Bytes> scalars) {
  const int nin = variant.nin, nargs = nin + variant.nout;
  const int64_t vec = variant.vec;
  Split s = split(device, l.n, vec);
  int64_t enough = std::max<int64_t>(1, 4096 / std::max<int64_t>(l.n, vec));
  const bool cpu = device.is_cpu(), across = cpu && across_rows(variant, l), tiles = across && vec == 16;
  if (across) {
    // With few columns and many rows, a cache line of such an operand stays in the cache until all of it is used. If
    // the stride is a power of two, there is room for a dozen lines or two. (A tile uses all of a line at once.)
    s.chunk = tiles ? 256 : 16;
    s.items = static_cast<size_t>(ceil_div(l.n, s.chunk));
    enough = tiles ? 256 : 64;
  }
  l.n_per_item = s.chunk;
  size_t row_items = 1;
  if (l.rows > 1) {
    // A work-item takes several short rows, as long as every core has some.
    if (cpu) {
      const auto spread = even_part(device, l.rows, 8);
      l.rows_per_item = std::clamp<int64_t>(tiles ? round_up(spread, int64_t{16}) : spread, 1, enough);
    }
    row_items = static_cast<size_t>(ceil_div(l.rows, l.rows_per_item));
  }
  if (cpu && dense(variant, l)) {
    variant.dense = l.period ? kPeriodic : l.ndim && l.n < vec ? kShortRows : kDense;
  }
  variant.past_cache = past_cache(device, variant, l, bufs);
  const Packed params = pack(l, nin, nargs);
  Queue& queue = current_queue(device.index());
  if (l.ndim == 0 && l.period == 0) {
    kernel_of(device, variant).launch(variant.op, queue, {s.items}, {s.local}, bufs, params.bytes(), scalars);
    return;
  }
  const Packed outer = pack_outer(l, nargs);
  variant.rows = tiles ? kAcross : kRows;
  kernel_of(device, variant)
      .launch(variant.op, queue, {s.items, row_items}, {s.local}, bufs, params.bytes(), outer.bytes(), scalars);
}

// The dtype that operands are converted to, if the operator names none.
c10::ScalarType common_type(const at::TensorIteratorBase& iter) {
  const c10::ScalarType promoted = Promoted::of(iter);
  if (promoted != c10::ScalarType::Undefined) return promoted;
  return iter.ninputs() ? iter.input_dtype(0) : iter.dtype(0);
}

// Complex numbers have no vectors, not even as the output of a real operator.
int64_t vector_width(const Device& device, const at::TensorIteratorBase& iter, c10::ScalarType acc) {
  if (c10::isComplexType(acc)) return 1;
  for (int k = 0; k < iter.ntensors(); k++) {
    if (c10::isComplexType(iter.dtype(k))) return 1;
  }
  return c10::elementSize(acc) == 8 ? tuning(device).wide_vec : tuning(device).vec;
}

// Whether an out= of another dtype gets what the common one holds: inf of 60000 + 60000 in half, True of True + True.
// What computes no common dtype (a copy) converts to the output's at once.
bool rounds_result(const at::TensorIteratorBase& iter, c10::ScalarType common) {
  const bool narrow = common == c10::kHalf || common == c10::kBFloat16 || common == c10::kComplexHalf;
  if (!narrow && common != c10::kBool) return false;
  if (Promoted::of(iter) == c10::ScalarType::Undefined) return false;
  for (int k = 0; k < iter.noutputs(); k++) {
    if (iter.dtype(k) != common && iter.dtype(k) != c10::kBool) return true;
  }
  return false;
}

// The dtype to which a number among the operands is rounded: that of the elements, as half(0.1) == 0.1 demands, but for
// the operators that take a number in the compute type on CPU and CUDA, too.
c10::ScalarType number_type(const Variant& v) {
  constexpr std::array<std::string_view, 5> exact{"add", "mul", "div_true", "div_floor", "div_trunc"};
  if (v.common == v.acc || std::find(exact.begin(), exact.end(), v.op) != exact.end()) return v.acc;
  return v.common;
}

// As on the CPU, an operator that a dtype lacks and numbers beyond the dtype are refused for empty tensors too.
void check_empty(const at::TensorIteratorBase& iter, const char* file, const char* op,
                 c10::ArrayRef<c10::Scalar> scalars, c10::ScalarType common) {
  const c10::ScalarType acc = compute_type(common);
  for (const c10::Scalar& s : scalars) pack_scalar(s, acc);
  if (!c10::isComplexType(common) && common != c10::ScalarType::Bool) return;
  Device& device = netcl::device(iter.device(0).index());
  if (acc == c10::ScalarType::ComplexDouble && !device.info().has_fp64) return;
  Variant v{file, op, {}, acc, common};
  v.types.fill(c10::ScalarType::Undefined);
  v.nin = static_cast<uint8_t>(iter.ninputs());
  v.nout = static_cast<uint8_t>(iter.noutputs());
  v.nscalars = static_cast<uint8_t>(scalars.size());
  v.vec = 1;
  v.device = device.index();
  for (int k = 0; k < v.nout + v.nin; k++) v.types[k] = iter.is_cpu_scalar(k) ? common : iter.dtype(k);
  if (!has_operator(v)) build(device, v);
}

// Describes operand k to the kernel; returns its buffer.
Buf set_operand(at::TensorIteratorBase& iter, int k, const Device& device, Variant& variant, PointwiseSpace& l) {
  const bool by_value = k >= variant.nout && iter.is_cpu_scalar(k);
  // A Python number is a double on the host; passed by value, it needs neither cl_khr_fp64 nor its own variant.
  variant.types[k] = by_value ? variant.common : iter.dtype(k);
  check_dtype(device, variant.types[k], variant.op);
  if (by_value) {
    const PackedScalar packed = pack_scalar(as_element(iter.tensor(k).item(), number_type(variant)), variant.acc);
    // IMMEDIATE of pointwise_body.h reads a complex number's parts from the two words.
    const bool split = variant.acc == c10::ScalarType::ComplexFloat;
    auto& words = l.immediate[k - variant.nout];
    words[0] = split ? packed.words[0] & 0xffffffffu : packed.words[0];
    words[1] = split ? packed.words[0] >> 32 : packed.words[1];
    l.inner[k] = kStrideImmediate;
    return {iter.data_ptr(0)};
  }
  TORCH_CHECK(iter.data_ptr(k), variant.op, ": the storage of a tensor was resized to 0 bytes");
  l.inner[k] = iter.ndim() > 0 ? iter.strides(k)[0] : static_cast<int64_t>(c10::elementSize(variant.types[k]));
  return {iter.data_ptr(k)};
}

// The dimensions that a kernel counts.
void set_shape(const at::TensorIteratorBase& iter, int nargs, PointwiseSpace& l) {
  const auto shape = iter.shape();
  const int ndim = iter.ndim();
  l.n = ndim > 0 ? shape[0] : 1;
  l.rows = l.rows_per_item = 1;
  l.ndim = std::clamp(ndim - 1, 0, kMaxPointwiseOuter);
  for (int d = 0; d < l.ndim; d++) {
    l.size[d] = shape[d + 1];
    l.rows *= shape[d + 1];
    for (int k = 0; k < nargs; k++) l.stride[d][k] = l.inner[k] == kStrideImmediate ? 0 : iter.strides(k)[d + 1];
  }
}

}  // namespace

Split split(const Device& device, int64_t n, int64_t vec) {
  // A few pieces per core, none too small to pay for its scheduling.
  const Tuning& t = tuning(device);
  const int64_t part = std::clamp(even_part(device, n), t.least_chunk, t.most_chunk);
  const int64_t chunk = round_up(part == t.most_chunk ? evened(device, n, part) : part, vec);
  return {chunk, static_cast<size_t>(ceil_div(n, chunk)), t.element_group};
}

void pointwise(at::TensorIteratorBase& iter, const char* file, const char* op, c10::ArrayRef<c10::Scalar> scalars,
               std::optional<c10::ScalarType> compute) {
  const OpName scope(op);
  const int nin = iter.ninputs(), nout = iter.noutputs(), nargs = nin + nout;
  TORCH_INTERNAL_ASSERT(nin <= kMaxInputs && nout <= kMaxOutputs && scalars.size() <= 4, op);
  const c10::ScalarType common = compute ? *compute : common_type(iter), acc = compute_type(common);
  if (iter.numel() == 0) return check_empty(iter, file, op, scalars, common);
  Device& device = netcl::device(iter.device(0).index());
  if (!device.info().has_fp64 && soft_double(iter, op)) return;
  check_dtype(device, acc, op);
  for (int k = 0; k < nout; k++) {
    wait_for_recorded_streams(current_queue(device.index()), iter.tensor(k).storage().data_ptr());
  }

  Variant variant{file, op, {}, acc, common};
  variant.types.fill(c10::ScalarType::Undefined);
  variant.nin = static_cast<uint8_t>(nin);
  variant.nout = static_cast<uint8_t>(nout);
  variant.nscalars = static_cast<uint8_t>(scalars.size());
  variant.vec = static_cast<uint8_t>(vector_width(device, iter, acc));
  variant.device = device.index();
  variant.round_result = !compute && rounds_result(iter, common);

  PointwiseSpace l{};
  std::array<Buf, kMaxArgs> bufs{};
  for (int k = 0; k < nargs; k++) bufs[k] = set_operand(iter, k, device, variant, l);
  set_shape(iter, nargs, l);
  if (device.is_cpu()) {
    join_rows(variant, l);
    lengthen_rows(variant, l);
  }
  std::array<PackedScalar, 4> packed;
  std::array<Bytes, 4> scalar_bytes{};
  for (size_t i = 0; i < scalars.size(); i++) {
    packed[i] = pack_scalar(scalars[i], acc);
    scalar_bytes[i] = {packed[i].words.data(), packed[i].size};
  }
  const c10::ArrayRef<Bytes> scalar_list(scalar_bytes.data(), scalars.size());

  // A kernel counts some dimensions; there is a launch for each position in the rest.
  const auto shape = iter.shape();
  const int ndim = iter.ndim();
  int64_t launches = 1;
  for (int d = kMaxPointwiseOuter + 1; d < ndim; d++) launches *= shape[d];
  for (int64_t r = 0; r < launches; r++) {
    auto shifted = bufs;
    int64_t left = r;
    for (int d = kMaxPointwiseOuter + 1; d < ndim; d++) {
      const int64_t at = left % shape[d];
      left /= shape[d];
      for (int k = 0; k < nargs; k++) {
        if (l.inner[k] == kStrideImmediate) continue;
        shifted[k].address = static_cast<const char*>(shifted[k].address) + at * iter.strides(k)[d];
      }
    }
    launch(device, variant, l, {shifted.data(), static_cast<size_t>(nargs)}, scalar_list);
  }
}

}  // namespace netcl
