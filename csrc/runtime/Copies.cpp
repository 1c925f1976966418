// Copies between host and devices, and host memory that copies may use while the host goes on.
#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

#include "runtime/Backpressure.h"
#include "runtime/Events.h"
#include "runtime/Exit.h"
#include "runtime/Memory.h"
#include "runtime/OpName.h"
#include "runtime/PinnedMemory.h"
#include "runtime/Profiler.h"

namespace netcl {

namespace {

constexpr size_t kStaged = size_t{1} << 20;       // pageable writes up to this size are staged and do not block,
constexpr size_t kMostStaged = size_t{64} << 20;  // unless this much is staged already

std::atomic<size_t> staged_bytes{0}, most_staged{0};

// Host memory that holds what a copy still has to read.
struct alignas(std::max_align_t) Staging {
  size_t bytes;

  static Staging* copy_of(const void* src, size_t bytes) {
    const size_t all = staged_bytes.fetch_add(bytes) + bytes;
    void* memory = all <= kMostStaged ? std::malloc(sizeof(Staging) + bytes) : nullptr;
    if (!memory) {
      staged_bytes.fetch_sub(bytes);
      return nullptr;
    }
    for (size_t most = most_staged.load(); most < all && !most_staged.compare_exchange_weak(most, all);) {}
    auto* staging = new (memory) Staging{bytes};
    std::memcpy(staging + 1, src, bytes);
    return staging;
  }
  static void destroy(Staging* staging) {
    staged_bytes.fetch_sub(staging->bytes);
    std::free(staging);
  }
};

void CL_CALLBACK free_staging(cl_event, cl_int, void* staging) { Staging::destroy(static_cast<Staging*>(staging)); }

// --- pinned host memory ------------------------------------------------------------------------------------
// Ordinary page-aligned memory that netcl knows: copies from it may be asynchronous, since it is not given back
// before they are done.
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

// Keeps the pinned block that holds `host` alive until `event`; takes over the event.
void note_pinned_use(const void* host, cl_event event) {
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

void copy_to_device(void* dst, const void* src, size_t bytes, Queue& queue, bool async_from_pinned) {
  if (bytes == 0) return;
  check_not_forked();
  stay_if_exiting();
  const Location to = locate(dst);
  cl_event event = nullptr;
  Recorded command(Activity::kCopy, "Memcpy HtoD", current_op(), queue, bytes);
  if (async_from_pinned && is_pinned(src)) {
    NETCL_CL(clEnqueueWriteBuffer(queue.handle(), to.mem, CL_FALSE, to.offset, bytes, src, 0, nullptr, &event));
    command.share(event);
    note_pinned_use(src, event);
    queue.enqueued();
  } else if (Staging* staging = bytes <= kStaged ? Staging::copy_of(src, bytes) : nullptr) {
    const cl_int err =
        cl().clEnqueueWriteBuffer(queue.handle(), to.mem, CL_FALSE, to.offset, bytes, staging + 1, 0, nullptr, &event);
    if (err != CL_SUCCESS) {
      Staging::destroy(staging);
      raise_cl_error(err, "clEnqueueWriteBuffer");
    }
    command.share(event);
    // Without a call-back: wait for the copy. If not even that works, the memory stays for good.
    if (cl().clSetEventCallback(event, CL_COMPLETE, &free_staging, staging) != CL_SUCCESS &&
        cl().clWaitForEvents(1, &event) == CL_SUCCESS) {
      Staging::destroy(staging);
    }
    cl().clReleaseEvent(event);
    queue.enqueued();
  } else {
    count_host_sync();
    queue.about_to_wait();
    NETCL_CL(clEnqueueWriteBuffer(queue.handle(), to.mem, CL_TRUE, to.offset, bytes, src, 0, nullptr, command.event()));
  }
}

void copy_to_host(void* dst, const void* src, size_t bytes, Queue& queue, bool non_blocking) {
  if (bytes == 0) return;
  check_not_forked();
  const Location from = locate(src);
  Recorded command(Activity::kCopy, "Memcpy DtoH", current_op(), queue, bytes);
  if (non_blocking && is_pinned(dst)) {
    cl_event event = nullptr;
    NETCL_CL(clEnqueueReadBuffer(queue.handle(), from.mem, CL_FALSE, from.offset, bytes, dst, 0, nullptr, &event));
    command.share(event);
    note_pinned_use(dst, event);
    queue.enqueued();
    return;
  }
  count_host_sync();
  queue.about_to_wait();
  NETCL_CL(
      clEnqueueReadBuffer(queue.handle(), from.mem, CL_TRUE, from.offset, bytes, dst, 0, nullptr, command.event()));
  stay_if_exiting();
  raise_device_assertions(queue);
}

void copy_on_device(void* dst, const void* src, size_t bytes, Queue& queue) {
  if (bytes == 0 || dst == src) return;
  check_not_forked();
  const Location to = locate(dst), from = locate(src);
  Recorded command(Activity::kCopy, "Memcpy DtoD", current_op(), queue, bytes);
  NETCL_CL(clEnqueueCopyBuffer(queue.handle(), from.mem, to.mem, from.offset, to.offset, bytes, 0, nullptr,
                               command.event()));
  queue.enqueued();
}

void copy_across(void* dst, Queue& dst_queue, const void* src, Queue& src_queue, size_t bytes) {
  if (bytes == 0) return;
  if (src_queue.device().info().host_unified) {  // then a map is the memory itself: one copy instead of two
    const Location from = locate(src);
    cl_int err = CL_SUCCESS;
    count_host_sync();
    src_queue.about_to_wait();
    void* mapped = cl().clEnqueueMapBuffer(src_queue.handle(), from.mem, CL_TRUE, CL_MAP_READ, from.offset, bytes, 0,
                                           nullptr, nullptr, &err);
    if (err != CL_SUCCESS) raise_cl_error(err, "clEnqueueMapBuffer");
    const auto unmap = [&] {
      return cl().clEnqueueUnmapMemObject(src_queue.handle(), from.mem, mapped, 0, nullptr, nullptr);
    };
    auto after_an_error = c10::make_scope_exit(unmap);
    raise_device_assertions(src_queue);
    copy_to_device(dst, mapped, bytes, dst_queue);
    after_an_error.release();
    if (const cl_int failed = unmap(); failed != CL_SUCCESS) raise_cl_error(failed, "clEnqueueUnmapMemObject");
    src_queue.enqueued();
    return;
  }
  constexpr size_t kPiece = size_t{64} << 20;
  const std::unique_ptr<char[]> host(new char[std::min(bytes, kPiece)]);
  for (size_t at = 0; at < bytes; at += kPiece) {
    const size_t n = std::min(kPiece, bytes - at);
    copy_to_host(host.get(), static_cast<const char*>(src) + at, n, src_queue);
    copy_to_device(static_cast<char*>(dst) + at, host.get(), n, dst_queue);
  }
}

void fill_bytes(void* dst, const void* pattern, size_t pattern_bytes, size_t bytes, Queue& queue) {
  if (bytes == 0) return;
  check_not_forked();
  const Location to = locate(dst);
  Recorded command(Activity::kFill, "Memset", current_op(), queue, bytes);
  NETCL_CL(clEnqueueFillBuffer(queue.handle(), to.mem, pattern, pattern_bytes, to.offset, bytes, 0, nullptr,
                               command.event()));
  queue.enqueued();
}

Staged staged() { return {staged_bytes.load(), most_staged.load()}; }

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
  note_pinned_use(host, queue.marker());
  return true;
}

PinnedBytes pinned_bytes() {
  auto& p = pinned();
  const std::lock_guard<std::mutex> lock(p.mutex);
  PinnedBytes all{static_cast<int64_t>(p.live.size()), 0};
  for (const auto& [address, bytes] : p.live) all.bytes += static_cast<int64_t>(bytes);
  return all;
}

bool is_pinned(const void* host_pointer) {
  auto& p = pinned();
  const std::lock_guard<std::mutex> lock(p.mutex);
  auto it = p.live.upper_bound(reinterpret_cast<uintptr_t>(host_pointer));
  if (it == p.live.begin()) return false;
  --it;
  return reinterpret_cast<uintptr_t>(host_pointer) < it->first + it->second;
}

}  // namespace netcl
