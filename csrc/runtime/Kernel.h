// Kernels are found by (file, name, -D options), built once, kept in memory and on disk, and launched.
#pragma once

#include <c10/util/ArrayRef.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/Queue.h"

namespace netcl {

class Build;
struct DeferredLaunch;

// The -D options of one kernel variant. They are written into a fixed buffer, so a launch allocates nothing.
class Defs {
 public:
  Defs& set(const char* name, const char* value);
  Defs& set(const char* name, int64_t value);
  std::string_view view() const { return {text_.data(), size_}; }

 private:
  void append(std::string_view s);
  std::array<char, 768> text_;
  size_t size_ = 0;
};

// A device address as a kernel argument. It becomes two arguments, which BUF(x) of kernels/common/common.h declares: a
// __global pointer and a byte offset. A null address becomes a null pointer and 0.
struct Buf {
  const void* address;
};
// Local memory, in bytes.
struct Local {
  size_t bytes;
};
// OpenCL buffers as an argument each, for kernels that take a few slabs and a table of offsets. If the list `stays`,
// each replay of a captured launch reads it again.
struct Mems {
  c10::ArrayRef<cl_mem> list;
  bool stays = false;
};

// A generator's state: two arguments. A replay of a captured launch has other numbers than the capture: `source` is the
// generator's place among those of the capture.
struct Philox {
  uint64_t seed, offset;
  int source = -1;
};

// Raw bytes, for structs that are put together at run time.
struct Bytes {
  const void* data;
  size_t size;
};

// An argument of a user's kernel (see Kernel::launch_plain).
struct PlainArg {
  enum Kind { kBuffer, kScalar, kLocal } kind;
  const void* address = nullptr;  // kBuffer: device memory, or null
  size_t bytes = 0;               // the size of the memory, of the scalar or of the local memory
  uint64_t bits = 0;              // kScalar: its bytes
};

struct Range {
  size_t x = 1, y = 1, z = 1;
};

// A kernel as the driver made it.
struct BuiltKernel {
  cl_kernel handle = nullptr;
  size_t most_items = SIZE_MAX;  // in a work-group: CL_KERNEL_WORK_GROUP_SIZE
  bool any_group = false;        // it runs with any work-group shape; only known where most_items is small
  bool immediate = false;        // it was built for the device of immediate queues too
};

class Kernel {
 public:
  Kernel(Device& device, std::string name);
  ~Kernel();
  const std::string& name() const { return name_; }
  Device& device() const { return device_; }
  // Its build may still be under way (Builds.h).
  bool built() const { return handle_.load(std::memory_order_acquire) != nullptr; }
  void set_build(std::shared_ptr<Build> build);
  void set_built(const BuiltKernel& built);
  bool building() const;
  bool failed() const;
  // Waits until it is built; raises what the build raised.
  void wait() const;

  // Enqueues the kernel on `queue`. `global` need not be a multiple of `local`: it is rounded up, so a kernel
  // launched with local > 1 checks its bounds. Never waits. `op` names the operator in errors and profiles. While the
  // kernel, or one that was launched before on the queue, is being built, the launch is kept for later. If the device
  // or the compiled kernel takes smaller groups only, the groups become smaller, provided that the kernel does not ask
  // in which group it is. On GPUs, a launch with too many groups in y or z becomes several with an offset, so there
  // kernels ask for get_global_id in y and z, not for get_group_id.
  template <class... Args>
  void launch(const char* op, Queue& queue, Range global, Range local, const Args&... args) {
    const bool later = __builtin_expect(!built() || queue.deferred().any(), 0) && defers(queue);
    const std::lock_guard<std::mutex> lock(mutex_);  // one thread at a time may set a cl_kernel's arguments
    begin(queue, later);
    cl_uint index = 0;
    (bind(index, args), ...);
    enqueue(op, queue, global, local);
  }

  // Launches a user's kernel, as the OpenCL standard has it: a tensor becomes one pointer, to its first byte; `global`
  // must be a multiple of `local`, and with an empty `local` the driver chooses.
  void launch_plain(Queue& queue, c10::ArrayRef<size_t> global, c10::ArrayRef<size_t> local,
                    c10::ArrayRef<PlainArg> args);
  // The types of the arguments as the source names them ("float*"); empty strings if the driver does not tell.
  std::vector<std::string> argument_types() const;
  // Enqueues what was kept for later, once the kernel is built.
  void submit(Queue& queue, const DeferredLaunch& launch);

 private:
  bool defers(Queue& queue);
  void begin(Queue& queue, bool later);
  void bind(cl_uint& index, const Buf& buf);
  void bind(cl_uint& index, const Local& local);
  void bind(cl_uint& index, const Mems& mems);
  void bind(cl_uint& index, const Philox& philox);
  void bind(cl_uint& index, const Bytes& bytes) { set_value(index++, bytes.size, bytes.data); }
  // Any number of arguments of the same kind.
  template <class T>
  void bind(cl_uint& index, const c10::ArrayRef<T>& list) {
    for (const T& item : list) bind(index, item);
  }
  template <class T>
  void bind(cl_uint& index, const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>, "pass device addresses as Buf");
    static_assert(!std::is_same_v<T, bool>, "OpenCL has no bool arguments: pass int");
    set_value(index++, sizeof(T), &value);
  }
  // Sets an argument that is no buffer, on which the launch's time may depend.
  void set_value(cl_uint index, size_t bytes, const void* value);
  void set_arg(cl_uint index, size_t bytes, const void* value);
  void enqueue(const char* op, Queue& queue, Range global, Range local);
  Range fitting_group(const char* op, const Range& wanted) const;
  void enqueue_grid(const char* op, Queue& queue, cl_uint dims, const Range& global, const Range& wanted);
  void enqueue_now(const char* op, Queue& queue, const Grid& grid);
  bool run_now(Queue& queue, const Grid& grid, size_t items);

  struct CachedArg {
    uint32_t bytes = 0;
    std::array<char, 16> value{};
  };
  static constexpr size_t kCachedArgs = 48;

  Device& device_;
  std::atomic<cl_kernel> handle_{nullptr};
  size_t most_items_ = SIZE_MAX;
  bool any_group_ = false, immediate_ = false;
  std::string name_;
  mutable std::mutex build_mutex_;
  std::shared_ptr<Build> build_;
  std::unique_ptr<DeferredLaunch> later_;  // the launch that is being put together, if it is for later
  std::mutex mutex_;
  bool by_caller_ = false;       // whether the launch that is being put together may run in this thread
  uint64_t arguments_hash_ = 0;  // of those that are no buffers
  uint64_t epoch_ = 0;
  std::array<CachedArg, kCachedArgs> cached_{};
};

// For tests: which kernels were launched on GPUs in work-groups of fewer than 32 items, for more than 1,024 items.
std::vector<std::string> narrow_launches();

// Finds the variant, or begins to build it. `file` is a name in kernels/ ("unary.cl"); `name` the __kernel in it.
// Defs go to the compiler as -D; DEVICE_CPU / DEVICE_GPU, HAVE_FP16, HAVE_FP64 are defined for every kernel.
Kernel& kernel(Device& device, const char* file, const char* name, const Defs& defs);
// As kernel(), for program text that is not a file of kernels/ (e.g. from users' compile_kernel).
Kernel& kernel_from_source(Device& device, const std::string& source, const char* name, const std::string& options);

}  // namespace netcl
