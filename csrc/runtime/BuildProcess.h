// PoCL generates code for one program at a time per process, so a build thread may have a process of its own for it: it
// runs torch_netcl/_builder.py, which loads neither torch nor this library.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/Device.h"

namespace netcl {

// How to start one: the Python interpreter (empty: none is known), the script, and the OpenCL loader.
void set_builder(const std::string& python, const std::string& script, const std::string& loader);
bool has_builder();

struct Built {
  std::vector<unsigned char> binary;
  std::string log;
  size_t option;  // which of the options it was built with
};
// The program's binary for `device`, from the calling thread's process, with the first of the `options` that the
// compiler takes. Nothing if it takes none or if no process does it; the caller then builds the program itself.
std::optional<Built> build_in_process(const Device& device, const std::string& source,
                                      const std::vector<std::string>& options);

}  // namespace netcl
