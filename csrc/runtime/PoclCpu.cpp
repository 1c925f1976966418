#include "runtime/PoclCpu.h"

#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace netcl {

namespace {

// Copies from an address that may not be mapped; returns false instead of faulting.
bool read_memory(uintptr_t address, void* out, size_t bytes) {
  iovec local{out, bytes};
  iovec remote{reinterpret_cast<void*>(address), bytes};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
}

const char* known_cpu() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd")) {
    return "skylake-avx512";
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) {
    return "haswell";
  }
  return "x86-64";
#else
  return nullptr;
#endif
}

}  // namespace

const char* repair_pocl_cpu_name(cl_device_id device, const char* platform_version, const char* device_version) {
  const char* name = known_cpu();
  if (!name || !std::strstr(platform_version, "PoCL")) return nullptr;
  const size_t length = std::strlen(device_version);
  const auto is_last_word = [&](std::string_view word) {
    return length > word.size() && device_version[length - word.size() - 1] == '-' &&
           word == device_version + length - word.size();
  };
  if (is_last_word(name)) return nullptr;
  const bool baseline = std::strcmp(name, "x86-64") == 0;  // PoCL knows such a CPU better
  if (!is_last_word("generic") && (baseline || !std::strstr(platform_version, "DISTRO"))) return nullptr;
  // The device object holds `char* llvm_cpu`. It is the only string that the object points to and that ends the
  // device's version ("…: pthread-x86_64-unknown-linux-gnu-znver3").
  std::array<uintptr_t, 256> words{};
  const auto base = reinterpret_cast<uintptr_t>(device);
  size_t count = words.size();
  while (count > 0 && !read_memory(base, words.data(), count * sizeof(uintptr_t))) count /= 2;
  for (size_t i = 0; i < count; i++) {
    std::array<char, 16> text{};  // no CPU's name is longer
    if (words[i] < 0x10000 || !read_memory(words[i], text.data(), text.size() - 1)) continue;
    if (words[i] == reinterpret_cast<uintptr_t>(name)) return name;  // already changed, for another part of the device
    const std::string_view word(text.data());
    if (word.size() >= 3 && is_last_word(word)) {
      reinterpret_cast<const char**>(base)[i] = name;
      return name;
    }
  }
  return nullptr;
}

}  // namespace netcl
