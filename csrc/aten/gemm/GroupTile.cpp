// The tiles that fit a device, the choice among them, and the tuner's interface.
#include "aten/gemm/GroupTile.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <sstream>

#include "aten/support/Launch.h"
#include "aten/support/Library.h"
#include "runtime/ProgramCache.h"

namespace netcl {
namespace {

// From large to small; the last one fits every device that OpenCL's embedded profile allows.
constexpr std::array<GroupTile, 10> kTiles{{
    {16, 16, 8, 8, 8},
    {16, 16, 8, 4, 16},
    {16, 8, 4, 8, 16},
    {16, 16, 4, 4, 16},
    {32, 8, 4, 4, 16},
    {8, 8, 8, 8, 8},
    {16, 16, 4, 4, 8},
    {8, 8, 4, 4, 16},
    {8, 8, 4, 4, 8},
    {8, 8, 2, 2, 8},
}};
constexpr GroupTile kUsual{16, 16, 4, 4, 16};
// For products of few rows and columns. The last one reads local memory twice as often per sum.
constexpr GroupTile kSmall{8, 8, 4, 4, 16}, kSmallest{8, 8, 2, 2, 8};

// Each vendor's tile for large products is the largest usual one that its compiler keeps in registers
// (tools/gpu_lab.py): 64 sums per work-item for NVIDIA and AMD, 32 for Intel. None was measured, so `python -m
// torch_netcl.tune` is worth its minute.
struct VendorTile {
  const char* vendor;  // part of CL_DEVICE_VENDOR
  GroupTile tile;
};
constexpr std::array<VendorTile, 3> kVendors{{
    {"NVIDIA", {16, 16, 8, 8, 8}},
    {"Advanced Micro Devices", {16, 16, 8, 8, 8}},
    {"Intel", {16, 8, 4, 8, 16}},
}};

bool fits(const Device& device, c10::ScalarType acc, const GroupTile& t) {
  // Local memory holds two blocks of each operand, with 16 bytes more per line, which puts neighbours into different
  // banks.
  const int64_t bytes = 2 * t.kc * ((t.width() + t.height()) * static_cast<int64_t>(c10::elementSize(acc)) + 32);
  return t.x * t.y <= static_cast<int64_t>(device.info().max_work_group_size) &&
         bytes <= static_cast<int64_t>(device.info().local_mem_size);
}

int64_t groups_of(const GroupTile& t, int64_t m, int64_t n, int64_t batches) {
  return ceil_div(m, t.height()) * ceil_div(n, t.width()) * batches;
}
bool fills(const Device& device, const GroupTile& t, int64_t m, int64_t n, int64_t batches) {
  return groups_of(t, m, n, batches) >= enough_items(device, 1);
}

GroupTile first_fitting(const Device& device, c10::ScalarType acc, const GroupTile& wanted) {
  if (fits(device, acc, wanted)) return wanted;
  // Only tiles that are no larger: one that does not fit because of its registers would be slow too.
  for (const GroupTile& t : kTiles)
    if (t.width() * t.height() <= wanted.width() * wanted.height() && fits(device, acc, t)) return t;
  return kTiles.back();
}

std::string note_key(const Device& device, c10::ScalarType acc) {
  return std::string("gemm tile\n") + c10::toString(acc) + '\n' + device.fingerprint();
}

std::optional<GroupTile> known(c10::ArrayRef<int64_t> v) {
  if (v.size() != 5) return std::nullopt;
  const GroupTile t{v[0], v[1], v[2], v[3], v[4]};
  return std::find(kTiles.begin(), kTiles.end(), t) == kTiles.end() ? std::nullopt : std::optional(t);
}

// The tiles for large products: set by a caller, stored on disk by an earlier run, or the vendor's.
class Choices {
 public:
  GroupTile get(const Device& device, c10::ScalarType acc) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [found, is_new] = tiles_.try_emplace({device.index(), acc});
    if (is_new) found->second = stored(device, acc);
    return found->second;
  }
  void set(const Device& device, c10::ScalarType acc, const GroupTile& tile) {
    const std::lock_guard<std::mutex> lock(mutex_);
    tiles_[{device.index(), acc}] = tile;
  }

 private:
  static GroupTile stored(const Device& device, c10::ScalarType acc) {
    std::istringstream note(load_note(note_key(device, acc)));
    std::vector<int64_t> numbers;
    for (int64_t n; note >> n;) numbers.push_back(n);
    if (const auto tile = known(numbers); tile && fits(device, acc, *tile)) return *tile;
    GroupTile wanted = kUsual;
    for (const auto& v : kVendors)
      if (device.info().vendor.find(v.vendor) != std::string::npos) wanted = v.tile;
    return first_fitting(device, acc, wanted);
  }

  std::mutex mutex_;
  std::map<std::pair<c10::DeviceIndex, c10::ScalarType>, GroupTile> tiles_;
};

Choices& choices() {
  static auto& all = *new Choices;
  return all;
}

std::vector<int64_t> numbers(const GroupTile& t) { return {t.x, t.y, t.cols, t.rows, t.kc}; }

std::vector<std::vector<int64_t>> candidates(int64_t index, c10::ScalarType acc) {
  std::vector<std::vector<int64_t>> r;
  for (const GroupTile& t : kTiles)
    if (fits(device(static_cast<c10::DeviceIndex>(index)), acc, t)) r.push_back(numbers(t));
  return r;
}

void set_tile(int64_t index, c10::ScalarType acc, c10::ArrayRef<int64_t> tile, bool keep) {
  const Device& d = device(static_cast<c10::DeviceIndex>(index));
  const auto t = known(tile);
  TORCH_CHECK_VALUE(t && fits(d, acc, *t), "netcl: gemm tile ", tile, " is not one of gemm_tiles() of ", d.info().name);
  choices().set(d, acc, *t);
  if (keep) store_note(note_key(d, acc), c10::Join(" ", tile));
}

NETCL_LIBRARY_FRAGMENT(netcl, m) {
  m.def("gemm_tiles(int index, ScalarType acc) -> int[][]", &candidates);
  m.def("gemm_tile(int index, ScalarType acc) -> int[]", [](int64_t index, c10::ScalarType acc) {
    return numbers(choices().get(device(static_cast<c10::DeviceIndex>(index)), acc));
  });
  m.def("set_gemm_tile(int index, ScalarType acc, int[] tile, bool keep) -> ()", &set_tile);
}

}  // namespace

GroupTile group_tile(const Device& device, c10::ScalarType acc, int64_t m, int64_t n, int64_t batches) {
  const GroupTile tile = choices().get(device, acc);
  if (device.is_cpu() || fills(device, tile, m, n, batches)) return tile;
  GroupTile best = tile;
  for (const GroupTile& wanted : {kUsual, kSmall, kSmallest}) {
    const GroupTile t = first_fitting(device, acc, wanted);
    // The smallest tile pays where the others leave half of the units idle.
    if (wanted == kSmallest && 2 * groups_of(best, m, n, batches) > enough_items(device, 1)) break;
    if (t.width() * t.height() < best.width() * best.height()) best = t;
    if (fills(device, best, m, n, batches)) break;
  }
  return best;
}

GroupTile conv_tile(const Device& device, c10::ScalarType acc, int64_t m, int64_t n, int64_t batches) {
  // Tiles for up to 32 and 64 columns, with as many sums per work-item as the vendor's.
  constexpr GroupTile kNarrow{8, 16, 4, 8, 8}, kHalf{8, 16, 8, 8, 8}, kHalfOfFewer{8, 16, 8, 4, 8};
  const GroupTile large = choices().get(device, acc);
  const GroupTile half = large.rows * large.cols < 64 ? kHalfOfFewer : kHalf;
  const GroupTile tile = n <= kNarrow.width() ? kNarrow : n <= half.width() ? half : large;
  return fits(device, acc, tile) && fills(device, tile, m, n, batches) ? tile : group_tile(device, acc, m, n, batches);
}

}  // namespace netcl
