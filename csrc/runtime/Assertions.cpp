#include "runtime/Assertions.h"

#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "runtime/AddressSpace.h"
#include "runtime/CachingAllocator.h"

namespace netcl {

namespace {

constexpr size_t kReport = 16 * sizeof(int);

// The reports of kernels, in one buffer per device: [0] = 1 + index into `texts`, [1..2] = the index, [3] = the size.
struct Assertions {
  // The name of an operator that may meet a bad index, or a complete message.
  struct Text {
    std::string text;
    bool message;
  };
  std::mutex mutex;
  void *address = nullptr, *unfilled = nullptr;  // `unfilled` becomes `address` once it holds zeros
  std::deque<Text> texts;
  std::unordered_map<std::string, int> codes;
  std::atomic<uint64_t> armed{0};  // one bit per stream whose kernels may have reported since the last check
};
Assertions& assertions_of(c10::DeviceIndex index) {
  static auto* all = new std::array<Assertions, 64>();
  return (*all).at(index);
}

int code_of(Device& device, const std::string& text, bool message) {
  auto& a = assertions_of(device.index());
  const std::lock_guard<std::mutex> lock(a.mutex);
  int& code = a.codes[(message ? "message " : "op ") + text];
  if (code == 0) {
    a.texts.push_back({text, message});
    code = static_cast<int>(a.texts.size());
  }
  return code;
}

// Clears the report; what is enqueued on the queue later finds it cleared.
void clear(Queue& queue, void* address) {
  queue.deferred().settle();
  const Location at = locate(address);
  const int zero = 0;
  const cl_int err = queue.submit([&](cl_command_queue handle) {
    return cl().clEnqueueFillBuffer(handle, at.mem, &zero, sizeof(zero), at.offset, kReport, 0, nullptr, nullptr);
  });
  if (err != CL_SUCCESS) raise_cl_error(err, "clEnqueueFillBuffer");
  queue.finish();
}

// Reads the report without the queue, whose commands may still run. A kernel of another stream may be writing it.
void read_beside(const Queue& queue, const Location& at, std::array<int, 4>& report) {
  const auto read = [&] {
    if (at.host) {
      std::memcpy(report.data(), at.host, sizeof(report));
      return;
    }
    static auto* queues = new std::array<cl_command_queue, 64>();
    cl_command_queue& beside = queues->at(queue.device().index());
    cl_int err = CL_SUCCESS;
    if (!beside) beside = cl().clCreateCommandQueue(queue.device().context(), queue.device().id(), 0, &err);
    if (err != CL_SUCCESS) raise_cl_error(err, "clCreateCommandQueue");
    NETCL_CL(
        clEnqueueReadBuffer(beside, at.mem, CL_TRUE, at.offset, sizeof(report), report.data(), 0, nullptr, nullptr));
  };
  read();
  if (report[0] == 0) return;
  std::this_thread::sleep_for(std::chrono::microseconds(100));
  read();
}

}  // namespace

const void* assert_buffer(Device& device) {
  auto& a = assertions_of(device.index());
  const std::lock_guard<std::mutex> lock(a.mutex);
  if (!a.address) {
    if (!a.unfilled) a.unfilled = allocate_on(device, 0, kReport);
    const c10::Device on(c10::DeviceType::PrivateUse1, device.index());
    clear(queue_for(c10::Stream(c10::Stream::DEFAULT, on)), a.unfilled);
    a.address = a.unfilled;
  }
  arm_assertions(current_queue(device.index()));
  return a.address;
}

void arm_assertions(Queue& queue) {
  if (queue.deferred().capture()) return;  // replays do it
  assertions_of(queue.device().index()).armed.fetch_or(uint64_t{1} << queue.stream().id());
}

int assert_code(Device& device, const char* op) { return code_of(device, op, false); }
int assert_message_code(Device& device, const std::string& message) { return code_of(device, message, true); }

void raise_device_assertions(Queue& queue, bool whole) {
  auto& a = assertions_of(queue.device().index());
  // Reports of other streams raise as well. Those streams stay armed, since more reports may follow.
  if (!a.armed.load(std::memory_order_relaxed) || !a.address) return;
  const uint64_t mine = uint64_t{1} << queue.stream().id();
  std::array<int, 4> report{};
  Assertions::Text found;
  std::string failure;
  {
    const std::lock_guard<std::mutex> lock(a.mutex);
    const uint64_t before = whole ? a.armed.fetch_and(~mine) : a.armed.load();
    auto arm_again = c10::make_scope_exit([&] { a.armed.fetch_or(before); });
    const Location at = locate(a.address);
    if (whole) queue.deferred().settle();
    if (!whole) {
      read_beside(queue, at, report);
    } else if (const auto turn = at.host ? queue.turn() : std::unique_lock<std::mutex>()) {
      std::memcpy(report.data(), at.host, sizeof(report));
    } else {
      const cl_int err = queue.submit<Queue::kInCall>([&](cl_command_queue handle) {
        return cl().clEnqueueReadBuffer(handle, at.mem, CL_TRUE, at.offset, sizeof(report), report.data(), 0, nullptr,
                                        nullptr);
      });
      if (err != CL_SUCCESS) raise_cl_error(err, "clEnqueueReadBuffer");
    }
    if (report[0] == 0) {
      arm_again.release();
      return;
    }
    found = a.texts.at(report[0] - 1);
    try {
      clear(queue, a.address);
      arm_again.release();
    } catch (const c10::Error& e) {  // the same report may then be raised once more
      failure = std::string("\n") + e.what_without_backtrace();
    }
  }
  const int64_t index = (static_cast<int64_t>(report[2]) << 32) | static_cast<uint32_t>(report[1]);
  constexpr const char* kEarlier = " (found on the netcl device; the operator ran earlier than this call)";
  TORCH_CHECK(!found.message, found.text, kEarlier, failure);
  TORCH_CHECK_INDEX(false, found.text, ": index ", index, " is out of bounds for dimension with size ", report[3],
                    kEarlier, failure);
}

}  // namespace netcl
