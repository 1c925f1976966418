#include "runtime/CachingAllocator.h"

#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "runtime/AddressSpace.h"
#include "runtime/Counters.h"
#include "runtime/Environment.h"
#include "runtime/HugePages.h"
#include "runtime/Log.h"
#include "runtime/OpName.h"
#include "runtime/Queue.h"
#include "runtime/Shutdown.h"

namespace netcl {

namespace {

using c10::CachingAllocator::StatType;

constexpr size_t kAlign = 512;              // a multiple of it is a valid origin of a sub-buffer
constexpr size_t kSmall = size_t{1} << 20;  // blocks up to this size share 2 MiB slabs
constexpr size_t kSmallSlab = size_t{2} << 20;
constexpr size_t kLargeSlab = size_t{20} << 20;
constexpr size_t kMinLarge = size_t{10} << 20;
constexpr size_t kSpare = size_t{32} << 20;  // may lie idle beyond the highest use so far

struct Block {
  uintptr_t address = 0;
  size_t size = 0, requested = 0;
  c10::StreamId stream = 0;
  bool small = false, allocated = false;
  Slab* slab = nullptr;
  Block *prev = nullptr, *next = nullptr;
  std::set<c10::StreamId> used_by;  // other streams, from record_stream
};

struct BySize {
  bool operator()(const Block* a, const Block* b) const {
    if (a->stream != b->stream) return a->stream < b->stream;
    if (a->size != b->size) return a->size < b->size;
    return a->address < b->address;
  }
};

void* as_pointer(uintptr_t address) { return reinterpret_cast<void*>(address); }

std::string human(size_t bytes) {
  static constexpr std::array<const char*, 5> units{"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto v = static_cast<double>(bytes);
  size_t u = 0;
  for (; v >= 1024 && u + 1 < units.size(); u++) v /= 1024;
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), u ? "%.2f %s" : "%.0f %s", v, units.at(u));
  return text.data();
}

cl_int try_finish(Queue& queue) {
  increment(counters.host_syncs);
  return queue.finish_submitted();
}

// NETCL_SEPARATE_BUFFERS=1, for tools that check bounds: each tensor has a buffer of just its size.
bool separate_buffers() {
  static const bool on = flag("NETCL_SEPARATE_BUFFERS");
  return on;
}

// The memory of one device: free lists per stream, of blocks cut from slabs.
class Pool {
 public:
  void* allocate(Device& device, c10::StreamId stream, size_t bytes) {
    const Lock lock(mutex_);
    reclaim_finished();
    const size_t size = std::max(kAlign, (bytes + kAlign - 1) / kAlign * kAlign);
    if (separate_buffers()) release_cached();
    Block* block = take_free(stream, size);
    if (!block) block = new_slab(device, stream, size, bytes);
    split(block, size);
    block->allocated = true;
    block->requested = bytes;
    active_[block->address] = block;
    each(block, [&](StatType t) {
      stats_.allocation[int(t)].increase(1);
      stats_.allocated_bytes[int(t)].increase(block->size);
      stats_.active[int(t)].increase(1);
      stats_.active_bytes[int(t)].increase(block->size);
      stats_.requested_bytes[int(t)].increase(bytes);
    });
    most_ = std::max(most_, static_cast<size_t>(stats_.allocated_bytes[0].current));
    if (logs(LogTopic::kAlloc)) {
      log("alloc ", bytes, " bytes at ", as_pointer(block->address), " on netcl:", int(device.index()), " stream ",
          stream);
    }
    return as_pointer(block->address);
  }

  void free(Device& device, void* pointer) {
    const Lock lock(mutex_);
    const auto it = active_.find(reinterpret_cast<uintptr_t>(pointer));
    if (it == active_.end()) return;
    Block* block = it->second;
    active_.erase(it);
    if (logs(LogTopic::kAlloc)) log("free ", block->requested, " bytes at ", pointer);
    each(block, [&](StatType t) {
      stats_.allocation[int(t)].decrease(1);
      stats_.allocated_bytes[int(t)].decrease(block->size);
      stats_.requested_bytes[int(t)].decrease(block->requested);
    });
    if (block->used_by.empty()) {
      give_back(block);
      return;
    }
    // Other streams may still read the block. It becomes free when what they have enqueued so far is finished.
    Waiting waiting{block, {}};
    for (const auto id : block->used_by) {
      Queue* queue = nullptr;
      try {
        queue = &queue_at(device.index(), id);
        if (const Mark mark = queue->mark(); mark.event) waiting.events.push_back(mark.event);
      } catch (const c10::Error&) {  // destructors call this: wait instead of raising
        if (queue) try_finish(*queue);
      }
    }
    block->used_by.clear();
    recorded_--;
    waiting_.push_back(std::move(waiting));
  }

  void release_stream(c10::StreamId stream) {
    const Lock lock(mutex_);
    release_cached(stream);
  }

  void record_stream(const void* pointer, c10::StreamId stream) {
    const Lock lock(mutex_);
    const auto it = active_.find(reinterpret_cast<uintptr_t>(pointer));
    if (it == active_.end() || it->second->stream == stream) return;
    if (it->second->used_by.empty()) recorded_++;
    it->second->used_by.insert(stream);
  }

  // Whether a stream other than its own was recorded for any block.
  bool recorded() const { return recorded_.load(std::memory_order_relaxed) != 0; }

  // The streams that may use the block: its own, and those recorded; empty if none was recorded.
  std::set<c10::StreamId> recorded_streams(const void* pointer) {
    const Lock lock(mutex_);
    const auto it = active_.find(reinterpret_cast<uintptr_t>(pointer));
    if (it == active_.end() || it->second->used_by.empty()) return {};
    auto streams = it->second->used_by;
    streams.insert(it->second->stream);
    return streams;
  }

  size_t requested(const void* pointer) {
    const Lock lock(mutex_);
    const auto it = active_.find(reinterpret_cast<uintptr_t>(pointer));
    return it == active_.end() ? 0 : it->second->requested;
  }

  void empty_cache() {
    const Lock lock(mutex_);
    release_cached();
    most_ = static_cast<size_t>(stats_.allocated_bytes[0].current);
  }

  // As empty_cache(), unless another thread uses the allocator, which may wait for what the caller holds.
  void try_empty_cache() {
    const std::unique_lock<std::recursive_mutex> lock(mutex_, std::try_to_lock);
    if (lock) release_cached();
  }

  c10::CachingDeviceAllocator::DeviceStats stats() {
    const Lock lock(mutex_);
    return stats_;
  }

  std::vector<BlockInfo> snapshot() {
    const Lock lock(mutex_);
    std::vector<BlockInfo> all;
    const auto put = [&](const Block* b, BlockInfo::State state) {
      const size_t requested = state == BlockInfo::kInactive ? 0 : b->requested;
      all.push_back({b->slab->base, b->address, b->slab->size, b->size, requested, b->stream, state});
    };
    for (const auto& [address, block] : active_) put(block, BlockInfo::kActive);
    for (const auto& w : waiting_) put(w.block, BlockInfo::kAwaitingFree);
    for (const auto* blocks : {&free_small_, &free_large_}) {
      for (const Block* block : *blocks) put(block, BlockInfo::kInactive);
    }
    std::sort(all.begin(), all.end(), [](const BlockInfo& a, const BlockInfo& b) { return a.address < b.address; });
    return all;
  }

  template <class F>
  void reset(F&& f) {
    const Lock lock(mutex_);
    for (auto* array :
         {&stats_.allocation, &stats_.segment, &stats_.active, &stats_.inactive_split, &stats_.allocated_bytes,
          &stats_.reserved_bytes, &stats_.active_bytes, &stats_.inactive_split_bytes, &stats_.requested_bytes}) {
      for (auto& stat : *array) f(stat);
    }
  }

  size_t reserved() {
    const Lock lock(mutex_);
    return reserved_;
  }
  void set_fraction(double fraction) {
    const Lock lock(mutex_);
    fraction_ = fraction;
  }

 private:
  using Lock = std::lock_guard<std::recursive_mutex>;

  struct Waiting {
    Block* block;
    std::vector<cl_event> events;
  };

  template <class F>
  static void each(const Block* block, F&& f) {
    f(StatType::AGGREGATE);
    f(block->small ? StatType::SMALL_POOL : StatType::LARGE_POOL);
  }

  std::set<Block*, BySize>& list(bool small) { return small ? free_small_ : free_large_; }

  Block* take_free(c10::StreamId stream, size_t size) {
    Block key;
    key.stream = stream;
    key.size = size;
    auto& blocks = list(size <= kSmall);
    const auto it = blocks.lower_bound(&key);
    if (it == blocks.end() || (*it)->stream != stream) return nullptr;
    Block* block = *it;
    blocks.erase(it);
    return block;
  }

  Block* new_slab(Device& device, c10::StreamId stream, size_t size, size_t requested) {
    const bool small = size <= kSmall;
    const size_t rounded = (size + kGranule - 1) / kGranule * kGranule;
    size_t bytes = small ? kSmallSlab : size < kMinLarge ? kLargeSlab : rounded;
    const auto& info = device.info();
    // A slab consists of whole granules, but its buffer may be smaller, as the device limits the size of a buffer.
    if (separate_buffers() || bytes > info.max_mem_alloc_size) bytes = rounded;
    size_t buffer_bytes = std::min<size_t>(bytes, std::max<size_t>(info.max_mem_alloc_size, 1));
    TORCH_CHECK_WITH(OutOfMemoryError, buffer_bytes >= size, "netcl out of memory. Tried to allocate ",
                     human(requested), " at once, but CL_DEVICE_MAX_MEM_ALLOC_SIZE of ", info.name, " is ",
                     human(info.max_mem_alloc_size), ". Split the tensor.");
    if (separate_buffers()) buffer_bytes = std::max<size_t>(requested, 1);
    const auto limit = static_cast<size_t>(fraction_ * static_cast<double>(info.global_mem_size));
    // If memory must grow although whole slabs are idle, these do not fit the sizes now in use. So release idle slabs
    // of twice the new slab's size. Keep the last few, so that batches of changing sizes do not release and create
    // slabs in each step. Also keep them while memory stays near the highest use, since a training step needs different
    // slabs in turn.
    const bool near = reserved_ + bytes <= most_ + kSpare;
    if (!near && idle_bytes() > reserved_ / 256) release_idle(2 * bytes);
    cl_mem mem = nullptr;
    cl_int err = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    for (int attempt = 0; attempt < 3 && !mem; attempt++) {
      if (attempt == 1) release_cached();
      if (attempt == 2) {
        // Blocks that wait for other streams may be the memory that is missing.
        if (waiting_.empty()) break;
        wait_all();
        release_cached();
      }
      if (attempt > 0) stats_.num_alloc_retries++;
      if (reserved_ + bytes > limit) continue;
      mem = create_buffer(device, buffer_bytes, &err);
      if (mem && !device.is_cpu()) mem = touched(mem, queue_at(device.index(), stream), attempt > 0, &err);
    }
    if (!mem) {
      stats_.num_ooms++;
      const size_t used = static_cast<size_t>(stats_.allocated_bytes[0].current);
      const char* op = current_op();
      TORCH_CHECK_WITH(OutOfMemoryError, false, "netcl out of memory. Tried to allocate ", human(requested),
                       op ? c10::str(" while running ", op) : "", " on ", info.name, " (netcl:", int(device.index()),
                       ", ", human(info.global_mem_size), " in all, limit ", human(limit), "); ", human(used),
                       " are allocated by tensors, ", human(reserved_ - used), " are reserved and unused (",
                       error_symbol(err), "). Free tensors, use a smaller batch, or call torch.netcl.empty_cache().");
    }
    char* host = queue_at(device.index(), stream).immediate().host_address(mem, buffer_bytes);
    Slab* slab = add_slab(mem, bytes, device.index(), host);
    reserved_ += bytes;
    if (logs(LogTopic::kAlloc)) log("reserve ", bytes, " bytes of netcl:", int(device.index()), ", now ", reserved_);
    auto* block = new Block();
    block->address = slab->base;
    block->size = separate_buffers() ? size : buffer_bytes / kAlign * kAlign;
    block->stream = stream;
    block->small = small;
    block->slab = slab;
    stats_.num_device_alloc++;
    each(block, [&](StatType t) {
      stats_.segment[int(t)].increase(1);
      stats_.reserved_bytes[int(t)].increase(bytes);
    });
    return block;
  }

  // GPUs' drivers may allocate a buffer at the first command that uses it. So write a byte now, where it can be tried
  // again. `freed`: buffers were released, whose memory is free when the commands that use them have ended, also those
  // that wait for a kernel.
  static cl_mem touched(cl_mem mem, Queue& queue, bool freed, cl_int* err) {
    const char zero = 0;
    const auto touch = [&] {
      return *err = queue.submit([&](cl_command_queue handle) {
        return cl().clEnqueueFillBuffer(handle, mem, &zero, 1, 0, 1, 0, nullptr, nullptr);
      });
    };
    if (touch() == CL_SUCCESS) return mem;
    if (freed) queue.deferred().settle();
    if (freed && try_finish(queue) == CL_SUCCESS && touch() == CL_SUCCESS) return mem;
    cl().clReleaseMemObject(mem);
    return nullptr;
  }

  void split(Block* block, size_t size) {
    const size_t rest = block->size - size;
    if (block->small ? rest < kAlign : rest <= kSmall) return;
    auto* tail = new Block();
    tail->address = block->address + size;
    tail->size = rest;
    tail->stream = block->stream;
    tail->small = block->small;
    tail->slab = block->slab;
    tail->prev = block;
    tail->next = block->next;
    if (tail->next) tail->next->prev = tail;
    block->next = tail;
    block->size = size;
    list(tail->small).insert(tail);
  }

  void give_back(Block* block) {
    each(block, [&](StatType t) {
      stats_.active[int(t)].decrease(1);
      stats_.active_bytes[int(t)].decrease(block->size);
    });
    block->allocated = false;
    auto& blocks = list(block->small);
    if (Block* before = block->prev; before && is_free(before)) {
      blocks.erase(before);
      absorb(before, block);
      block = before;
    }
    if (Block* after = block->next; after && is_free(after)) {
      blocks.erase(after);
      absorb(block, after);
    }
    blocks.insert(block);
  }

  bool is_free(Block* block) { return !block->allocated && list(block->small).count(block); }

  static void absorb(Block* block, Block* next) {
    block->size += next->size;
    block->next = next->next;
    if (block->next) block->next->prev = block;
    delete next;
  }

  void reclaim_finished() {
    for (size_t i = 0; i < waiting_.size();) {
      auto& events = waiting_[i].events;
      while (!events.empty()) {
        if (!is_over(events.back())) break;
        cl().clReleaseEvent(events.back());
        events.pop_back();
      }
      if (!events.empty()) {
        i++;
        continue;
      }
      Block* block = waiting_[i].block;
      waiting_[i] = std::move(waiting_.back());
      waiting_.pop_back();
      give_back(block);
    }
  }

  void wait_all() {
    for (auto& w : waiting_) {
      increment(counters.host_syncs);
      cl().clWaitForEvents(static_cast<cl_uint>(w.events.size()), w.events.data());
    }
    stats_.num_sync_all_streams++;
    reclaim_finished();
  }

  static bool whole(const Block* block) { return !block->prev && !block->next; }

  size_t idle_bytes() const {
    size_t bytes = 0;
    for (const auto* blocks : {&free_small_, &free_large_}) {
      for (const Block* block : *blocks) bytes += whole(block) ? block->slab->size : 0;
    }
    return bytes;
  }

  // Releases free slabs, the largest first, until they add up to `bytes`.
  void release_idle(size_t bytes) {
    while (bytes > 0) {
      Block* largest = nullptr;
      for (const auto* blocks : {&free_small_, &free_large_}) {
        for (Block* block : *blocks) {
          if (whole(block) && (!largest || block->slab->size > largest->slab->size)) largest = block;
        }
      }
      if (!largest) return;
      bytes -= std::min(bytes, largest->slab->size);
      list(largest->small).erase(largest);
      release(largest);
    }
  }

  // Releases all free slabs, or those of one stream.
  void release_cached(c10::StreamId stream = -1) {
    reclaim_finished();
    for (auto* blocks : {&free_small_, &free_large_}) {
      for (auto it = blocks->begin(); it != blocks->end();) {
        Block* block = *it;
        const bool goes = whole(block) && (stream < 0 || block->stream == stream);
        it = goes ? blocks->erase(it) : std::next(it);
        if (goes) release(block);
      }
    }
  }

  // Releases a slab, which consists of `block` alone. The driver keeps it until queued commands that use it are
  // finished.
  void release(Block* block) {
    Slab* slab = block->slab;
    each(block, [&](StatType t) {
      stats_.segment[int(t)].decrease(1);
      stats_.reserved_bytes[int(t)].decrease(slab->size);
    });
    reserved_ -= slab->size;
    if (logs(LogTopic::kAlloc)) log("release ", slab->size, " bytes of netcl:", int(slab->device));
    stats_.num_device_free++;
    remove_slab(slab);
    delete block;
  }

  std::recursive_mutex mutex_;  // free() may submit a launch, which may call try_empty_cache()
  std::set<Block*, BySize> free_small_, free_large_;
  std::unordered_map<uintptr_t, Block*> active_;
  std::vector<Waiting> waiting_;
  std::atomic<size_t> recorded_{0};  // blocks with streams of record_stream
  size_t reserved_ = 0, most_ = 0;   // most_: the most in use by tensors since the cache was last emptied
  double fraction_ = 1.0;
  c10::CachingDeviceAllocator::DeviceStats stats_;
};

Pool& pool(c10::DeviceIndex index) {
  static auto* all = new std::array<Pool, 64>();
  return (*all).at(index);
}

void delete_block(void* pointer) {
  if (!pointer || shutting_down()) return;
  if (const Slab* slab = find_slab(pointer)) {
    pool(slab->device).free(device(slab->device), pointer);
  }
}

class DeviceMemory final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    check_not_forked();
    stay_if_exiting();
    Queue& queue = current_queue();
    const auto index = queue.device().index();
    void* p = bytes ? pool(index).allocate(queue.device(), queue.stream().id(), bytes) : nullptr;
    if (Capture* capture = queue.deferred().capture(); capture && p) {
      capture->allocations.push_back({p, capture->commands.size()});
    }
    return {p, p, &delete_block, c10::Device(c10::DeviceType::PrivateUse1, index)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &delete_block; }
  void copy_data(void* dst, const void* src, std::size_t bytes) const override {
    if (bytes == 0 || dst == src) return;
    const Location to = locate(dst), from = locate(src);
    Queue& queue = current_queue(to.device);
    queue.deferred().settle();
    const cl_int err = queue.submit([&](cl_command_queue handle) {
      return cl().clEnqueueCopyBuffer(handle, from.mem, to.mem, from.offset, to.offset, bytes, 0, nullptr, nullptr);
    });
    if (err != CL_SUCCESS) raise_cl_error(err, "clEnqueueCopyBuffer");
  }
  bool initialized() override { return device_count() > 0; }
  void emptyCache(c10::MempoolId_t) override {
    for (c10::DeviceIndex i = 0; i < device_count(); i++) pool(i).empty_cache();
  }
  void recordStream(const c10::DataPtr& ptr, c10::Stream stream) override {
    // Kernels on streams of other devices cannot use this memory, and copies between devices wait for their source.
    if (ptr.get() && ptr.device() == stream.device()) {
      pool(ptr.device().index()).record_stream(ptr.get_context(), stream.id());
    }
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    return pool(device(index).index()).stats();
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override {
    pool(device(index).index()).reset([](auto& stat) { stat.reset_accumulated(); });
  }
  void resetPeakStats(c10::DeviceIndex index) override {
    pool(device(index).index()).reset([](auto& stat) { stat.reset_peak(); });
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override { return memory_info(index); }
};

}  // namespace

c10::DeviceAllocator* allocator() {
  static auto* a = new DeviceMemory();
  return a;
}

size_t allocated_bytes(const void* address) {
  const Slab* slab = find_slab(address);
  return slab ? pool(slab->device).requested(address) : 0;
}

void retry_with_free_memory(Queue& queue, cl_int err, const char* call, const std::function<cl_int()>& enqueue) {
  const bool memory = may_lack_memory(err);
  if (memory) {
    pool(queue.device().index()).try_empty_cache();
    try_finish(queue);  // then the memory of released buffers is free
    err = enqueue();
  }
  if (err != CL_SUCCESS) raise_cl_error(err, call, memory);
}

void* allocate_on(Device& device, c10::StreamId stream, size_t bytes) {
  return pool(device.index()).allocate(device, stream, bytes);
}

void wait_for_recorded_streams(Queue& queue, const c10::DataPtr& memory) {
  const c10::DeviceIndex index = queue.device().index();
  if (__builtin_expect(!pool(index).recorded(), 1) || queue.deferred().capture()) return;
  for (const auto id : pool(index).recorded_streams(memory.get_context())) {
    Queue& other = queue_at(index, id);
    if (&other == &queue || other.idle()) continue;
    const Mark so_far = other.mark();
    if (!so_far.event) continue;
    const auto release = c10::make_scope_exit([&so_far] { cl().clReleaseEvent(so_far.event); });
    queue.wait(so_far.event);
  }
}

void release_stream(c10::DeviceIndex index, c10::StreamId stream) { pool(index).release_stream(stream); }

void set_memory_fraction(c10::DeviceIndex index, double fraction) {
  TORCH_CHECK_VALUE(fraction > 0 && fraction <= 1, "netcl: the memory fraction must lie in (0, 1], got ", fraction);
  pool(device(index).index()).set_fraction(fraction);
}

std::vector<BlockInfo> memory_snapshot(c10::DeviceIndex index) { return pool(device(index).index()).snapshot(); }

std::pair<size_t, size_t> memory_info(c10::DeviceIndex index) {
  Device& d = device(index);
  const size_t total = d.info().global_mem_size;
  const size_t reserved = pool(d.index()).reserved();
  return {total > reserved ? total - reserved : 0, total};
}

}  // namespace netcl
