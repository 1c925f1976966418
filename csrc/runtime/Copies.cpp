#include "runtime/Copies.h"

#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>

#include "runtime/AddressSpace.h"
#include "runtime/Builds.h"
#include "runtime/CachingAllocator.h"
#include "runtime/Counters.h"
#include "runtime/Event.h"
#include "runtime/Failures.h"
#include "runtime/OpName.h"
#include "runtime/PinnedMemory.h"
#include "runtime/Profiler.h"
#include "runtime/Shutdown.h"
#include "runtime/Waits.h"

namespace netcl {

namespace {

constexpr size_t kStaged = size_t{1} << 20;       // pageable writes up to this size are staged and do not block,
constexpr size_t kMostStaged = size_t{64} << 20;  // unless this much is staged already

// Call this before a wait that the program causes.
void report_wait() {
  const int64_t mode = sync_debug_mode.load(std::memory_order_relaxed);
  if (__builtin_expect(mode == 0, 1)) return;
  const std::string text = c10::str(current_op() ? current_op() : "a copy", " makes the host wait for a netcl device");
  TORCH_CHECK(mode == 1, text);
  TORCH_WARN(text);
}

// The host copies up to this size itself, where it can (ImmediateQueue.h).
constexpr size_t kByHost = size_t{64} << 10;
std::unique_lock<std::mutex> turn_of_host(const Location& place, size_t bytes, Queue& queue) {
  return place.host && bytes <= kByHost ? queue.turn() : std::unique_lock<std::mutex>();
}

std::atomic<size_t> staged{0}, most_staged{0};

// Host memory that holds the source of a copy until the copy has read it.
struct alignas(std::max_align_t) Staging {
  size_t bytes;

  struct Destroy {
    void operator()(Staging* staging) const { destroy(staging); }
  };
  using Ptr = std::unique_ptr<Staging, Destroy>;

  static Ptr copy_of(const void* src, size_t bytes) {
    const size_t all = staged.fetch_add(bytes) + bytes;
    void* memory = all <= kMostStaged ? std::malloc(sizeof(Staging) + bytes) : nullptr;
    if (!memory) {
      staged.fetch_sub(bytes);
      return nullptr;
    }
    for (size_t most = most_staged.load(); most < all && !most_staged.compare_exchange_weak(most, all);) {}
    auto* staging = new (memory) Staging{bytes};
    std::memcpy(staging + 1, src, bytes);
    return Ptr(staging);
  }
  static void destroy(Staging* staging) {
    staged.fetch_sub(staging->bytes);
    std::free(staging);
  }
};

void CL_CALLBACK free_staging(cl_event, cl_int, void* staging) { Staging::destroy(static_cast<Staging*>(staging)); }

void enqueue_staged(Queue& queue, const Location& to, size_t bytes, Staging::Ptr staging) {
  const Enqueuing scope(queue);
  cl_event event = nullptr;
  Recorded command(Activity::kCopy, "Memcpy HtoD", current_op(), queue, bytes);
  enqueue_checked(queue, "clEnqueueWriteBuffer", [&] {
    return cl().clEnqueueWriteBuffer(queue.driver_handle(), to.mem, CL_FALSE, to.offset, bytes, staging.get() + 1, 0,
                                     nullptr, &event);
  });
  command.share(event);
  // Without a callback, wait for the copy. If that fails too, the memory is never freed.
  Staging* const read = staging.release();
  if (cl().clSetEventCallback(event, CL_COMPLETE, &free_staging, read) != CL_SUCCESS &&
      cl().clWaitForEvents(1, &event) == CL_SUCCESS) {
    Staging::destroy(read);
  }
  cl().clReleaseEvent(event);
  queue.after_enqueue();
}

// The device reads `src` when the earlier commands of the stream have ended, which may write it. Intel's runtime reads
// the source of a short blocking write at once.
void write_from_pinned(const Location& to, const void* src, size_t bytes, Queue& queue) {
  queue.settle();
  const Enqueuing scope(queue);
  cl_event event = nullptr;
  Recorded command(Activity::kCopy, "Memcpy HtoD", current_op(), queue, bytes);
  enqueue_checked(queue, "clEnqueueWriteBuffer", [&] {
    return cl().clEnqueueWriteBuffer(queue.handle(), to.mem, CL_FALSE, to.offset, bytes, src, 0, nullptr, &event);
  });
  command.share(event);
  keep_pinned_until(src, event);
  queue.after_enqueue();
}

}  // namespace

void copy_to_device(void* dst, const void* src, size_t bytes, Queue& queue, bool async_from_pinned) {
  if (bytes == 0) return;
  check_not_forked();
  stay_if_exiting();
  const Location to = locate(dst);
  if (const auto turn = turn_of_host(to, bytes, queue)) {
    std::memcpy(to.host, src, bytes);
  } else if (async_from_pinned ? is_pinned(src) : pinned_in_use(src)) {
    if (!async_from_pinned) report_wait();
    write_from_pinned(to, src, bytes, queue);
    if (!async_from_pinned) queue.synchronize();
  } else if (Staging::Ptr staging = bytes <= kStaged ? Staging::copy_of(src, bytes) : nullptr) {
    enqueue_in_order(queue, {to.mem}, [to, bytes, staging = std::move(staging)](Queue& q) mutable {
      enqueue_staged(q, to, bytes, std::move(staging));
    });
  } else {
    report_wait();
    increment(counters.host_syncs);
    queue.settle();
    finish_before_copy(queue);
    const Enqueuing scope(queue);
    Recorded command(Activity::kCopy, "Memcpy HtoD", current_op(), queue, bytes);
    const HostWait wait(queue);
    enqueue_checked(queue, "clEnqueueWriteBuffer", [&] {
      return cl().clEnqueueWriteBuffer(queue.handle(), to.mem, CL_TRUE, to.offset, bytes, src, 0, nullptr,
                                       command.event());
    });
  }
}

void copy_to_host(void* dst, const void* src, size_t bytes, Queue& queue, bool non_blocking) {
  if (bytes == 0) return;
  check_not_forked();
  const Location from = locate(src);
  const bool waits = !(non_blocking && is_pinned(dst));
  if (waits) report_wait();
  queue.settle();
  if (waits) finish_before_copy(queue);
  if (auto turn = turn_of_host(from, bytes, queue)) {
    std::memcpy(dst, from.host, bytes);
    turn.unlock();
    queue.note_wait();
    if (!non_blocking) increment(counters.host_syncs);
    stay_if_exiting();
    if (!non_blocking) raise_earlier_errors(queue);
    return;
  }
  std::optional<Enqueuing> scope(queue);
  Recorded command(Activity::kCopy, "Memcpy DtoH", current_op(), queue, bytes);
  if (!waits) {
    cl_event event = nullptr;
    NETCL_CL(clEnqueueReadBuffer(queue.handle(), from.mem, CL_FALSE, from.offset, bytes, dst, 0, nullptr, &event));
    command.share(event);
    keep_pinned_until(dst, event);
    queue.after_enqueue();
    return;
  }
  increment(counters.host_syncs);
  const uint64_t now = queue.commands();
  {
    const HostWait wait(queue);
    NETCL_CL(
        clEnqueueReadBuffer(queue.handle(), from.mem, CL_TRUE, from.offset, bytes, dst, 0, nullptr, command.event()));
  }
  queue.note_ended(now);
  scope.reset();
  stay_if_exiting();
  raise_earlier_errors(queue);
}

void copy_on_device(void* dst, const void* src, size_t bytes, Queue& queue) {
  if (bytes == 0 || dst == src) return;
  check_not_forked();
  const Location to = locate(dst), from = locate(src);
  if (const auto turn = from.host ? turn_of_host(to, bytes, queue) : std::unique_lock<std::mutex>()) {
    std::memmove(to.host, from.host, bytes);
    return;
  }
  enqueue_in_order(queue, {to.mem, from.mem}, [to, from, bytes](Queue& q) {
    const Enqueuing scope(q);
    Recorded command(Activity::kCopy, "Memcpy DtoD", current_op(), q, bytes);
    enqueue_checked(q, "clEnqueueCopyBuffer", [&] {
      return cl().clEnqueueCopyBuffer(q.driver_handle(), from.mem, to.mem, from.offset, to.offset, bytes, 0, nullptr,
                                      command.event());
    });
    q.after_enqueue();
  });
}

void copy_across(void* dst, Queue& dst_queue, const void* src, Queue& src_queue, size_t bytes) {
  if (bytes == 0) return;
  report_wait();
  // As on CUDA, what the destination's stream waited for has been written before the source is read.
  Event ready;
  ready.record(dst_queue);
  if (!ready.query()) ready.synchronize();
  if (src_queue.device().info().host_unified) {  // mapping then gives the memory itself: one copy instead of two
    const Location from = locate(src);
    cl_int err = CL_SUCCESS;
    increment(counters.host_syncs);
    src_queue.settle();
    finish_before_copy(src_queue);
    void* mapped = nullptr;
    {
      const HostWait wait(src_queue);
      mapped = cl().clEnqueueMapBuffer(src_queue.handle(), from.mem, CL_TRUE, CL_MAP_READ, from.offset, bytes, 0,
                                       nullptr, nullptr, &err);
    }
    if (err != CL_SUCCESS) raise_cl_error(err, "clEnqueueMapBuffer");
    const auto unmap = [&] {
      return cl().clEnqueueUnmapMemObject(src_queue.handle(), from.mem, mapped, 0, nullptr, nullptr);
    };
    auto after_an_error = c10::make_scope_exit(unmap);
    raise_earlier_errors(src_queue);
    copy_to_device(dst, mapped, bytes, dst_queue);
    after_an_error.release();
    if (const cl_int failed = unmap(); failed != CL_SUCCESS) raise_cl_error(failed, "clEnqueueUnmapMemObject");
    src_queue.after_enqueue();
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
  if (const auto turn = turn_of_host(to, bytes, queue)) {
    for (size_t at = 0; at < bytes; at += pattern_bytes) std::memcpy(to.host + at, pattern, pattern_bytes);
    return;
  }
  const std::string value(static_cast<const char*>(pattern), pattern_bytes);
  enqueue_in_order(queue, {to.mem}, [to, value, bytes](Queue& q) {
    const Enqueuing scope(q);
    Recorded command(Activity::kFill, "Memset", current_op(), q, bytes);
    enqueue_checked(q, "clEnqueueFillBuffer", [&] {
      return cl().clEnqueueFillBuffer(q.driver_handle(), to.mem, value.data(), value.size(), to.offset, bytes, 0,
                                      nullptr, command.event());
    });
    q.after_enqueue();
  });
}

StagedBytes staged_bytes() { return {staged.load(), most_staged.load()}; }

}  // namespace netcl
