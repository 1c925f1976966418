// What the runtime asks of OpenCL events.
#pragma once

#include "runtime/OpenCL.h"

namespace netcl {

// Whether the command has ended, well or not. One whose state the driver does not tell is taken for running.
inline bool is_over(cl_event event) {
  cl_int status = CL_QUEUED;
  cl().clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, nullptr);
  return status <= CL_COMPLETE;
}

}  // namespace netcl
