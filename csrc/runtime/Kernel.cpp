#include "runtime/Kernel.h"

#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>
#include <c10/util/StringUtil.h>
#include <c10/util/bit_cast.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <set>
#include <shared_mutex>
#include <unordered_map>

#include "runtime/AddressSpace.h"
#include "runtime/Builds.h"
#include "runtime/CachingAllocator.h"
#include "runtime/Command.h"
#include "runtime/Counters.h"
#include "runtime/Log.h"
#include "runtime/ProgramCache.h"
#include "runtime/Shutdown.h"

namespace netcl {

// A launch that waits: the arguments of Kernel::launch.
struct DeferredLaunch : DeferredCommand {
  explicit DeferredLaunch(Kernel& k) : kernel(k) {}
  void add(size_t size, const void* value) {
    if (!value) return args.push_back({size, kLocal});
    args.push_back({size, bytes.size()});
    const auto* from = static_cast<const unsigned char*>(value);
    bytes.insert(bytes.end(), from, from + size);
  }
  const char* op() const override { return name; }
  std::string text() const override {
    return c10::str(kernel.name(), " for ", name, ", global [", c10::Join(", ", global), "], local [",
                    c10::Join(", ", local), "], buffers of [", c10::Join(", ", bytes_), "] bytes");
  }
  // A launch whose kernel failed stays until the host waits, so that the rest of its operator lies behind it.
  bool ready() const override { return kernel.built(); }
  bool over() const override { return !kernel.building(); }
  void submit(Queue& queue) override {
    kernel.wait();
    if (!mems.empty()) std::memcpy(bytes.data() + args[first_mem].at, mems.data(), mems.size() * sizeof(cl_mem));
    kernel.submit(queue, *this);
  }
  void draw(c10::ArrayRef<Draw> draws) override {
    for (const auto& [arg, philox] : drawn) {
      const auto [seed, shift] = draws[philox.source];
      const uint64_t offset = philox.offset + shift;
      std::memcpy(bytes.data() + args[arg].at, &seed, sizeof(seed));
      std::memcpy(bytes.data() + args[arg + 1].at, &offset, sizeof(offset));
    }
  }

  void use(cl_uint arg, const void* address) {
    used.push_back(arg);
    addresses_.push_back(address);
    bytes_.push_back(allocated_bytes(address));
  }
  void set_address(size_t i, const void* address) override {
    const Location at = locate(address);
    const auto offset = static_cast<cl_ulong>(at.offset);
    std::memcpy(bytes.data() + args[used[i]].at, &at.mem, sizeof(at.mem));
    std::memcpy(bytes.data() + args[used[i] + 1].at, &offset, sizeof(offset));
    addresses_[i] = address;
  }

  Kernel& kernel;
  const char* name = nullptr;  // of the operator
  cl_uint dims = 1;
  std::array<size_t, 3> global{1, 1, 1}, local{1, 1, 1};
  struct Arg {
    size_t size, at;  // at: in `bytes`, or kLocal
  };
  static constexpr size_t kLocal = ~size_t{0};
  std::vector<Arg> args;
  std::vector<unsigned char> bytes;
  std::vector<std::pair<size_t, Philox>> drawn;  // by the first of their two arguments
  std::vector<cl_uint> used;                     // the arguments of addresses()
  c10::ArrayRef<cl_mem> mems;                    // what the arguments from `first_mem` on are at a replay
  cl_uint first_mem = 0;
  uint64_t hash = 0;  // of the arguments that are no buffers

 private:
  std::vector<size_t> bytes_;  // of the allocations that begin at addresses(); 0 for an address within one
};

namespace {
// Launches with more work-items than this never run in the calling thread (ImmediateQueue.h).
constexpr size_t kImmediateItems = 64;
// A GPU runs 32 or 64 work-items of a group in step. With fewer per group, a launch of many leaves most lanes idle.
constexpr size_t kLeastGroup = 32, kManyItems = 1024;

struct NarrowLaunches {
  std::mutex mutex;
  std::set<std::string> found;
};
NarrowLaunches& narrow() {
  static auto& n = *new NarrowLaunches;
  return n;
}
void note_group(const std::string& kernel, const char* op, const std::array<size_t, 3>& global,
                const std::array<size_t, 3>& local) {
  const auto items = [](const std::array<size_t, 3>& n) { return n[0] * n[1] * n[2]; };
  if (items(local) >= kLeastGroup || items(global) <= kManyItems) return;
  const std::lock_guard<std::mutex> lock(narrow().mutex);
  narrow().found.insert(c10::str(kernel, " for ", op, ", local [", c10::Join(", ", local), "]"));
}

uint64_t hashed(uint64_t hash, size_t bytes, const void* value) {
  const char* at = static_cast<const char*>(value);
  hash ^= bytes;
  for (size_t i = 0; value && i < bytes; i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, at + i, std::min(bytes - i, sizeof(word)));
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 32;
  }
  return hash;
}
}  // namespace

std::vector<std::string> narrow_launches() {
  const std::lock_guard<std::mutex> lock(narrow().mutex);
  return {narrow().found.begin(), narrow().found.end()};
}

Defs& Defs::set(const char* name, const char* value) {
  append(" -D");
  append(name);
  append("=");
  append(value);
  return *this;
}

Defs& Defs::set(const char* name, int64_t value) {
  std::array<char, 24> digits{};  // snprintf would take a tenth of a launch's time
  std::to_chars(digits.data(), digits.data() + digits.size() - 1, value);
  return set(name, digits.data());
}

void Defs::append(std::string_view s) {
  TORCH_INTERNAL_ASSERT(size_ + s.size() <= text_.size(), "netcl: too many kernel definitions");
  std::memcpy(text_.data() + size_, s.data(), s.size());
  size_ += s.size();
}

Kernel::Kernel(Device& device, std::string name) : device_(device), name_(std::move(name)) {}
Kernel::~Kernel() = default;

void Kernel::set_build(std::shared_ptr<Build> build) {
  const std::lock_guard<std::mutex> lock(build_mutex_);
  build_ = std::move(build);
}

void Kernel::set_built(const BuiltKernel& built) {
  most_items_ = built.most_items;
  any_group_ = built.any_group;
  immediate_ = built.immediate;
  handle_.store(built.handle, std::memory_order_release);
}

bool Kernel::building() const {
  const std::lock_guard<std::mutex> lock(build_mutex_);
  return build_ && !build_->over();
}

bool Kernel::failed() const {
  const std::lock_guard<std::mutex> lock(build_mutex_);
  return build_ && build_->failed();
}

void Kernel::wait() const {
  if (built()) return;
  std::shared_ptr<Build> build;
  {
    const std::lock_guard<std::mutex> lock(build_mutex_);
    build = build_;
  }
  build->wait();
}

// Called where this kernel or an earlier one is not built: true if the launch is to be kept for later, else all are
// built now.
bool Kernel::defers(Queue& queue) {
  check_not_forked();
  if (queue.deferred().capture()) return true;
  if (build_threads(device_) > 0 && queue.may_defer()) {
    queue.deferred().settle_built();
    return !built() || queue.deferred().any();
  }
  wait();
  queue.deferred().settle();
  return false;
}

void Kernel::begin(Queue& queue, bool later) {
  later_ = later ? std::make_unique<DeferredLaunch>(*this) : nullptr;
  by_caller_ = immediate_ && !launch_blocking() && queue.immediate().available() && queue.idle();
  arguments_hash_ = 0;
  // A removed slab's handle may be reused, so forget the arguments that were set.
  if (const uint64_t now = slab_epoch(); now != epoch_) {
    for (auto& c : cached_) c.bytes = 0;
    epoch_ = now;
  }
}

void Kernel::bind(cl_uint& index, const Buf& buf) {
  const Location at = locate(buf.address);
  const auto offset = static_cast<cl_ulong>(at.offset);
  if (later_) later_->hold(at.mem);
  if (later_ && buf.address) later_->use(index, buf.address);
  set_arg(index++, sizeof(cl_mem), &at.mem);
  set_arg(index++, sizeof(offset), &offset);
}

void Kernel::bind(cl_uint& index, const Mems& mems) {
  if (later_ && mems.stays) later_->mems = mems.list, later_->first_mem = index;
  for (const cl_mem& mem : mems.list) {
    if (later_) later_->hold(mem);
    set_arg(index++, sizeof(cl_mem), &mem);
  }
}

void Kernel::bind(cl_uint& index, const Philox& philox) {
  if (later_ && philox.source >= 0) later_->drawn.emplace_back(index, philox);
  bind(index, philox.seed);
  bind(index, philox.offset);
}

void Kernel::bind(cl_uint& index, const Local& local) { set_value(index++, local.bytes, nullptr); }

void Kernel::set_value(cl_uint index, size_t bytes, const void* value) {
  if (by_caller_ || later_) arguments_hash_ = hashed(arguments_hash_, bytes, value);
  set_arg(index, bytes, value);
}

void Kernel::set_arg(cl_uint index, size_t bytes, const void* value) {
  if (__builtin_expect(later_ != nullptr, 0)) return later_->add(bytes, value);
  CachedArg* cached = value && index < kCachedArgs && bytes <= sizeof(CachedArg::value) ? &cached_[index] : nullptr;
  if (cached) {
    if (cached->bytes == bytes && std::memcmp(cached->value.data(), value, bytes) == 0) return;
    cached->bytes = 0;
  }
  const cl_int err = cl().clSetKernelArg(handle_.load(std::memory_order_relaxed), index, bytes, value);
  if (__builtin_expect(err != CL_SUCCESS, 0)) {
    const char* op = current_op();
    TORCH_CHECK(false, "netcl: clSetKernelArg failed with ", error_symbol(err), " (", err, ")",
                op ? c10::str(" while running ", op) : "", ", for argument ", index, " (", bytes, " bytes) of kernel ",
                name_);
  }
  if (cached) {
    cached->bytes = static_cast<uint32_t>(bytes);
    std::memcpy(cached->value.data(), value, bytes);
  }
}

void Kernel::enqueue(const char* op, Queue& queue, Range global, Range local) {
  std::unique_ptr<DeferredLaunch> later = std::move(later_);
  check_not_forked();
  const auto up = [](size_t n, size_t to) { return (n + to - 1) / to * to; };
  const std::array<size_t, 3> l{local.x, local.y, local.z};
  const std::array<size_t, 3> g{up(global.x, local.x), up(global.y, local.y), up(global.z, local.z)};
  if (g[0] == 0 || g[1] == 0 || g[2] == 0) return;
  const cl_uint dims = g[2] > 1 || l[2] > 1 ? 3 : g[1] > 1 || l[1] > 1 ? 2 : 1;
  increment(counters.launches);
  if (!device_.is_cpu()) note_group(name_, op, g, l);
  if (__builtin_expect(later == nullptr, 1)) return enqueue_grid(op, queue, dims, {g[0], g[1], g[2]}, local);
  later->name = op;
  later->dims = dims;
  later->global = g;
  later->local = l;
  later->hash = arguments_hash_;
  queue.deferred().add(std::move(later));
}

void Kernel::submit(Queue& queue, const DeferredLaunch& launch) {
  const std::lock_guard<std::mutex> lock(mutex_);
  begin(queue, false);
  arguments_hash_ = launch.hash;
  cl_uint index = 0;
  for (const auto& arg : launch.args) {
    set_arg(index++, arg.size, arg.at == DeferredLaunch::kLocal ? nullptr : launch.bytes.data() + arg.at);
  }
  const auto &g = launch.global, &l = launch.local;
  enqueue_grid(launch.name, queue, launch.dims, {g[0], g[1], g[2]}, {l[0], l[1], l[2]});
}

// The group `wanted`, or the largest part of it that the device and the kernel take.
Range Kernel::fitting_group(const char* op, const Range& wanted) const {
  const auto& info = device_.info();
  const std::array<size_t, 3>& sizes = info.max_work_item_sizes;
  const size_t items = wanted.x * wanted.y * wanted.z, most = std::min(most_items_, info.max_work_group_size);
  const bool fits = items <= most && wanted.x <= sizes[0] && wanted.y <= sizes[1] && wanted.z <= sizes[2];
  if (__builtin_expect(fits, 1)) return wanted;
  TORCH_CHECK(
      any_group_, "netcl: ", op, ": kernel ", name_, " wants work-groups of ", wanted.x, " x ", wanted.y, " x ",
      wanted.z, " work-items, ", info.name, " allows ", most,
      most == info.max_work_group_size ? " (CL_DEVICE_MAX_WORK_GROUP_SIZE)" : " (CL_KERNEL_WORK_GROUP_SIZE)",
      ", and at most ", sizes[0], " x ", sizes[1], " x ", sizes[2],
      " (CL_DEVICE_MAX_WORK_ITEM_SIZES). Set NETCL_DISABLE=work_groups for groups of at most 64; please report it");
  size_t left = most;
  const auto part = [&left](size_t n, size_t limit) {
    size_t divisor = std::max<size_t>(1, std::min({n, limit, left}));
    while (n % divisor) divisor--;
    left /= divisor;
    return divisor;
  };
  const size_t x = part(wanted.x, sizes[0]), y = part(wanted.y, sizes[1]), z = part(wanted.z, sizes[2]);
  return {x, y, z};
}

void Kernel::enqueue_grid(const char* op, Queue& queue, cl_uint dims, const Range& global, const Range& wanted) {
  const Range local = fitting_group(op, wanted);
  const size_t most = device_.info().max_groups;
  const std::array<size_t, 3> group{local.x, local.y, local.z};
  if (__builtin_expect(dims == 1 || (global.y / local.y <= most && global.z / local.z <= most), 1)) {
    const std::array<size_t, 3> all{global.x, global.y, global.z};
    return enqueue_now(op, queue, {dims, nullptr, all.data(), group.data()});
  }
  const size_t step_y = most * local.y, step_z = most * local.z;
  for (size_t z = 0; z < global.z; z += step_z) {
    for (size_t y = 0; y < global.y; y += step_y) {
      const std::array<size_t, 3> offset{0, y, z};
      const std::array<size_t, 3> piece{global.x, std::min(step_y, global.y - y), std::min(step_z, global.z - z)};
      enqueue_now(op, queue, {dims, offset.data(), piece.data(), group.data()});
    }
  }
}

// Runs a short launch in this thread, if it need not wait for an earlier command.
bool Kernel::run_now(Queue& queue, const Grid& grid, size_t items) {
  if (!by_caller_ || items > kImmediateItems) return false;
  const auto turn = queue.turn();
  if (!turn) return false;
  const auto claim = queue.immediate().claim();
  if (!claim) return false;
  ImmediateTimes& times = ImmediateTimes::of_thread();
  const uint64_t launch = (arguments_hash_ ^ c10::bit_cast<uintptr_t>(this)) * 64 + items;
  if (!times.admits(launch, this)) return false;
  const auto begin = std::chrono::steady_clock::now();
  if (queue.immediate().run(handle_.load(std::memory_order_relaxed), grid) != CL_SUCCESS) {
    times.refuse(this);
    return false;
  }
  const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - begin;
  queue.immediate().note_launch(taken.count());
  times.took(launch, this, taken.count(), immediate_microseconds(device_) * 1000);
  return true;
}

void Kernel::enqueue_now(const char* op, Queue& queue, const Grid& grid) {
  size_t items = 1;
  for (cl_uint i = 0; i < grid.dims; i++) items *= grid.global[i];
  if (!run_now(queue, grid, items)) {
    const Command command{Activity::kKernel, name_.c_str(), op, "clEnqueueNDRangeKernel"};
    netcl::submit(queue, command, [&](cl_command_queue handle, Recorded& recorded) {
      return cl().clEnqueueNDRangeKernel(handle, handle_.load(std::memory_order_relaxed), grid.dims, grid.offset,
                                         grid.global, grid.local, 0, nullptr, recorded.event());
    });
  }
  if (__builtin_expect(logs(LogTopic::kLaunch), 0)) {
    const auto sizes = [&grid](const size_t* n) {
      return n ? c10::str("[", c10::Join(", ", c10::ArrayRef<size_t>(n, grid.dims)), "]") : "chosen by the driver";
    };
    log("launch ", name_, " for ", op, " on netcl:", int(device_.index()), " stream ", queue.stream().id(), ", global ",
        sizes(grid.global), ", local ", sizes(grid.local));
  }
}

namespace {

// A sub-buffer that begins at `address`; the caller releases it. The driver keeps it while a queued command uses it.
cl_mem sub_buffer(const Device& device, const void* address, size_t bytes, cl_uint argument) {
  const Location at = locate(address);
  cl_uint bits = 0;
  NETCL_CL(clGetDeviceInfo(device.id(), CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof(bits), &bits, nullptr));
  const size_t align = std::max<size_t>(1, bits / 8);
  TORCH_CHECK_VALUE(at.offset % align == 0, "argument ", argument, ": the tensor begins ", at.offset % align,
                    " bytes behind a multiple of ", align,
                    " bytes, where this device can have no buffer begin. Pass a copy (tensor.clone()), or the whole "
                    "tensor and an offset.");
  const cl_buffer_region region{at.offset, bytes};
  cl_int err = CL_SUCCESS;
  cl_mem mem = cl().clCreateSubBuffer(at.mem, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &err);
  if (err != CL_SUCCESS) raise_cl_error(err, "clCreateSubBuffer");
  return mem;
}

}  // namespace

void Kernel::launch_plain(Queue& queue, c10::ArrayRef<size_t> global, c10::ArrayRef<size_t> local,
                          c10::ArrayRef<PlainArg> args) {
  check_not_forked();
  wait();
  queue.deferred().settle();
  const std::lock_guard<std::mutex> lock(mutex_);
  begin(queue, false);
  std::vector<cl_mem> held;
  const auto release = c10::make_scope_exit([&held] {
    for (cl_mem mem : held) cl().clReleaseMemObject(mem);
  });
  for (cl_uint i = 0; i < args.size(); i++) {
    const PlainArg& arg = args[i];
    const void* value = &arg.bits;
    cl_mem mem = nullptr;
    if (arg.kind == PlainArg::kLocal) {
      value = nullptr;
    } else if (arg.kind == PlainArg::kBuffer) {
      if (arg.address && arg.bytes) held.push_back(mem = sub_buffer(device_, arg.address, arg.bytes, i));
      value = &mem;
    }
    const size_t bytes = arg.kind == PlainArg::kBuffer ? sizeof(cl_mem) : arg.bytes;
    if (arg.kind == PlainArg::kScalar) arguments_hash_ = hashed(arguments_hash_, bytes, value);
    const cl_int err = cl().clSetKernelArg(handle_.load(), i, bytes, value);
    TORCH_CHECK_VALUE(err == CL_SUCCESS, "netcl: clSetKernelArg failed with ", error_symbol(err), " (", err,
                      ") for argument ", i, " (", bytes, " bytes) of kernel ", name_);
  }
  increment(counters.launches);
  enqueue_now(name_.c_str(), queue,
              {static_cast<cl_uint>(global.size()), nullptr, global.data(), local.empty() ? nullptr : local.data()});
}

std::vector<std::string> Kernel::argument_types() const {
  wait();
  return argument_types_of(handle_.load());
}

namespace {

struct Entry {
  std::string file, name, defs;
  c10::DeviceIndex device;
  std::unique_ptr<Kernel> kernel;
};

struct Table {
  std::shared_mutex mutex;
  std::unordered_multimap<uint64_t, Entry> entries;
  std::mutex building;
};
Table& table() {
  static auto* t = new Table();
  return *t;
}

uint64_t hash_of(c10::DeviceIndex device, std::string_view file, std::string_view name, std::string_view defs) {
  const std::hash<std::string_view> h;
  uint64_t seed = static_cast<uint64_t>(device) + 0x9e3779b97f4a7c15ULL;
  for (const auto part : {file, name, defs}) seed = (seed ^ h(part)) * 0xff51afd7ed558ccdULL;
  return seed;
}

Kernel* find(uint64_t hash, c10::DeviceIndex device, std::string_view file, std::string_view name,
             std::string_view defs) {
  auto& t = table();
  const std::shared_lock<std::shared_mutex> lock(t.mutex);
  const auto [first, last] = t.entries.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const Entry& e = it->second;
    if (e.device == device && e.file == file && e.name == name && e.defs == defs) return e.kernel.get();
  }
  return nullptr;
}

// True if no work-item of the program asks for its group: then the program may run in groups of any shape. Headers of
// the text may ask in functions that nobody calls; then the answer is false.
bool takes_any_group(const std::string& source) {
  // Before this line, the last of kernels/common/builtins.h, the functions are declared.
  const size_t declared = source.find("#undef ATOMICS"), begin = declared == std::string::npos ? 0 : declared;
  const auto asks = [&](const char* word) { return source.find(word, begin) != std::string::npos; };
  return !asks("get_local_") && !asks("get_group_id") && !asks("get_num_groups") && !asks("barrier(") &&
         !asks("__local");
}

BuiltKernel make_kernel(Device& device, cl_program program, const std::string& source, const char* name) {
  cl_int err = CL_SUCCESS;
  cl_kernel handle = cl().clCreateKernel(program, name, &err);
  if (err != CL_SUCCESS) {
    const char* op = current_op();
    TORCH_CHECK(false, "netcl: clCreateKernel failed with ", error_symbol(err), " (", err, ")",
                op ? c10::str(" while running ", op) : "", ", for kernel ", name);
  }
  cl_ulong local_bytes = 0;  // stays 0 if the driver cannot tell
  cl().clGetKernelWorkGroupInfo(handle, device.id(), CL_KERNEL_LOCAL_MEM_SIZE, sizeof(local_bytes), &local_bytes,
                                nullptr);
  TORCH_CHECK(local_bytes <= device.info().local_mem_size, "netcl: kernel ", name, " wants ", local_bytes,
              " bytes of local memory, ", device.info().name, " has ", device.info().local_mem_size,
              " (CL_DEVICE_LOCAL_MEM_SIZE)");
  size_t most = 0;
  if (cl().clGetKernelWorkGroupInfo(handle, device.id(), CL_KERNEL_WORK_GROUP_SIZE, sizeof(most), &most, nullptr) !=
          CL_SUCCESS ||
      most == 0) {
    most = SIZE_MAX;
  }
  most = std::min(most, device.info().max_kernel_work_group);
  // No launch of ours has larger groups than this, so others need not be read.
  constexpr size_t kLargestGroup = 1024;
  const auto& sizes = device.info().max_work_item_sizes;
  const bool small = std::min({most, device.info().max_work_group_size, sizes[0], sizes[1], sizes[2]}) < kLargestGroup;
  // A program is built for all devices that it is associated with.
  cl_uint devices = 0;
  const bool known =
      cl().clGetProgramInfo(program, CL_PROGRAM_NUM_DEVICES, sizeof(devices), &devices, nullptr) == CL_SUCCESS;
  const cl_uint all = device.immediate_id() && device.immediate_id() != device.id() ? 2 : 1;
  return {handle, most, small && takes_any_group(source), known && devices == all};
}

// `file` identifies the source: it is a name in kernels/, or the text itself.
template <class Describe>
Kernel& find_or_build(Device& device, std::string_view file, const char* name, std::string_view defs,
                      Describe&& describe) {
  const uint64_t hash = hash_of(device.index(), file, name, defs);
  Kernel* known = find(hash, device.index(), file, name, defs);
  if (known && (known->built() || !known->failed())) {
    count_memory_hit();
    return *known;
  }
  auto& t = table();
  const std::lock_guard<std::mutex> building(t.building);
  known = find(hash, device.index(), file, name, defs);
  if (known && (known->built() || !known->failed())) return *known;
  const Program program = describe();
  std::unique_ptr<Kernel> made;
  if (!known) {
    made = std::make_unique<Kernel>(device, name);
    known = made.get();
  }
  // What is on disk is loaded at once; the rest is compiled by another thread.
  if (cl_program loaded = load_program(device, program)) {
    known->set_built(make_kernel(device, loaded, program.source, name));
  } else {
    const char* op = current_op();
    known->set_build(start_build(device, [&device, program, known, op = std::string(op ? op : "")] {
      const OpName scope(op.empty() ? nullptr : op.c_str());
      known->set_built(make_kernel(device, build_program(device, program), program.source, known->name().c_str()));
    }));
    if (build_threads(device) == 0) known->wait();
  }
  Kernel& result = *known;
  if (made) {
    const std::unique_lock<std::shared_mutex> lock(t.mutex);
    t.entries.emplace(hash, Entry{std::string(file), name, std::string(defs), device.index(), std::move(made)});
  }
  return result;
}

}  // namespace

Kernel& kernel(Device& device, const char* file, const char* name, const Defs& defs) {
  stay_if_exiting();
  return find_or_build(device, file, name, defs.view(), [&] {
    return describe_program(device, c10::str(file, ' ', name), kernel_source(file, name), std::string(defs.view()));
  });
}

Kernel& kernel_from_source(Device& device, const std::string& source, const char* name, const std::string& options) {
  return find_or_build(device, source, name, options,
                       [&] { return describe_program(device, c10::str("<source> ", name), source, options); });
}

}  // namespace netcl
