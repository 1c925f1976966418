#include "runtime/PinnedMemory.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/Event.h"
#include "runtime/Shutdown.h"

namespace netcl {

namespace {

struct Pinned {
  std::mutex mutex;
  std::map<uintptr_t, size_t> live;
  std::unordered_map<uintptr_t, std::vector<cl_event>> uses;
  std::vector<std::pair<void*, std::vector<cl_event>>> doomed;

  void sweep() {
    for (size_t i = 0; i < doomed.size();) {
      auto& [p, events] = doomed[i];
      if (!std::all_of(events.begin(), events.end(), is_over)) {
        i++;
        continue;
      }
      for (auto* e : events) cl().clReleaseEvent(e);
      std::free(p);
      doomed.erase(doomed.begin() + static_cast<long>(i));
    }
  }
};
Pinned& pinned() {
  static auto* p = new Pinned();
  return *p;
}

void delete_pinned(void* pointer) {
  if (!pointer) return;
  auto& p = pinned();
  const std::lock_guard<std::mutex> lock(p.mutex);
  p.live.erase(reinterpret_cast<uintptr_t>(pointer));
  const auto it = p.uses.find(reinterpret_cast<uintptr_t>(pointer));
  if (it == p.uses.end() || shutting_down()) {
    std::free(pointer);
    return;
  }
  p.doomed.emplace_back(pointer, std::move(it->second));
  p.uses.erase(it);
  p.sweep();
}

class PinnedMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    auto& p = pinned();
    const std::lock_guard<std::mutex> lock(p.mutex);
    p.sweep();
    if (bytes == 0) return {nullptr, c10::Device(c10::DeviceType::CPU)};
    void* memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    TORCH_CHECK(memory, "netcl: cannot allocate ", bytes, " bytes of pinned memory");
    p.live[reinterpret_cast<uintptr_t>(memory)] = bytes;
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
  auto& events = p.uses[it->first];
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
}

bool keep_pinned(const void* host, Queue& queue) {
  if (!is_pinned(host)) return false;
  keep_pinned_until(host, queue.enqueue_marker());
  return true;
}

PinnedBytes pinned_bytes() {
  auto& p = pinned();
  const std::lock_guard<std::mutex> lock(p.mutex);
  PinnedBytes all{static_cast<int64_t>(p.live.size()), 0};
  for (const auto& [address, bytes] : p.live) all.bytes += static_cast<int64_t>(bytes);
  return all;
}

bool is_pinned(const void* host) {
  auto& p = pinned();
  const std::lock_guard<std::mutex> lock(p.mutex);
  auto it = p.live.upper_bound(reinterpret_cast<uintptr_t>(host));
  if (it == p.live.begin()) return false;
  --it;
  return reinterpret_cast<uintptr_t>(host) < it->first + it->second;
}

}  // namespace netcl
