#include "runtime/Device.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <sstream>
#include <type_traits>

#include "runtime/Environment.h"
#include "runtime/LateAllocation.h"
#include "runtime/PoclCpu.h"
#include "runtime/Shutdown.h"

namespace netcl {

namespace {

std::string platform_string(cl_platform_id id, cl_platform_info what) {
  size_t size = 0;
  NETCL_CL(clGetPlatformInfo(id, what, 0, nullptr, &size));
  std::string text(size, '\0');
  NETCL_CL(clGetPlatformInfo(id, what, size, text.data(), nullptr));
  return text.c_str();
}

std::string device_string(cl_device_id id, cl_device_info what) {
  size_t size = 0;
  NETCL_CL(clGetDeviceInfo(id, what, 0, nullptr, &size));
  std::string text(size, '\0');
  NETCL_CL(clGetDeviceInfo(id, what, size, text.data(), nullptr));
  return text.c_str();
}

template <class T>
T device_value(cl_device_id id, cl_device_info what) {
  T value{};
  NETCL_CL(clGetDeviceInfo(id, what, sizeof(T), &value, nullptr));
  return value;
}

std::string lower(std::string s) {
  std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return std::tolower(c); });
  return s;
}

// The words of NETCL_DISABLE, which docs/environment.md explains: any device can test less capable ones.
constexpr auto kHiding = {
    // clang-format off
    "fp16", "fp64", "int64_atomics", "subgroups", "work_groups", "big_grids", "work_item_sizes", "kernel_work_groups",
    "local_memory", "local_memory_32k", "large_buffers", "early_allocation",
    // clang-format on
};

bool disabled(const std::string& capability) {
  const char* value = std::getenv("NETCL_DISABLE");
  std::stringstream list(value ? value : "");
  for (std::string word; std::getline(list, word, ',');) {
    if (lower(word) == capability) return true;
  }
  return false;
}

// Prints each warning once. The child that counts devices passes its warnings to its parent.
std::string* heard_by_child = nullptr;

void warn_once(const std::string& text) {
  static auto* said = new std::set<std::string>();
  if (heard_by_child) {
    heard_by_child->append(text).push_back('\0');
  } else if (said->insert(text).second) {
    TORCH_WARN(text);
  }
}

// Raises for unknown words in the variables that are lists of words.
void check_environment() {
  const auto check = [](const char* variable, std::initializer_list<const char*> allowed) {
    const char* value = std::getenv(variable);
    std::stringstream list(value ? value : "");
    for (std::string word; std::getline(list, word, ',');) {
      if (word.empty() || std::find(allowed.begin(), allowed.end(), lower(word)) != allowed.end()) continue;
      std::string names;
      for (const char* name : allowed) names += (names.empty() ? "" : ", ") + std::string(name);
      TORCH_CHECK_VALUE(false, variable, ": '", word, "' is not one of ", names);
    }
  };
  check("NETCL_DISABLE", kHiding);
  check("NETCL_LOG", {"compile", "launch", "alloc", "plan"});
  check("NETCL_FP16", {"storage"});
  check("NETCL_MATRIX_ENGINE", {"none", "avx512_bf16", "amx", "mma_sm75", "mma_sm80", "wmma", "mfma_cdna1",
                                "mfma_cdna2", "dpas", "emulated_mma_sm75", "emulated_mma_sm80", "emulated_wmma",
                                "emulated_mfma_cdna1", "emulated_mfma_cdna2", "emulated_dpas"});
}

std::array<size_t, 3> max_work_item_sizes(cl_device_id id) {
  const auto dims = device_value<cl_uint>(id, CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS);  // 3 at least
  std::vector<size_t> sizes(std::max<cl_uint>(dims, 3), 1);
  NETCL_CL(clGetDeviceInfo(id, CL_DEVICE_MAX_WORK_ITEM_SIZES, dims * sizeof(size_t), sizes.data(), nullptr));
  return {sizes[0], sizes[1], sizes[2]};
}

// Lowers the numbers that NETCL_DISABLE names.
void hide(DeviceInfo& d) {
  const auto limit = [](const char* word, auto& value, size_t most) {
    if (disabled(word)) value = std::min<std::decay_t<decltype(value)>>(value, most);
  };
  limit("local_memory", d.local_mem_size, 16 << 10);
  limit("local_memory_32k", d.local_mem_size, 32 << 10);
  limit("large_buffers", d.max_mem_alloc_size, size_t{1} << 30);
  limit("work_groups", d.max_work_group_size, 64);
  limit("kernel_work_groups", d.max_kernel_work_group, 32);
  for (size_t& size : d.max_work_item_sizes) limit("work_item_sizes", size, 16);
}

DeviceInfo query(cl_platform_id platform, cl_device_id id) {
  DeviceInfo d;
  d.platform_name = platform_string(platform, CL_PLATFORM_NAME);
  d.platform_version = platform_string(platform, CL_PLATFORM_VERSION);
  d.name = device_string(id, CL_DEVICE_NAME);
  d.vendor = device_string(id, CL_DEVICE_VENDOR);
  d.version = device_string(id, CL_DEVICE_VERSION);
  d.driver_version = device_string(id, CL_DRIVER_VERSION);
  d.extensions = device_string(id, CL_DEVICE_EXTENSIONS);
  d.type = device_value<cl_device_type>(id, CL_DEVICE_TYPE);
  const std::string padded = " " + d.extensions + " ";
  const auto has = [&](const char* name) { return padded.find(std::string(" ") + name + " ") != std::string::npos; };
  d.has_fp16 = has("cl_khr_fp16") && !disabled("fp16");
  d.has_fp64 = has("cl_khr_fp64") && !disabled("fp64");
  d.has_int64_atomics =
      has("cl_khr_int64_base_atomics") && has("cl_khr_int64_extended_atomics") && !disabled("int64_atomics");
  d.has_subgroups = has("cl_khr_subgroups") || has("cl_intel_subgroups");
  d.has_subgroups = d.has_subgroups && !disabled("subgroups");
  d.host_unified = device_value<cl_bool>(id, CL_DEVICE_HOST_UNIFIED_MEMORY) != CL_FALSE;
  d.global_mem_size = device_value<cl_ulong>(id, CL_DEVICE_GLOBAL_MEM_SIZE);
  d.max_mem_alloc_size = device_value<cl_ulong>(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  d.local_mem_size = device_value<cl_ulong>(id, CL_DEVICE_LOCAL_MEM_SIZE);
  d.max_work_group_size = device_value<size_t>(id, CL_DEVICE_MAX_WORK_GROUP_SIZE);
  d.max_work_item_sizes = max_work_item_sizes(id);
  hide(d);
  const long units = std::max<cl_uint>(1, device_value<cl_uint>(id, CL_DEVICE_MAX_COMPUTE_UNITS));
  d.max_compute_units = static_cast<cl_uint>(number("NETCL_COMPUTE_UNITS", 1, 1 << 20, units));
  d.native_floats = device_value<cl_uint>(id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT);
  if (has("cl_nv_device_attribute_query")) {
    constexpr cl_device_info kMajor = 0x4000, kMinor = 0x4001;  // CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV, _MINOR_NV
    d.capability = 10 * device_value<cl_uint>(id, kMajor) + device_value<cl_uint>(id, kMinor);
  }
  return d;
}

// NETCL_SUBDEVICES=n splits each CPU into n equal parts (clCreateSubDevices), to test with several devices. A device
// that cannot be split stays whole.
std::vector<cl_device_id> parts_of(cl_device_id id) {
  const long n = number("NETCL_SUBDEVICES", 1, 1 << 20, 1);
  if (n <= 1 || !(device_value<cl_device_type>(id, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU)) return {id};
  const auto units = static_cast<long>(device_value<cl_uint>(id, CL_DEVICE_MAX_COMPUTE_UNITS));
  const cl_device_partition_property how[] = {CL_DEVICE_PARTITION_EQUALLY, std::max(1L, units / n), 0};
  cl_uint count = 0;
  std::vector<cl_device_id> parts;
  cl_int err = cl().clCreateSubDevices(id, how, 0, nullptr, &count);
  if (err == CL_SUCCESS) {
    parts.resize(count);
    err = cl().clCreateSubDevices(id, how, count, parts.data(), nullptr);
  }
  if (err != CL_SUCCESS || count < n) {
    warn_once(c10::str("netcl: NETCL_SUBDEVICES=", n, " is ignored for a device of ", units,
                       " compute units: ", err != CL_SUCCESS ? error_symbol(err) : "too few"));
    return {id};
  }
  parts.resize(n);
  return parts;
}

struct Found {
  cl_platform_id platform;
  cl_device_id id, root;  // root: the whole device, of which `id` may be a part
  DeviceInfo info;
  cl_device_id basic = nullptr;  // PoCL's device that runs commands in the calling thread
};

// Lets PoCL show its device "basic" too, while it lists its devices for the first time; it lists them by this variable.
class WithBasic {
 public:
  WithBasic() {
    const char* most = std::getenv("NETCL_IMMEDIATE_MICROSECONDS");
    set_ = !std::getenv(kVariable) && !(most && std::string_view(most) == "0") && pocl_has_basic();
    if (set_) setenv(kVariable, "pthread basic", 1);
  }
  ~WithBasic() {
    if (set_) unsetenv(kVariable);
  }
  WithBasic(const WithBasic&) = delete;
  WithBasic& operator=(const WithBasic&) = delete;
  bool set() const { return set_; }

 private:
  static constexpr const char* kVariable = "POCL_DEVICES";
  bool set_ = false;
};

// Takes "basic" out of PoCL's devices and returns it; null unless netcl asked for it.
cl_device_id take_basic(const WithBasic& asked, std::vector<cl_device_id>& ids) {
  if (!asked.set() || ids.size() < 2) return nullptr;
  const auto at = std::find_if(ids.begin(), ids.end(),
                               [](auto* id) { return device_string(id, CL_DEVICE_NAME).starts_with("basic"); });
  if (at == ids.end()) return nullptr;
  cl_device_id basic = *at;
  ids.erase(at);
  return basic;
}

// Default order: GPUs, then accelerators and CPUs with fp16, then the rest; the platforms' own order within each.
constexpr cl_int kNoPlatform = -1001;  // CL_PLATFORM_NOT_FOUND_KHR, of the loader

int rank(const DeviceInfo& d) {
  if (d.type & CL_DEVICE_TYPE_GPU) return 0;
  return d.has_fp16 ? 1 : 2;
}

// The errors of drivers that could not tell their devices, for the message if no device is left.
std::string& failures() {
  static auto* text = new std::string();
  return *text;
}

// The devices that NETCL_VISIBLE_DEVICES leaves out, if it leaves out all of them.
std::string& hidden() {
  static auto* text = new std::string();
  return *text;
}

// The signal by which a driver ended the child process that counted the devices.
std::atomic<int> driver_fault{0};

std::string driver_fault_text() {
  return c10::str("netcl: an OpenCL driver ends the process that looks for devices (", strsignal(driver_fault),
                  "), so none is used. OCL_ICD_VENDORS may name a folder that holds only the .icd files of the other "
                  "drivers; `python -m torch_netcl` lists all.");
}

void leave_out(const char* what, const std::string& why) {
  warn_once(c10::str("netcl: a ", what, " was left out, since its driver fails: ", why));
  failures() += " " + why + (why.back() == '.' ? "" : ".");
}

// The devices that a word of NETCL_VISIBLE_DEVICES stands for: the one at an index of the default order; those of the
// platforms whose name or version contains the word; or, if there is no such platform, those whose own name does.
// (PoCL gives its device the name of the CPU, so "intel" may be a part of it.)
std::vector<size_t> named(const std::string& word, const std::vector<Found>& all) {
  const bool number = std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c); });
  std::vector<size_t> of_platform, of_device;
  for (size_t i = 0; i < all.size(); i++) {
    const DeviceInfo& d = all[i].info;
    const auto contains = [&](const std::string& name) { return lower(name).find(lower(word)) != std::string::npos; };
    if (number ? std::to_string(i) == word : contains(d.platform_name) || contains(d.platform_version)) {
      of_platform.push_back(i);
    }
    if (!number && contains(d.name)) of_device.push_back(i);
  }
  return of_platform.empty() ? of_device : of_platform;
}

// The devices of NETCL_VISIBLE_DEVICES, in its order.
std::vector<Found> visible(const std::vector<Found>& all) {
  const char* chosen = std::getenv("NETCL_VISIBLE_DEVICES");
  if (!chosen) return all;
  std::vector<Found> found;
  std::vector<bool> taken(all.size(), false);
  std::stringstream list(chosen);
  for (std::string word; std::getline(list, word, ',');) {
    word.erase(0, word.find_first_not_of(' '));
    word.erase(word.find_last_not_of(' ') + 1);
    if (word.empty()) continue;
    for (const size_t i : named(word, all)) {
      if (!taken[i]) found.push_back(all[i]);
      taken[i] = true;
    }
  }
  if (found.empty() && !all.empty()) {
    hidden() = c10::str("NETCL_VISIBLE_DEVICES=", chosen, *chosen ? " names none of them" : " hides them", ":");
    for (size_t i = 0; i < all.size(); i++) {
      hidden() += c10::str(i ? ", " : " ", i, " is ", all[i].info.name, " (", all[i].info.platform_name, ")");
    }
  }
  return found;
}

std::vector<Found> enumerate() {
  std::vector<Found> all;
  if (!opencl_loaded()) return all;
  const WithBasic asked;  // some loaders ask for devices as soon as they are asked for platforms
  cl_uint count = 0;
  const cl_int err = cl().clGetPlatformIDs(0, nullptr, &count);
  if (err == kNoPlatform || (err == CL_SUCCESS && count == 0)) return all;
  if (err != CL_SUCCESS) raise_cl_error(err, "clGetPlatformIDs");
  std::vector<cl_platform_id> platforms(count);
  NETCL_CL(clGetPlatformIDs(count, platforms.data(), nullptr));
  for (auto* platform : platforms) {
    cl_uint n = 0;
    cl_int status = cl().clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &n);
    std::vector<cl_device_id> ids(status == CL_SUCCESS ? n : 0);
    if (n) status = cl().clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, n, ids.data(), nullptr);
    if (status != CL_SUCCESS) {
      if (status != CL_DEVICE_NOT_FOUND) {
        leave_out("platform", c10::str("clGetDeviceIDs failed with ", error_symbol(status), " (", status, ")"));
      }
      continue;
    }
    cl_device_id basic = take_basic(asked, ids);
    for (auto* id : ids) {
      // The loader lists a runtime twice if two .icd files name it, e.g. the system's and that of pyopencl's PoCL
      // wheel.
      if (std::any_of(all.begin(), all.end(), [id](const Found& f) { return f.root == id; })) continue;
      try {
        for (auto* part : parts_of(id)) {
          all.push_back({platform, part, id, query(platform, part), part == id ? basic : nullptr});
        }
      } catch (const c10::Error& e) {
        leave_out("device", e.what_without_backtrace());
      }
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Found& a, const Found& b) { return rank(a.info) < rank(b.info); });
  return visible(all);
}

struct Table {
  std::vector<std::unique_ptr<Device>> devices;
  Table() {
    check_environment();
    failures().clear();  // from an earlier try that raised
    hidden().clear();
    const auto found = enumerate();
    note_drivers_used(!found.empty());
    for (const auto& f : found) {
      devices.push_back(
          std::make_unique<Device>(static_cast<c10::DeviceIndex>(devices.size()), f.platform, f.id, f.root, f.basic));
    }
  }
};

// Never destroyed: drivers may be unloaded before static destructors run.
std::atomic<Table*> started{nullptr};
std::mutex& starting() {
  static auto* mutex = new std::mutex();
  return *mutex;
}

Table& table() {
  if (Table* known = started.load(std::memory_order_acquire)) return *known;
  TORCH_CHECK(driver_fault == 0, driver_fault_text());
  const std::lock_guard<std::mutex> lock(starting());
  if (!started.load()) started.store(new Table());
  return *started.load();
}

// --- counting devices in a child process ------------------------------------------------------------------------

// In the child: writes the count and the warnings.
[[noreturn]] void tell_count(int pipe) {
  std::string heard(sizeof(int32_t), '\0');
  heard_by_child = &heard;
  int32_t count = 0;
  try {
    count = static_cast<int32_t>((new Table())->devices.size());
  } catch (...) {  // the first use of a device will raise it
  }
  std::memcpy(heard.data(), &count, sizeof(count));
  for (size_t done = 0; done < heard.size();) {
    const ssize_t n = write(pipe, heard.data() + done, heard.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  _exit(0);
}

// -1 if no child can tell, or if it reports nothing; 0 if a driver ended it.
int32_t count_in_child() {
  constexpr int kPatience = 20'000;  // milliseconds, in case a driver hangs after a fork
  // NVIDIA's driver does not start in a child of a process that uses CUDA.
  if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD)) return -1;
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) tell_count(ends[1]);
  close(ends[1]);
  std::string heard;
  int status = 0;
  if (child > 0) {
    std::array<char, 512> piece{};
    for (;;) {
      pollfd ready{ends[0], POLLIN, 0};
      const int some = poll(&ready, 1, kPatience);
      const ssize_t n = some > 0 ? read(ends[0], piece.data(), piece.size()) : some;
      if (n > 0) heard.append(piece.data(), static_cast<size_t>(n));
      if (n > 0 || (n < 0 && errno == EINTR)) continue;
      if (some <= 0) kill(child, SIGKILL);
      break;
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  }
  close(ends[0]);
  int32_t count = -1;
  if (heard.size() < sizeof(count)) {
    if (!WIFSIGNALED(status) || WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM) return -1;
    driver_fault = WTERMSIG(status);
    warn_once(driver_fault_text());
    return 0;
  }
  std::memcpy(&count, heard.data(), sizeof(count));
  std::stringstream warnings(heard.substr(sizeof(count)));
  for (std::string text; std::getline(warnings, text, '\0');) warn_once(text);
  return count;
}

thread_local c10::DeviceIndex current = 0;
}  // namespace

Device::Device(c10::DeviceIndex index, cl_platform_id platform, cl_device_id id, cl_device_id whole, cl_device_id basic)
    : index_(index), platform_(platform), id_(id), info_(query(platform, id)) {
  cpu_shape_ = (info_.type & CL_DEVICE_TYPE_CPU) != 0;
  const char* wanted = std::getenv("NETCL_DEVICE_CLASS");
  if (wanted && *wanted) {
    const std::string w = lower(wanted);
    TORCH_CHECK(w == "cpu" || w == "gpu", "NETCL_DEVICE_CLASS must be cpu or gpu, got ", wanted);
    cpu_shape_ = w == "cpu";
  }
  if (!cpu_shape_) info_.max_groups = disabled("big_grids") ? 16 : 65535;
  if (disabled("early_allocation")) imitate_late_allocation();
  // PoCL's other devices (CUDA, Level Zero) have no name of a CPU.
  if (info_.type & CL_DEVICE_TYPE_CPU) {
    // PoCL compiles a program for the whole device, and once more for the part that runs a kernel.
    repair_pocl_cpu_name(whole, info_.platform_version.c_str(), info_.version.c_str());
    pocl_cpu_ = repair_pocl_cpu_name(id_, info_.platform_version.c_str(), info_.version.c_str());
    if (basic) {
      repair_pocl_cpu_name(basic, info_.platform_version.c_str(), device_string(basic, CL_DEVICE_VERSION).c_str());
    }
    if (pocl_cpu_) info_.version += std::string(" as ") + pocl_cpu_->name;
    const bool in_thread = info_.extensions.find("cl_intel_exec_by_local_thread") != std::string::npos;
    immediate_id_ = in_thread && id == whole ? id_ : basic;
  }
  fingerprint_ = info_.platform_name + '\n' + info_.platform_version + '\n' + info_.name + '\n' + info_.version + '\n' +
                 info_.driver_version + '\n' + info_.extensions;
}

cl_command_queue_properties Device::immediate_properties() const {
  constexpr cl_command_queue_properties kInCallingThread = cl_command_queue_properties{1} << 31;
  // Commands of several threads need not wait for each other.
  return immediate_id_ == id_ ? kInCallingThread | CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0;
}

cl_context Device::make_context() const { return make_context_of({id_}); }

cl_context Device::make_context_of(const std::vector<cl_device_id>& devices) const {
  check_not_forked();
  cl_int err = CL_SUCCESS;
  const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, reinterpret_cast<cl_context_properties>(platform_),
                                              0};
  cl_context made =
      cl().clCreateContext(properties, static_cast<cl_uint>(devices.size()), devices.data(), nullptr, nullptr, &err);
  if (err != CL_SUCCESS) raise_cl_error(err, "clCreateContext");
  return made;
}

cl_context Device::context() const {
  std::call_once(context_once_, [this] {
    std::vector<cl_device_id> devices{id_};
    if (immediate_id_ && immediate_id_ != id_) devices.push_back(immediate_id_);
    context_ = make_context_of(devices);
  });
  return context_;
}

c10::DeviceIndex device_count() noexcept {
  try {
    if (!devices_started() && opencl_loaded()) {
      static int32_t counted = -1;
      const std::lock_guard<std::mutex> lock(starting());
      if (!devices_started()) {
        if (counted < 0) counted = count_in_child();
        if (counted >= 0) return static_cast<c10::DeviceIndex>(counted);
      }
    }
    return static_cast<c10::DeviceIndex>(table().devices.size());
  } catch (...) {
    return 0;
  }
}

bool devices_started() noexcept { return started.load(std::memory_order_acquire) != nullptr; }

void start_devices() {
  check_not_forked();
  device();
}

Device& device(c10::DeviceIndex index) {
  if (index < 0) index = current;
  auto& devices = table().devices;
  TORCH_CHECK(hidden().empty(), "netcl: there are OpenCL devices, but ", hidden(), failures());
  TORCH_CHECK(!devices.empty(),
              "netcl: no OpenCL device was found. Install a runtime: pip install 'torch_netcl[pocl]' or "
              "'torch_netcl[intel]' for an x86-64 CPU, the system's package of PoCL (Debian's pocl-opencl-icd) for any "
              "other, or your GPU vendor's OpenCL driver; `python -m torch_netcl` shows what is seen.",
              failures());
  TORCH_CHECK(index < static_cast<c10::DeviceIndex>(devices.size()), "netcl: device index ", int(index),
              " is out of range: ", devices.size(), " device(s) are visible");
  return *devices[index];
}

c10::DeviceIndex current_device() noexcept { return current; }
void set_current_device(c10::DeviceIndex index) {
  // Autograd's threads call this for every device, so it must not start the drivers.
  if (devices_started() || index >= device_count()) device(index);
  if (index >= 0) current = index;
}
c10::DeviceIndex exchange_device(c10::DeviceIndex index) {
  const auto previous = current;
  if (index >= 0 && index != previous) set_current_device(index);
  return previous;
}

}  // namespace netcl
