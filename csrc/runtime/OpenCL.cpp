#include "runtime/OpenCL.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include "runtime/OpName.h"

namespace netcl {

namespace {
Api api;
bool loaded = false;
std::string load_error = "the OpenCL loader was not opened yet";
}  // namespace

std::string load_opencl(const std::string& path) {
  if (loaded) return "";
  void* handle = dlopen(path.empty() ? "libOpenCL.so.1" : path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* reason = dlerror();
    return load_error = reason ? reason : "dlopen failed";
  }
#define NETCL_RESOLVE_ENTRY(name)                                        \
  api.name = reinterpret_cast<decltype(api.name)>(dlsym(handle, #name)); \
  if (!api.name) return load_error = "the OpenCL loader lacks " #name;
  NETCL_CL_FUNCTIONS(NETCL_RESOLVE_ENTRY)
#undef NETCL_RESOLVE_ENTRY
  loaded = true;
  load_error.clear();
  return "";
}

bool opencl_loaded() { return loaded; }
Api& mutable_api() { return api; }

const Api& cl() {
  TORCH_CHECK(loaded, "netcl: no OpenCL loader was found (", load_error,
              "). Install one: pip install 'torch_netcl[pocl]' or 'torch_netcl[intel]' for an x86-64 CPU, Debian's "
              "pocl-opencl-icd for any other, or your GPU vendor's OpenCL driver with the package of libOpenCL.so.1.");
  return api;
}

const char* error_symbol(cl_int code) {
  switch (code) {
#define NETCL_SYMBOL(name) \
  case name:               \
    return #name;
    NETCL_SYMBOL(CL_SUCCESS)
    NETCL_SYMBOL(CL_DEVICE_NOT_FOUND)
    NETCL_SYMBOL(CL_DEVICE_NOT_AVAILABLE)
    NETCL_SYMBOL(CL_COMPILER_NOT_AVAILABLE)
    NETCL_SYMBOL(CL_MEM_OBJECT_ALLOCATION_FAILURE)
    NETCL_SYMBOL(CL_OUT_OF_RESOURCES)
    NETCL_SYMBOL(CL_OUT_OF_HOST_MEMORY)
    NETCL_SYMBOL(CL_PROFILING_INFO_NOT_AVAILABLE)
    NETCL_SYMBOL(CL_MEM_COPY_OVERLAP)
    NETCL_SYMBOL(CL_BUILD_PROGRAM_FAILURE)
    NETCL_SYMBOL(CL_MAP_FAILURE)
    NETCL_SYMBOL(CL_MISALIGNED_SUB_BUFFER_OFFSET)
    NETCL_SYMBOL(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
    NETCL_SYMBOL(CL_COMPILE_PROGRAM_FAILURE)
    NETCL_SYMBOL(CL_LINKER_NOT_AVAILABLE)
    NETCL_SYMBOL(CL_LINK_PROGRAM_FAILURE)
    NETCL_SYMBOL(CL_DEVICE_PARTITION_FAILED)
    NETCL_SYMBOL(CL_KERNEL_ARG_INFO_NOT_AVAILABLE)
    NETCL_SYMBOL(CL_INVALID_VALUE)
    NETCL_SYMBOL(CL_INVALID_DEVICE_TYPE)
    NETCL_SYMBOL(CL_INVALID_PLATFORM)
    NETCL_SYMBOL(CL_INVALID_DEVICE)
    NETCL_SYMBOL(CL_INVALID_CONTEXT)
    NETCL_SYMBOL(CL_INVALID_QUEUE_PROPERTIES)
    NETCL_SYMBOL(CL_INVALID_COMMAND_QUEUE)
    NETCL_SYMBOL(CL_INVALID_HOST_PTR)
    NETCL_SYMBOL(CL_INVALID_MEM_OBJECT)
    NETCL_SYMBOL(CL_INVALID_BINARY)
    NETCL_SYMBOL(CL_INVALID_BUILD_OPTIONS)
    NETCL_SYMBOL(CL_INVALID_PROGRAM)
    NETCL_SYMBOL(CL_INVALID_PROGRAM_EXECUTABLE)
    NETCL_SYMBOL(CL_INVALID_KERNEL_NAME)
    NETCL_SYMBOL(CL_INVALID_KERNEL_DEFINITION)
    NETCL_SYMBOL(CL_INVALID_KERNEL)
    NETCL_SYMBOL(CL_INVALID_ARG_INDEX)
    NETCL_SYMBOL(CL_INVALID_ARG_VALUE)
    NETCL_SYMBOL(CL_INVALID_ARG_SIZE)
    NETCL_SYMBOL(CL_INVALID_KERNEL_ARGS)
    NETCL_SYMBOL(CL_INVALID_WORK_DIMENSION)
    NETCL_SYMBOL(CL_INVALID_WORK_GROUP_SIZE)
    NETCL_SYMBOL(CL_INVALID_WORK_ITEM_SIZE)
    NETCL_SYMBOL(CL_INVALID_GLOBAL_OFFSET)
    NETCL_SYMBOL(CL_INVALID_EVENT_WAIT_LIST)
    NETCL_SYMBOL(CL_INVALID_EVENT)
    NETCL_SYMBOL(CL_INVALID_OPERATION)
    NETCL_SYMBOL(CL_INVALID_BUFFER_SIZE)
    NETCL_SYMBOL(CL_INVALID_GLOBAL_WORK_SIZE)
    NETCL_SYMBOL(CL_INVALID_PROPERTY)
    NETCL_SYMBOL(CL_INVALID_COMPILER_OPTIONS)
    NETCL_SYMBOL(CL_INVALID_LINKER_OPTIONS)
    NETCL_SYMBOL(CL_INVALID_DEVICE_PARTITION_COUNT)
#undef NETCL_SYMBOL
    case -1001:
      return "CL_PLATFORM_NOT_FOUND_KHR";
    case -9999:
      return "NVIDIA's error for an illegal access to memory";
    default:
      return "an unknown OpenCL error";
  }
}

void raise_cl_error(cl_int code, const char* call, bool perhaps_memory) {
  const std::string text(call);
  const std::string function = text.substr(0, text.find('('));
  const char* op = current_op();
  const bool doubtful = code == CL_OUT_OF_RESOURCES;
  const bool memory = may_lack_memory(code) && (!doubtful || perhaps_memory);
  const std::string where = op ? std::string(" while running ") + op : "";
  TORCH_CHECK_WITH(OutOfMemoryError, !memory, "netcl: ", function, " failed with ", error_symbol(code), " (", code, ")",
                   where, ": the device has no memory left",
                   doubtful ? ", too few registers for this kernel, or it failed before" : "",
                   ". Free tensors, use smaller batches, or call torch.netcl.empty_cache().");
  TORCH_CHECK(false, "netcl: ", function, " failed with ", error_symbol(code), " (", code, ")", where,
              ". Set NETCL_LAUNCH_BLOCKING=1 to see the operator that caused it.");
}

}  // namespace netcl
