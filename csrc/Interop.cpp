// The functions behind torch_netcl/interop.py and torch_netcl/custom_kernel.py: handles for other OpenCL programs,
// their buffers as tensors, and users' kernels.
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <sstream>

#include "aten/support/Library.h"
#include "runtime/AddressSpace.h"
#include "runtime/Kernel.h"
#include "runtime/ProgramCache.h"

namespace netcl {

namespace {

template <class Handle>
int64_t as_int(Handle handle) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(handle));
}
template <class Handle>
Handle as_handle(int64_t value) {
  return reinterpret_cast<Handle>(static_cast<uintptr_t>(value));
}

Device& device_at(int64_t index) { return device(static_cast<c10::DeviceIndex>(index)); }

// (cl_platform_id, cl_device_id, cl_context, cl_command_queue of the current stream). Others may enqueue on the queue
// from now on, so no launch is held back on it; what netcl has not submitted yet is submitted with their commands.
std::vector<int64_t> device_handles(int64_t index) {
  Device& d = device_at(index);
  Queue& queue = current_queue(d.index());
  return {as_int(d.platform()), as_int(d.id()), as_int(d.context()), as_int(queue.share())};
}

// (cl_mem, byte offset) of a tensor's first element.
std::vector<int64_t> tensor_handles(const at::Tensor& t) {
  TORCH_CHECK_VALUE(t.is_privateuseone(), "Expected a netcl tensor, but got one on ", t.device());
  const Location at = locate(t.const_data_ptr());
  return {as_int(at.mem), static_cast<int64_t>(at.offset)};
}

at::Tensor tensor_from_buffer(int64_t index, int64_t mem, int64_t offset, int64_t bytes, at::IntArrayRef size,
                              at::IntArrayRef stride, c10::ScalarType dtype) {
  TORCH_CHECK_VALUE(offset >= 0 && bytes >= 0, "netcl: offset and size of a buffer must not be negative");
  c10::DataPtr data = import_buffer(device_at(index), as_handle<cl_mem>(mem), offset, bytes);
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, std::move(data), nullptr, /*resizable=*/false);
  auto t = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKey::PrivateUse1,
                                                    c10::scalarTypeToTypeMeta(dtype));
  t.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  return t;
}

// Makes the current stream wait for a cl_event of another queue.
void wait_event(int64_t index, int64_t event) {
  current_queue(device_at(index).index()).wait(as_handle<cl_event>(event));
}

// --- users' kernels ---------------------------------------------------------------------------------------------

struct UserKernel {
  Kernel* kernel;
  std::vector<std::string> types;
};
struct UserKernels {
  std::mutex mutex;
  std::vector<UserKernel> list;
};
UserKernels& user_kernels() {
  static auto* k = new UserKernels();
  return *k;
}

// Intel's driver does not tell the types for a program loaded from a binary; then they come from disk. If the binary
// was stored by a process that used another kernel of the program, they are read once from the source.
std::vector<std::string> argument_types(const Kernel& k, const std::string& source, const std::string& options) {
  const auto known = [](const std::vector<std::string>& t) { return std::find(t.begin(), t.end(), "") == t.end(); };
  auto types = k.argument_types();
  const std::string key = source + '\n' + k.name() + '\n' + options + '\n' + k.device().fingerprint();
  const std::string note = load_note(key);
  if (!known(types)) {
    if (note.empty()) {
      types = argument_types_in_source(k.device(), source, k.name(), options);
    } else {
      std::istringstream lines(note);
      for (auto& type : types) std::getline(lines, type);
    }
  }
  if (note.empty() && !types.empty() && known(types)) store_note(key, c10::Join("\n", types));
  return types;
}

int64_t compile_kernel(int64_t index, const std::string& source, const std::string& name, const std::string& options) {
  Kernel& k = kernel_from_source(device_at(index), source, name.c_str(), options);
  auto& all = user_kernels();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto known =
      std::find_if(all.list.begin(), all.list.end(), [&](const UserKernel& u) { return u.kernel == &k; });
  if (known != all.list.end()) return known - all.list.begin();
  all.list.push_back({&k, argument_types(k, source, options)});
  return static_cast<int64_t>(all.list.size()) - 1;
}

UserKernel user_kernel(int64_t id) {
  auto& all = user_kernels();
  const std::lock_guard<std::mutex> lock(all.mutex);
  TORCH_CHECK_INDEX(id >= 0 && id < static_cast<int64_t>(all.list.size()), "netcl: no kernel has the number ", id);
  return all.list[id];
}

// `args` holds one pair per argument: (0, position in `tensors`, or -1 for a null pointer), (bytes, bits) for a scalar,
// or (-1, bytes) for local memory.
void launch_kernel(int64_t id, at::TensorList tensors, at::IntArrayRef args, at::IntArrayRef global,
                   at::IntArrayRef local) {
  Kernel& k = *user_kernel(id).kernel;
  const c10::Device device(c10::DeviceType::PrivateUse1, k.device().index());
  std::vector<PlainArg> plain;
  for (size_t i = 0; i + 1 < args.size(); i += 2) {
    const int64_t kind = args[i], value = args[i + 1];
    if (kind > 0) {
      plain.push_back({PlainArg::kScalar, nullptr, static_cast<size_t>(kind), static_cast<uint64_t>(value)});
    } else if (kind < 0) {
      plain.push_back({PlainArg::kLocal, nullptr, static_cast<size_t>(value), 0});
    } else if (value < 0) {
      plain.push_back({PlainArg::kBuffer, nullptr, 0, 0});
    } else {
      const at::Tensor& t = tensors.at(value);
      TORCH_CHECK_VALUE(t.device() == device, "argument ", i / 2, " is on ", t.device(), ", the kernel runs on ",
                        device);
      // The memory up to the end of the storage. How much of it the kernel uses is its own concern, but it gets no
      // other tensor.
      const size_t begin = t.storage_offset() * t.itemsize(), end = t.storage().nbytes();
      TORCH_CHECK(t.numel() == 0 || end > begin, "argument ", i / 2, " is a tensor whose storage was resized to ", end,
                  " bytes");
      plain.push_back({PlainArg::kBuffer, t.const_data_ptr(), t.numel() ? end - begin : 0, 0});
    }
  }
  const auto sizes = [](at::IntArrayRef v) { return std::vector<size_t>(v.begin(), v.end()); };
  const c10::DeviceGuard guard(device);
  k.launch_plain(current_queue(device.index()), sizes(global), sizes(local), plain);
}

NETCL_LIBRARY_FRAGMENT(netcl, m) {
  m.def("device_handles(int index) -> int[]", &device_handles);
  m.def("tensor_handles(Tensor t) -> int[]", &tensor_handles);
  m.def(
      "tensor_from_buffer(int index, int mem, int offset, int bytes, int[] size, int[] stride, ScalarType dtype) -> "
      "Tensor",
      &tensor_from_buffer);
  m.def("wait_event(int index, int event) -> ()", &wait_event);
  m.def("compile_kernel(int index, str source, str name, str options) -> int", &compile_kernel);
  m.def("kernel_argument_types(int id) -> str[]", [](int64_t id) { return user_kernel(id).types; });
  m.def("launch_kernel(int id, Tensor[] tensors, int[] args, int[] global_size, int[] local_size) -> ()",
        &launch_kernel);
}

}  // namespace

}  // namespace netcl
