#include "aten/support/Generator.h"

#include <ATen/Utils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>

#include "runtime/Device.h"
#include "runtime/Queue.h"

namespace netcl {

GeneratorImpl::GeneratorImpl(c10::DeviceIndex index)
    : c10::GeneratorImpl(c10::Device(c10::DeviceType::PrivateUse1, index),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      seed_(c10::default_rng_seed_val) {}

std::pair<uint64_t, uint64_t> GeneratorImpl::philox(uint64_t count) {
  const auto state = std::make_pair(seed_, offset_);
  offset_ += count;
  return state;
}

void GeneratorImpl::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}
void GeneratorImpl::set_offset(uint64_t offset) { offset_ = offset; }
uint64_t GeneratorImpl::get_offset() const { return offset_; }
uint64_t GeneratorImpl::current_seed() const { return seed_; }
uint64_t GeneratorImpl::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

c10::intrusive_ptr<c10::TensorImpl> GeneratorImpl::get_state() const {
  const std::array<uint64_t, 2> words{seed_, offset_};
  at::Tensor state = at::empty({sizeof(words)}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
  std::memcpy(state.mutable_data_ptr(), words.data(), sizeof(words));
  return state.getIntrusivePtr();
}

void GeneratorImpl::set_state(const c10::TensorImpl& new_state) {
  at::detail::check_rng_state(new_state);
  std::array<uint64_t, 2> words{};
  TORCH_CHECK(new_state.numel() == sizeof(words), "netcl: a generator's state has ", sizeof(words), " bytes, got ",
              new_state.numel());
  std::memcpy(words.data(), new_state.data(), sizeof(words));
  seed_ = words[0];
  offset_ = words[1];
}

GeneratorImpl* GeneratorImpl::clone_impl() const {
  auto* copy = new GeneratorImpl(device().index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

const at::Generator& default_generator(c10::DeviceIndex index) {
  static auto* generators = new std::array<at::Generator, 64>();
  static auto* once = new std::array<std::once_flag, 64>();
  if (index < 0) index = current_device();
  std::call_once(once->at(index), [&] {
    auto generator = make_generator(index);
    generator.set_current_seed(c10::default_rng_seed_val);
    generators->at(index) = generator;
  });
  return generators->at(index);
}

at::Generator make_generator(c10::DeviceIndex index) {
  if (index < 0) index = current_device();
  return at::make_generator<GeneratorImpl>(index);
}

namespace {
// The generator's place among those of the capture, which it moves to behind its next `count` blocks.
int source_in(Capture& capture, GeneratorImpl& generator, uint64_t count) {
  auto& sources = capture.sources;
  const auto is_this = [&](const Capture::Source& s) { return s.generator.get() == &generator; };
  auto found = std::find_if(sources.begin(), sources.end(), is_this);
  if (found == sources.end()) {
    using Pointer = c10::intrusive_ptr<c10::GeneratorImpl>;
    found = sources.insert(found, {Pointer::reclaim_copy(&generator), generator.get_offset(), 0});
  }
  found->count += count;
  return static_cast<int>(found - sources.begin());
}
}  // namespace

Philox philox_state(const std::optional<at::Generator>& generator, c10::DeviceIndex index, uint64_t count) {
  auto* impl = at::get_generator_or_default<GeneratorImpl>(generator, default_generator(index));
  const std::lock_guard<std::mutex> lock(impl->mutex_);
  Capture* capture = current_capture(index < 0 ? current_device() : index);
  const int source = capture ? source_in(*capture, *impl, count) : -1;
  const auto [seed, offset] = impl->philox(count);
  return {seed, offset, source};
}

}  // namespace netcl
