#include "runtime/LateAllocation.h"

#include <map>
#include <mutex>
#include <unordered_map>

#include "runtime/OpenCL.h"

namespace netcl {

namespace {

constexpr size_t kMemory = size_t{512} << 20;

struct Buffers {
  std::mutex mutex;
  std::unordered_map<cl_mem, size_t> all;                         // bytes
  std::unordered_map<cl_mem, size_t> used;                        // those that a command has used
  std::unordered_map<cl_kernel, std::map<cl_uint, cl_mem>> args;  // buffers that are arguments of a kernel
  size_t used_bytes = 0;

  cl_int use(cl_mem mem) {
    const auto known = all.find(mem);
    if (known == all.end() || used.count(mem)) return CL_SUCCESS;  // of others, or a part of a buffer
    if (known->second > kMemory - used_bytes) return CL_MEM_OBJECT_ALLOCATION_FAILURE;
    used_bytes += known->second;
    used.insert(*known);
    return CL_SUCCESS;
  }
  void forget(cl_mem mem) {
    if (const auto it = used.find(mem); it != used.end()) {
      used_bytes -= it->second;
      used.erase(it);
    }
    all.erase(mem);
  }
};
Buffers& buffers() {
  static auto* all = new Buffers();
  return *all;
}
Api real;

void CL_CALLBACK destroyed(cl_mem mem, void* /*data*/) {
  const std::lock_guard<std::mutex> lock(buffers().mutex);
  buffers().forget(mem);
}

cl_mem create(cl_context context, cl_mem_flags flags, size_t bytes, void* host, cl_int* err) {
  cl_mem mem = real.clCreateBuffer(context, flags, bytes, host, err);
  if (mem && real.clSetMemObjectDestructorCallback(mem, &destroyed, nullptr) == CL_SUCCESS) {
    const std::lock_guard<std::mutex> lock(buffers().mutex);
    buffers().all[mem] = bytes;
  }
  return mem;
}

cl_int set_arg(cl_kernel kernel, cl_uint index, size_t size, const void* value) {
  const cl_int err = real.clSetKernelArg(kernel, index, size, value);
  if (err != CL_SUCCESS) return err;
  const std::lock_guard<std::mutex> lock(buffers().mutex);
  cl_mem mem = size == sizeof(cl_mem) && value ? *static_cast<const cl_mem*>(value) : nullptr;
  if (buffers().all.count(mem)) {
    buffers().args[kernel][index] = mem;
  } else {
    buffers().args[kernel].erase(index);
  }
  return CL_SUCCESS;
}

// An entry point for commands, whose parameters may hold buffers.
template <auto Member, class F>
struct Late;
template <auto Member, class... A>
struct Late<Member, cl_int (*)(A...)> {
  static cl_int call(A... args) {
    {
      const std::lock_guard<std::mutex> lock(buffers().mutex);
      cl_int err = CL_SUCCESS;
      const auto look = [&err](auto value) {
        if (err != CL_SUCCESS) return;
        if constexpr (std::is_same_v<decltype(value), cl_mem>) err = buffers().use(value);
        if constexpr (std::is_same_v<decltype(value), cl_kernel>) {
          for (const auto& [index, mem] : buffers().args[value]) err = err != CL_SUCCESS ? err : buffers().use(mem);
        }
      };
      (look(args), ...);
      if (err != CL_SUCCESS) return err;
    }
    return (real.*Member)(args...);
  }
};

}  // namespace

void imitate_late_allocation() {
  static const bool once = [] {
    real = cl();
    Api& api = mutable_api();
    api.clCreateBuffer = &create;
    api.clSetKernelArg = &set_arg;
#define NETCL_LATE(name) api.name = &Late<&Api::name, decltype(Api::name)>::call;
    NETCL_LATE(clEnqueueNDRangeKernel)
    NETCL_LATE(clEnqueueReadBuffer)
    NETCL_LATE(clEnqueueWriteBuffer)
    NETCL_LATE(clEnqueueCopyBuffer)
    NETCL_LATE(clEnqueueFillBuffer)
#undef NETCL_LATE
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace netcl
