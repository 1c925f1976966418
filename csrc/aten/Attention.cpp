// scaled_dot_product_attention: on CPUs in blocks that stay in the cache, on GPUs mostly by FlashAttention.cpp; else
// matrix products with a softmax between them, which adds the bias and applies the causal mask. The backward computes
// the probabilities again from the logarithm of each row's sum. Other cases (dropout, masks that
// need a gradient, nested tensors) use PyTorch's composite path.
#include <ATen/Context.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>

#include "args/attention.h"
#include "aten/FlashAttention.h"
#include "aten/gemm/Gemm.h"
#include "aten/support/Library.h"
#include "aten/support/Outputs.h"
#include "aten/support/Rows.h"
#include "runtime/Assertions.h"
#include "runtime/ProgramCache.h"

namespace netcl {

// What flex_attention does to the scores: functions as text (torch_netcl/inductor/score_functions.py), the tensors that
// they read, sizes of those that change, and which blocks of keys each block of queries sees.
struct ScoreFunctions {
  std::string source;
  at::TensorList captured;
  at::IntArrayRef sizes;
  at::Tensor seen;  // (batches, heads, blocks of queries, blocks of keys) in bytes; the first two may be 1
  int64_t q_block, k_block;

  void set(FlashParams& p) const {
    TORCH_CHECK_VALUE(seen.dim() == 4 && seen.size(2) * q_block >= p.queries && seen.size(3) * k_block >= p.keys,
                      "flex_attention: a block mask of ", seen.sizes(), " blocks of ", q_block, " x ", k_block,
                      " is too small for ", p.queries, " queries and ", p.keys, " keys");
    const auto fits = [](int64_t n, int64_t all) { return n == 1 || n == all; };
    TORCH_CHECK_VALUE(fits(seen.size(0), p.batches) && fits(seen.size(1), p.heads), "flex_attention: a block mask of ",
                      seen.sizes(), " blocks for ", p.batches, " batches of ", p.heads, " heads");
    p.seen_b = seen.size(0) == 1 ? 0 : seen.stride(0);
    p.seen_h = seen.size(1) == 1 ? 0 : seen.stride(1);
    p.seen_q = seen.stride(2);
    p.q_block = q_block;
    p.k_block = k_block;
  }
  // The kernel of a file with these functions before it.
  Kernel& kernel(Device& device, const char* file, const char* name, const Defs& defs) const {
    static auto& known = *new std::unordered_map<std::string, Kernel*>;
    static std::mutex mutex;
    const std::string options(defs.view()), key = std::to_string(device.index()) + options + name + source;
    const std::lock_guard<std::mutex> lock(mutex);
    Kernel*& k = known[key];
    if (!k) {
      std::string text = source + "#include \"" + file + "\"@";
      std::replace(text.begin(), text.end(), '@', '\n');
      k = &kernel_from_source(device, generated_source(text), name, options);
    }
    return *k;
  }
};

namespace {

using at::Tensor;

// With a causal mask, queries are processed in parts of this size. Keys that no query of a part may see are skipped.
constexpr int64_t kCausalQueries = 256;

bool expandable(const Tensor& mask, c10::SymIntArrayRef sizes) {
  if (mask.dim() > 4) return false;
  for (int64_t i = 1; i <= mask.dim(); i++)
    if (mask.sym_size(-i) != 1 && mask.sym_size(-i) != sizes[4 - i]) return false;
  return true;
}

int64_t choose_backend(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& mask,
                       double dropout, bool causal, std::optional<double> scale, bool gqa) {
  const auto supported = [&] {
    if (!at::globalContext().userEnabledOverrideableSDP() || dropout != 0) return false;
    for (const Tensor* t : {&q, &k, &v})
      if (t->is_nested() || t->dim() != 4 || t->sym_numel() == 0 || !at::isFloatingType(t->scalar_type()) ||
          t->scalar_type() != q.scalar_type() || t->device() != q.device() || t->sym_size(0) != q.sym_size(0))
        return false;
    if (k.sym_size(1) != v.sym_size(1) || k.sym_size(2) != v.sym_size(2) || k.sym_size(3) != q.sym_size(3))
      return false;
    if (gqa ? q.sym_size(1) % k.sym_size(1) != 0 : q.sym_size(1) != k.sym_size(1)) return false;
    if (mask && mask->defined())
      return !causal && !mask->requires_grad() && !mask->is_nested() && mask->device() == q.device() &&
             (mask->scalar_type() == q.scalar_type() || mask->scalar_type() == at::kBool) &&
             expandable(*mask, {q.sym_size(0), q.sym_size(1), q.sym_size(2), k.sym_size(2)});
    return true;
  };
  return static_cast<int64_t>(supported() ? at::SDPBackend::overrideable : at::SDPBackend::math);
}

// A part of the work: some queries of some heads, and the first `keys` keys.
struct Part {
  int64_t b, batches, h, heads, query, queries, keys;

  GemmMatrix matrix(const Tensor& t, int64_t row, int64_t rows) const {
    return gemm_matrix(t.narrow(0, b, batches).narrow(1, h, heads).narrow(2, row, rows));
  }
  GemmMatrix of_queries(const Tensor& t) const { return matrix(t, query, queries); }
  GemmMatrix of_keys(const Tensor& t) const { return matrix(t, 0, keys); }
};

// The operands of one call, forward or backward.
struct Attention {
  Tensor q, k, v, bias;
  bool causal;
  double scale;
  c10::ScalarType acc;

  Attention(const Tensor& q_, const Tensor& k_, const Tensor& v_, const std::optional<Tensor>& bias_, bool causal_,
            std::optional<double> scale_)
      : q(q_),
        causal(causal_),
        scale(scale_.value_or(1 / std::sqrt(static_cast<double>(q_.size(3))))),
        acc(compute_type(q_.scalar_type())) {
    k = repeated(k_);
    v = repeated(v_);
    if (bias_ && bias_->defined()) bias = bias_->expand({q.size(0), q.size(1), q.size(2), k.size(2)});
  }

  // Repeats the heads of keys or values, if several heads of queries share one.
  Tensor repeated(const Tensor& t) const {
    const int64_t groups = q.size(1) / t.size(1);
    if (groups == 1) return t;
    return t.unsqueeze(2)
        .expand({t.size(0), t.size(1), groups, t.size(2), t.size(3)})
        .reshape({t.size(0), q.size(1), t.size(2), t.size(3)});
  }
  // The gradient of repeated(), in the original's dtype and, as PyTorch's meta function says, in its memory order.
  static Tensor gathered(const Tensor& grad, const Tensor& original) {
    if (grad.size(1) == original.size(1)) return grad.to(original.scalar_type());
    Tensor sum = at::empty_like(original, grad.options());
    at::sum_out(sum, grad.unflatten(1, {original.size(1), grad.size(1) / original.size(1)}), {2});
    return sum.to(original.scalar_type());
  }

  at::TensorOptions acc_options() const { return q.options().dtype(acc); }

  // Queries per part. The scores of all queries with all keys would grow with the square of the length.
  int64_t queries_each() const {
    const int64_t fit = std::max<int64_t>(16, tuning(netcl::device_of(q)).scores / k.size(2));
    return std::min({q.size(2), fit, causal ? kCausalQueries : q.size(2)});
  }
  bool whole() const { return queries_each() == q.size(2); }

  // Calls f(part) for parts with few enough scores. All queries of a head come before those of the next.
  template <class F>
  void parts(F&& f) const {
    const int64_t queries = queries_each(), each = queries * k.size(2), most = tuning(netcl::device_of(q)).scores;
    const int64_t heads = std::clamp<int64_t>(most / each, 1, q.size(1));
    const int64_t batches = std::clamp<int64_t>(most / (each * q.size(1)), 1, q.size(0));
    for (int64_t b = 0; b < q.size(0); b += batches)
      for (int64_t h = 0; h < q.size(1); h += heads)
        for (int64_t i = 0; i < q.size(2); i += queries) {
          Part p{b, std::min(batches, q.size(0) - b), h,        std::min(heads, q.size(1) - h),
                 i, std::min(queries, q.size(2) - i), k.size(2)};
          if (causal && !whole()) p.keys = std::min(p.keys, i + p.queries);
          f(p);
        }
  }

  // The product for every head of a part; `args` has the rest.
  void multiply(const Part& p, GemmArgs args) const {
    args.batch = {p.batches, p.heads};
    args.may_narrow = true;
    gemm(kAttentionOp, queue_of(q), args);
  }
  // The scaled scores of a part's queries with its keys.
  void multiply_keys(const Part& p, const GemmMatrix& scores) const {
    multiply(p, {.m = p.queries,
                 .n = p.keys,
                 .k = q.size(3),
                 .a = p.of_queries(q),
                 .b = transposed(p.of_keys(k)),
                 .c = scores,
                 .alpha = scale});
  }

  Defs defs() const {
    Defs d;
    row_defs(d, netcl::device_of(q), acc, k.size(2));
    if (bias.defined()) d.set("BIAS", dtype_tag(bias.scalar_type()));
    return d;
  }
  AttentionParams arg(const Part& part, RowSplit* split) const {
    AttentionParams p{};
    p.heads = part.heads;
    p.queries = part.queries;
    p.keys = part.keys;
    p.rows = part.batches * part.heads * part.queries;
    p.first_batch = part.b;
    p.first_head = part.h;
    p.first_query = part.query;
    p.all_heads = q.size(1);
    p.all_queries = q.size(2);
    p.causal = causal;
    *split = row_split(netcl::device_of(q), p.rows, p.keys);
    p.rows_per_item = split->rows_per;
    if (bias.defined()) {
      p.bias_b = bias.stride(0);
      p.bias_h = bias.stride(1);
      p.bias_q = bias.stride(2);
      p.bias_k = bias.stride(3);
    }
    return p;
  }
  // Launches a kernel of attention.cl over all rows of a part, with the bias if there is one.
  template <class... Args>
  void rows(const char* name, const AttentionParams& p, const RowSplit& split, const Args&... args) const {
    Device& dev = netcl::device_of(q);
    const size_t local = row_group(dev);
    Kernel& k = kernel(dev, "attention.cl", name, defs());
    if (bias.defined()) {
      k.launch(kAttentionOp, queue_of(q), {split.groups * local}, {local}, args..., buf(bias), p);
    } else {
      k.launch(kAttentionOp, queue_of(q), {split.groups * local}, {local}, args..., p);
    }
  }
};

// As PyTorch's meta function: the output's dimensions have the query's memory order. If the query's heads lie side by
// side, as those of a projection do, the caller's transpose(1, 2).reshape(…) is a view.
Tensor result_like(const Tensor& query, int64_t width) {
  if (query.size(3) == width) return at::empty_like(query);
  std::array<int64_t, 4> order{0, 1, 2, 3}, strides{}, sizes{query.size(0), query.size(1), query.size(2), width};
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return query.stride(a) > query.stride(b); });
  int64_t stride = 1;
  for (int i = 3; i >= 0; i--) {
    strides[order[i]] = stride;
    stride *= sizes[order[i]];
  }
  return at::empty_strided(sizes, strides, query.options());
}

// Seed and offset of the dropout, which netcl does not have: compiled graphs expect these tensors. Nothing writes to
// them.
const Tensor& no_philox(const Tensor& query) {
  static auto* made = new std::array<Tensor, 64>();
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  Tensor& t = made->at(query.device().index());
  const c10::InferenceMode normal(false);  // a later call may save it for backward
  if (!t.defined()) t = at::zeros({}, query.options().dtype(at::kLong));
  return t;
}

using Results = std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;
Results results(const Tensor& query, const Tensor& out, const Tensor& lse, int64_t keys) {
  const Tensor unused = no_philox(query);
  return {out, lse, Tensor(), Tensor(), c10::SymInt(query.size(2)), c10::SymInt(keys), unused, unused, Tensor()};
}

bool has_cpu_kernels(const Tensor& t) { return netcl::device_of(t).is_cpu(); }
HeadStrides head_strides(const Tensor& t) { return {t.stride(0), t.stride(1), t.stride(2), 0}; }

// One query of each head, as in text generation, in one launch. Returns false if its kernel does not take these
// operands.
bool decode(const Tensor& q, const Tensor& k, const Tensor& v, double scale, const Tensor& out, const Tensor& lse) {
  Device& dev = netcl::device_of(q);
  const int64_t vec = register_tile(dev, at::kFloat).vec, sharing = q.size(1) / k.size(1);
  const int64_t groups = q.size(0) * k.size(1), keys = k.size(2);
  for (const Tensor* t : {&q, &k, &v, &out})
    if (t->stride(3) != 1) return false;
  if (!has_cpu_kernels(q) || q.size(2) != 1 || compute_type(q.scalar_type()) != at::kFloat || q.size(3) % vec != 0 ||
      v.size(3) < vec || sharing > 8 || groups < enough_items(dev, 1))
    return false;
  FlashParams p = flash_params({q, k, v, {}, false, scale});
  p.q = head_strides(q);
  p.k = head_strides(k);
  p.v = head_strides(v);
  p.out = head_strides(out);
  const Tensor scores = at::empty({groups * sharing, round_up(keys, vec)}, lse.options());
  Defs defs;
  defs.set("IO", dtype_tag(q.scalar_type())).set("ACC", "f32").set("VEC", vec).set("ROWS", sharing);
  kernel(dev, "attention_decode.cl", "attention_decode", defs)
      .launch(kAttentionOp, queue_of(q), {size_t(groups)}, {1}, buf(out), buf(lse), buf(scores), buf(q), buf(k), buf(v),
              p);
  return true;
}

FlashOperands block_operands(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& bias,
                             bool causal, std::optional<double> scale) {
  FlashOperands o{q, k, v, {}, causal, scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3))))};
  if (bias && bias->defined()) o.bias = bias->expand({q.size(0), q.size(1), q.size(2), k.size(2)});
  return o;
}

// Whether the kernels for attention in blocks, on CPUs, take these operands.
bool has_blocks(const FlashOperands& o, at::ArrayRef<Tensor> as_they_are) {
  const auto adjacent = [](const Tensor& t) { return t.stride(3) == 1; };
  return has_cpu_kernels(o.q) && o.q.size(2) > 1 && compute_type(o.q.scalar_type()) == at::kFloat &&
         std::all_of(as_they_are.begin(), as_they_are.end(), adjacent);
}
// Whether the compute units get about equal shares of as many blocks; if not, products share the work better.
bool even_shares(const Device& dev, int64_t blocks) { return 7 * blocks >= 6 * round_up(blocks, enough_items(dev, 1)); }

template <class... Args>
void launch_blocks(const char* file, const char* name, const FlashOperands& o, const GemmArgs& product, int64_t items,
                   const FlashParams& p, const Args&... args) {
  Defs defs;
  const char* type = dtype_tag(o.q.scalar_type());
  define_panels(queue_of(o.q), product, defs.set("ACC", "f32").set("INA", "f32").set("OUT", type).set("ADD", type));
  Device& dev = netcl::device_of(o.q);
  const auto launch = [&](const auto&... last) {
    Kernel& k = o.functions ? o.functions->kernel(dev, file, name, defs) : kernel(dev, file, name, defs);
    k.launch(o.functions ? "flex_attention" : kAttentionOp, queue_of(o.q), {static_cast<size_t>(items)}, {1}, args...,
             last...);
  };
  if (o.functions) {
    c10::SmallVector<Buf, 16> bufs{buf(o.functions->seen)};
    for (const Tensor& t : o.functions->captured) bufs.push_back(buf(t));
    bufs.push_back(Buf{assert_buffer(dev)});
    return launch(c10::ArrayRef<Buf>(bufs), o.functions->sizes, assert_code(dev, "flex_attention"), p);
  }
  if (!o.bias.defined()) return launch(p);
  defs.set("BIAS", dtype_tag(o.bias.scalar_type()));
  launch(buf(o.bias), p);
}

// Everything in one launch, after three that pack the operands: scores stay in the cache.
void in_blocks(const FlashOperands& o, const Tensor& out, const Tensor& lse) {
  Device& dev = netcl::device_of(out);
  const Tensor &q = o.q, &k = o.k, &v = o.v;
  GemmArgs scores{.m = q.size(2), .n = k.size(2), .k = q.size(3), .batch = {q.size(0), q.size(1)}, .may_narrow = true};
  scores.a = gemm_matrix(q);
  scores.b = transposed(gemm_matrix(k));
  const GemmPanels queries = pack_left(kAttentionOp, queue_of(q), scores);
  scores.batch[1] = k.size(1);
  const GemmPanels keys = pack_right(kAttentionOp, queue_of(q), scores);
  GemmArgs sums = scores;
  sums.n = v.size(3);
  sums.k = k.size(2);
  sums.b = gemm_matrix(v);
  const GemmPanels values = pack_right(kAttentionOp, queue_of(q), sums);
  FlashParams p = flash_params(o);
  if (o.functions) o.functions->set(p);
  p.out = head_strides(out);
  const int64_t rows = round_up<int64_t>(kAttentionRows, queries.lines), wide = round_up(p.width, keys.lines);
  const int64_t items = std::min(p.batches * p.heads * ceil_div(p.queries, rows), enough_items(dev, 2));
  const Tensor scratch = at::empty({items * rows * (2 * kAttentionKeys + wide)}, lse.options());
  launch_blocks("attention_blocks.cl", "attention_blocks", o, scores, items, p, buf(out), buf(lse), buf(scratch),
                buf(queries.data), buf(keys.data), buf(values.data));
}
bool serves_in_blocks(const FlashOperands& o, const Tensor& out) {
  const int64_t blocks = o.q.size(0) * o.q.size(1) * ceil_div(o.q.size(2), int64_t{kAttentionRows});
  return has_blocks(o, {out}) && even_shares(netcl::device_of(out), blocks);
}

// The gradients of query, key and value likewise; a work-item takes a head of the keys, and packs what it multiplies.
bool serves_backward_in_blocks(const FlashOperands& o) {
  return has_blocks(o, {}) && even_shares(netcl::device_of(o.q), o.q.size(0) * o.k.size(1));
}
std::array<Tensor, 3> backward_in_blocks(FlashOperands o, Tensor grad, Tensor out, const Tensor& lse,
                                         const Tensor& grad_lse = {}) {
  const Device& dev = netcl::device_of(out);
  const int64_t heads = o.q.size(0) * o.k.size(1);
  for (Tensor* t : {&o.q, &o.k, &o.v, &out, &grad})
    if (t->stride(3) != 1) *t = t->contiguous();
  const Tensor dq = at::empty_like(o.q), dk = at::empty_like(o.k), dv = at::empty_like(o.v);
  FlashParams p = flash_params(o);
  if (o.functions) o.functions->set(p);
  p.q = head_strides(o.q);
  p.k = head_strides(o.k);
  p.v = head_strides(o.v);
  p.out = head_strides(out);
  p.grad = head_strides(grad);
  p.dq = head_strides(dq);
  p.dk = head_strides(dk);
  p.dv = head_strides(dv);
  const int64_t items = std::min(heads, enough_items(dev, 1)),
                columns = round_up(std::max(p.depth, p.width), int64_t{32});
  p.scratch = 2 * kBackwardRows * kBackwardKeys + (kBackwardRows + 32) * (kBackwardKeys + 32) + 1024 +
              columns * (kBackwardKeys + 5 * kBackwardRows + 5 * round_up(p.keys, int64_t{32}));
  const Tensor scratch = at::empty({items * p.scratch}, lse.options());
  GemmArgs product{.may_narrow = true};
  product.a = product.b = product.c = gemm_matrix(o.q);
  const auto launch = [&](const auto&... more) {
    launch_blocks("attention_blocks_backward.cl", "attention_blocks_backward", o, product, items, p, buf(dq), buf(dk),
                  buf(dv), buf(scratch), buf(o.q), buf(o.k), buf(o.v), buf(out), buf(grad), buf(lse), more...);
  };
  o.functions ? launch(buf(grad_lse)) : launch();
  return {dq, dk, dv};
}

// What choose_backend() looks at; a caller of the fused operators may pass anything.
void check_operands(const Tensor& q, const Tensor& k, const Tensor& v) {
  for (const Tensor* t : {&q, &k, &v}) {
    TORCH_CHECK(t->dim() == 4, kAttentionOp, ": expected 4 dimensions, got ", t->dim());
    TORCH_CHECK(t->scalar_type() == q.scalar_type(), kAttentionOp, ": expected query, key and value of one dtype, got ",
                q.scalar_type(), " and ", t->scalar_type());
  }
  check_sizes(kAttentionOp, "key", k, {q.size(0), k.size(1), k.size(2), q.size(3)});
  check_sizes(kAttentionOp, "value", v, {q.size(0), k.size(1), k.size(2), v.size(3)});
  TORCH_CHECK(k.size(1) == 0 || q.size(1) % k.size(1) == 0, kAttentionOp, ": ", q.size(1),
              " heads of the query cannot share ", k.size(1), " of the key");
}
bool sees_no_key(const Tensor& query, const Tensor& key) { return key.numel() == 0 || query.numel() == 0; }

Results forward(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& bias,
                double dropout, bool causal, bool debug_mask, std::optional<double> scale) {
  TORCH_CHECK(dropout == 0, "netcl: fused attention has no dropout; use SDPBackend.MATH");
  check_operands(query, key, value);
  if (sees_no_key(query, key)) {
    const Tensor lse = at::empty(query.sizes().slice(0, 3), query.options().dtype(compute_type(query.scalar_type())));
    return results(query, result_like(query, value.size(3)).zero_(), lse.fill_(-INFINITY), key.size(2));
  }
  const Tensor out = result_like(query, value.size(3));
  const Tensor lse = at::empty(query.sizes().slice(0, 3), query.options().dtype(compute_type(query.scalar_type())));
  const auto done = [&] { return results(query, out, lse, key.size(2)); };
  if (const auto operands = flash_operands(query, key, value, bias, causal, scale)) {
    flash_attention(*operands, out, lse);
    return done();
  }
  const FlashOperands operands = block_operands(query, key, value, bias, causal, scale);
  if (serves_in_blocks(operands, out)) {
    in_blocks(operands, out, lse);
    return done();
  }
  // The only queries of heads that share keys are the rows of one product, so no key is copied or read twice.
  const bool share =
      query.size(2) == 1 && key.size(1) < query.size(1) && key.size(1) > 0 && !causal && !(bias && bias->defined());
  const auto rows = [&](const Tensor& t) {
    return share ? t.squeeze(2).unflatten(1, {key.size(1), query.size(1) / key.size(1)}) : t;
  };
  const Attention a(rows(query), key, value, bias, causal, scale);
  const Tensor out_rows = rows(out);
  if (!causal && !a.bias.defined() && decode(query, key, value, a.scale, out, lse)) return done();
  a.parts([&](const Part& part) {
    const Tensor scores = at::empty({part.batches, part.heads, part.queries, part.keys}, a.acc_options());
    const GemmMatrix s = gemm_matrix(scores);
    a.multiply_keys(part, s);
    RowSplit split;
    const AttentionParams p = a.arg(part, &split);
    a.rows("attention_softmax", p, split, buf(scores), buf(lse));
    a.multiply(part, {.m = part.queries,
                      .n = a.v.size(3),
                      .k = part.keys,
                      .a = s,
                      .b = part.of_keys(a.v),
                      .c = part.of_queries(out_rows)});
  });
  return done();
}

Tensor zeros_if(bool wanted, const Tensor& t) { return wanted ? at::zeros_like(t) : Tensor(); }

std::tuple<Tensor, Tensor, Tensor, Tensor> backward(const Tensor& grad_out, const Tensor& query, const Tensor& key,
                                                    const Tensor& value, const Tensor& bias, std::array<bool, 4> mask,
                                                    const Tensor& out, const Tensor& lse, const Tensor&, const Tensor&,
                                                    c10::SymInt, c10::SymInt, double dropout, bool causal,
                                                    const Tensor&, const Tensor&, std::optional<double> scale) {
  TORCH_CHECK(!(mask[3] && bias.defined()), "netcl: fused attention has no gradient for its mask; use SDPBackend.MATH");
  if (!grad_out.defined()) return {};
  check_operands(query, key, value);
  const std::array<int64_t, 4> sizes{query.size(0), query.size(1), query.size(2), value.size(3)};
  check_sizes(kAttentionOp, "grad_out", grad_out, sizes);
  check_sizes(kAttentionOp, "out", out, sizes);
  check_sizes(kAttentionOp, "logsumexp", lse, query.sizes().slice(0, 3));
  TORCH_CHECK(lse.scalar_type() == compute_type(query.scalar_type()), kAttentionOp, ": expected logsumexp in ",
              compute_type(query.scalar_type()), ", got ", lse.scalar_type());
  if (sees_no_key(query, key))
    return {zeros_if(mask[0], query), zeros_if(mask[1], key), zeros_if(mask[2], value), Tensor()};
  if (const auto operands = flash_operands(query, key, value, bias, causal, scale))
    return std::tuple_cat(flash_attention_backward(*operands, grad_out, out, lse, mask), std::tuple<Tensor>());
  const Tensor lse_of_rows = lse.contiguous();
  const FlashOperands operands = block_operands(query, key, value, bias, causal, scale);
  if (serves_backward_in_blocks(operands)) {
    const auto all = backward_in_blocks(operands, grad_out, out, lse_of_rows);
    const auto wanted = [&](size_t i) { return mask[i] ? all[i] : Tensor(); };
    return {wanted(0), wanted(1), wanted(2), Tensor()};
  }
  Tensor dq, dk, dv;
  const Attention a(query, key, value, bias, causal, scale);
  const int64_t depth = query.size(3), width = a.v.size(3);
  if (mask[0]) dq = at::empty_like(query);
  // If several parts add to a gradient, it is kept in the compute type.
  const bool add = !a.whole();
  const auto sums = [&](const Tensor& t) { return add ? at::zeros_like(t, a.acc) : at::empty_like(t); };
  if (mask[1]) dk = sums(a.k);
  if (mask[2]) dv = sums(a.v);
  a.parts([&](const Part& part) {
    const Tensor scores = at::empty({part.batches, part.heads, part.queries, part.keys}, a.acc_options());
    const Tensor grads = at::empty_like(scores);
    const GemmMatrix s = gemm_matrix(scores), g = gemm_matrix(grads), go = part.of_queries(grad_out);
    a.multiply_keys(part, s);
    a.multiply(part,
               {.m = part.queries, .n = part.keys, .k = width, .a = go, .b = transposed(part.of_keys(a.v)), .c = g});
    RowSplit split;
    const AttentionParams p = a.arg(part, &split);
    a.rows("attention_backward", p, split, buf(scores), buf(grads), buf(lse_of_rows));
    // The gradient of the keys or values, which has `columns` columns: x^T * queries, for probabilities or scores `x`.
    const auto of_keys = [&](const GemmMatrix& x, const GemmMatrix& queries, const Tensor& to, int64_t columns,
                             double alpha) {
      const GemmMatrix c = part.of_keys(to);
      a.multiply(part, {.m = part.keys,
                        .n = columns,
                        .k = part.queries,
                        .a = transposed(x),
                        .b = queries,
                        .c = c,
                        .d = add ? c : GemmMatrix{},
                        .alpha = alpha,
                        .beta = add ? 1 : 0});
    };
    if (dv.defined()) of_keys(s, go, dv, width, 1);
    if (dk.defined()) of_keys(g, part.of_queries(a.q), dk, depth, a.scale);
    if (dq.defined())
      a.multiply(part, {.m = part.queries,
                        .n = depth,
                        .k = part.keys,
                        .a = g,
                        .b = part.of_keys(a.k),
                        .c = part.of_queries(dq),
                        .alpha = a.scale});
  });
  if (dk.defined()) dk = Attention::gathered(dk, key);
  if (dv.defined()) dv = Attention::gathered(dv, value);
  return {dq, dk, dv, Tensor()};
}

// flex_attention with its functions as text. `seen` is the table of ScoreFunctions.
std::tuple<Tensor, Tensor> flex_attention(const Tensor& query, const Tensor& key, const Tensor& value, double scale,
                                          const Tensor& seen, int64_t q_block, int64_t k_block, at::TensorList captured,
                                          at::IntArrayRef sizes, c10::string_view source) {
  check_operands(query, key, value);
  const Tensor out = result_like(query, value.size(3));
  const Tensor lse = at::empty(query.sizes().slice(0, 3), query.options().dtype(at::kFloat));
  const ScoreFunctions functions{std::string(source), captured, sizes, seen, q_block, k_block};
  in_blocks({query, key, value, {}, false, scale, &functions}, out, lse);
  return {out, lse};
}
std::tuple<Tensor, Tensor, Tensor> flex_attention_backward(const Tensor& query, const Tensor& key, const Tensor& value,
                                                           const Tensor& out, const Tensor& lse, const Tensor& grad_out,
                                                           const Tensor& grad_lse, double scale, const Tensor& seen,
                                                           int64_t q_block, int64_t k_block, at::TensorList captured,
                                                           at::IntArrayRef sizes, c10::string_view source) {
  check_operands(query, key, value);
  const ScoreFunctions functions{std::string(source), captured, sizes, seen, q_block, k_block};
  return std::tuple_cat(backward_in_blocks({query, key, value, {}, false, scale, &functions}, grad_out, out,
                                           lse.contiguous(), grad_lse.contiguous()));
}

NETCL_LIBRARY_FRAGMENT(netcl, m) {
  m.def(
      "flex_attention(Tensor query, Tensor key, Tensor value, float scale, Tensor seen, SymInt q_block, "
      "SymInt k_block, Tensor[] captured, SymInt[] sizes, str source) -> (Tensor, Tensor)");
  m.def(
      "flex_attention_backward(Tensor query, Tensor key, Tensor value, Tensor out, Tensor lse, Tensor grad_out, "
      "Tensor grad_lse, float scale, Tensor seen, SymInt q_block, SymInt k_block, Tensor[] captured, "
      "SymInt[] sizes, str source) -> (Tensor, Tensor, Tensor)");
}
NETCL_LIBRARY_IMPL(netcl, PrivateUse1, m) {
  m.impl("flex_attention", &flex_attention);
  m.impl("flex_attention_backward", &flex_attention_backward);
}
NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", &choose_backend);
  m.impl("_scaled_dot_product_fused_attention_overrideable", &forward);
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", &backward);
}

}  // namespace

int64_t fused_sdp_choice(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& mask,
                         double dropout, bool causal, std::optional<double> scale, bool gqa) {
  return choose_backend(q, k, v, mask, dropout, causal, scale, gqa);
}

}  // namespace netcl

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &netcl::fused_sdp_choice)
}  // namespace at::native
