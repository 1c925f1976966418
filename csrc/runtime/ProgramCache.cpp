#include "runtime/ProgramCache.h"

#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>
#include <c10/util/hash.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <unordered_map>
#include <vector>

#include "runtime/Kernel.h"
#include "runtime/Log.h"
#include "runtime/OpName.h"
#include "runtime/Shutdown.h"

namespace netcl {

namespace {

std::string kernel_dir, cache_dir;
std::atomic<uint64_t> compiled{0}, disk_hits{0}, memory_hits{0}, compile_micros{0};

constexpr char kMagic[] = "NETCLBIN2";

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return {};
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

void expand(const std::string& file, std::string& out, std::set<std::string>& seen);

void expand_text(const std::string& text, std::string& out, std::set<std::string>& seen) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    constexpr std::string_view kInclude = "#include \"";
    if (line.compare(0, kInclude.size(), kInclude) == 0) {
      const auto end = line.find('"', kInclude.size());
      expand(line.substr(kInclude.size(), end - kInclude.size()), out, seen);
    } else {
      out += line;
      out += '\n';
    }
  }
}

void expand(const std::string& file, std::string& out, std::set<std::string>& seen) {
  if (!seen.insert(file).second) return;
  const std::string text = read_file(kernel_dir + "/" + file);
  TORCH_CHECK(!text.empty(), "netcl: the kernel file ", file, " was not found in ", kernel_dir);
  expand_text(text, out, seen);
}

// A kernel begins with a line of `__kernel … void <name>(` and ends with a brace at the start of a line. The other ones
// leave empty lines, so that the compiler's messages count as the text does.
std::string only_kernel(const std::string& text, const std::string& name) {
  std::string source;
  bool other = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line); source += '\n') {
    const bool begins = line.rfind("__kernel", 0) == 0;
    if (begins) other = line.find(" void " + name + "(") == std::string::npos;
    if (!other) source += line;
    if (line == "}" || (begins && line.back() == '}')) other = false;
  }
  return source;
}

std::string common_options(const Device& device) {
  std::string o = "-cl-std=CL1.2";
  o += device.is_cpu() ? " -DDEVICE_CPU" : " -DDEVICE_GPU";
  const auto& info = device.info();
  if (info.has_fp16) o += " -DHAVE_FP16";
  if (info.has_fp64) o += " -DHAVE_FP64";
  if (info.has_int64_atomics) o += " -DHAVE_INT64_ATOMICS";
  // The compilers known to take clang's builtins. Others say that they have them, and fail or make an invalid program.
  if (info.platform_name == "Portable Computing Language" || info.platform_name == "Intel(R) OpenCL") {
    o += " -DHAVE_CPU_BUILTINS";
  }
  cl_device_fp_config config = 0;
  NETCL_CL(clGetDeviceInfo(device.id(), CL_DEVICE_SINGLE_FP_CONFIG, sizeof(config), &config, nullptr));
  // Division and square root round as on CPU and CUDA, if the device can.
  if (config & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) o += " -cl-fp32-correctly-rounded-divide-sqrt";
  return o;
}

std::string build_log(cl_program program, cl_device_id id) {
  size_t size = 0;
  if (cl().clGetProgramBuildInfo(program, id, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size) != CL_SUCCESS) return "";
  std::string log(size, '\0');
  cl().clGetProgramBuildInfo(program, id, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr);
  return log.c_str();
}

// --- the disk ------------------------------------------------------------------------------------------------
// An entry holds magic, the SHA-1 of its payload, and the payload. Whatever does not match is ignored and rebuilt.

std::string entry_path(const std::string& key) { return cache_dir + "/" + key + ".bin"; }

// Only what nobody else could have written is loaded, or overwritten.
bool is_ours(const struct stat& st) { return st.st_uid == geteuid() && (st.st_mode & (S_IWGRP | S_IWOTH)) == 0; }

bool trusted_folder() {
  struct stat st{};
  if (cache_dir.empty() || stat(cache_dir.c_str(), &st) != 0) return false;
  if (is_ours(st)) return true;
  TORCH_WARN_ONCE("netcl: compiled kernels are not kept, since others can write to the folder for them, ", cache_dir,
                  ". It must belong to the user of this process, with mode 0755 or less (NETCL_CACHE_DIR names another "
                  "one).");
  return false;
}

// The content of a file of ours; empty for a link, a file of others, or none.
std::string read_trusted(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return {};
  const auto closing = c10::make_scope_exit([fd] { close(fd); });
  struct stat st{};
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || !is_ours(st)) return {};
  std::string data(static_cast<size_t>(st.st_size), '\0');
  size_t done = 0;
  while (done < data.size()) {
    const ssize_t n = read(fd, data.data() + done, data.size() - done);
    if (n <= 0) return {};
    done += static_cast<size_t>(n);
  }
  return data;
}

std::vector<unsigned char> load_binary(const std::string& key) {
  if (!trusted_folder()) return {};
  const std::string data = read_trusted(entry_path(key));
  const size_t header = sizeof(kMagic) - 1 + 40;
  if (data.size() <= header || data.compare(0, sizeof(kMagic) - 1, kMagic) != 0) return {};
  const std::string payload = data.substr(header);
  if (c10::sha1(payload).str() != data.substr(sizeof(kMagic) - 1, 40)) return {};
  return {payload.begin(), payload.end()};
}

// Written beside its place and renamed, so that a reader sees all of it or nothing. Failure is no error.
void store_binary(const std::string& key, const std::vector<unsigned char>& binary) {
  if (binary.empty() || !trusted_folder()) return;
  const std::string path = entry_path(key);
  const std::string payload(binary.begin(), binary.end());
  const std::string data = std::string(kMagic) + c10::sha1(payload).str() + payload;
  // A name that nobody can foresee, made anew or not at all: another container may have the same process id.
  std::string temporary = path + ".XXXXXX";
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return;
  size_t done = 0;
  while (done < data.size()) {
    const ssize_t n = write(fd, data.data() + done, data.size() - done);
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  const bool complete = close(fd) == 0 && done == data.size();
  if (!complete || rename(temporary.c_str(), path.c_str()) != 0) unlink(temporary.c_str());
}

std::vector<unsigned char> binary_of(cl_program program) {
  size_t size = 0;
  if (cl().clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(size), &size, nullptr) != CL_SUCCESS) return {};
  std::vector<unsigned char> binary(size);
  unsigned char* data = binary.data();
  if (size == 0 || cl().clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(data), &data, nullptr) != CL_SUCCESS) {
    return {};
  }
  return binary;
}

cl_program from_binary(Device& device, const std::vector<unsigned char>& binary, const std::string& options) {
  const cl_device_id id = device.id();
  const size_t size = binary.size();
  const unsigned char* data = binary.data();
  cl_int status = CL_SUCCESS, err = CL_SUCCESS;
  cl_program program = cl().clCreateProgramWithBinary(device.context(), 1, &id, &size, &data, &status, &err);
  if (err != CL_SUCCESS || status != CL_SUCCESS) {
    if (program) cl().clReleaseProgram(program);
    return nullptr;
  }
  // A compiler that a bug or a signal upset may have left a binary that loads, and holds no kernel.
  size_t kernels = 0;
  if (cl().clBuildProgram(program, 1, &id, options.c_str(), nullptr, nullptr) != CL_SUCCESS ||
      cl().clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof(kernels), &kernels, nullptr) != CL_SUCCESS ||
      kernels == 0) {
    cl().clReleaseProgram(program);
    return nullptr;
  }
  return program;
}

std::vector<std::tuple<c10::DeviceIndex, std::string, std::string>>& in_use() {
  static auto* list = new std::vector<std::tuple<c10::DeviceIndex, std::string, std::string>>();
  return *list;
}

// What the compiler said of the programs that this process built, by key; most say nothing.
std::unordered_map<std::string, std::string>& build_logs() {
  static auto* logs = new std::unordered_map<std::string, std::string>();
  return *logs;
}

std::string key_of(Device& device, const std::string& source, const std::string& options) {
  return c10::sha1(source + '\n' + options + '\n' + device.fingerprint()).str();
}

cl_program from_source(Device& device, const std::string& source) {
  const char* text = source.c_str();
  const size_t length = source.size();
  cl_int err = CL_SUCCESS;
  cl_program program = cl().clCreateProgramWithSource(device.context(), 1, &text, &length, &err);
  if (err != CL_SUCCESS) raise_cl_error(err, "clCreateProgramWithSource");
  return program;
}

}  // namespace

std::vector<std::tuple<c10::DeviceIndex, std::string, std::string>> programs_in_use() { return in_use(); }

std::string build_log_of(Device& device, const std::string& file, const std::string& name, const std::string& options) {
  const std::string all = common_options(device) + " " + options, source = kernel_source(file, name);
  const auto known = build_logs().find(key_of(device, source, all));
  if (known != build_logs().end()) return known->second;
  cl_program program = from_source(device, source);
  const cl_device_id id = device.id();
  const cl_int err = cl().clBuildProgram(program, 1, &id, all.c_str(), nullptr, nullptr);
  std::string log = build_log(program, id);
  cl().clReleaseProgram(program);
  return err == CL_SUCCESS ? log : std::string(error_symbol(err)) + "\n" + log;
}

void set_kernel_paths(const std::string& kernels, const std::string& cache) {
  kernel_dir = kernels;
  cache_dir = cache;
}

std::string kernel_source(const std::string& file, const std::string& name) {
  static auto* files = new std::unordered_map<std::string, std::string>();
  std::string& text = (*files)[file];
  if (text.empty()) {
    std::set<std::string> seen;
    expand(file, text, seen);
  }
  return only_kernel(text, name);
}

std::string generated_source(const std::string& text) {
  std::string source;
  std::set<std::string> seen;
  expand_text(text, source, seen);
  return source;
}

// A program that does nothing for seconds says why, once. The numbers are what compiling took in all, in microseconds,
// before and after the last kernel.
static void notice_compiling(uint64_t before, uint64_t after) {
  static const double limit = [] {
    const char* v = std::getenv("NETCL_COMPILE_NOTICE");
    return (v && *v ? std::strtod(v, nullptr) : 3) * 1e6;
  }();
  if (limit < 0 || static_cast<double>(before) > limit || static_cast<double>(after) <= limit) return;
  log(after / 1000000, " s so far went into compiling kernels, each when it is first used",
      trusted_folder() ? "; the next run finds them in " + cache_dir : "",
      ". NETCL_COMPILE_NOTICE=-1 silences this line.");
}

cl_program program(Device& device, const std::string& label, const std::string& source, const std::string& options) {
  check_not_forked();
  const std::string all = common_options(device) + " " + options;
  const std::string key = key_of(device, source, all);
  static auto* programs = new std::unordered_map<std::string, cl_program>();
  cl_program& known = (*programs)[key + std::to_string(device.index())];
  if (known) return known;
  const auto binary = load_binary(key);
  if (!binary.empty()) {
    if (cl_program loaded = from_binary(device, binary, all)) {
      disk_hits++;
      in_use().emplace_back(device.index(), label, options);
      return known = loaded;
    }
  }
  const auto start = std::chrono::steady_clock::now();
  cl_program built = from_source(device, source);
  const cl_device_id id = device.id();
  const cl_int err = cl().clBuildProgram(built, 1, &id, all.c_str(), nullptr, nullptr);
  if (err != CL_SUCCESS) {
    const std::string log = build_log(built, id);
    cl().clReleaseProgram(built);
    const char* op = current_op();
    TORCH_CHECK(false, "netcl: clBuildProgram failed with ", error_symbol(err), " (", err, ")",
                op ? std::string(" while running ") + op : "", ", for ", label, " on ", device.info().name,
                "\noptions: ", all, "\n", log);
  }
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count();
  compiled++;
  const uint64_t before = compile_micros.fetch_add(static_cast<uint64_t>(micros));
  notice_compiling(before, before + static_cast<uint64_t>(micros));
  if (logs(LogTopic::kCompile)) log("compiled ", label, options, " in ", micros / 1000, " ms");
  in_use().emplace_back(device.index(), label, options);
  build_logs()[key] = build_log(built, id);
  store_binary(key, binary_of(built));
  return known = built;
}

std::vector<std::string> argument_types_of(cl_kernel kernel) {
  cl_uint count = 0;
  NETCL_CL(clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof(count), &count, nullptr));
  std::vector<std::string> types(count);
  for (cl_uint i = 0; i < count; i++) {
    std::array<char, 256> text{};
    if (cl().clGetKernelArgInfo(kernel, i, CL_KERNEL_ARG_TYPE_NAME, text.size(), text.data(), nullptr) == CL_SUCCESS) {
      types[i] = text.data();
    }
  }
  return types;
}

std::vector<std::string> argument_types_in_source(Device& device, const std::string& source, const std::string& name,
                                                  const std::string& options) {
  cl_program program = from_source(device, source);
  const auto release = c10::make_scope_exit([program] { cl().clReleaseProgram(program); });
  const cl_device_id id = device.id();
  const std::string all = common_options(device) + " " + options;
  NETCL_CL(clBuildProgram(program, 1, &id, all.c_str(), nullptr, nullptr));
  cl_int err = CL_SUCCESS;
  cl_kernel kernel = cl().clCreateKernel(program, name.c_str(), &err);
  if (err != CL_SUCCESS) raise_cl_error(err, "clCreateKernel");
  const auto release_kernel = c10::make_scope_exit([kernel] { cl().clReleaseKernel(kernel); });
  return argument_types_of(kernel);
}

std::string load_note(const std::string& key) {
  const auto data = load_binary(c10::sha1("note\n" + key).str());
  return {data.begin(), data.end()};
}

void store_note(const std::string& key, const std::string& text) {
  store_binary(c10::sha1("note\n" + key).str(), {text.begin(), text.end()});
}

void count_memory_hit() { memory_hits.fetch_add(1, std::memory_order_relaxed); }

KernelCacheStats kernel_cache_stats() {
  return {compiled.load(), disk_hits.load(), memory_hits.load(), static_cast<double>(compile_micros.load()) * 1e-6};
}

}  // namespace netcl
