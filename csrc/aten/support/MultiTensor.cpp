#include "aten/support/MultiTensor.h"

#include <c10/util/bit_cast.h>

#include "args/multi_tensor.h"
#include "runtime/CachingAllocator.h"
#include "runtime/Copies.h"

namespace netcl {
namespace {

// kernels/common/multi_tensor.h unpacks these.
constexpr int kSlabShift = 56;

uint64_t table_entry(const c10::Scalar& s, c10::ScalarType compute) {
  if (compute == c10::kDouble) return c10::bit_cast<uint64_t>(s.toDouble());
  if (compute == c10::kFloat) return c10::bit_cast<uint32_t>(static_cast<float>(s.toDouble()));
  return static_cast<uint64_t>(s.toLong());
}

// Memory that no command of a capture uses for anything else.
c10::DataPtr lasting_memory(Device& device, size_t bytes) {
  constexpr int kTables = 1;  // the number of its queue: see Graph.cpp
  void* at = allocate_on(device, capture_queue(device.index(), kTables).stream().id(), bytes);
  return {at, at, allocator()->raw_deleter(), c10::Device(c10::DeviceType::PrivateUse1, device.index())};
}

uint64_t address_word(size_t slab, size_t offset) { return static_cast<uint64_t>(slab) << kSlabShift | offset; }

}  // namespace

// Writes the table of a captured launch: in the first replay, and when a tensor has moved or another queue replays.
struct CapturedTable final : DeferredCommand {
  CapturedTable(MultiTensor::Group& g, size_t columns)
      : words(g.table), columns(columns), slabs(g.slabs), memory(std::move(g.uploaded)) {
    addresses_ = std::move(g.addresses);
    for (const void* address : addresses_) places.push_back(locate(address));
    for (cl_mem slab : slabs) hold(slab);
  }
  void set_address(size_t i, const void* address) override {
    addresses_[i] = address;
    const Location now = locate(address);
    moved |= now.mem != places[i].mem || now.offset != places[i].offset;
    places[i] = now;
  }
  bool prepare() override {
    if (!moved) return true;
    size_t used = 0;
    for (size_t i = 0; i < places.size(); i++) {
      const size_t slab = std::find(slabs.begin(), slabs.begin() + used, places[i].mem) - slabs.begin();
      if (slab == slabs.size()) return false;
      if (slab == used) slabs[used++] = places[i].mem;
      words[(i / columns * (MultiTensor::kHeader + columns)) + MultiTensor::kHeader + (i % columns)] =
          address_word(slab, places[i].offset);
    }
    std::fill(slabs.begin() + used, slabs.end(), slabs[0]);
    moved = false;
    writer = nullptr;
    return true;
  }
  void submit(Queue& queue) override {
    if (writer == &queue) return;
    copy_to_device(memory.get(), words.data(), words.size() * sizeof(uint64_t), queue);
    allocator()->recordStream(memory, queue.stream());
    writer = &queue;
  }
  std::vector<uint64_t> words;
  size_t columns;
  std::array<cl_mem, MultiTensor::kSlabs> slabs;
  std::vector<Location> places;
  c10::DataPtr memory;
  bool moved = false;
  const Queue* writer = nullptr;  // the queue that has written `words`
};

MultiTensor::MultiTensor(const char* op, c10::Device device, size_t columns, c10::ScalarType compute)
    : op_(op),
      device_(netcl::device(device.index())),
      queue_(current_queue(device_.index())),
      columns_(columns),
      // On a CPU one work-item processes a chunk; on a GPU a group shares it.
      lanes_(element_group(device_).x),
      compute_(compute) {
  check_dtype(device_, compute, op);
}

MultiTensor::Group& MultiTensor::group_for(c10::ArrayRef<Location> where) {
  const size_t row_bytes = (kHeader + columns_) * sizeof(uint64_t);
  for (size_t i = groups_.size(); i-- > 0;) {  // those in front are full as a rule
    Group& g = groups_[i];
    if ((g.table.size() * sizeof(uint64_t)) + row_bytes > kMaxTable) continue;
    auto slabs = g.slabs;
    size_t used = g.used;
    bool fits = true;
    for (const Location& l : where) {
      const auto end = slabs.begin() + used;
      if (std::find(slabs.begin(), end, l.mem) != end) continue;
      if (used == kSlabs) {
        fits = false;
        break;
      }
      slabs[used++] = l.mem;
    }
    if (fits) {
      g.slabs = slabs;
      g.used = used;
      return g;
    }
  }
  Group& g = groups_.emplace_back();
  for (const Location& l : where) {
    const auto end = g.slabs.begin() + g.used;
    if (std::find(g.slabs.begin(), end, l.mem) == end) g.slabs[g.used++] = l.mem;
  }
  return g;
}

void MultiTensor::add(int64_t numel, c10::ArrayRef<const at::Tensor*> tensors, const c10::Scalar& scalar,
                      bool keep_empty) {
  TORCH_INTERNAL_ASSERT(tensors.size() == columns_ && columns_ <= kSlabs);
  if (numel == 0 && !keep_empty) return;
  c10::SmallVector<Location, kSlabs> where;
  for (const at::Tensor* t : tensors) {
    if (t->numel() != 0) {
      where.push_back(locate(t->const_data_ptr()));
    } else if (!where.empty()) {
      where.push_back(where.front());  // an empty tensor has no address, and it is not read
    } else {
      TORCH_INTERNAL_ASSERT(false, "the first column of a row may not be empty");
    }
  }
  Group& g = group_for(where);
  g.table.push_back(static_cast<uint64_t>(g.chunks));
  g.table.push_back(static_cast<uint64_t>(numel));
  g.table.push_back(table_entry(scalar, compute_));
  for (const Location& l : where) {
    const uint64_t slab = std::find(g.slabs.begin(), g.slabs.end(), l.mem) - g.slabs.begin();
    g.table.push_back(address_word(slab, l.offset));
  }
  if (queue_.deferred().capture()) {
    for (const at::Tensor* t : tensors) g.addresses.push_back((t->numel() ? t : tensors[0])->const_data_ptr());
  }
  const int64_t n = ceil_div<int64_t>(numel, kChunk);
  g.chunks += n;
  chunks_ += n;
  rows_++;
}

std::pair<Mems, Buf> MultiTensor::upload(Group& g) {
  if (!g.table_at) {
    const size_t bytes = g.table.size() * sizeof(uint64_t);
    const bool captures = queue_.deferred().capture() != nullptr;
    g.uploaded = captures ? lasting_memory(device_, bytes) : allocator()->allocate(bytes);
    g.table_at = g.uploaded.get();
    std::fill(g.slabs.begin() + g.used, g.slabs.end(), g.slabs[0]);
    if (captures) {
      auto captured = std::make_unique<CapturedTable>(g, columns_);
      g.captured = captured.get();
      queue_.deferred().add(std::move(captured));
    } else {
      copy_to_device(g.uploaded.get(), g.table.data(), bytes, queue_);
    }
  }
  return {{g.captured ? g.captured->slabs : g.slabs, g.captured != nullptr}, {g.table_at}};
}

void MultiTensor::finish(Defs& defs) {
  int64_t base = 0;
  for (Group& g : groups_) {
    g.base = base;
    base += g.chunks;
  }
  defs.set("ACC", dtype_tag(compute_)).set("GROUP", static_cast<int64_t>(lanes_));
  defs.set("COLUMNS", static_cast<int64_t>(columns_));
  // As wide as the registers: PoCL passes wider vectors to functions through memory, which halves the speed of AdamW.
  defs.set("VEC", register_tile(device_, compute_).vec);
}

}  // namespace netcl
