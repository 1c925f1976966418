// Creates tensors; also the view and storage operators that only change metadata.
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Fill.h>
#include <ATen/native/RangeFactories.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/arange_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/fill_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/zero_native.h>

#include "aten/support/Launch.h"
#include "aten/support/Library.h"
#include "aten/support/Pointwise.h"
#include "aten/support/Scalars.h"
#include "runtime/AddressSpace.h"
#include "runtime/CachingAllocator.h"
#include "runtime/Copies.h"

namespace netcl {

namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

void check_options(std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(c10::layout_or_default(layout) == c10::Layout::Strided, "netcl tensors are strided; got layout ",
              c10::layout_or_default(layout));
  TORCH_CHECK(!c10::pinned_memory_or_default(pin_memory), "Only dense CPU tensors can be pinned");
}

// The device of an allocation. It must exist.
c10::Device checked(std::optional<c10::Device> wanted) {
  const auto index = wanted && wanted->has_index() ? wanted->index() : current_device();
  return {c10::DeviceType::PrivateUse1, netcl::device(index).index()};
}

// Under torch.use_deterministic_algorithms, new memory is filled (NaN, or the largest integer), as on other devices.
bool fills_fresh_memory() {
  auto& context = at::globalContext();
  return context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory();
}

at::Tensor fresh(at::Tensor t) {
  if (C10_UNLIKELY(fills_fresh_memory())) at::native::fill_empty_deterministic_(t);
  return t;
}

at::Tensor empty(at::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                 std::optional<c10::Device> device, std::optional<bool> pin_memory,
                 std::optional<c10::MemoryFormat> memory_format) {
  check_options(layout, pin_memory);
  const c10::DeviceGuard guard(checked(device));
  return fresh(at::detail::empty_generic(size, allocator(), kKeys, c10::dtype_or_default(dtype), memory_format));
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                         std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                         std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const c10::DeviceGuard guard(checked(device));
  return fresh(at::detail::empty_strided_generic(size, stride, allocator(), kKeys, c10::dtype_or_default(dtype)));
}

// Zeros without memory, for derivatives. ATen's ZeroTensor key allocates them if an operator needs it.
at::Tensor efficientzerotensor(at::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                               std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                               std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  at::native::ZeroTensorAllocator nothing(checked(device));
  return at::detail::empty_generic(size, &nothing, kKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
                                   c10::dtype_or_default(dtype), std::nullopt);
}

void delete_size(void* size) { delete static_cast<size_t*>(size); }

// The most bytes that a storage ever had, which its tensors may still access.
size_t reach(const c10::Storage& storage) {
  const c10::DataPtr& data = storage.data_ptr();
  if (data.get_deleter() == &delete_size) return *static_cast<const size_t*>(data.get_context());
  return std::max(storage.nbytes(), allocated_bytes(data.get()));
}

// A storage that is made smaller keeps its memory, unless it gets 0 bytes. Its tensors keep their sizes, kernels do not
// check them, and an access beyond the memory ends the process.
void resize_bytes(const c10::Storage& storage, size_t bytes) {
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  const c10::DeviceGuard guard(storage.device());
  const size_t most = std::max(bytes, reach(storage));
  if (bytes && most == allocated_bytes(storage.data())) {
    storage.set_nbytes(bytes);
    return;
  }
  c10::DataPtr data =
      bytes ? allocator()->allocate(most)
            : c10::DataPtr(reinterpret_cast<void*>(kEmptiedStorage), new size_t(most), &delete_size, storage.device());
  Queue& queue = current_queue(storage.device().index());
  copy_on_device(data.get(), storage.data(), std::min(bytes, storage.nbytes()), queue);
  storage.set_data_ptr_noswap(std::move(data));
  storage.set_nbytes(bytes);
}

// Called before a tensor gets new sizes. If there is no memory for them, the tensor stays unchanged.
void make_room(const c10::Storage& storage, at::IntArrayRef size, at::OptionalIntArrayRef stride, size_t itemsize,
               int64_t offset) {
  at::detail::check_size_nonnegative(size);
  if (c10::multiply_integers(size) == 0) return;
  const size_t bytes = stride ? at::detail::computeStorageNbytes(size, *stride, itemsize, offset)
                              : at::detail::computeStorageNbytesContiguous(size, itemsize, offset);
  if (bytes > storage.nbytes()) resize_bytes(storage, bytes);
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size, std::optional<c10::MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  const auto old_bytes = static_cast<int64_t>(self.storage().nbytes());
  if (impl->sizes() != size) {
    make_room(self.storage(), size, std::nullopt, self.dtype().itemsize(), impl->storage_offset());
    impl->set_sizes_contiguous(size);
  }
  if (format) {
    TORCH_CHECK(*format != c10::MemoryFormat::Preserve, "Unsupported memory format ", *format);
    impl->empty_tensor_restride(*format);
  }
  if (C10_UNLIKELY(fills_fresh_memory())) at::native::fill_resize_deterministic_(self, old_bytes);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, c10::Storage source, int64_t offset, at::IntArrayRef size,
                        at::IntArrayRef stride) {
  TORCH_CHECK(source.device().type() == c10::DeviceType::PrivateUse1,
              "set_: expected a storage on a netcl device, got one on ", source.device());
  TORCH_CHECK(source.device() == self.device(), "Attempted to set the storage of a tensor on device \"", self.device(),
              "\" to a storage on different device \"", source.device(), "\"; the devices must match");
  TORCH_CHECK(offset >= 0, "Tensor: invalid storage offset ", offset);
  TORCH_CHECK(stride.data() == nullptr || size.size() == stride.size(), "mismatch in length of strides and shape");
  const bool contiguous = stride.data() == nullptr;
  make_room(source, size, contiguous ? at::OptionalIntArrayRef() : at::OptionalIntArrayRef(stride),
            self.dtype().itemsize(), offset);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset);
  if (contiguous) {
    impl->set_sizes_contiguous(size);
  } else {
    impl->set_sizes_and_strides(size, stride);
  }
  return self;
}

at::Tensor& set_from_storage(at::Tensor& self, c10::Storage source) {
  const auto n = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage(self, std::move(source), 0, n, {});
}

at::Tensor& set_empty(at::Tensor& self) {
  const c10::DeviceGuard guard(self.device());
  c10::Storage empty(c10::Storage::use_byte_size_t(), 0, allocator()->allocate(0), allocator(), /*resizable=*/true);
  return set_storage(self, std::move(empty), 0, {0}, {});
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  allocator()->recordStream(self.storage().data_ptr(), stream);
}

void fill_kernel(at::TensorIterator& iter, const at::Scalar& value) {
  pointwise(iter, "fill.cl", "fill", in_dtype(value, iter.dtype()));
}

void arange_kernel(at::TensorIterator& iter, const at::Scalar& start, const at::Scalar& steps, const at::Scalar& step) {
  pointwise(iter, "fill.cl", "arange", {start, step});
}

void linspace_kernel(at::TensorIterator& iter, const at::Scalar& start, const at::Scalar& end, int64_t steps) {
  pointwise(iter, "fill.cl", "linspace", {start, end, steps});
}

at::Tensor& arange_out(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step, at::Tensor& out) {
  return at::native::arange_out(start, end, step, out);
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_efficientzerotensor", &efficientzerotensor);
  m.impl("resize_", &resize_);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("set_.source_Storage", &set_from_storage);
  m.impl("set_.source_Tensor", &at::native::set_tensor_);
  m.impl("set_", &set_empty);
  m.impl("is_set_to", &at::native::is_set_to);
  m.impl("record_stream", &record_stream);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);
  m.impl("fill_.Scalar", static_cast<at::Tensor& (*)(at::Tensor&, const at::Scalar&)>(at::native::fill_));
  m.impl("fill_.Tensor", static_cast<at::Tensor& (*)(at::Tensor&, const at::Tensor&)>(at::native::fill_));
  m.impl("zero_", &at::native::zero_);
  m.impl("arange.start_out", &arange_out);
}

}  // namespace

void resize_storage(const c10::Storage& storage, size_t bytes) { resize_bytes(storage, bytes); }

}  // namespace netcl

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(fill_stub, &netcl::fill_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(arange_stub, &netcl::arange_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(linspace_stub, &netcl::linspace_kernel)
}  // namespace at::native
