#include "runtime/PoclCpu.h"

#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
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

// What a device's version ends with: "…HSTR: pthread-x86_64-unknown-linux-gnu-znver3".
std::string build_name(cl_device_id device) {
  std::array<char, 512> version{};
  if (cl().clGetDeviceInfo(device, CL_DEVICE_VERSION, version.size() - 1, version.data(), nullptr) != CL_SUCCESS) {
    return {};
  }
  const char* name = std::strstr(version.data(), "HSTR: ");
  return name ? name + std::strlen("HSTR: ") : "";
}

// The hash (FNV-1) by which PoCL's binaries name a device.
uint64_t hash_of(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash * 0x100000001b3) ^ static_cast<uint64_t>(c);
  return hash;
}

// The libraries that the .icd files of `path` name: those of a folder, or one.
std::vector<std::string> libraries_in(const std::string& path) {
  std::vector<std::filesystem::path> files{path};
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    const std::filesystem::directory_iterator all(path, error);
    files.assign(begin(all), end(all));
  }
  std::vector<std::string> libraries;
  for (const auto& file : files) {
    std::string line;
    if (file.extension() == ".icd" && std::getline(std::ifstream(file), line)) libraries.push_back(line);
  }
  return libraries;
}

// The version of the library's first platform; empty if it is not one of PoCL's.
std::string pocl_version(const std::string& library) {
  if (library.find("pocl") == std::string::npos) return {};
  void* const opened = dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);  // stays open, as the loader opens it too
  auto* const find =
      opened ? reinterpret_cast<void* (*)(const char*)>(dlsym(opened, "clGetExtensionFunctionAddress")) : nullptr;
  auto* const list = find ? reinterpret_cast<decltype(&::clGetPlatformIDs)>(find("clIcdGetPlatformIDsKHR")) : nullptr;
  cl_platform_id platform = nullptr;
  if (!list || list(1, &platform, nullptr) != CL_SUCCESS || !platform) return {};
  // cl_khr_icd: an object begins with a pointer to the table of entry points, whose second is clGetPlatformInfo.
  void** const table = *reinterpret_cast<void***>(platform);
  std::array<char, 256> version{};
  const auto query = reinterpret_cast<decltype(&::clGetPlatformInfo)>(table[1]);
  if (query(platform, CL_PLATFORM_VERSION, version.size() - 1, version.data(), nullptr) != CL_SUCCESS) return {};
  return version.data();
}

}  // namespace

bool pocl_has_basic() {
  const char* vendors = std::getenv("OCL_ICD_VENDORS");
  bool any = false;
  for (const auto& library : libraries_in(vendors && *vendors ? vendors : "/etc/OpenCL/vendors")) {
    const std::string version = pocl_version(library);
    if (version.empty()) continue;
    const bool named = version.find("PoCL 3.") != std::string::npos || version.find("pocl 1.") != std::string::npos;
    if (!named) return false;  // the variable would hide the devices of a later release
    any = true;
  }
  return any;
}

std::vector<unsigned char> pocl_binary_for(cl_device_id other, cl_device_id device, std::vector<unsigned char> binary) {
  constexpr std::string_view kMagic("poclbin\0", 8);
  constexpr size_t kAt = kMagic.size();
  uint64_t hash = 0;
  if (binary.size() < kAt + sizeof(hash) || std::memcmp(binary.data(), kMagic.data(), kAt) != 0) return {};
  std::memcpy(&hash, binary.data() + kAt, sizeof(hash));
  std::string own = build_name(device), others = build_name(other);
  if (hash != hash_of(own)) {  // the name of the CPU may be a repaired one
    const char* cpu = known_cpu();
    const auto repaired = [cpu](const std::string& name) { return name.substr(0, name.rfind('-') + 1) + cpu; };
    if (!cpu || hash != hash_of(repaired(own))) return {};
    others = repaired(others);
  }
  hash = hash_of(others);
  std::memcpy(binary.data() + kAt, &hash, sizeof(hash));
  return binary;
}

std::optional<PoclCpu> repair_pocl_cpu_name(cl_device_id device, const char* platform_version,
                                            const char* device_version) {
  const char* name = known_cpu();
  if (!name || !std::strstr(platform_version, "PoCL")) return std::nullopt;
  const size_t length = std::strlen(device_version);
  const auto is_last_word = [&](std::string_view word) {
    return length > word.size() && device_version[length - word.size() - 1] == '-' &&
           word == device_version + length - word.size();
  };
  if (is_last_word(name)) return std::nullopt;
  const bool baseline = std::strcmp(name, "x86-64") == 0;  // PoCL knows such a CPU better
  if (!is_last_word("generic") && (baseline || !std::strstr(platform_version, "DISTRO"))) return std::nullopt;
  // The device object holds `char* llvm_cpu`. It is the only string that the object points to and that ends the
  // device's version ("…: pthread-x86_64-unknown-linux-gnu-znver3").
  std::array<uintptr_t, 256> words{};
  const auto base = reinterpret_cast<uintptr_t>(device);
  size_t count = words.size();
  while (count > 0 && !read_memory(base, words.data(), count * sizeof(uintptr_t))) count /= 2;
  for (size_t i = 0; i < count; i++) {
    std::array<char, 16> text{};  // no CPU's name is longer
    if (words[i] < 0x10000 || !read_memory(words[i], text.data(), text.size() - 1)) continue;
    const PoclCpu repaired{name, i * sizeof(uintptr_t)};
    if (words[i] == reinterpret_cast<uintptr_t>(name)) return repaired;  // already, for another part of the device
    const std::string_view word(text.data());
    if (word.size() >= 3 && is_last_word(word)) {
      reinterpret_cast<const char**>(base)[i] = name;
      return repaired;
    }
  }
  return std::nullopt;
}

}  // namespace netcl
