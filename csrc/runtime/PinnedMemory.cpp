#include "runtime/PinnedMemory.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/Shutdown.h"

namespace netcl {

namespace {

// A GPU's driver gives memory from which the device reads by itself (DMA): a buffer that stays mapped. Elsewhere, and
// before the drivers have started, it is ordinary memory, and `mem` is null.
struct HostBlock {
  size_t bytes = 0;  // as asked for
  size_t size = 0;   // of the memory
  cl_mem mem = nullptr;
  c10::DeviceIndex device = -1;
  std::vector<cl_event> uses;
};

constexpr size_t kMebibyte = size_t{1} << 20;
constexpr size_t kMostIdle = 256 * kMebibyte;  // mapped memory that is kept for the next allocations

// Few different sizes, so that memory fits the next allocation, which takes a driver long to map.
size_t mapped_size(size_t bytes) {
  if (bytes <= kMebibyte) return std::bit_ceil(std::max<size_t>(bytes, 4096));
  return (bytes + kMebibyte - 1) / kMebibyte * kMebibyte;
}

class Pinned {
 public:
  std::mutex mutex;
  std::map<uintptr_t, HostBlock> live;

  void* allocate(size_t bytes) {
    sweep();
    HostBlock block;
    block.bytes = bytes;
    void* host = mapped(block);
    if (!host) {
      block.size = (bytes + 4095) / 4096 * 4096;
      host = std::aligned_alloc(4096, block.size);
    }
    TORCH_CHECK(host, "netcl: cannot allocate ", bytes, " bytes of pinned memory");
    live[reinterpret_cast<uintptr_t>(host)] = block;
    return host;
  }

  // The block that holds `host`, or null.
  const HostBlock* block_of(const void* host) const {
    auto it = live.upper_bound(reinterpret_cast<uintptr_t>(host));
    if (it == live.begin()) return nullptr;
    --it;
    return reinterpret_cast<uintptr_t>(host) < it->first + it->second.bytes ? &it->second : nullptr;
  }

  void free(void* host) {
    const auto it = live.find(reinterpret_cast<uintptr_t>(host));
    if (it == live.end()) return;
    doomed_.emplace_back(host, std::move(it->second));
    live.erase(it);
    sweep();
  }

  // Frees, or keeps for later, the memory whose copies are finished.
  void sweep() {
    for (size_t i = 0; i < doomed_.size();) {
      auto& [host, block] = doomed_[i];
      if (!shutting_down() && !std::all_of(block.uses.begin(), block.uses.end(), is_over)) {
        i++;
        continue;
      }
      recycle(host, block);
      doomed_.erase(doomed_.begin() + static_cast<long>(i));
    }
  }

  void empty_cache() {
    for (const auto& [key, place] : idle_) unmap(key.first, place.first, place.second);
    idle_.clear();
    idle_bytes_ = 0;
  }

 private:
  using Place = std::pair<void*, cl_mem>;

  void* mapped(HostBlock& block) {
    if (!devices_started() || shutting_down() || device().is_cpu()) return nullptr;
    block.device = device().index();
    block.size = mapped_size(block.bytes);
    if (const auto it = idle_.find({block.device, block.size}); it != idle_.end()) {
      const auto [host, mem] = it->second;
      idle_.erase(it);
      idle_bytes_ -= block.size;
      block.mem = mem;
      return host;
    }
    cl_command_queue queue = mapping_queue(block.device);
    if (!queue) return nullptr;
    cl_int err = CL_SUCCESS;
    cl_mem mem =
        cl().clCreateBuffer(device().context(), CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, block.size, nullptr, &err);
    if (err != CL_SUCCESS) return nullptr;
    void* host = cl().clEnqueueMapBuffer(queue, mem, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, block.size, 0, nullptr,
                                         nullptr, &err);
    if (err != CL_SUCCESS) {
      cl().clReleaseMemObject(mem);
      return nullptr;
    }
    block.mem = mem;
    return host;
  }

  // A queue of its own, since mapping waits for the commands before it. Null if there can be none.
  cl_command_queue mapping_queue(c10::DeviceIndex index) {
    cl_command_queue& queue = queues_[index];
    cl_int err = CL_SUCCESS;
    Device& d = device(index);
    if (!queue) queue = cl().clCreateCommandQueue(d.context(), d.id(), 0, &err);
    return err == CL_SUCCESS ? queue : nullptr;
  }

  void recycle(void* host, HostBlock& block) {
    if (!shutting_down()) {
      for (cl_event e : block.uses) cl().clReleaseEvent(e);
    }
    if (!block.mem) return std::free(host);
    if (shutting_down()) return;
    if (idle_bytes_ + block.size > kMostIdle) return unmap(block.device, host, block.mem);
    idle_.emplace(std::pair(block.device, block.size), Place(host, block.mem));
    idle_bytes_ += block.size;
  }

  void unmap(c10::DeviceIndex index, void* host, cl_mem mem) {
    if (shutting_down()) return;
    cl().clEnqueueUnmapMemObject(mapping_queue(index), mem, host, 0, nullptr, nullptr);
    cl().clReleaseMemObject(mem);  // which happens when the memory is unmapped
    cl().clFlush(mapping_queue(index));
  }

  std::vector<std::pair<void*, HostBlock>> doomed_;
  std::multimap<std::pair<c10::DeviceIndex, size_t>, Place> idle_;
  std::map<c10::DeviceIndex, cl_command_queue> queues_;
  size_t idle_bytes_ = 0;
};
Pinned& pinned() {
  static auto* p = new Pinned();
  return *p;
}

void delete_pinned(void* pointer) {
  if (!pointer) return;
  auto& p = pinned();
  const std::lock_guard<std::mutex> lock(p.mutex);
  p.free(pointer);
}

class PinnedMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::Device(c10::DeviceType::CPU)};
    auto& p = pinned();
    const std::lock_guard<std::mutex> lock(p.mutex);
    void* memory = p.allocate(bytes);
    return {memory, memory, &delete_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &delete_pinned; }
  void copy_data(void* dst, const void* src, std::size_t bytes) const override { std::memcpy(dst, src, bytes); }
};

}  // namespace

void keep_pinned_until(const void* host, cl_event event) {
  auto& p = pinned();
  const std::lock_guard<std::mutex> lock(p.mutex);
  auto it = p.live.upper_bound(reinterpret_cast<uintptr_t>(host));
  if (it == p.live.begin()) return;
  --it;
  auto& events = it->second.uses;
  const auto finished = std::remove_if(events.begin(), events.end(), [](cl_event e) {
    if (!is_over(e)) return false;
    cl().clReleaseEvent(e);
    return true;
  });
  events.erase(finished, events.end());
  events.push_back(event);
}

c10::Allocator* pinned_allocator() {
  static auto* a = new PinnedMemory();
  return a;
}

void free_finished_pinned() {
  auto& p = pinned();
  const std::lock_guard<std::mutex> lock(p.mutex);
  p.sweep();
  p.empty_cache();
}

bool keep_pinned(const void* host, Queue& queue) {
  if (!is_pinned(host)) return false;
  if (const Mark mark = queue.mark(); mark.event) keep_pinned_until(host, mark.event);
  return true;
}

PinnedBytes pinned_bytes() {
  auto& p = pinned();
  const std::lock_guard<std::mutex> lock(p.mutex);
  PinnedBytes all{static_cast<int64_t>(p.live.size()), 0};
  for (const auto& [address, block] : p.live) all.bytes += static_cast<int64_t>(block.bytes);
  return all;
}

bool is_pinned(const void* host) {
  auto& p = pinned();
  const std::lock_guard<std::mutex> lock(p.mutex);
  return p.block_of(host) != nullptr;
}

bool pinned_in_use(const void* host) {
  auto& p = pinned();
  const std::lock_guard<std::mutex> lock(p.mutex);
  const HostBlock* block = p.block_of(host);
  return block && !std::all_of(block->uses.begin(), block->uses.end(), is_over);
}

}  // namespace netcl
