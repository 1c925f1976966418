// Programs are built from source, or loaded from binaries on disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/Device.h"

namespace netcl {

// The text of kernels/<file> with the kernel files that it includes, and without its kernels other than `name`: drivers
// compile everything that a program holds.
std::string kernel_source(const std::string& file, const std::string& name);
// Whether kernels/<file> defines the macro for a compute type of these classes, which are names ACC_… between spaces;
// false if in doubt.
bool surely_defines(const std::string& file, const std::string& macro, std::string_view classes);
// The text of a program made at run time, with the kernel files that it includes.
std::string generated_source(const std::string& text);
// A program as it goes to the compiler. `label` names it in errors and lists: "file kernel", or "<source> kernel";
// `variant` is what the caller adds to the options that all kernels of a device have, `key` the name on disk.
struct Program {
  std::string label, source, variant, options, key;
  bool own_builtins;  // declares OpenCL's functions itself (kernels/common/builtins.h)
};
Program describe_program(Device& device, const std::string& label, const std::string& source,
                         const std::string& options);
// The program if this process has it or the disk does, else null.
cl_program load_program(Device& device, const Program& program);
// Compiles it, and keeps it on disk. Several threads may at once.
cl_program build_program(Device& device, const Program& program);
// What all kernels of a device are compiled with.
std::string common_options(const Device& device);
void count_memory_hit();
// The types of a kernel's arguments as its source names them ("float*"); empty strings if the driver does not tell, as
// Intel's for a program that was loaded from a binary.
std::vector<std::string> argument_types_of(cl_kernel kernel);
// The same, from a program that is built from its source only for this.
std::vector<std::string> argument_types_in_source(Device& device, const std::string& source, const std::string& name,
                                                  const std::string& options);
// A short text kept on disk under `key`, beside the binaries and protected like them; empty if there is none.
std::string load_note(const std::string& key);
void store_note(const std::string& key, const std::string& text);

struct KernelCacheStats {
  uint64_t compiled = 0, disk_hits = 0, memory_hits = 0;
  double compile_seconds = 0;
};
KernelCacheStats kernel_cache_stats();
// A program that this process used, as another one can make it again. `source` is empty for a kernel of a file.
struct UsedProgram {
  c10::DeviceIndex device;
  std::string label, variant, source;
};
std::vector<UsedProgram> programs_in_use();
// Compiles what is not on disk, on all build threads. For each program what came of it: "" if it was there, "compiled",
// or the error.
std::vector<std::string> prepare_programs(Device& device, const std::vector<UsedProgram>& programs);
// The compiler's messages about a kernel in kernels/<file>: from the build if this process did it, else from a new
// build.
std::string build_log_of(Device& device, const std::string& file, const std::string& name, const std::string& options);
void set_kernel_paths(const std::string& kernel_dir, const std::string& cache_dir);

}  // namespace netcl
