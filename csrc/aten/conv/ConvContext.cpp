#include "aten/conv/ConvContext.h"

#include <ATen/Functions.h>

#include <limits>
#include <mutex>
#include <unordered_map>

namespace netcl {

ConvContext::ConvContext(const ConvCall& call)
    : op(call.op),
      device(netcl::device_of(call.result())),
      queue(queue_of(call.result())),
      acc(compute_type(call.result().scalar_type())),
      source_type(acc) {
  const RegisterTile tile = register_tile(device, acc);
  vec = tile.vec;
  mr = std::min<int64_t>(tile.rows, 8);  // the addresses of rows need registers too
}

at::Tensor ConvContext::scratch(int64_t elements, c10::ScalarType type) const {
  return at::empty({std::max<int64_t>(elements, 1)},
                   at::TensorOptions(type).device(c10::DeviceType::PrivateUse1, device.index()));
}

Defs ConvContext::defs() const {
  Defs d;
  d.set("ACC", dtype_tag(acc)).set("VEC", vec);
  return d;
}

Defs ConvContext::offset_defs(const char* offset_type) const {
  Defs d;
  d.set("ACC", dtype_tag(acc)).set("IDX", offset_type);
  return d;
}

Defs ConvContext::tile_defs(int64_t n, const char* offset_type) const {
  Defs d = defs();
  d.set("MR", mr).set("NV", vectors(n)).set("IDX", offset_type);
  if (engine) d.set(engine->define, 1).set("PARTS", engine->parts);
  return d;
}

int64_t ConvContext::images_at_once(int64_t images, int64_t elements_per_image) const {
  const int64_t bytes = std::max<int64_t>(elements_per_image * static_cast<int64_t>(c10::elementSize(acc)), 1);
  const int64_t most = std::clamp<int64_t>(kConvScratchBytes / bytes, 1, std::max<int64_t>(images, 1));
  // A last pass of few images would leave most of a GPU idle.
  return in_groups() && images > 0 ? ceil_div(images, ceil_div(images, most)) : most;
}

MixedRadix ConvGrid::points_first() const {
  return {{others, count[0], count[1], count[2]},
          {other_stride, extent[1] * extent[2] * step[0] * point, extent[2] * step[1] * point, step[2] * point}};
}
MixedRadix ConvGrid::others_first() const {
  return {{count[0], count[1], count[2], others},
          {extent[1] * extent[2] * step[0] * point, extent[2] * step[1] * point, step[2] * point, other_stride}};
}
MixedRadix linear_radix(int64_t count, int64_t stride) { return {{1, 1, 1, count}, {0, 0, 0, stride}}; }

namespace {

int64_t largest_offset(const MixedRadix& r) {
  int64_t top = 0;
  for (int d = 0; d < 4; d++) top += std::max<int64_t>(r.size[d] - 1, 0) * std::abs(r.stride[d]);
  return top;
}

int64_t contiguous_offsets(const MixedRadix& r) {
  if (r.stride[3] != 1) return 1;
  int64_t n = r.size[3];
  for (int d = 2; d >= 0 && (r.size[d] == 1 || r.stride[d] == n); d--) n *= r.size[d];
  return std::clamp<int64_t>(n, 1, std::numeric_limits<int32_t>::max());
}

static_assert(kGpuTuning.offset_block == kUnitDepth);

OffsetTable write_table(const ConvContext& c, const MixedRadix& radix, int64_t offsets) {
  const int64_t count = round_up(offsets, tuning(c.device).offset_block);
  const bool wide = largest_offset(radix) > std::numeric_limits<int32_t>::max();
  OffsetTable t{c.scratch(count, wide ? c10::kLong : c10::kInt), contiguous_offsets(radix)};
  if (count == 0) return t;
  const int64_t per_item = tuning(c.device).offsets;
  kernel(c.device, "conv/conv_table.cl", "conv_table", c.defs().set("IDX", t.type()))
      .launch(c.op, c.queue, {size_t(ceil_div(count, per_item))}, element_group(c.device), buf(t.data), radix, count,
              per_item);
  return t;
}

}  // namespace

// A table depends only on shapes, which recur, so the latest ones are kept. Each queue has its own tables, so a table
// is written before it is read.
OffsetTable offset_table(const ConvContext& c, const MixedRadix& radix, int64_t count) {
  constexpr int64_t kLongest = 1 << 14;
  constexpr size_t kMost = 256;
  using Key = std::array<int64_t, 11>;
  struct Hash {
    size_t operator()(const Key& key) const {
      size_t h = 0;
      for (const int64_t k : key) h = (h ^ static_cast<size_t>(k)) * 0x9e3779b97f4a7c15ULL;
      return h ^ (h >> 32);
    }
  };
  static auto& mutex = *new std::mutex;  // never destroyed, since the driver may be unloaded before
  static auto& kept = *new std::unordered_map<Key, OffsetTable, Hash>;
  if (count > kLongest) return write_table(c, radix, count);
  Key key;
  std::copy_n(radix.size, 4, key.begin());
  std::copy_n(radix.stride, 4, key.begin() + 4);
  key[8] = count;
  key[9] = c.device.index();
  key[10] = c.queue.stream().id();
  const std::lock_guard<std::mutex> lock(mutex);
  if (const auto found = kept.find(key); found != kept.end()) return found->second;
  if (kept.size() >= kMost) kept.clear();
  return kept.emplace(key, write_table(c, radix, count)).first->second;
}

at::Tensor pad_images(const ConvContext& c, const ConvPadding& p) {
  const at::Tensor part = p.src.narrow(0, p.first, p.images);
  const auto from_type = p.src.scalar_type();
  if (p.slack == 0 && p.padded == p.in && from_type == c.source_type) return part;
  // A point holds all channels, or there is a plane per channel.
  const int64_t point = p.channels_last ? p.src.size(1) : 1, planes = p.images * p.src.size(1) / point;
  const at::Tensor out = c.scratch((planes * volume(p.padded) * point + p.slack) * c.numbers(), c.source_type);
  ConvPadParams a{};
  a.rows = planes * p.padded[0] * p.padded[1];
  a.rows_per_item = ceil_div<int64_t>(8192, p.padded[2] * point);
  if (has_many_units(c.device)) {
    const int64_t least = ceil_div<int64_t>(2048, p.padded[2] * point);
    a.rows_per_item = evened(c.device, a.rows, std::clamp(even_part(c.device, a.rows), least, a.rows_per_item));
  }
  put(p.padded, a.out_d, a.out_h, a.out_w);
  put(p.in, a.in_d, a.in_h, a.in_w);
  put(p.before, a.pad_d, a.pad_h, a.pad_w);
  for (int64_t* row : {&a.out_w, &a.in_w, &a.pad_w}) *row *= point;
  Defs defs = c.defs();
  defs.set("IN", dtype_tag(from_type)).set("OUT", dtype_tag(c.source_type));
  if (c.numbers() > 1) defs.set("PARTS", c.numbers());
  kernel(c.device, "conv/conv_pad.cl", "conv_pad", defs)
      .launch(c.op, c.queue, row_elements(c.device, a.rows, a.rows_per_item, a.out_w), element_group(c.device),
              buf(part), buf(out), a);
  return out;
}

}  // namespace netcl
