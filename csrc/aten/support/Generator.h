// netcl's random numbers: Philox 4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), whose
// state is a seed and an offset on the host. A number's counter follows from its position, so the numbers depend
// neither on the device's class nor on how the work is split.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <utility>

#include "runtime/Kernel.h"

namespace netcl {

class GeneratorImpl final : public c10::GeneratorImpl {
 public:
  explicit GeneratorImpl(c10::DeviceIndex index);

  // The (seed, offset) from which a kernel may draw `count` Philox blocks of four 32-bit numbers each; advances the
  // offset by `count`. Callers hold mutex_.
  std::pair<uint64_t, uint64_t> philox(uint64_t count);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& new_state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

 private:
  GeneratorImpl* clone_impl() const override;
  uint64_t seed_, offset_ = 0;
};

const at::Generator& default_generator(c10::DeviceIndex index);
at::Generator make_generator(c10::DeviceIndex index);
// The same for `generator`, or for the device's default one, as a kernel's arguments. Locks it, and raises if it is not
// netcl's.
Philox philox_state(const std::optional<at::Generator>& generator, c10::DeviceIndex index, uint64_t count);

}  // namespace netcl
