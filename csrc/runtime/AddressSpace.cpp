#include "runtime/AddressSpace.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <atomic>
#include <map>
#include <mutex>

#include "runtime/OpName.h"
#include "runtime/Shutdown.h"

namespace netcl {

namespace {

std::atomic<uint64_t> epoch{1};

// A reserved range of addresses without access. Slabs lie in it, and a table maps each granule to its slab.
class Arena {
 public:
  Arena() {
    for (size_ = size_t{1} << 43; size_ >= (size_t{1} << 35); size_ >>= 1) {
      void* p = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (p != MAP_FAILED) {
        base_ = round(reinterpret_cast<uintptr_t>(p));
        size_ = (size_ - kGranule) / kGranule * kGranule;
        break;
      }
    }
    TORCH_CHECK(base_ != 0, "netcl: cannot reserve address space for device memory (is `ulimit -v` set?)");
    const size_t bytes = size_ / kGranule * sizeof(std::atomic<Slab*>);
    void* t = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(t != MAP_FAILED, "netcl: cannot map the table of device memory");
    table_ = static_cast<std::atomic<Slab*>*>(t);  // mmap's zero pages are null pointers
    free_[base_] = size_;
  }

  Slab* find(uintptr_t address) const {
    const uintptr_t at = address - base_;
    return at < size_ ? table_[at / kGranule].load(std::memory_order_acquire) : nullptr;
  }

  uintptr_t reserve(size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second < bytes) continue;
      const uintptr_t at = it->first;
      const size_t rest = it->second - bytes;
      free_.erase(it);
      if (rest) free_[at + bytes] = rest;
      return at;
    }
    return 0;
  }

  void publish(Slab* slab) {
    for (size_t i = 0; i < slab->size; i += kGranule) {
      table_[(slab->base + i - base_) / kGranule].store(slab, std::memory_order_release);
    }
  }

  void retire(const Slab& slab) {
    for (size_t i = 0; i < slab.size; i += kGranule) {
      table_[(slab.base + i - base_) / kGranule].store(nullptr, std::memory_order_release);
    }
    release(slab.base, slab.size);
  }

  void release(uintptr_t at, size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto it = free_.emplace(at, bytes).first;
    const auto next = std::next(it);
    if (next != free_.end() && it->first + it->second == next->first) {
      it->second += next->second;
      free_.erase(next);
    }
    if (it != free_.begin()) {
      const auto before = std::prev(it);
      if (before->first + before->second == it->first) {
        before->second += it->second;
        free_.erase(it);
      }
    }
  }

 private:
  static uintptr_t round(uintptr_t p) { return (p + kGranule - 1) / kGranule * kGranule; }

  std::mutex mutex_;
  uintptr_t base_ = 0;
  size_t size_ = 0;
  std::atomic<Slab*>* table_ = nullptr;
  std::map<uintptr_t, size_t> free_;
};

Arena& arena() {
  static auto* a = new Arena();
  return *a;
}

void delete_imported(void* context) {
  auto* slab = static_cast<Slab*>(context);
  if (shutting_down()) {
    delete slab;
  } else {
    remove_slab(slab);
  }
}

}  // namespace

Slab* add_slab(cl_mem mem, size_t bytes, c10::DeviceIndex device, char* host) {
  const uintptr_t base = arena().reserve(bytes);
  if (base == 0) {
    cl().clReleaseMemObject(mem);
    TORCH_CHECK_WITH(OutOfMemoryError, false, "netcl: the reserved address space for device memory is used up");
  }
  auto* slab = new Slab{mem, base, bytes, device, host};
  arena().publish(slab);
  return slab;
}

void remove_slab(Slab* slab) {
  epoch.fetch_add(1);
  arena().retire(*slab);
  cl().clReleaseMemObject(slab->mem);
  delete slab;
}

Slab* find_slab(const void* address) noexcept { return arena().find(reinterpret_cast<uintptr_t>(address)); }

uint64_t slab_epoch() { return epoch.load(std::memory_order_relaxed); }

Location locate(const void* address) {
  if (!address) return {};
  const auto a = reinterpret_cast<uintptr_t>(address);
  const Slab* slab = arena().find(a);
  if (__builtin_expect(!slab, 0)) {
    const char* op = current_op();
    TORCH_CHECK(a < kEmptiedStorage, "netcl: ", op ? op : "an operator",
                " was given a tensor whose storage was resized to 0 bytes");
    TORCH_CHECK(false, "netcl: ", op ? op : "an operator", " was given memory that is not on a netcl device (", address,
                "). Move all of its tensors to one device with .to('netcl').");
  }
  const size_t offset = a - slab->base;
  return {slab->mem, offset, slab->device, slab->host ? slab->host + offset : nullptr};
}

c10::DataPtr import_buffer(Device& device, cl_mem mem, size_t offset, size_t bytes) {
  size_t size = 0;
  NETCL_CL(clGetMemObjectInfo(mem, CL_MEM_SIZE, sizeof(size), &size, nullptr));
  TORCH_CHECK_VALUE(offset <= size && bytes <= size - offset, "netcl: the buffer holds ", size, " bytes, but ", bytes,
                    " bytes from byte ", offset, " on were asked for");
  const size_t range = (size + kGranule - 1) / kGranule * kGranule;
  NETCL_CL(clRetainMemObject(mem));
  Slab* slab = add_slab(mem, range, device.index());
  return {reinterpret_cast<void*>(slab->base + offset), slab, &delete_imported,
          c10::Device(c10::DeviceType::PrivateUse1, device.index())};
}

}  // namespace netcl
