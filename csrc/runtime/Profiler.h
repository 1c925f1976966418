// Records what devices did and when, while someone asks for it (csrc/Profiler.cpp does for torch.profiler).
#pragma once

#include <vector>

#include "runtime/Activities.h"

namespace netcl {

void start_recording();
void stop_recording();
// Waits for everything recorded since start_recording() and returns it.
std::vector<Activity> take_activities();

}  // namespace netcl
