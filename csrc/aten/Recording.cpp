// One call of a compiled function, recorded for mode="reduce-overhead": replays submit its commands on other tensors,
// without Python and the dispatcher. The kernels' addresses within inputs and outputs are replaced at each replay, so
// inputs need not be copied, and outputs are new tensors. What lies between stays where it was: all recordings of a
// device share that memory, since none of them needs it between its replays.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "aten/support/Library.h"
#include "runtime/AddressSpace.h"
#include "runtime/CachingAllocator.h"
#include "runtime/Capture.h"
#include "runtime/Event.h"

namespace netcl {
namespace {

using Bytes = const char*;

Bytes data_of(const at::Tensor& t) { return static_cast<Bytes>(t.const_data_ptr()); }

// Which storage a tensor lies in, by number, and where: in bytes behind the storage's first tensor.
struct Place {
  size_t storage = 0;
  ptrdiff_t offset = 0;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::SmallVector<int64_t, 5> sizes, strides;
  Place() = default;
  Place(const at::Tensor& t, size_t storage, ptrdiff_t offset)
      : storage(storage), offset(offset), dtype(t.scalar_type()), sizes(t.sizes()), strides(t.strides()) {}
  bool fits(const at::Tensor& t) const {
    return t.scalar_type() == dtype && t.sizes() == at::IntArrayRef(sizes) && t.strides() == at::IntArrayRef(strides);
  }
};

// No kernel is chosen by more of an address than this.
constexpr uintptr_t kAlign = 64;
uintptr_t phase_of(Bytes p) { return reinterpret_cast<uintptr_t>(p) % kAlign; }

// The memory of inputs that share a storage, or of outputs.
struct Memory {
  const c10::StorageImpl* storage = nullptr;  // of an input, at the last replay
  Bytes base = nullptr;                       // the first tensor's data: what commands are set to now
  uintptr_t phase = 0;                        // of `base`, modulo kAlign
  ptrdiff_t begin = 0, end = 0;               // what tensors cover, from `base`
  size_t first = 0;                           // of an output: the commands before this one use the memory otherwise
  size_t bytes = 0;                           // of an output
  struct Use {
    size_t command, address;
    ptrdiff_t offset;
  };
  std::vector<Use> uses;
};

struct Output {
  Place place;
  at::Tensor kept;  // of memory that the recorded call has not allocated
  std::optional<size_t> input;
};

// The queue that ran a device's last replay.
struct Shared {
  std::mutex mutex;
  Queue* last = nullptr;
  bool capturing = false;
};
Shared& shared(c10::DeviceIndex index) {
  static auto* all = new std::array<Shared, 64>();
  return all->at(index);
}

class Recording {
 public:
  explicit Recording(at::TensorList inputs) : index_(inputs.at(0).device().index()) {
    for (const at::Tensor& t : inputs) {
      refuse_unless(is_plain(t), "an input is not a strided tensor of this device");
      size_t s = 0;
      while (s < memory_.size() && memory_[s].storage != t.storage().unsafeGetStorageImpl()) s++;
      if (s == memory_.size()) {
        memory_.emplace_back();
        memory_[s].storage = t.storage().unsafeGetStorageImpl();
        memory_[s].base = data_of(t);
        memory_[s].phase = phase_of(memory_[s].base);
      }
      Memory& m = memory_[s];
      inputs_.emplace_back(t, s, data_of(t) - m.base);
      const auto bytes = at::detail::computeStorageNbytes(t.sizes(), t.strides(), t.itemsize());
      m.begin = std::min(m.begin, inputs_.back().offset);
      m.end = std::max(m.end, inputs_.back().offset + static_cast<ptrdiff_t>(bytes));
    }
    given_ = memory_.size();
    Shared& s = shared(index_);
    const std::lock_guard<std::mutex> lock(s.mutex);
    refuse_unless(!current_capture(index_) && !s.capturing, "another capture is under way");
    capturing_.emplace(capture_queue(index_, 0), capture_);
    s.capturing = true;
  }
  ~Recording() { stop(); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // Ends the recording of a call that got `inputs` and returned `outputs`.
  void end(at::TensorList inputs, at::TensorList outputs) {
    stop();
    std::map<const c10::StorageImpl*, size_t> known;
    for (size_t s = 0; s < given_; s++) known[memory_[s].storage] = s;
    for (const at::Tensor& t : outputs) outputs_.push_back(output(t, inputs, known));
    for (size_t c = 0; c < capture_.commands.size(); c++) find_uses(c, inputs);
    capture_.allocations.clear();
    epoch_ = slab_epoch();
  }

  // Runs the call on other inputs; none if they do not fit.
  std::optional<std::vector<at::Tensor>> replay(at::TensorList inputs) {
    Shared& s = shared(index_);
    const std::lock_guard<std::mutex> lock(s.mutex);
    Queue& queue = current_queue(index_);
    if (queue.deferred().capture() || !take(inputs)) return std::nullopt;
    const c10::DeviceGuard guard(c10::Device(c10::DeviceType::PrivateUse1, index_));
    if (s.last && s.last != &queue) {
      Event earlier;
      earlier.record(*s.last);
      earlier.block(queue);
    }
    s.last = &queue;
    std::vector<c10::Storage> made;
    for (size_t i = given_; i < memory_.size(); i++) {
      made.emplace_back(c10::Storage::use_byte_size_t{}, memory_[i].bytes, allocator()->allocate(memory_[i].bytes),
                        allocator(), /*resizable=*/true);
      move_to(memory_[i], static_cast<Bytes>(made.back().data()));
    }
    for (const auto& command : capture_.commands) {
      if (!command->prepare()) return std::nullopt;
    }
    netcl::replay(capture_, queue);
    std::vector<at::Tensor> results;
    for (const Output& o : outputs_) results.push_back(result(o, inputs, made));
    return results;
  }

 private:
  static void refuse_unless(bool holds, const char* why) { TORCH_CHECK(holds, "netcl: not recorded: ", why); }
  bool is_plain(const at::Tensor& t) const {
    return t.is_privateuseone() && t.device().index() == index_ && t.layout() == c10::kStrided && !t.is_conj() &&
           !t.is_neg() && t.has_storage();
  }

  void stop() {
    if (!capturing_) return;
    capturing_.reset();
    restore_generators(capture_);
    Shared& s = shared(index_);
    const std::lock_guard<std::mutex> lock(s.mutex);
    s.capturing = false;
  }

  Output output(const at::Tensor& t, at::TensorList inputs, std::map<const c10::StorageImpl*, size_t>& known) {
    refuse_unless(is_plain(t), "an output is not a strided tensor of this device");
    for (size_t i = 0; i < inputs.size(); i++) {
      if (t.is_same(inputs[i])) return {{}, {}, i};
    }
    const auto* storage = t.storage().unsafeGetStorageImpl();
    const auto base = static_cast<Bytes>(t.storage().data());
    const auto [found, is_new] = known.try_emplace(storage, memory_.size());
    if (is_new) {
      const auto& all = capture_.allocations;
      const auto of_call = std::find_if(all.rbegin(), all.rend(), [&](const auto& a) { return a.address == base; });
      if (base && of_call == all.rend()) {
        known.erase(found);
        return {{}, t, {}};
      }
      Memory made;
      made.base = base;
      made.bytes = t.storage().nbytes();
      made.end = static_cast<ptrdiff_t>(made.bytes);
      made.first = base ? of_call->commands : 0;
      memory_.push_back(std::move(made));
    }
    return {{t, found->second, base ? data_of(t) - memory_[found->second].base : 0}, {}, {}};
  }

  // Finds out which addresses of a command lie within inputs and outputs, and keeps the other memory.
  void find_uses(size_t c, at::TensorList inputs) {
    DeferredCommand& command = *capture_.commands[c];
    command.release_held();
    const auto addresses = command.addresses();
    for (size_t i = 0; i < addresses.size(); i++) {
      const auto at = static_cast<Bytes>(addresses[i]);
      bool moves = false;
      for (size_t s = 0; s < memory_.size() && !moves; s++) {
        Memory& m = memory_[s];
        moves = at >= m.base + m.begin && at < m.base + m.end && c >= m.first;
        if (moves) m.uses.push_back({c, i, at - m.base});
      }
      if (moves) continue;
      for (const at::Tensor& t : inputs) {
        const auto storage = static_cast<Bytes>(t.storage().data());
        refuse_unless(at < storage || at >= storage + t.storage().nbytes(), "memory beside an input is used");
      }
      command.hold(locate(at).mem);
    }
  }

  // Whether the inputs have the form of the recorded ones; then commands are set to their memory.
  bool take(at::TensorList inputs) {
    if (inputs.size() != inputs_.size()) return false;
    std::vector<std::pair<const c10::StorageImpl*, Bytes>> now(given_);
    for (size_t i = 0; i < inputs.size(); i++) {
      const at::Tensor& t = inputs[i];
      const Place& place = inputs_[i];
      if (!is_plain(t) || !place.fits(t)) return false;
      auto& [storage, base] = now[place.storage];
      const Bytes data = data_of(t);
      if (!storage) storage = t.storage().unsafeGetStorageImpl(), base = data;
      if (storage != t.storage().unsafeGetStorageImpl() || data != base + place.offset) return false;
    }
    for (size_t s = 0; s < given_; s++) {
      const auto& [storage, base] = now[s];
      if (storage == memory_[s].storage && base == memory_[s].base) continue;
      if (phase_of(base) != memory_[s].phase) return false;
      for (size_t other = 0; other < given_; other++) {
        if (other != s && now[other].first == storage) return false;
      }
    }
    if (epoch_ != slab_epoch()) {  // then an address may be another buffer's
      epoch_ = slab_epoch();
      for (Memory& m : memory_) m.base = nullptr;
    }
    for (size_t s = 0; s < given_; s++) {
      memory_[s].storage = now[s].first;
      move_to(memory_[s], now[s].second);
    }
    return true;
  }

  void move_to(Memory& m, Bytes base) {
    if (m.base == base) return;
    m.base = base;
    for (const auto& use : m.uses) capture_.commands[use.command]->set_address(use.address, base + use.offset);
  }

  at::Tensor result(const Output& o, at::TensorList inputs, const std::vector<c10::Storage>& made) const {
    if (o.input) return inputs[*o.input];
    if (o.kept.defined()) return o.kept;
    const Place& p = o.place;
    const bool of_input = p.storage < given_;
    c10::Storage storage = of_input ? first_of(p.storage, inputs).storage() : made[p.storage - given_];
    const Bytes begin = static_cast<Bytes>(storage.data());
    const ptrdiff_t bytes = (of_input ? memory_[p.storage].base - begin : 0) + p.offset;
    const auto type = c10::scalarTypeToTypeMeta(p.dtype);
    at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(std::move(storage),
                                                            c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type);
    t.unsafeGetTensorImpl()->set_sizes_and_strides(p.sizes, p.strides, bytes / static_cast<ptrdiff_t>(type.itemsize()));
    return t;
  }
  const at::Tensor& first_of(size_t storage, at::TensorList inputs) const {
    size_t i = 0;
    while (inputs_[i].storage != storage) i++;
    return inputs[i];
  }

  c10::DeviceIndex index_;
  Capture capture_;
  std::optional<ThreadCapture> capturing_;
  std::vector<Place> inputs_;
  std::vector<Memory> memory_;  // of the inputs' storages, then of those that the call makes
  size_t given_ = 0;            // of the inputs
  std::vector<Output> outputs_;
  uint64_t epoch_ = 0;
};

struct Recordings {
  std::mutex mutex;
  std::map<int64_t, std::shared_ptr<Recording>> all;
  int64_t last = 0;
};
Recordings& recordings() {
  static auto* r = new Recordings();
  return *r;
}
std::shared_ptr<Recording> recording(int64_t id) {
  auto& r = recordings();
  const std::lock_guard<std::mutex> lock(r.mutex);
  const auto found = r.all.find(id);
  TORCH_CHECK_INDEX(found != r.all.end(), "netcl: no recording has the number ", id);
  return found->second;
}

int64_t begin_recording(at::TensorList inputs) {
  TORCH_CHECK(!inputs.empty() && inputs[0].is_privateuseone(), "netcl: not recorded: there is no input of the device");
  auto made = std::make_shared<Recording>(inputs);
  auto& r = recordings();
  const std::lock_guard<std::mutex> lock(r.mutex);
  r.all.emplace(++r.last, std::move(made));
  return r.last;
}

std::tuple<bool, std::vector<at::Tensor>> replay_recording(int64_t id, at::TensorList inputs) {
  auto results = recording(id)->replay(inputs);
  if (!results) return {false, {}};
  return {true, std::move(*results)};
}

void release_recording(int64_t id) {
  std::shared_ptr<Recording> released;  // after the lock
  auto& r = recordings();
  const std::lock_guard<std::mutex> lock(r.mutex);
  if (const auto found = r.all.find(id); found != r.all.end()) {
    released = std::move(found->second);
    r.all.erase(found);
  }
}

NETCL_LIBRARY_FRAGMENT(netcl, m) {
  m.def("begin_recording(Tensor[] inputs) -> int", &begin_recording);
  m.def("end_recording(int id, Tensor[] inputs, Tensor[] outputs) -> ()",
        [](int64_t id, at::TensorList inputs, at::TensorList outputs) { recording(id)->end(inputs, outputs); });
  m.def("replay_recording(int id, Tensor[] inputs) -> (bool, Tensor[])", &replay_recording);
  m.def("release_recording(int id) -> ()", &release_recording);
}

}  // namespace
}  // namespace netcl
