// The launches of kernels/attention_flash.cl.
#include "aten/FlashAttention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "args/attention.h"
#include "aten/support/Launch.h"

namespace netcl {
namespace {

using at::Tensor;

constexpr int64_t kMostColumns = 128;
// With fewer queries the scores take no more memory than the keys, and products of few rows read these only once.
constexpr int64_t kFewestQueries = 16;
// Offsets inside a block of 64 rows have 32 bits.
constexpr int64_t kMostStride = int64_t(1) << 24;

// The work-items of a group: x four keys (or queries) each, y four queries (or keys).
struct Tile {
  int64_t x, y;
  int64_t lines() const { return 4 * y; }
  // The tile of scores, a part of the values, and up to 64 numbers of lines.
  int64_t local_bytes() const { return 4 * (16 * x * y + 2048 + 64); }
};
// From large to small; the last one fits every device that OpenCL's embedded profile allows.
constexpr std::array<Tile, 3> kTiles{{{16, 16}, {16, 8}, {8, 8}}};

bool fits(const Device& device, const Tile& t) {
  return t.x * t.y <= static_cast<int64_t>(device.info().max_work_group_size) &&
         t.local_bytes() <= static_cast<int64_t>(device.info().local_mem_size);
}
// `many` sums per line need so many registers that groups of 256 would leave a GPU's unit half empty.
Tile tile_for(const Device& device, bool many) {
  for (const Tile& t : kTiles)
    if (fits(device, t) && !(many && t.x * t.y > 128)) return t;
  return kTiles.back();
}

bool has_rows(const Tensor& t) { return t.stride(3) == 1 || t.size(3) == 1; }
Tensor with_rows(const Tensor& t) { return has_rows(t) && t.stride(2) < kMostStride ? t : t.contiguous(); }

HeadStrides strides_of(const Tensor& t) {
  HeadStrides s{t.stride(0), t.stride(1), t.stride(2), 0};
  const int64_t size = t.element_size();
  const auto whole = [&](int64_t bytes) { return bytes % 16 == 0; };
  s.aligned = whole(reinterpret_cast<intptr_t>(t.const_data_ptr())) && whole(s.b * size) && whole(s.h * size) &&
              whole(s.row * size);
  return s;
}

// A gradient, which the kernels write row by row; finish() gives it the memory order of the operand.
class Gradient {
 public:
  Gradient(const Tensor& operand, bool wanted) {
    if (!wanted) return;
    result_ = at::empty_like(operand);
    rows_ = has_rows(result_) && result_.stride(2) < kMostStride
                ? result_
                : at::empty_like(operand, at::MemoryFormat::Contiguous);
  }
  const Tensor& rows() const { return rows_; }
  HeadStrides strides() const { return rows_.defined() ? strides_of(rows_) : HeadStrides{}; }
  Tensor finish() const {
    if (result_.defined() && !rows_.is_same(result_)) result_.copy_(rows_);
    return result_;
  }

 private:
  Tensor result_, rows_;
};

// What all launches of a call share.
class Launcher {
 public:
  explicit Launcher(const FlashOperands& o)
      : q(with_rows(o.q)),
        k(with_rows(o.k)),
        v(with_rows(o.v)),
        params(flash_params(o)),
        bias_(o.bias),
        device_(netcl::device_of(o.q)) {
    params.q = strides_of(q);
    params.k = strides_of(k);
    params.v = strides_of(v);
  }

  int64_t head() const { return round_up<int64_t>(std::max(params.depth, params.width), 32); }
  Defs defs(const Tile& t) const {
    Defs d;
    d.set("IO", dtype_tag(q.scalar_type())).set("HEAD", head()).set("SIDE_X", t.x).set("SIDE_Y", t.y);
    if (bias_.defined()) d.set("BIAS", dtype_tag(bias_.scalar_type()));
    return d;
  }
  // One group per block of lines of each of `heads` heads.
  template <class... Args>
  void launch(const char* name, const Tile& t, const Defs& d, int64_t lines, int64_t heads, const Args&... args) const {
    const auto items = static_cast<size_t>(t.x * t.y);
    const auto groups = static_cast<size_t>(ceil_div(lines, t.lines()) * heads * q.size(0));
    if (groups == 0) return;
    Kernel& kernel = netcl::kernel(device_, "attention_flash.cl", name, d);
    if (bias_.defined()) {
      kernel.launch(kAttentionOp, queue_of(q), {groups * items}, {items}, args..., buf(bias_), params);
    } else {
      kernel.launch(kAttentionOp, queue_of(q), {groups * items}, {items}, args..., params);
    }
  }
  void delta(const Tensor& delta, const Tensor& out, const Tensor& grad) const {
    constexpr int64_t kItems = 64, kRows = 8;
    const int64_t rows = delta.numel();
    if (rows == 0) return;
    kernel(device_, "attention_flash.cl", "attention_flash_delta", defs(kTiles.back()))
        .launch(kAttentionOp, queue_of(q), {size_t(ceil_div(rows, kRows) * kItems)}, {size_t(kItems)}, buf(delta),
                buf(out), buf(grad), params, rows);
  }
  Device& device() const { return device_; }

  const Tensor q, k, v;
  FlashParams params;

 private:
  const Tensor bias_;
  Device& device_;
};

}  // namespace

FlashParams flash_params(const FlashOperands& o) {
  FlashParams p{};
  p.batches = static_cast<int32_t>(o.q.size(0));
  p.heads = o.q.size(1);
  p.kv_heads = o.k.size(1);
  p.queries = o.q.size(2);
  p.keys = o.k.size(2);
  p.depth = o.q.size(3);
  p.width = o.v.size(3);
  p.causal = o.causal;
  p.scale = static_cast<float>(o.scale);
  if (!o.bias.defined()) return p;
  p.bias_b = o.bias.stride(0);
  p.bias_h = o.bias.stride(1);
  p.bias_q = o.bias.stride(2);
  p.bias_k = o.bias.stride(3);
  return p;
}

std::optional<FlashOperands> flash_operands(const Tensor& q, const Tensor& k, const Tensor& v,
                                            const std::optional<Tensor>& bias, bool causal,
                                            std::optional<double> scale) {
  const c10::ScalarType type = q.scalar_type();
  if (netcl::device_of(q).is_cpu() || (type != at::kFloat && type != at::kHalf && type != at::kBFloat16)) return {};
  const bool shares = k.size(1) != q.size(1);
  if (q.size(2) < (shares ? 2 : kFewestQueries) || std::max(q.size(3), v.size(3)) > kMostColumns) return {};
  const auto small = [](int64_t n) { return n < std::numeric_limits<int32_t>::max() / 2; };
  if (!small(q.size(2)) || !small(k.size(2)) || !small(q.size(0) * q.size(1))) return {};
  FlashOperands o{q, k, v, Tensor(), causal, scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3))))};
  if (bias && bias->defined()) {
    o.bias = bias->expand({q.size(0), q.size(1), q.size(2), k.size(2)});
    if (o.bias.stride(2) >= kMostStride || o.bias.stride(3) >= kMostStride) return {};
  }
  return o;
}

void flash_attention(const FlashOperands& o, const Tensor& out, const Tensor& lse) {
  Launcher l(o);
  const Tensor rows = has_rows(out) ? out : at::empty_like(out, at::MemoryFormat::Contiguous);
  l.params.out = strides_of(rows);
  const Tile tile = tile_for(l.device(), l.head() > 64);
  l.launch("attention_flash_forward", tile, l.defs(tile), l.params.queries, l.params.heads, buf(rows), buf(lse),
           buf(l.q), buf(l.k), buf(l.v));
  if (!rows.is_same(out)) out.copy_(rows);
}

std::tuple<Tensor, Tensor, Tensor> flash_attention_backward(const FlashOperands& o, const Tensor& grad_out,
                                                            const Tensor& out, const Tensor& lse,
                                                            std::array<bool, 4> mask) {
  Launcher l(o);
  const Tensor grad = with_rows(grad_out.to(l.q.scalar_type())), result = with_rows(out), sums = lse.contiguous();
  const Gradient dq(o.q, mask[0]), dk(o.k, mask[1]), dv(o.v, mask[2]);
  l.params.out = strides_of(result);
  l.params.grad = strides_of(grad);
  l.params.dq = dq.strides();
  l.params.dk = dk.strides();
  l.params.dv = dv.strides();
  const Tensor delta = at::empty_like(sums);
  if (mask[0] || mask[1]) l.delta(delta, result, grad);
  const Tile tile = tile_for(l.device(), true);
  if (mask[0])
    l.launch("attention_flash_queries", tile, l.defs(tile), l.params.queries, l.params.heads, buf(dq.rows()), buf(grad),
             buf(l.q), buf(l.k), buf(l.v), buf(sums), buf(delta));
  const auto keys = [&](bool with_k, bool with_v) {
    if (!with_k && !with_v) return;
    Defs d = l.defs(tile);
    d.set("GRADS", int64_t{with_k} + 2 * int64_t{with_v});
    l.launch("attention_flash_keys", tile, d, l.params.keys, l.params.kv_heads, buf_or_null(dk.rows()),
             buf_or_null(dv.rows()), buf(grad), buf(l.q), buf(l.k), buf(l.v), buf(sums), buf(delta));
  };
  // The sums of both gradients of wide heads do not fit into the registers.
  if (l.head() <= 64) {
    keys(mask[1], mask[2]);
  } else {
    keys(mask[1], false);
    keys(false, mask[2]);
  }
  return {dq.finish(), dk.finish(), dv.finish()};
}

}  // namespace netcl
