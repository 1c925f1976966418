// Programs: built from source, or loaded from binaries on disk.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/Device.h"

namespace netcl {

// The text of kernels/<file>, with its #include "…" of other kernel files resolved, and of its kernels just `name`:
// drivers compile all that a program holds.
std::string kernel_source(const std::string& file, const std::string& name);
// A program made at run time, with its #include "…" of kernel files resolved.
std::string generated_source(const std::string& text);
// The built program for this source and these options; built at most once a process and device.
// `label` names it in errors and lists. Callers hold the build lock of Kernel.cpp.
cl_program program(Device& device, const std::string& label, const std::string& source, const std::string& options);
void count_memory_hit();
// The types of a kernel's arguments as its source names them ("float*"); empty strings where the driver does not tell,
// as Intel's does not for a program that was loaded from a binary.
std::vector<std::string> argument_types_of(cl_kernel kernel);
// The same, of a program that is built from its source for this alone.
std::vector<std::string> argument_types_in_source(Device& device, const std::string& source, const std::string& name,
                                                  const std::string& options);
// A few words kept on disk under `key`, beside the binaries and as safely; empty when there are none.
std::string load_note(const std::string& key);
void store_note(const std::string& key, const std::string& text);

struct KernelCacheStats {
  uint64_t compiled = 0, disk_hits = 0, memory_hits = 0;
  double compile_seconds = 0;
};
KernelCacheStats kernel_cache_stats();
// Every program of this process: (device, "file kernel" or "<source>", options of the variant).
std::vector<std::tuple<c10::DeviceIndex, std::string, std::string>> programs_in_use();
// What the compiler says of a kernel in kernels/<file>: kept from the build if this process made it, else from a new
// one.
std::string build_log_of(Device& device, const std::string& file, const std::string& name, const std::string& options);
void set_kernel_paths(const std::string& kernel_dir, const std::string& cache_dir);

}  // namespace netcl
