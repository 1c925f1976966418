// The OpenCL entry points, which are opened at run time and never linked, and error reporting.
#pragma once

#include <CL/cl.h>

#include <string>

namespace netcl {

// Every entry point that the runtime uses. All are OpenCL 1.2.
#define NETCL_CL_FUNCTIONS(_)         \
  _(clGetPlatformIDs)                 \
  _(clGetPlatformInfo)                \
  _(clGetDeviceIDs)                   \
  _(clGetDeviceInfo)                  \
  _(clCreateSubDevices)               \
  _(clCreateContext)                  \
  _(clCreateCommandQueue)             \
  _(clCreateBuffer)                   \
  _(clCreateSubBuffer)                \
  _(clRetainMemObject)                \
  _(clReleaseMemObject)               \
  _(clSetMemObjectDestructorCallback) \
  _(clGetMemObjectInfo)               \
  _(clCreateProgramWithSource)        \
  _(clCreateProgramWithBinary)        \
  _(clBuildProgram)                   \
  _(clGetProgramInfo)                 \
  _(clGetProgramBuildInfo)            \
  _(clReleaseProgram)                 \
  _(clCreateKernel)                   \
  _(clReleaseKernel)                  \
  _(clSetKernelArg)                   \
  _(clGetKernelInfo)                  \
  _(clGetKernelArgInfo)               \
  _(clGetKernelWorkGroupInfo)         \
  _(clEnqueueNDRangeKernel)           \
  _(clEnqueueReadBuffer)              \
  _(clEnqueueWriteBuffer)             \
  _(clEnqueueCopyBuffer)              \
  _(clEnqueueFillBuffer)              \
  _(clEnqueueMapBuffer)               \
  _(clEnqueueUnmapMemObject)          \
  _(clEnqueueMarkerWithWaitList)      \
  _(clEnqueueBarrierWithWaitList)     \
  _(clCreateUserEvent)                \
  _(clSetUserEventStatus)             \
  _(clSetEventCallback)               \
  _(clGetEventInfo)                   \
  _(clGetEventProfilingInfo)          \
  _(clRetainEvent)                    \
  _(clReleaseEvent)                   \
  _(clWaitForEvents)                  \
  _(clFlush)                          \
  _(clFinish)

struct Api {
#define NETCL_DECLARE_ENTRY(name) decltype(&::name) name = nullptr;
  NETCL_CL_FUNCTIONS(NETCL_DECLARE_ENTRY)
#undef NETCL_DECLARE_ENTRY
};

// Opens the ICD loader at `path` ("" = libOpenCL.so.1). Returns "", or why it failed; never throws.
std::string load_opencl(const std::string& path);
bool opencl_loaded();
// The entry points; raises an error if no loader was found.
const Api& cl();
// The table behind cl(), for fault injection.
Api& mutable_api();

// "CL_OUT_OF_RESOURCES" for -5, and so on.
const char* error_symbol(cl_int code);

// Whether the error of a command may mean that memory is used up: some drivers allocate a buffer's memory at the first
// command that uses it.
inline bool may_lack_memory(cl_int code) {
  return code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_RESOURCES || code == CL_OUT_OF_HOST_MEMORY;
}

// Whether the command has ended, with or without an error. False if the driver does not tell.
inline bool is_over(cl_event event) {
  cl_int status = CL_QUEUED;
  cl().clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, nullptr);
  return status <= CL_COMPLETE;
}

// Raises c10::Error with the call, the OpenCL symbol and, if known, the operator (see OpName); OutOfMemoryError if the
// error means that, or may mean it and `perhaps_memory`.
[[noreturn]] void raise_cl_error(cl_int code, const char* call, bool perhaps_memory = false);

#define NETCL_CL(call)                                   \
  do {                                                   \
    const cl_int netcl_err_ = ::netcl::cl().call;        \
    if (__builtin_expect(netcl_err_ != CL_SUCCESS, 0)) { \
      ::netcl::raise_cl_error(netcl_err_, #call);        \
    }                                                    \
  } while (0)

}  // namespace netcl
