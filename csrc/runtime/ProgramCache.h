// Programs: built from source, or loaded from binaries on disk.
#pragma once

#include <string>
#include <vector>

#include "runtime/Device.h"

namespace netcl {

// The text of kernels/<file>, with its #include "…" of other kernel files resolved, and of its kernels just `name`:
// drivers compile all that a program holds.
std::string kernel_source(const std::string& file, const std::string& name);
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

}  // namespace netcl
