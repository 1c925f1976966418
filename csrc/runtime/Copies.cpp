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
#include <string>

#include "runtime/AddressSpace.h"
#include "runtime/Command.h"
#include "runtime/Counters.h"
#include "runtime/Event.h"
#include "runtime/PinnedMemory.h"
#include "runtime/Shutdown.h"

namespace netcl {

namespace {

constexpr size_t kStaged = size_t{1} << 20;       // pageable writes up to this size are staged and do not block,
constexpr size_t kMostStaged = size_t{64} << 20;  // unless this much is staged already

// The host copies up to this size itself, where it can (ImmediateQueue.h).
constexpr size_t kByHost = size_t{64} << 10;
std::unique_lock<std::mutex> turn_of_host(const Location& place, size_t bytes, Queue& queue, bool wait = false) {
  return place.host && bytes <= kByHost ? queue.turn(wait) : std::unique_lock<std::mutex>();
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

Command write_command(size_t bytes) {
  return {Activity::kCopy, "Memcpy HtoD", current_op(), "clEnqueueWriteBuffer", bytes};
}
Command read_command(size_t bytes) {
  return {Activity::kCopy, "Memcpy DtoH", current_op(), "clEnqueueReadBuffer", bytes};
}

void submit_staged(Queue& queue, const Location& to, size_t bytes, Staging::Ptr staging) {
  submit(queue, write_command(bytes), [&](cl_command_queue handle, Recorded& recorded) {
    cl_event event = nullptr;
    const cl_int err =
        cl().clEnqueueWriteBuffer(handle, to.mem, CL_FALSE, to.offset, bytes, staging.get() + 1, 0, nullptr, &event);
    if (err != CL_SUCCESS) return err;
    recorded.retain(event);
    // Without a callback, wait for the copy. If that fails too, the memory is never freed.
    Staging* const read = staging.release();
    if (cl().clSetEventCallback(event, CL_COMPLETE, &free_staging, read) != CL_SUCCESS &&
        cl().clWaitForEvents(1, &event) == CL_SUCCESS) {
      Staging::destroy(read);
    }
    cl().clReleaseEvent(event);
    return err;
  });
}

// Submits a copy from or to pinned memory, which `call` enqueues with the event that it is given. It waits for no
// earlier command, though one may write `host`: the device reads it in its turn.
template <class Call>
void submit_pinned(Queue& queue, const Command& command, const void* host, Call&& call) {
  queue.deferred().settle();
  submit(queue, command, [&](cl_command_queue handle, Recorded& recorded) {
    cl_event event = nullptr;
    const cl_int err = call(handle, &event);
    if (err != CL_SUCCESS) return err;
    recorded.retain(event);
    keep_pinned_until(host, event);
    return err;
  });
}

}  // namespace

void report_wait() {
  const int64_t mode = sync_debug_mode.load(std::memory_order_relaxed);
  if (__builtin_expect(mode == 0, 1)) return;
  const std::string text = c10::str(current_op() ? current_op() : "a copy", " makes the host wait for a netcl device");
  TORCH_CHECK(mode == 1, text);
  TORCH_WARN(text);
}

void copy_to_device(void* dst, const void* src, size_t bytes, Queue& queue, bool async_from_pinned) {
  if (bytes == 0) return;
  check_not_forked();
  stay_if_exiting();
  const Location to = locate(dst);
  if (queue.deferred().capture() && !async_from_pinned) {
    // Each replay writes the bytes of now, which the graph keeps.
    std::string kept(static_cast<const char*>(src), bytes);
    submit_in_order(queue, std::array{static_cast<const void*>(dst)},
                    [kept = std::move(kept)](Queue& q, const auto& at) {
                      submit(q, write_command(kept.size()), [&](cl_command_queue handle, Recorded& recorded) {
                        return cl().clEnqueueWriteBuffer(handle, at[0].mem, CL_FALSE, at[0].offset, kept.size(),
                                                         kept.data(), 0, nullptr, recorded.event());
                      });
                    });
  } else if (const auto turn = turn_of_host(to, bytes, queue)) {
    std::memcpy(to.host, src, bytes);
  } else if (async_from_pinned ? is_pinned(src) : pinned_in_use(src)) {
    // Not by a blocking write: Intel's runtime reads the source of a short one at once.
    if (!async_from_pinned) report_wait();
    submit_pinned(queue, write_command(bytes), src, [&](cl_command_queue handle, cl_event* event) {
      return cl().clEnqueueWriteBuffer(handle, to.mem, CL_FALSE, to.offset, bytes, src, 0, nullptr, event);
    });
    if (!async_from_pinned) synchronize(queue);
  } else if (Staging::Ptr staging = bytes <= kStaged ? Staging::copy_of(src, bytes) : nullptr) {
    auto write = [bytes, staging = std::move(staging)](Queue& q, const auto& at) mutable {
      submit_staged(q, at[0], bytes, std::move(staging));
    };
    submit_in_order(queue, std::array{static_cast<const void*>(dst)}, std::move(write));
  } else {
    report_wait();
    increment(counters.host_syncs);
    submit<Queue::kInCall>(queue, write_command(bytes), [&](cl_command_queue handle, Recorded& recorded) {
      return cl().clEnqueueWriteBuffer(handle, to.mem, CL_TRUE, to.offset, bytes, src, 0, nullptr, recorded.event());
    });
  }
}

void copy_to_host(void* dst, const void* src, size_t bytes, Queue& queue, bool non_blocking) {
  if (bytes == 0) return;
  check_not_forked();
  const Location from = locate(src);
  queue.deferred().settle();
  const bool waits = !(non_blocking && is_pinned(dst));
  if (waits) {
    report_wait();
    increment(counters.host_syncs);
  }
  if (const auto turn = turn_of_host(from, bytes, queue, waits)) {
    std::memcpy(dst, from.host, bytes);
    queue.immediate().note_wait();
  } else if (!waits) {
    submit_pinned(queue, read_command(bytes), dst, [&](cl_command_queue handle, cl_event* event) {
      return cl().clEnqueueReadBuffer(handle, from.mem, CL_FALSE, from.offset, bytes, dst, 0, nullptr, event);
    });
  } else {
    submit<Queue::kInCall>(queue, read_command(bytes), [&](cl_command_queue handle, Recorded& recorded) {
      return cl().clEnqueueReadBuffer(handle, from.mem, CL_TRUE, from.offset, bytes, dst, 0, nullptr, recorded.event());
    });
  }
  if (!waits) return;
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
  submit_in_order(queue, std::array{src, static_cast<const void*>(dst)}, [bytes](Queue& q, const auto& at) {
    const Command command{Activity::kCopy, "Memcpy DtoD", current_op(), "clEnqueueCopyBuffer", bytes};
    submit(q, command, [&](cl_command_queue handle, Recorded& recorded) {
      return cl().clEnqueueCopyBuffer(handle, at[0].mem, at[1].mem, at[0].offset, at[1].offset, bytes, 0, nullptr,
                                      recorded.event());
    });
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
    increment(counters.host_syncs);
    void* mapped = nullptr;
    const cl_int err = src_queue.submit<Queue::kInCall>([&](cl_command_queue handle) {
      cl_int failed = CL_SUCCESS;
      mapped = cl().clEnqueueMapBuffer(handle, from.mem, CL_TRUE, CL_MAP_READ, from.offset, bytes, 0, nullptr, nullptr,
                                       &failed);
      return failed;
    });
    if (err != CL_SUCCESS) raise_cl_error(err, "clEnqueueMapBuffer");
    const auto unmap = [&] {
      return src_queue.submit([&](cl_command_queue handle) {
        return cl().clEnqueueUnmapMemObject(handle, from.mem, mapped, 0, nullptr, nullptr);
      });
    };
    auto after_an_error = c10::make_scope_exit(unmap);
    raise_earlier_errors(src_queue);
    copy_to_device(dst, mapped, bytes, dst_queue);
    after_an_error.release();
    if (const cl_int failed = unmap(); failed != CL_SUCCESS) raise_cl_error(failed, "clEnqueueUnmapMemObject");
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

StagedBytes staged_bytes() { return {staged.load(), most_staged.load()}; }

}  // namespace netcl
