// Programs: built from source, or loaded from binaries on disk.
#pragma once

#include <string>

#include "runtime/Device.h"

namespace netcl {

// The text of kernels/<file>, with its #include "…" of other kernel files resolved.
const std::string& kernel_file(const std::string& file);
// The built program for this source and these options; built at most once a process and device.
// `label` names it in errors. Callers hold the build lock of Kernel.cpp.
cl_program program(Device& device, const std::string& label, const std::string& source, const std::string& options);
void count_memory_hit();
// A few words kept on disk under `key`, beside the binaries and as safely; empty when there are none.
std::string load_note(const std::string& key);
void store_note(const std::string& key, const std::string& text);

}  // namespace netcl
