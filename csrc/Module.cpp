// The functions that Python calls, as operators of the `netcl` library. They use no Python C API, so one binary serves
// every Python version.

#include "aten/support/Fallback.h"
#include "aten/support/Generator.h"
#include "aten/support/Library.h"
#include "runtime/BuildProcess.h"
#include "runtime/CachingAllocator.h"
#include "runtime/Copies.h"
#include "runtime/Counters.h"
#include "runtime/FaultInjection.h"
#include "runtime/Kernel.h"
#include "runtime/ProgramCache.h"
#include "runtime/Queue.h"
#include "runtime/Shutdown.h"

// torch_netcl/_library.py searches for this text before it loads the file.
extern "C" __attribute__((used, visibility("default"))) const char netcl_built_for[] =
    "netcl built for torch " NETCL_BUILD_TORCH_VERSION;

namespace netcl {

namespace {

using Dict = c10::Dict<std::string, int64_t>;

std::string initialize(const std::string& loader, const std::string& kernels, const std::string& cache,
                       const std::string& python, const std::string& builder) {
  set_kernel_paths(kernels, cache);
  set_builder(python, builder, loader);
  return load_opencl(loader);
}

c10::Dict<std::string, std::string> device_strings(int64_t index) {
  const DeviceInfo& d = device(static_cast<c10::DeviceIndex>(index)).info();
  c10::Dict<std::string, std::string> r;
  r.insert("name", d.name);
  r.insert("vendor", d.vendor);
  r.insert("version", d.version);
  r.insert("driver_version", d.driver_version);
  r.insert("extensions", d.extensions);
  r.insert("platform_name", d.platform_name);
  r.insert("platform_version", d.platform_version);
  r.insert("device_type", d.type & CL_DEVICE_TYPE_GPU ? "gpu" : d.type & CL_DEVICE_TYPE_CPU ? "cpu" : "accelerator");
  r.insert("device_class", device(static_cast<c10::DeviceIndex>(index)).is_cpu() ? "cpu" : "gpu");
  return r;
}

Dict device_numbers(int64_t index) {
  const DeviceInfo& d = device(static_cast<c10::DeviceIndex>(index)).info();
  Dict r;
  const auto put = [&](const char* name, uint64_t value) { r.insert(name, static_cast<int64_t>(value)); };
  put("has_fp16", d.has_fp16);
  put("has_fp64", d.has_fp64);
  put("has_int64_atomics", d.has_int64_atomics);
  put("has_subgroups", d.has_subgroups);
  put("host_unified_memory", d.host_unified);
  put("global_mem_size", d.global_mem_size);
  put("max_mem_alloc_size", d.max_mem_alloc_size);
  put("local_mem_size", d.local_mem_size);
  put("max_compute_units", d.max_compute_units);
  put("max_work_group_size", d.max_work_group_size);
  put("cl_device_id", reinterpret_cast<uintptr_t>(device(static_cast<c10::DeviceIndex>(index)).id()));
  return r;
}

Dict dict_of(const auto& pairs) {
  Dict r;
  for (const auto& [name, calls] : pairs) r.insert(name, calls);
  return r;
}

c10::Dict<std::string, double> cache_stats() {
  const auto s = kernel_cache_stats();
  c10::Dict<std::string, double> r;
  r.insert("compiled", static_cast<double>(s.compiled));
  r.insert("disk_hits", static_cast<double>(s.disk_hits));
  r.insert("memory_hits", static_cast<double>(s.memory_hits));
  r.insert("compile_seconds", s.compile_seconds);
  return r;
}

NETCL_LIBRARY(netcl, m) {
  m.def("initialize(str loader, str kernels, str cache, str python, str builder) -> str", &initialize);
  m.def("shutdown() -> ()", &begin_shutdown);
  m.def("all_streams_idle() -> bool", [] { return all_streams_idle(); });
  m.def("in_bad_fork() -> bool", [] {
    try {
      check_not_forked();
    } catch (const c10::Error&) {
      return true;
    }
    return false;
  });
  m.def("start() -> ()", &start_devices);
  m.def("is_started() -> bool", [] { return devices_started(); });
  m.def("device_count() -> int", [] { return static_cast<int64_t>(device_count()); });
  m.def("device_strings(int index) -> Dict(str, str)", &device_strings);
  m.def("device_numbers(int index) -> Dict(str, int)", &device_numbers);
  m.def("host_sync_count() -> int", [] { return static_cast<int64_t>(counters.host_syncs.load()); });
  m.def("is_capturing() -> bool", [] { return devices_started() && current_capture(current_device()) != nullptr; });
  m.def("sync_debug_mode() -> int", [] { return sync_debug_mode.load(); });
  m.def("set_sync_debug_mode(int mode) -> ()", [](int64_t mode) { sync_debug_mode = mode; });
  // For tests: bytes that are staged now and at most so far, how many launches had to wait, and how many commands
  // waited for kernels.
  m.def("_backpressure() -> Dict(str, int)", [] {
    Dict r;
    r.insert("staged_bytes", static_cast<int64_t>(staged_bytes().now));
    r.insert("most_staged_bytes", static_cast<int64_t>(staged_bytes().most));
    r.insert("throttles", static_cast<int64_t>(counters.throttles.load()));
    r.insert("deferred", static_cast<int64_t>(counters.deferred.load()));
    return r;
  });
  m.def("launch_count() -> int", [] { return static_cast<int64_t>(counters.launches.load()); });
  m.def("_narrow_launches() -> str[]", &narrow_launches);
  m.def("cpu_fallback_ops() -> Dict(str, int)", [] { return dict_of(cpu_fallback_ops()); });
  m.def("reset_cpu_fallback_ops() -> ()", &reset_cpu_fallback_ops);
  m.def("cpu_fallback_mode() -> str", &cpu_fallback_mode);
  m.def("set_cpu_fallback_mode(str mode) -> ()", [](const std::string& mode) { set_cpu_fallback_mode(mode); });
  m.def("kernel_cache_stats() -> Dict(str, float)", &cache_stats);
  m.def("programs_in_use() -> str[]", [] {
    std::vector<std::string> r;
    for (const auto& p : programs_in_use())
      r.push_back(std::to_string(int(p.device)) + '\t' + p.label + '\t' + p.variant);
    return r;
  });
  // For torch_netcl/warmup.py: rows of label, options and source.
  m.def("recorded_programs() -> str[][]", [] {
    std::vector<std::vector<std::string>> rows;
    for (const auto& p : programs_in_use()) rows.push_back({p.label, p.variant, p.source});
    return rows;
  });
  m.def("prepare_programs(int index, str[][] rows) -> str[]",
        [](int64_t index, const std::vector<std::vector<std::string>>& rows) {
          std::vector<UsedProgram> programs;
          for (const auto& row : rows) {
            TORCH_CHECK_VALUE(row.size() == 3, "a program is a label, options and a source");
            programs.push_back({static_cast<c10::DeviceIndex>(index), row[0], row[1], row[2]});
          }
          return prepare_programs(device(static_cast<c10::DeviceIndex>(index)), programs);
        });
  m.def("kernel_source(str file, str name) -> str", &kernel_source);
  m.def("kernel_options(int index) -> str",
        [](int64_t index) { return common_options(device(static_cast<c10::DeviceIndex>(index))); });
  m.def("build_log(int index, str file, str name, str options) -> str",
        [](int64_t index, const std::string& file, const std::string& name, const std::string& options) {
          return build_log_of(device(static_cast<c10::DeviceIndex>(index)), file, name, options);
        });
  m.def("set_memory_fraction(int index, float fraction) -> ()",
        [](int64_t index, double fraction) { set_memory_fraction(static_cast<c10::DeviceIndex>(index), fraction); });
  // Rows of BlockInfo: slab, its bytes, address, bytes, requested, stream, state.
  m.def("memory_snapshot(int index) -> int[][]", [](int64_t index) {
    std::vector<std::vector<int64_t>> rows;
    for (const auto& b : memory_snapshot(static_cast<c10::DeviceIndex>(index))) {
      rows.push_back({static_cast<int64_t>(b.slab), static_cast<int64_t>(b.slab_bytes), static_cast<int64_t>(b.address),
                      static_cast<int64_t>(b.bytes), static_cast<int64_t>(b.requested), b.stream, b.state});
    }
    return rows;
  });
  // For test/test_faults.py; see runtime/FaultInjection.h.
  m.def("_inject_error(str function, int code, int after, int times=1) -> ()",
        [](const std::string& function, int64_t code, int64_t after, int64_t times) {
          inject_error(function, static_cast<cl_int>(code), after, times);
        });
  m.def("_end_injection() -> Dict(str, int)", [] { return dict_of(end_injection()); });
  // Seeds every possible device, since counting the devices would take longer.
  m.def("manual_seed_all(Generator? like) -> ()", [](const std::optional<at::Generator>& like) {
    TORCH_CHECK_TYPE(like.has_value() && like->defined(), "manual_seed_all: expected a generator, got None");
    for (c10::DeviceIndex i = 0; i < 64; i++) {
      at::Generator generator = default_generator(i);
      const std::lock_guard<std::mutex> lock(generator.mutex());
      generator.set_current_seed(like->current_seed());
    }
  });
  m.def("default_generator(int index) -> Generator?",
        [](int64_t index) { return std::optional(default_generator(static_cast<c10::DeviceIndex>(index))); });
}

}  // namespace

}  // namespace netcl
