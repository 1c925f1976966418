// Matrix multiplication: chooses the kernel, and implements the operators on it.
#include "aten/gemm/Gemm.h"

#include <ATen/Dispatch.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty.h>
#include <c10/util/complex.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "args/gemm.h"
#include "aten/gemm/GroupTile.h"
#include "aten/gemm/MatrixEngine.h"
#include "aten/gemm/MatrixUnits.h"
#include "aten/support/Launch.h"
#include "aten/support/Plan.h"
#include "runtime/OpName.h"

namespace netcl {
namespace {

// kernels/gemm/gemm.h explains the names.
constexpr int64_t kLargeElements = 1 << 19;  // of a matrix that few rows should read once, and along its rows
constexpr int64_t kFewEngineRows = 16;       // with more rows, a matrix engine packs B
constexpr int64_t kLeastEngineRows = 8;  // from so many rows on, one reads B in place if it is adjacent along k, and
constexpr int64_t kSkinnyElements = 1 << 19;  // packs A, of at most so many elements, which stay in L2
constexpr int64_t kPanelDepth = 1024;         // kc of the fused path: a panel of B stays in L2
constexpr int64_t kBlockDepth = 384;          // kc of the packed path: panels stay in L1 and L2 (gemm/1024, 2026-11-28)
constexpr int64_t kLaunchDepth = 8192;        // k of a launch
constexpr int64_t kMacroTile = 64;            // tiles of a macro-tile, whose sums stay in L2
constexpr double kPackCost = 8;               // cost of packing an element, relative to reading it again
constexpr int64_t kFusedWork = 1 << 24;       // largest number of multiply-adds for one launch
constexpr int64_t kInPlaceElements = 1 << 17;  // largest B that stays in L2 and may be read across its rows
constexpr int64_t kAliasing = 2048;  // rows of bfloat16 that lie a multiple apart evict each other (gemm/2048)
constexpr int64_t kStayingElements = 1 << 18;  // largest B that stays in L2 while A is packed and read once
constexpr int64_t kReadOnceDepth = 8192;       // largest k for the only panel of B, which stays in L2
constexpr int64_t kEngineWork = 1 << 19;       // multiply-adds; with fewer, packing is most of the work
constexpr int64_t kPanelElements = 16 << 20;   // largest number of elements in one operand's panels
constexpr int64_t kItemsPerUnit = 4;           // work-items per compute unit, for balance
constexpr int64_t kMinItemWork = 1 << 15;      // multiply-adds; with fewer, a work-item costs more than it saves
constexpr int64_t kSliceDepth = 2048;          // k per slice, if k is split
constexpr int64_t kShortSlice = 128;           // the same in groups, if tiles leave most units idle
constexpr int64_t kLeastSliced = 512;          // the least k that pays for adding up short slices
constexpr int64_t kLeastPacked = 128;          // k per work-item that packs

c10::ScalarType accumulator(c10::ScalarType type) {
  switch (type) {
    case c10::kByte:
    case c10::kChar:
    case c10::kShort:
      return c10::kInt;  // wraps to the same bits when stored
    default:
      return compute_type(type);
  }
}

MatrixStrides strides(const GemmMatrix& x) { return {x.rs, x.cs, x.bs[0], x.bs[1]}; }

const void* advance(const GemmMatrix& x, int64_t elements) {
  if (!x.data) return nullptr;
  return static_cast<const char*>(x.data) + elements * static_cast<int64_t>(c10::elementSize(x.dtype));
}

// Panels for the packed kernels: `mr` rows of A, `nr` columns of B, in `type`.
struct Panels {
  int64_t vec, mr;
  c10::ScalarType type;
  int64_t kc, k_unroll;          // largest depth of a block; a panel's depth is a multiple of k_unroll
  int64_t parts = 1;             // elements per number
  const char* engine = nullptr;  // -D for the matrix engine
  bool in_place = false;         // whether that reads rows of A where they are
  int64_t nr() const { return 2 * vec; }
  Defs& define(Defs& d) const {
    d.set("VEC", vec).set("MR", mr);
    return engine ? d.set(engine, 1).set("PARTS", parts) : d;
  }
};

// One multiplication, and what prepare() finds for the ways to compute it.
struct Job {
  const char* op;
  Queue& queue;
  GemmArgs g;
  c10::ScalarType acc;
  int64_t k_slice = 0, k_whole = 0;  // see GemmParams
  bool in_groups = false;            // by the kernels for GPUs, which compute complex numbers everywhere
  bool a_along_k = false, b_along_k = false, b_along_n = false;  // where adjacent elements lie
  std::optional<Panels> engine;
  // It has few rows or columns to multiply by: it reads A where it is, or packs B a few rows at a time.
  enum { kNotSkinny, kInPlace, kInBlocks } skinny = kNotSkinny;

  Device& device() const { return queue.device(); }
  bool add() const { return g.d.data != nullptr; }
  int64_t batches() const { return g.batch[0] * g.batch[1]; }
  int64_t work() const { return g.m * g.n * g.k; }  // multiply-adds of a product
  int64_t vec() const { return register_tile(device(), acc).vec; }
  int64_t mr() const { return register_tile(device(), acc).rows; }  // rows of the micro-tile of the packed kernels
  // Rows of a tile that reads A in place: their addresses need registers too.
  int64_t direct_rows() const { return std::min<int64_t>(mr(), 8); }
  int64_t nr() const { return 2 * vec(); }
  int64_t units() const { return enough_items(device(), 1); }

  GemmParams params() const {
    GemmParams p{};
    p.m = g.m;
    p.n = g.n;
    p.k = g.k;
    p.batch1 = g.batch[1];
    p.m_tiles = p.n_tiles = 1;
    p.has_d = add();
    p.k_slice = k_slice;
    p.k_whole = k_whole;
    p.a = strides(g.a);
    p.b = strides(g.b);
    p.c = strides(g.c);
    p.d = strides(g.d);
    return p;
  }
  // The options that all kernels share. Without D, its tag is that of C, so that no further variant is needed.
  Defs defs() const {
    Defs d;
    d.set("ACC", dtype_tag(acc));
    return d;
  }
  Defs& inputs(Defs& d) const { return d.set("INA", dtype_tag(g.a.dtype)).set("INB", dtype_tag(g.b.dtype)); }
  Defs& outputs(Defs& d) const {
    return d.set("OUT", dtype_tag(g.c.dtype)).set("ADD", dtype_tag(add() ? g.d.dtype : g.c.dtype));
  }
  // C^T = B^T A^T.
  void transpose() {
    const GemmMatrix a = transposed(g.b);
    g.b = transposed(g.a);
    g.a = a;
    g.c = transposed(g.c);
    g.d = transposed(g.d);
    std::swap(g.m, g.n);
  }
  Buf a() const { return {g.a.data}; }
  Buf b() const { return {g.b.data}; }
  Buf c() const { return {g.c.data}; }
  Buf d() const { return {add() ? g.d.data : g.c.data}; }

  at::Tensor scratch(int64_t elements) const { return scratch(elements, acc); }
  at::Tensor scratch(int64_t elements, c10::ScalarType type) const {
    return at::empty({elements}, at::TensorOptions(type).device(c10::DeviceType::PrivateUse1, device().index()));
  }
};

// Launches a kernel that computes C from the buffers `from`, with alpha and beta in the compute type.
template <class... Buffers>
void launch(const Job& job, Kernel& k, const Range& global, const Range& local, const GemmParams& p, Buffers... from) {
  AT_DISPATCH_ALL_TYPES_AND_COMPLEX(job.acc, "gemm", [&] {
    using Whole = std::conditional_t<std::is_integral_v<scalar_t>, int64_t, scalar_t>;  // wraps instead of raising
    const auto scalar = [](const c10::Scalar& x) { return static_cast<scalar_t>(x.to<Whole>()); };
    const GemmScalars<scalar_t> scalars{scalar(job.g.alpha), scalar(job.g.beta)};
    k.launch(job.op, job.queue, global, local, from..., job.c(), job.d(), p, scalars);
  });
}

// Splits `rows` x `cols` tiles into work-items: enough to keep the device busy, each with enough work. Columns are
// split first, since a work-item reuses its part of B for all its rows.
struct Cut {
  int64_t rows_each, cols_each;
  size_t rows, cols;
};
Cut cut(const Job& job, int64_t rows, int64_t cols, int64_t tile_work) {
  const int64_t work = rows * cols * std::max<int64_t>(tile_work, 1);
  const int64_t most = std::max<int64_t>(1, work / kMinItemWork);
  const int64_t wanted = std::min(most, ceil_div(kItemsPerUnit * job.units(), job.batches()));
  const int64_t col_parts = std::min(cols, wanted);
  const int64_t row_parts = std::min(rows, ceil_div(wanted, col_parts));
  Cut r;
  r.cols_each = ceil_div(cols, col_parts);
  r.rows_each = ceil_div(rows, row_parts);
  r.cols = ceil_div(cols, r.cols_each);
  r.rows = ceil_div(rows, r.rows_each);
  return r;
}

// An operand in tiles: `lines` rows of A or columns of B, of a tile and in all; the strides are those between lines and
// along k.
struct Source {
  const GemmMatrix& x;
  int64_t line_stride, k_stride, lines, all_lines, k;

  bool narrow() const { return x.dtype == c10::kHalf || x.dtype == c10::kBFloat16; }
  // Whether adjacent elements lie along k, or across it.
  bool along() const { return !across() && (k_stride == 1 || k == 1); }
  bool across() const { return line_stride == 1 || (all_lines == 1 && k_stride != 1); }
  // Elements that a work-item reads at once: up to 16 bytes, in global and in local memory.
  int64_t vector(c10::ScalarType acc, int64_t items, int64_t kc) const {
    const auto bytes = static_cast<int64_t>(std::max(c10::elementSize(x.dtype), narrow() ? 2 : c10::elementSize(acc)));
    return c10::isComplexType(acc) ? 1 : std::min(std::max<int64_t>(16 / bytes, 1), lines * kc / items);
  }
  // Elements that it reads from local memory at once.
  int64_t taken(c10::ScalarType acc, int64_t each) const {
    if (c10::isComplexType(acc)) return 1;
    const auto bytes = static_cast<int64_t>(narrow() ? 2 : c10::elementSize(acc));
    return std::min(std::max<int64_t>(16 / bytes, 1), each);
  }
  // Whether vectors begin at multiples of their size.
  bool aligned(int64_t elements) const {
    const int64_t other = k_stride == 1 ? line_stride : line_stride == 1 ? k_stride : 1;
    const auto address = reinterpret_cast<uintptr_t>(x.data);
    return other % elements == 0 && x.bs[0] % elements == 0 && x.bs[1] % elements == 0 &&
           address % (static_cast<size_t>(elements) * c10::elementSize(x.dtype)) == 0;
  }
};

// How a product is computed in tiles of work-groups: by portable code or by matrix units.
struct Tiling {
  const char *file, *name;  // of the kernel
  int64_t height, width, items, va, vb;
  Defs defs;

  void set_vectors(c10::ScalarType acc, const Source& a, const Source& b, int64_t kc) {
    va = a.vector(acc, items, kc);
    vb = b.vector(acc, items, kc);
    defs.set("KC", kc).set("VA", va).set("VB", vb);
  }
};

Source source_a(const GemmArgs& g, int64_t lines) { return {g.a, g.a.rs, g.a.cs, lines, g.m, g.k}; }
Source source_b(const GemmArgs& g, int64_t lines) { return {g.b, g.b.cs, g.b.rs, lines, g.n, g.k}; }

Defs tiling_defs(const Job& job, const GroupTile& tile) {
  Defs d = job.defs();
  job.outputs(job.inputs(d)).set("SIDE_X", tile.x).set("SIDE_Y", tile.y).set("COLS", tile.cols).set("ROWS", tile.rows);
  return d;
}

std::optional<Tiling> plan_tiled(const Job& job) {
  if (!job.in_groups) return std::nullopt;
  const GemmArgs& g = job.g;
  const GroupTile tile = group_tile(job.device(), job.acc, g.m, g.n, job.batches());
  const Source a = source_a(g, tile.height()), b = source_b(g, tile.width());
  const int64_t items = tile.x * tile.y;
  Tiling t{"gemm/gemm_gpu.cl", "gemm_tiled", tile.height(), tile.width(), items, 0, 0, tiling_defs(job, tile)};
  t.set_vectors(job.acc, a, b, a.narrow() && b.narrow() ? 2 * tile.kc : tile.kc);  // the same number of bytes
  t.defs.set("LVA", a.taken(job.acc, tile.rows)).set("LVB", b.taken(job.acc, tile.cols));
  return t;
}

std::optional<Tiling> plan_units(const Job& job) {
  const GemmArgs& g = job.g;
  if (!job.in_groups || job.acc != c10::kFloat || g.a.dtype != g.b.dtype) return std::nullopt;
  if (g.a.dtype == c10::kFloat && !g.may_round_float) return std::nullopt;
  const auto tile = unit_tile(job.device(), g.a.dtype, g.m, g.n, job.batches());
  if (!tile) return std::nullopt;
  const Source a = source_a(g, tile->height()), b = source_b(g, tile->width());
  if (!(a.along() || a.across()) || !(b.along() || b.across())) return std::nullopt;
  Tiling t{"gemm/gemm_units.cl", "gemm_units", tile->height(), tile->width(), tile->items(), 0, 0, {}};
  t.defs = tiling_defs(job, tile->groups);
  t.set_vectors(job.acc, a, b, tile->groups.kc);
  tile->define_in(t.defs).set("ALONG_A", int64_t{a.along()}).set("ALONG_B", int64_t{b.along()});
  return t;
}

void run_tiling(const Job& job, const Tiling& t) {
  const GemmArgs& g = job.g;
  auto& k = kernel(job.device(), t.file, t.name, t.defs);
  GemmParams p = job.params();
  p.m_tiles = ceil_div(g.m, t.height);
  p.n_tiles = ceil_div(g.n, t.width);
  p.a_aligned = source_a(g, t.height).aligned(t.va);
  p.b_aligned = source_b(g, t.width).aligned(t.vb);
  // The groups form one dimension, since others may be limited to 65535 groups.
  const int64_t groups = p.m_tiles * p.n_tiles * job.batches();
  TORCH_CHECK(groups <= UINT32_MAX, "netcl: ", job.op, ": too many matrices for one product: ", job.batches());
  const auto items = static_cast<size_t>(t.items);
  launch(job, k, {static_cast<size_t>(groups) * items}, {items}, p, job.a(), job.b());
}

// Tiles of `rows` x `columns`; A and B are read in place.
struct InPlace {
  const char* kernel;
  int64_t rows, columns;
};

// Whether the larger operand is more than the cache holds.
bool reads_large(const Job& job) { return std::max(job.g.m, job.g.n) * job.g.k >= kLargeElements; }
// With at most so many rows, packing B does not pay.
int64_t few_rows(const Job& job) { return reads_large(job) ? kFewRows : kFewRows / 2; }

// The least k for which dot products, whose vectors are summed at the end, are faster than packing B (measured). They
// convert a 16-bit B again for every few rows.
int64_t least_dot_depth(const Job& job) {
  const GemmArgs& g = job.g;
  const bool converts = c10::elementSize(g.b.dtype) <= 2;
  if (g.m <= 4) return job.vec();
  if (g.m <= 8) return converts ? 128 : 64;
  return converts ? 1024 : 128;
}

std::optional<InPlace> plan_dots(const Job& job) {
  const GemmArgs& g = job.g;
  if (!job.a_along_k || !job.b_along_k || g.m > few_rows(job) || job.engine) return {};
  if ((job.b_along_n && g.k < 64) || g.k < least_dot_depth(job)) return {};
  return InPlace{"gemm_dots", g.m == 1 ? 1 : std::min<int64_t>(4, job.mr() / 3), kDotColumns};
}
// With few rows, reading B once in place is all the work.
std::optional<InPlace> plan_gemv(const Job& job) {
  return job.b_along_n && job.g.m == 1 ? std::optional(InPlace{"gemv", 1, kGemvVectors * job.vec()}) : std::nullopt;
}
std::optional<InPlace> plan_rows(const Job& job) {
  if (!job.b_along_n || job.g.m > few_rows(job) || job.engine) return {};
  const int64_t rows = job.direct_rows(), m = job.g.m;
  // Of twice as many rows a tile is one vector wide, so that half as many vectors are converted.
  if (m > rows && c10::elementSize(job.g.b.dtype) <= 2) return InPlace{"gemm_rows", 2 * rows, job.vec()};
  return InPlace{"gemm_rows", m <= 4 ? 4 : rows, job.nr()};
}

void run_in_place(const Job& job, const InPlace& tile) {
  Defs defs = job.defs();
  job.outputs(job.inputs(defs)).set("VEC", job.vec()).set("ROWS", tile.rows);
  auto& k = kernel(job.device(), "gemm/gemm_direct.cl", tile.kernel, defs);
  GemmParams p = job.params();
  const Cut parts = cut(job, ceil_div(p.m, tile.rows), ceil_div(p.n, tile.columns), tile.rows * tile.columns * p.k);
  p.m_tiles = parts.rows_each;
  p.n_tiles = parts.cols_each;
  const bool packs_a = tile.rows > 8 || job.g.a.dtype != job.acc;
  p.kc = reads_large(job) || packs_a ? kKeptDepth : std::max<int64_t>(p.k, 1);
  launch(job, k, {parts.rows, parts.cols, static_cast<size_t>(job.batches())}, {}, p, job.a(), job.b());
}

std::optional<Panels> engine_panels(const Job& job) {
  if (job.acc != c10::kFloat) return std::nullopt;
  c10::ScalarType a = job.g.a.dtype, b = job.g.b.dtype;
  if (job.g.may_narrow && a == c10::kFloat) a = b;
  if (job.g.may_narrow && b == c10::kFloat) b = a;
  if ((a == c10::kFloat || b == c10::kFloat) && !job.g.may_round_float) return std::nullopt;
  const auto tile = engine_tile(job.device(), a, b);
  if (!tile) return std::nullopt;
  return Panels{tile->kVec,    tile->rows,  c10::kShort,  tile->kc,
                tile->kUnroll, tile->parts, tile->define, tile->in_place};
}
Panels vector_panels(const Job& job) { return {job.vec(), job.mr(), job.acc, kBlockDepth, 4}; }

// Everything in one launch: each work-item packs what it cannot read in place.
struct Fused {
  Panels panels;
  GemmParams params;
  int64_t rows, cols, batches;  // work-items
  int64_t elements;             // of their panels
  bool a_in_place;
};

// Nothing if that would take too much memory.
std::optional<Fused> fused(const Job& job, const Panels& panels) {
  const GemmArgs& g = job.g;
  GemmParams p = job.params();
  p.kc = job.k_slice ? std::min(g.k, kPanelDepth) : job.skinny == Job::kInBlocks ? int64_t{kPackDepth} : g.k;
  // If each element of A is used only once, a packed copy would only be written and read again.
  const bool vectors = !panels.engine && g.a.dtype == job.acc && g.a.cs == 1 && g.n <= job.nr();
  const bool a_in_place = vectors || job.skinny == Job::kInPlace;
  p.b_in_place = !panels.engine && g.b.dtype == job.acc && g.b.cs == 1 && p.kc * g.n <= kInPlaceElements;
  const int64_t m_panels = ceil_div(g.m, panels.mr), n_panels = ceil_div(g.n, panels.nr());
  const int64_t most = std::max<int64_t>(1, job.batches() * g.m * g.n * g.k / kMinItemWork);
  const int64_t items = std::min(most, (p.b_in_place ? kItemsPerUnit : kItemsPerUnit / 2) * job.units());
  // Matrices are divided first. Each matrix is then split so that little is packed twice: each part of the columns
  // packs all of A, each part of the rows all of B. Powers of two give equal halves: PoCL gives the first thread half
  // of the work-items.
  p.batches = job.batches();
  const int64_t batch_items = std::min(p.batches, 4 * items), parts = ceil_div(items, batch_items);
  const double a_cost = g.m * (a_in_place ? 1 : kPackCost), b_cost = g.n * (p.b_in_place ? 1 : kPackCost);
  const int64_t cols =
      std::min<int64_t>(job.skinny == Job::kInBlocks ? std::min(n_panels, parts) : n_panels,
                        std::bit_floor(static_cast<uint64_t>(std::max(1.0, std::sqrt(parts * b_cost / a_cost)))));
  const int64_t few = std::min(m_panels, ceil_div(parts, cols));
  const int64_t rows = even_parts(job.device(), batch_items * cols, few, std::min(m_panels, 2 * few));
  p.n_tiles = ceil_div(n_panels, cols);
  const int64_t depth = round_up(p.kc, panels.k_unroll) * panels.parts;
  const int64_t sums = job.skinny == Job::kInBlocks ? 2 * p.n_tiles * panels.mr * panels.nr() : 0;  // floats take two
  p.item_panels = round_up(((p.b_in_place ? 1 : p.n_tiles) * panels.nr() + panels.mr) * depth + sums, int64_t{16});
  const int64_t elements = p.item_panels * rows * cols * batch_items;
  if (elements > 4 * kPanelElements && !job.k_slice) return {};
  return Fused{panels, p, rows, cols, batch_items, elements, a_in_place};
}

// Whether all of B stays in L2 while the panels of A pass, of which there are so many more that each work-item may pack
// B.
bool streams(const Job& job, const Panels& panels) {
  const GemmArgs& g = job.g;
  return g.n * g.k * panels.parts <= kStayingElements && g.m >= 4 * kItemsPerUnit * job.units() * g.n;
}

std::optional<Fused> plan_engine_fused(const Job& job) {
  if (!job.engine) return {};
  if (job.skinny) return fused(job, *job.engine);
  if (!streams(job, *job.engine) && (job.g.k > kPanelDepth || job.work() > kFusedWork)) return {};
  return fused(job, *job.engine);
}
std::optional<Fused> plan_fused(const Job& job) {
  const GemmArgs& g = job.g;
  const bool read_once = job.a_along_k && g.n <= job.nr() && g.k <= kReadOnceDepth;
  const bool small = g.k <= kPanelDepth && job.work() <= kFusedWork;
  if (!job.k_slice && g.k != 0 && !small && !read_once && g.m > few_rows(job)) return {};
  return fused(job, vector_panels(job));
}

void run_fused(const Job& job, const Fused& f) {
  Defs defs = job.defs();
  f.panels.define(job.outputs(job.inputs(defs)));
  if (f.a_in_place) defs.set("A_IN_PLACE", 1);
  auto& k = kernel(job.device(), "gemm/gemm_direct.cl", "gemm_fused", defs);
  const at::Tensor scratch = job.scratch(f.elements, f.panels.type);
  const Range items{static_cast<size_t>(f.rows), static_cast<size_t>(f.cols), static_cast<size_t>(f.batches)};
  launch(job, k, items, {}, f.params, job.a(), job.b(), buf(scratch));
}

std::optional<Panels> plan_engine_packed(const Job& job) { return job.engine; }
std::optional<Panels> plan_packed(const Job& job) { return vector_panels(job); }

// Panels of a macro-tile along m and n: up to 8 each, and `tiles` in all, fewer if the device would idle otherwise. A
// somewhat smaller tile is taken if the unit with the most tiles then has 3 % less work.
std::pair<int64_t, int64_t> macro_tile(const Job& job, int64_t m_panels, int64_t n_panels, int64_t batches,
                                       int64_t tiles) {
  const int64_t wanted = std::min(m_panels * n_panels / (kItemsPerUnit * job.units()), tiles);
  const int64_t m_most = std::clamp<int64_t>(wanted, 1, 8), most = m_most * std::clamp<int64_t>(wanted / m_most, 1, 8);
  const auto longest = [&](int64_t m, int64_t n) {
    return ceil_div(ceil_div(m_panels, m) * ceil_div(n_panels, n) * batches, job.units()) * m * n;
  };
  std::pair best{m_most, most / m_most};
  int64_t least = longest(best.first, best.second) * 97 / 100;
  for (int64_t m = 1; m <= 8; m++)
    for (int64_t n = ceil_div(most, 2 * m); n <= std::min<int64_t>(most / m, 8); n++)
      if (const int64_t work = longest(m, n); work < least) {
        best = {m, n};
        least = work;
      }
  return best;
}

// As many tiles of sums as local memory holds.
int64_t local_tiles(const Job& job, const Panels& panels) {
  const auto bytes = panels.mr * panels.nr() * static_cast<int64_t>(c10::elementSize(job.acc));
  return std::clamp<int64_t>(static_cast<int64_t>(job.device().info().local_mem_size) / bytes, 1, kMacroTile);
}

// Whether the engine reads the panels of A where they are: whole ones, whose rows begin at cache lines.
bool reads_a_in_place(const Job& job, const Panels& panels) {
  const GemmMatrix& a = job.g.a;
  const auto whole = [](int64_t n) { return n % 32 == 0; };
  return panels.in_place && a.dtype == c10::kBFloat16 && job.a_along_k && whole(job.g.m) && whole(job.g.k) &&
         whole(a.rs) && a.rs % kAliasing != 0 && whole(a.bs[0]) && whole(a.bs[1]) &&
         reinterpret_cast<uintptr_t>(a.data) % 64 == 0;
}

// Packs panels of both operands, block after block (mc x kc of A, kc x nc of B), or of B alone, and multiplies them.
// All blocks of k but the last store their sums in the compute type.
void run_packed(const Job& job, const Panels& panels) {
  const GemmArgs& g = job.g;
  Defs pack_defs = job.defs(), defs = job.defs();
  panels.define(job.inputs(pack_defs));
  auto& pack = kernel(job.device(), "gemm/gemm_pack.cl", "gemm_pack", pack_defs);

  const int64_t mr = panels.mr, nr = panels.nr(), k_blocks = ceil_div(g.k, kLaunchDepth);
  const int64_t kc = round_up(ceil_div(g.k, k_blocks), panels.k_unroll);
  const int64_t mc = std::min(round_up(g.m, mr), kPanelElements / kc / mr * mr);
  const int64_t nc = std::min(round_up(g.n, nr), kPanelElements / kc / nr * nr);
  const int64_t a_panels = mc * kc * panels.parts, b_panels = nc * kc * panels.parts;
  const bool a_shared = g.a.bs[0] == 0 && g.a.bs[1] == 0, b_shared = g.b.bs[0] == 0 && g.b.bs[1] == 0;
  const int64_t batch_step = std::clamp<int64_t>(kPanelElements / std::max(a_panels, b_panels), 1, job.batches());
  const bool in_place = reads_a_in_place(job, panels);
  const at::Tensor pa = job.scratch(in_place ? 0 : a_panels * (a_shared ? 1 : batch_step), panels.type);
  const at::Tensor pb = job.scratch(b_panels * (b_shared ? 1 : batch_step), panels.type);

  // The place for the sums of all blocks of k but the last.
  GemmMatrix partial = g.c;
  at::Tensor sums;
  if (k_blocks > 1 && g.c.dtype != job.acc) {
    sums = job.scratch(job.batches() * g.m * g.n);
    partial = {sums.const_data_ptr(), job.acc, g.n, 1, {g.batch[1] * g.m * g.n, g.m * g.n}};
  }
  for (int64_t batch0 = 0; batch0 < job.batches(); batch0 += batch_step)
    for (int64_t n0 = 0; n0 < g.n; n0 += nc)
      for (int64_t k0 = 0; k0 < g.k; k0 += kc)
        for (int64_t m0 = 0; m0 < g.m; m0 += mc) {
          const bool first = k0 == 0, last = k0 + kc >= g.k;
          const size_t batches = std::min(batch_step, job.batches() - batch0);
          Job part = job;
          part.g.m = std::min(mc, g.m - m0);
          part.g.n = std::min(nc, g.n - n0);
          part.g.k = std::min(kc, g.k - k0);
          part.g.a.data = advance(g.a, m0 * g.a.rs + k0 * g.a.cs);
          part.g.b.data = advance(g.b, k0 * g.b.rs + n0 * g.b.cs);
          if (!last) part.g.c = partial;
          if (!first) {
            part.g.d = partial;
            part.g.beta = 1;
          }
          part.g.c.data = advance(part.g.c, m0 * part.g.c.rs + n0 * part.g.c.cs);
          part.g.d.data = advance(part.g.d, m0 * part.g.d.rs + n0 * part.g.d.cs);

          GemmParams p = part.params();
          p.batch0 = batch0;
          p.a_panels = a_shared ? 0 : a_panels;
          p.b_panels = b_shared ? 0 : b_panels;
          const int64_t m_panels = ceil_div(p.m, mr), n_panels = ceil_div(p.n, nr);
          // Panels of A stay while the blocks of m change; panels of B are packed with the first block.
          const int64_t items = kItemsPerUnit * job.units();
          p.m_tiles = ceil_div(m_panels, items);
          p.n_tiles = ceil_div(n_panels, items);
          p.a_items = in_place ? 0 : ceil_div(m_panels, p.m_tiles);
          const int64_t b_items = m0 == 0 ? ceil_div(n_panels, p.n_tiles) : 0;
          const auto pack_items = static_cast<int64_t>((p.a_items + b_items) * batches);
          const int64_t pieces = even_parts(job.device(), pack_items, 1, p.k / kLeastPacked);
          p.kc = round_up<int64_t>(ceil_div(p.k, pieces), kPackDepth);
          const auto depths = static_cast<size_t>(ceil_div(p.k, p.kc));
          if (pack_items)
            pack.launch(job.op, job.queue, {static_cast<size_t>(p.a_items + b_items), batches, depths}, {1, 1, 1},
                        part.a(), part.b(), buf(pa), buf(pb), p);

          Defs mul_defs = defs;
          panels.define(part.outputs(mul_defs));
          // Of several blocks of k, the sums of a macro-tile lie in local memory, which is the cache.
          const int64_t blocks = ceil_div(p.k, panels.kc), tiles = blocks > 1 ? local_tiles(job, panels) : kMacroTile;
          p.kc = round_up(ceil_div(p.k, blocks), panels.k_unroll);
          if (blocks > 1) mul_defs.set("SUMS", tiles);
          if (in_place) mul_defs.set("A_IN_PLACE", 1);
          auto& mul = kernel(job.device(), "gemm/gemm_cpu.cl", "gemm_packed", mul_defs);
          std::tie(p.m_tiles, p.n_tiles) = macro_tile(job, m_panels, n_panels, batches, tiles);
          const Range global{static_cast<size_t>(ceil_div(m_panels, p.m_tiles)),
                             static_cast<size_t>(ceil_div(n_panels, p.n_tiles)), batches};
          launch(part, mul, global, {}, p, in_place ? part.a() : buf(pa), buf(pb));
        }
}

// Whether AMX takes few rows at once.
bool is_skinny(const Job& job, const Panels& engine) {
  const GemmArgs& g = job.g;
  return engine.in_place && g.b.dtype == c10::kBFloat16 && g.m >= kLeastEngineRows && g.m <= few_rows(job) &&
         g.n >= 4 * g.m && g.m * g.k <= kSkinnyElements;
}

// Exchanges the operands if another order is faster, and notes what the ways ask for.
void prepare(Job& job) {
  GemmArgs& g = job.g;
  job.in_groups = !job.device().is_cpu() || c10::isComplexType(job.acc);
  if (job.in_groups) {
    // If C is column-major, C^T = B^T A^T: neighbouring work-items write neighbouring elements.
    if (g.c.cs != 1 && g.c.rs == 1) job.transpose();
    return;
  }
  const auto unit = [](int64_t stride, int64_t size) { return stride == 1 || size <= 1; };
  job.a_along_k = unit(g.a.cs, g.k);
  job.b_along_k = unit(g.b.rs, g.k);
  const auto swap = [&] {
    job.transpose();
    std::swap(job.a_along_k, job.b_along_k);
  };
  // The short side comes to the left, and so does the operand with the unsuitable strides if both are packed.
  if (g.n < g.m && g.n <= few_rows(job)) swap();
  job.b_along_n = unit(g.b.cs, g.n) && g.n >= job.vec();
  if (!job.a_along_k && job.b_along_k && g.n >= g.m / 4 && !(job.b_along_n && g.m <= few_rows(job))) {
    swap();
    job.b_along_n = false;
  }
  job.engine.reset();  // what the whole product had, if this is a slice
  job.skinny = Job::kNotSkinny;
  if (job.k_slice || job.work() < kEngineWork) return;
  const auto engine = engine_panels(job);
  if (engine && is_skinny(job, *engine)) {
    if (job.b_along_n && g.k >= 2 * kPackDepth) {
      job.skinny = Job::kInBlocks;
    } else if (job.b_along_k && g.k % engine->k_unroll == 0) {
      swap();
      job.skinny = Job::kInPlace;
    }
  }
  // Two parts per number take as long as vectors.
  const int64_t few = engine && engine->parts == 1 ? kFewEngineRows : few_rows(job);
  if (job.skinny || std::min(g.m, g.n) > few) job.engine = engine;
}

// If the result is small and k is long, slices of k are computed in parallel.
struct Slices {
  int64_t depth, count;
};
std::optional<Slices> plan_slices(const Job& job) {
  const GemmArgs& g = job.g;
  const auto tiles_of = [&](int64_t side) { return ceil_div(g.m, side) * ceil_div(g.n, side); };
  const bool idle = job.in_groups && 4 * tiles_of(64) < job.units();
  const int64_t tiles = tiles_of(idle ? 32 : 64), most_deep = idle ? kShortSlice : kSliceDepth;
  const int64_t least = idle ? kLeastSliced : 2 * kSliceDepth;
  if (job.batches() != 1 || g.k < least || tiles >= 2 * job.units()) return {};
  const int64_t slices = std::min(ceil_div(g.k, most_deep), ceil_div(kItemsPerUnit * job.units(), tiles));
  if (slices < 2) return {};
  const int64_t depth = round_up(ceil_div(g.k, slices), int64_t{16});
  return Slices{depth, ceil_div(g.k, depth)};
}

void compute(Job job);
void run_slices(const Job& job, const Slices& slices) {
  const GemmArgs& g = job.g;
  const int64_t count = slices.count;
  const at::Tensor sums = job.scratch(count * g.m * g.n);

  Job part = job;
  part.g.k = part.k_slice = slices.depth;
  part.k_whole = g.k;
  part.g.batch = {count, 1};
  part.g.a.bs = part.g.b.bs = {0, 0};
  part.g.c = {sums.const_data_ptr(), job.acc, g.n, 1, {g.m * g.n, 0}};
  part.g.d = {};
  part.g.alpha = 1;
  compute(part);

  Defs defs = job.defs();
  job.outputs(defs);
  GemmParams p = job.params();
  p.a = {g.n, 1, g.m * g.n, 0};
  p.k = count;
  p.n_tiles = std::min(g.n, tuning(job.device()).gemm_sums);
  launch(job, kernel(job.device(), "gemm/gemm_sum.cl", "gemm_sum", defs),
         {static_cast<size_t>(ceil_div(g.n, p.n_tiles)), static_cast<size_t>(g.m)}, element_group(job.device()), p,
         buf(sums));
}

constexpr Way<Job> kGemmWays[] = {
    {"slices", take<&plan_slices, &run_slices>},              // split-k: any of the others, then a sum
    {"units", take<&plan_units, &run_tiling>, Serves::kGpu},  // matrix units
    {"tiled", take<&plan_tiled, &run_tiling>},                // on GPUs, and complex numbers: blocks in local memory
    {"dots", take<&plan_dots, &run_in_place>, Serves::kCpu},  // few rows, both operands adjacent along k
    {"gemv", take<&plan_gemv, &run_in_place>, Serves::kCpu},  // one row, B's rows adjacent
    {"rows", take<&plan_rows, &run_in_place>, Serves::kCpu},  // few rows, likewise
    {"engine fused", take<&plan_engine_fused, &run_fused>, Serves::kCpu},     // a matrix engine, in one launch
    {"engine packed", take<&plan_engine_packed, &run_packed>, Serves::kCpu},  // the same in blocks
    {"fused", take<&plan_fused, &run_fused>, Serves::kCpu},                   // small or skinny, in one launch
    {"packed", take<&plan_packed, &run_packed>, Serves::kCpu},                // all others, in blocks
};

void compute(Job job) {
  prepare(job);
  run_first(kGemmWays, job.device(), job);
}

}  // namespace

void gemm(const char* op, Queue& queue, const GemmArgs& args) {
  const OpName scope(op);
  Job job{op, queue, args, accumulator(args.c.dtype)};
  if (args.m == 0 || args.n == 0 || job.batches() == 0) return;
  for (const auto type : {args.a.dtype, args.b.dtype, args.c.dtype}) {
    TORCH_CHECK(type != c10::kBool, "netcl: ", op, " is not implemented for 'Bool'");
    check_dtype(queue.device(), type, op);
  }
  if (args.beta.equal(0)) job.g.d = {};
  if (args.alpha.equal(0)) job.g.k = 0;  // as in BLAS, A and B are not read, and their NaNs have no effect
  compute(std::move(job));
}

static Panels panels_of(const Job& job) {
  const auto engine = engine_panels(job);
  return engine ? *engine : vector_panels(job);
}
void define_panels(Queue& queue, const GemmArgs& args, Defs& defs) {
  panels_of({"", queue, args, accumulator(args.c.dtype)}).define(defs);
}
static GemmPanels pack_one(const char* op, Queue& queue, const GemmArgs& args, bool left) {
  const Job job{op, queue, args, accumulator(args.c.dtype)};
  const Panels panels = panels_of(job);
  const int64_t side = left ? panels.mr : panels.nr(), count = ceil_div(left ? args.m : args.n, side);
  GemmParams p = job.params();
  p.kc = round_up(args.k, panels.k_unroll);
  p.a_panels = p.b_panels = count * side * p.kc * panels.parts;
  p.a_items = left ? count : 0;
  Defs defs = job.defs();
  panels.define(job.inputs(defs));
  const at::Tensor to = job.scratch(job.batches() * p.a_panels, panels.type);
  kernel(job.device(), "gemm/gemm_pack.cl", "gemm_pack", defs)
      .launch(op, queue, {size_t(count), size_t(job.batches()), 1}, {1, 1, 1}, job.a(), job.b(), buf(to), buf(to), p);
  return {to, side};
}
GemmPanels pack_left(const char* op, Queue& queue, const GemmArgs& args) { return pack_one(op, queue, args, true); }
GemmPanels pack_right(const char* op, Queue& queue, const GemmArgs& args) { return pack_one(op, queue, args, false); }

GemmMatrix gemm_matrix(const at::Tensor& t) {
  const int64_t dim = t.dim();
  TORCH_INTERNAL_ASSERT(dim >= 2 && dim <= 4);
  GemmMatrix r{t.const_data_ptr(), t.scalar_type(), t.stride(dim - 2), t.stride(dim - 1)};
  if (dim > 2) r.bs[1] = t.stride(dim - 3);
  if (dim > 3) r.bs[0] = t.stride(0);
  return r;
}

}  // namespace netcl
