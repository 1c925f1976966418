// When OpenCL starts. Its drivers start threads as soon as they are asked for devices, and no thread survives a fork.
#pragma once

namespace netcl {

// Whether this process has asked the drivers itself. device_count() alone does not: until then a child process counts.
bool is_started() noexcept;
// Asks them now. Raises where there is no device, and in a process forked from one that had asked.
void start();

}  // namespace netcl
