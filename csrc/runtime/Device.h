// The table of OpenCL devices that netcl exposes, and the capabilities of each.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/OpenCL.h"
#include "runtime/PoclCpu.h"

namespace netcl {

struct DeviceInfo {
  std::string name, vendor, version, driver_version, extensions;
  std::string platform_name, platform_version;
  cl_device_type type = 0;
  bool has_fp16 = false;           // cl_khr_fp16; *storing* half needs no extension
  bool has_fp64 = false;           // cl_khr_fp64
  bool has_int64_atomics = false;  // cl_khr_int64_base_atomics
  bool has_subgroups = false;
  bool host_unified = false;
  cl_ulong global_mem_size = 0, max_mem_alloc_size = 0, local_mem_size = 0;
  size_t max_work_group_size = 0;
  size_t max_kernel_work_group = SIZE_MAX;  // no kernel's CL_KERNEL_WORK_GROUP_SIZE counts as more (NETCL_DISABLE)
  std::array<size_t, 3> max_work_item_sizes{};
  // Work-groups of one launch in y and in z. No query tells; NVIDIA's GPUs, for one, have 16 bits for them.
  size_t max_groups = SIZE_MAX;
  cl_uint max_compute_units = 0;
  cl_uint native_floats = 0;  // CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT
  cl_uint capability = 0;     // NVIDIA's compute capability: 80 is 8.0; 0 elsewhere
};

class Device {
 public:
  // `basic`: PoCL's device of that name, or null.
  Device(c10::DeviceIndex index, cl_platform_id platform, cl_device_id id, cl_device_id whole, cl_device_id basic);

  c10::DeviceIndex index() const { return index_; }
  cl_device_id id() const { return id_; }
  cl_platform_id platform() const { return platform_; }
  // The device, and the properties, of queues whose commands the calling thread runs (ImmediateQueue.h); null if there
  // are none.
  cl_device_id immediate_id() const { return immediate_id_; }
  cl_command_queue_properties immediate_properties() const;
  // The context of this device and of immediate_id(). It is created at the first call.
  cl_context context() const;
  // Another one, of this device only, which the caller owns.
  cl_context make_context() const;
  const DeviceInfo& info() const { return info_; }
  // Which kind of kernel suits the device: a few large work-items with vectors and no barriers (true), or many small
  // ones with local memory (false). NETCL_DEVICE_CLASS=cpu|gpu overrides CL_DEVICE_TYPE.
  bool is_cpu() const { return cpu_shape_; }
  size_t compute_units() const { return info_.max_compute_units; }
  // The CPU that PoCL compiles for, if it is not the one that PoCL found.
  const std::optional<PoclCpu>& pocl_cpu() const { return pocl_cpu_; }
  // Identifies device and driver in the keys of the kernel cache.
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  cl_context make_context_of(const std::vector<cl_device_id>& devices) const;

  c10::DeviceIndex index_;
  cl_platform_id platform_;
  cl_device_id id_, immediate_id_ = nullptr;
  mutable std::once_flag context_once_;
  mutable cl_context context_ = nullptr;
  DeviceInfo info_;
  bool cpu_shape_ = true;
  std::optional<PoclCpu> pocl_cpu_;
  std::string fingerprint_;
};

// The number of devices; 0, never an error, if there is no loader or no device.
c10::DeviceIndex device_count() noexcept;
// The device at `index` (-1 = current). Raises if the index is out of range or there is no device.
Device& device(c10::DeviceIndex index = -1);
c10::DeviceIndex current_device() noexcept;
void set_current_device(c10::DeviceIndex index);
c10::DeviceIndex exchange_device(c10::DeviceIndex index);

// OpenCL's drivers start threads as soon as they are asked for devices, and threads do not survive a fork. So
// device_count() lets a child process ask. This says whether this process has asked the drivers itself.
bool devices_started() noexcept;
// Asks the drivers now. Raises if there is no device, or if this process was forked from one that had asked.
void start_devices();

}  // namespace netcl
