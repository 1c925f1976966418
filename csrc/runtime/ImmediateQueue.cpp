#include "runtime/ImmediateQueue.h"

#include <c10/util/Exception.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "runtime/Environment.h"
#include "runtime/FaultInjection.h"

namespace netcl {

namespace {
// The queues of a device share it.
std::mutex& mutex_of(const Device& device) {
  static auto* all = new std::array<std::mutex, 64>();
  return all->at(device.index());
}
}  // namespace

ImmediateQueue::ImmediateQueue(const Device& device) : mutex_(mutex_of(device)) {
  // GPU-shaped kernels on a CPU take the ways of a GPU.
  if (!device.immediate_id() || !device.is_cpu() || immediate_microseconds(device) == 0) return;
  cl_int err = CL_SUCCESS;
  handle_ = cl().clCreateCommandQueue(device.context(), device.immediate_id(), device.immediate_properties(), &err);
  if (err != CL_SUCCESS) handle_ = nullptr;  // everything then goes to the device's threads
}

cl_int ImmediateQueue::run(cl_kernel kernel, const Grid& grid) {
  return cl().clEnqueueNDRangeKernel(handle_, kernel, grid.dims, grid.offset, grid.global, grid.local, 0, nullptr,
                                     nullptr);
}

char* ImmediateQueue::host_address(cl_mem mem, size_t bytes) {
  if (!handle_ || injecting()) return nullptr;  // the tests want to see copies by the driver
  void* given = nullptr;
  if (cl().clGetMemObjectInfo(mem, CL_MEM_HOST_PTR, sizeof(given), &given, nullptr) != CL_SUCCESS || !given) {
    return nullptr;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  cl_int err = CL_SUCCESS;
  void* mapped =
      cl().clEnqueueMapBuffer(handle_, mem, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, bytes, 0, nullptr, nullptr, &err);
  if (err != CL_SUCCESS) return nullptr;
  if (cl().clEnqueueUnmapMemObject(handle_, mem, mapped, 0, nullptr, nullptr) != CL_SUCCESS ||
      cl().clFinish(handle_) != CL_SUCCESS) {
    return nullptr;
  }
  return mapped == given ? static_cast<char*>(given) : nullptr;
}

int64_t immediate_microseconds(const Device& /*device*/) {
  static const int64_t wanted = number("NETCL_IMMEDIATE_MICROSECONDS", 0, 1000000, -1);
  // Measured: what a wake-up costs.
  return wanted >= 0 ? wanted : 60;
}

ImmediateTimes& ImmediateTimes::of_thread() {
  static thread_local ImmediateTimes times;
  return times;
}

ImmediateTimes::Tries& ImmediateTimes::tries_of(const void* kernel) {
  Tries& tries = tries_[(reinterpret_cast<uintptr_t>(kernel) >> 6) % kKernels];
  if (tries.kernel != kernel) tries = {kernel};
  return tries;
}

bool ImmediateTimes::admits(uint64_t launch, const void* kernel) {
  Launch& known = launch_of(launch);
  uint32_t& skip = known.known && known.key == launch ? known.skip : tries_of(kernel).skip;
  if (skip == 0) return true;
  skip--;
  return false;
}

// Whether the system let others run in place of this thread since the last call.
static bool was_interrupted() {
  static thread_local long seen = 0;
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return std::exchange(seen, usage.ru_nivcsw) != usage.ru_nivcsw;
}

void ImmediateTimes::took(uint64_t launch, const void* kernel, int64_t nanoseconds, int64_t most) {
  constexpr uint16_t kPatience = 3;  // memory may not have been in the cache, or not mapped
  constexpr uint32_t kStarts = 4, kAgain = 8, kMostTimes = 32, kMostExponent = 10;
  Tries& tries = tries_of(kernel);
  if (nanoseconds > most && (tries.slow_starts < kStarts || was_interrupted())) {
    tries.slow_starts++;
    return;
  }
  Launch& known = launch_of(launch);
  const bool first = !known.known || known.key != launch;
  if (first) known = {launch, 0, 0, true};
  if (nanoseconds <= most) {
    known.long_ones = 0;
    if (first && tries.exponent) tries.exponent--;
    return;
  }
  if (first) {
    tries.exponent = std::min(tries.exponent + 1, kMostExponent);
    tries.skip = (1U << tries.exponent) - 1;
  }
  known.long_ones++;
  if (known.long_ones >= kPatience || nanoseconds > 4 * most) {
    known.skip = kAgain * std::min<uint32_t>(known.long_ones, kMostTimes);
  }
}

void ImmediateTimes::refuse(const void* kernel) {
  constexpr uint32_t kForever = UINT32_MAX;
  tries_of(kernel).skip = kForever;
}

}  // namespace netcl
