// The interfaces that PyTorch requires of a device: the guard (devices, streams, events) and the accelerator hooks.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "aten/support/Generator.h"
#include "runtime/AddressSpace.h"
#include "runtime/CachingAllocator.h"
#include "runtime/Event.h"
#include "runtime/PinnedMemory.h"
#include "runtime/Waits.h"

namespace netcl {

void resize_storage(const c10::Storage& storage, size_t bytes);  // Factories.cpp

namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;

struct Guard final : public c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device d) const override { return {kType, exchange_device(d.index())}; }
  c10::Device getDevice() const override { return {kType, current_device()}; }
  void setDevice(c10::Device d) const override { set_current_device(d.index()); }
  void uncheckedSetDevice(c10::Device d) const noexcept override {
    try {
      set_current_device(d.index());
    } catch (...) {  // this runs in destructors: keep the current device
    }
  }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }
  // The dtypes that have kernels.
  c10::DeviceCapability getDeviceCapability(c10::Device d) const override {
    using namespace c10;
    c10::DeviceCapability can;
    auto& bits = can.capability_data.capability_bits;
    bits = 0;
    for (const auto type :
         {kByte, kChar, kShort, kInt, kLong, kUInt16, kUInt32, kUInt64, kHalf, kBFloat16, kFloat, kBool, kComplexHalf,
          kComplexFloat, kFloat8_e5m2, kFloat8_e4m3fn, kFloat8_e5m2fnuz, kFloat8_e4m3fnuz, kFloat8_e8m0fnu}) {
      bits |= uint64_t{1} << static_cast<int>(type);
    }
    if (device(d.index()).info().has_fp64) {
      for (const auto type : {kDouble, kComplexDouble}) bits |= uint64_t{1} << static_cast<int>(type);
    }
    return can;
  }

  c10::Stream getStream(c10::Device d) const override { return current_stream(device(d.index()).index()); }
  c10::Stream getDefaultStream(c10::Device d) const override {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, device(d.index()).index()), 0);
  }
  c10::Stream getNewStream(c10::Device d, int priority) const override {
    return stream_from_pool(d.index(), priority < 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool high_priority) const override {
    return stream_from_pool(d.index(), high_priority);
  }
  c10::Stream exchangeStream(c10::Stream s) const override { return exchange_stream(s); }
  void* getStreamNativeHandle(const c10::Stream s) const override { return queue_for(s).share(); }
  bool queryStream(const c10::Stream& s) const override { return query(queue_for(s)); }
  void synchronizeStream(const c10::Stream& s) const override { synchronize(queue_for(s)); }
  void synchronizeDevice(const c10::DeviceIndex index) const override { synchronize_device(index); }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex index,
              const c10::EventFlag /*flag*/) const override {
    TORCH_CHECK(index == -1 || index == stream.device_index(), "Event device index ", int(index),
                " does not match recording stream's device index ", int(stream.device_index()), ".");
    if (!*event) *event = new Event();
    event_of(*event)->record(queue_for(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) event_of(event)->block(queue_for(stream));
  }
  bool queryEvent(void* event) const override { return !event || event_of(event)->query(); }
  void synchronizeEvent(void* event) const override {
    if (event) event_of(event)->synchronize();
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex /*index*/) const override {
    const int64_t from = finished_at(start), to = finished_at(end);
    TORCH_CHECK(event_of(start)->device() == event_of(end)->device(),
                "elapsed_time: the events are of netcl:", int(event_of(start)->device()),
                " and netcl:", int(event_of(end)->device()), ", and each device has its own clock");
    return static_cast<double>(to - from) * 1e-6;  // milliseconds
  }
  void destroyEvent(void* event, const c10::DeviceIndex /*index*/) const noexcept override { delete event_of(event); }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    allocator()->recordStream(data, stream);
  }

 private:
  static Event* event_of(void* event) { return static_cast<Event*>(event); }
  static int64_t finished_at(void* event) {
    TORCH_CHECK(event, "Both events must be recorded before calculating elapsed time.");
    return event_of(event)->finished_at();
  }
};

// torch.accelerator's interface to pinned memory. Memory is free when its copies are finished.
struct PinnedHostMemory final : public at::HostAllocator {
  c10::DataPtr allocate(size_t bytes) override { return pinned_allocator()->allocate(bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return pinned_allocator()->raw_deleter(); }
  void copy_data(void* dst, const void* src, std::size_t bytes) const override {
    pinned_allocator()->copy_data(dst, src, bytes);
  }
  bool record_event(void* pointer, void* /*context*/, c10::Stream stream) override {
    return keep_pinned(pointer, queue_for(stream));
  }
  void empty_cache() override { free_finished_pinned(); }
  at::HostStats get_stats() override {
    const auto now = pinned_bytes();
    at::HostStats stats;
    for (auto* count : {&stats.active_requests, &stats.allocations}) count->increase(now.allocations);
    for (auto* bytes : {&stats.active_bytes, &stats.allocated_bytes}) bytes->increase(now.bytes);
    return stats;
  }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};
PinnedHostMemory* pinned_host_memory() {
  static auto* memory = new PinnedHostMemory();
  return memory;
}

struct Hooks final : public at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  void init() const override {}  // devices start at their first use; pinned memory needs no device
  bool hasPrimaryContext(c10::DeviceIndex index) const override { return devices_started() && index < device_count(); }
  c10::DeviceIndex deviceCount() const override { return device_count(); }
  void setCurrentDevice(c10::DeviceIndex index) const override { set_current_device(index); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override { return exchange_device(index); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override { return exchange_device(index); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return make_generator(index); }
  at::Device getDeviceFromPtr(void* data) const override { return {kType, locate(data).device}; }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_host_memory(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage, bytes);
  }
};

const Registration registration([]() -> std::shared_ptr<void> {
  at::RegisterPrivateUse1HooksInterface(new Hooks());  // it comes first, since it raises if there is another backend
  const c10::impl::DeviceGuardImplRegistrar guard(kType, new Guard());
  c10::SetAllocator(kType, allocator());
  at::setHostAllocator(kType, pinned_host_memory());
  return nullptr;
});

}  // namespace

}  // namespace netcl
