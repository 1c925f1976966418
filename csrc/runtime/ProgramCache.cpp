#include "runtime/ProgramCache.h"

#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>
#include <c10/util/hash.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <unordered_map>
#include <vector>

#include "runtime/BuildProcess.h"
#include "runtime/Builds.h"
#include "runtime/CompileNotice.h"
#include "runtime/Drivers.h"
#include "runtime/FaultInjection.h"
#include "runtime/Log.h"
#include "runtime/OpName.h"
#include "runtime/PoclCpu.h"
#include "runtime/Shutdown.h"

namespace netcl {

namespace {

std::string kernel_dir, cache_dir;
std::atomic<uint64_t> compiled{0}, disk_hits{0}, memory_hits{0}, compile_micros{0};

constexpr char kMagic[] = "NETCLBIN3";
constexpr char kSource[] = "<source> ";  // begins the label of a program without a file

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
    } else if (line != "#pragma once") {
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

// A kernel begins with a line `__kernel … void <name>(` and ends with the first brace at the start of a line. Other
// kernels are replaced by empty lines, so that the compiler's messages have the right line numbers.
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

// Evaluates #if, #elif and #else as far as they test defined(ACC_…).
class ConditionalText {
 public:
  explicit ConditionalText(std::string_view classes) : classes_(' ' + std::string(classes) + ' ') {}

  bool defines(const std::string& text, const std::string& definition) const {
    struct Level {
      Answer here, before;  // this branch, and any branch before it
    };
    std::vector<Level> levels;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const auto is = [&line](const char* word) { return line.rfind(word, 0) == 0; };
      if (is("#if")) {
        const Answer now = is("#if ") ? answer(line.substr(4)) : kPerhaps;  // #ifdef and #ifndef are for other names
        levels.push_back({now, now});
      } else if (is("#el") && !levels.empty()) {
        Level& level = levels.back();
        const Answer now = is("#elif ") ? answer(line.substr(6)) : kYes;
        level.here = both(now, opposite(level.before));
        level.before = opposite(both(opposite(level.before), opposite(now)));
      } else if (is("#endif") && !levels.empty()) {
        levels.pop_back();
      } else if (is(definition.c_str()) &&
                 std::all_of(levels.begin(), levels.end(), [](const Level& l) { return l.here == kYes; })) {
        return true;
      }
    }
    return false;
  }

 private:
  enum Answer { kNo, kPerhaps, kYes };
  static Answer opposite(Answer a) { return static_cast<Answer>(kYes - a); }
  static Answer both(Answer a, Answer b) { return std::min(a, b); }

  // The value of a condition such as `defined(ACC_X) && !defined(ACC_Y)`.
  Answer answer(const std::string& condition) const {
    Answer all = kYes;
    std::istringstream words(condition);
    for (std::string word; words >> word;) {
      if (word == "&&") continue;
      const bool negated = word[0] == '!';
      if (negated) word.erase(0, 1);
      constexpr std::string_view kDefined = "defined(ACC_";
      if (word.rfind(kDefined, 0) != 0 || word.back() != ')') return kPerhaps;
      const std::string name = word.substr(8, word.size() - 9);
      const bool defined = classes_.find(' ' + name + ' ') != std::string::npos;
      all = both(all, defined != negated ? kYes : kNo);
    }
    return all;
  }

  std::string classes_;
};

std::string build_log(cl_program program, cl_device_id id) {
  size_t size = 0;
  if (cl().clGetProgramBuildInfo(program, id, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size) != CL_SUCCESS) return "";
  std::string log(size, '\0');
  cl().clGetProgramBuildInfo(program, id, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr);
  return log.c_str();
}

// --- the disk ------------------------------------------------------------------------------------------------
// An entry holds magic bytes, the SHA-1 of its payload, and the payload. An entry that does not match is ignored and
// built again.

std::string entry_path(const std::string& key) { return cache_dir + "/" + key + ".bin"; }

// Only files that no other user could have written are loaded or overwritten.
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

// The content of this user's file; empty if it is a link, belongs to another user, or does not exist.
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

// Writes a temporary file and renames it, so that a reader sees all of it or nothing. A failure is no error.
void store_binary(const std::string& key, const std::vector<unsigned char>& binary) {
  if (binary.empty() || !trusted_folder()) return;
  const std::string path = entry_path(key);
  const std::string payload(binary.begin(), binary.end());
  const std::string data = std::string(kMagic) + c10::sha1(payload).str() + payload;
  // The name is unpredictable and the file must be new: another container may have the same process id.
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

// clCreateProgramWithBinary; null if a device does not take its binary.
cl_program created(cl_context context, const std::vector<cl_device_id>& devices,
                   const std::vector<const std::vector<unsigned char>*>& binaries) {
  std::vector<size_t> sizes;
  std::vector<const unsigned char*> data;
  for (const auto* binary : binaries) {
    sizes.push_back(binary->size());
    data.push_back(binary->data());
  }
  std::vector<cl_int> status(devices.size(), CL_SUCCESS);
  cl_int err = CL_SUCCESS;
  cl_program program = cl().clCreateProgramWithBinary(context, static_cast<cl_uint>(devices.size()), devices.data(),
                                                      sizes.data(), data.data(), status.data(), &err);
  const bool all = std::all_of(status.begin(), status.end(), [](cl_int s) { return s == CL_SUCCESS; });
  if (err == CL_SUCCESS && all) return program;
  if (program) cl().clReleaseProgram(program);
  return nullptr;
}

// A program of the device's context.
cl_program from_binary(Device& device, const std::vector<unsigned char>& binary, const std::string& options) {
  if (binary.empty()) return nullptr;
  std::vector<cl_device_id> ids{device.id()};
  std::vector<unsigned char> for_basic;
  if (device.immediate_id() && device.immediate_id() != device.id()) {
    for_basic = pocl_binary_for(device.immediate_id(), device.id(), binary);
  }
  cl_program program =
      for_basic.empty() ? nullptr : created(device.context(), {ids[0], device.immediate_id()}, {&binary, &for_basic});
  if (program) ids.push_back(device.immediate_id());
  if (!program) program = created(device.context(), ids, {&binary});
  if (!program) return nullptr;
  // After a bug or a signal, a compiler may have left a binary that loads but holds no kernel.
  size_t kernels = 0;
  if (cl().clBuildProgram(program, static_cast<cl_uint>(ids.size()), ids.data(), options.c_str(), nullptr, nullptr) !=
          CL_SUCCESS ||
      cl().clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof(kernels), &kernels, nullptr) != CL_SUCCESS ||
      kernels == 0) {
    cl().clReleaseProgram(program);
    return nullptr;
  }
  return program;
}

// The programs of this process.
struct Programs {
  std::mutex mutex;
  std::unordered_map<std::string, cl_program> built;  // by key and device
  std::vector<UsedProgram> in_use;
  std::unordered_map<std::string, std::string> logs;   // what the compiler said of those built here, by key
  std::unordered_map<std::string, std::string> files;  // with what they include
};
Programs& programs() {
  static auto* p = new Programs();
  return *p;
}

cl_program add_program(Device& device, const Program& program, cl_program built) {
  auto& all = programs();
  const std::lock_guard<std::mutex> lock(all.mutex);
  cl_program& known = all.built[program.key + std::to_string(device.index())];
  if (known) {  // another thread was faster
    cl().clReleaseProgram(built);
    return known;
  }
  all.in_use.push_back(
      {device.index(), program.label, program.variant, program.label.starts_with(kSource) ? program.source : ""});
  return known = built;
}

// What the compiler gets. PoCL's library for aarch64 is built with outline-atomics and kernels are not, and LLVM
// inlines no function that has a feature which its caller lacks: vload and fma would be calls, around which a kernel's
// vectors go to memory and back. flatten inlines them all the same.
std::string compiled_text(const Device& device, const std::string& source) {
#ifdef __aarch64__
  if (is_pocl(device)) {
    return "#pragma clang attribute push(__attribute__((flatten)), apply_to = function)\n" + source +
           "\n#pragma clang attribute pop\n";
  }
#endif
  return source;
}

std::string key_of(Device& device, const std::string& source, const std::string& options) {
  return c10::sha1(compiled_text(device, source) + '\n' + options + '\n' + device.fingerprint()).str();
}

cl_program from_source(const Device& device, cl_context context, const std::string& source) {
  const std::string whole = compiled_text(device, source);
  const char* text = whole.c_str();
  const size_t length = whole.size();
  cl_int err = CL_SUCCESS;
  cl_program program = cl().clCreateProgramWithSource(context, 1, &text, &length, &err);
  if (err != CL_SUCCESS) raise_cl_error(err, "clCreateProgramWithSource");
  return program;
}

// PoCL locks a context while it compiles. So each build thread has its own context, and ours loads the binaries. It
// would also compile for each device of ours.
cl_context build_context(Device& device) {
  if (!is_pocl(device)) return device.context();
  const auto context_in = [&device](auto& contexts) {
    cl_context& context = contexts[&device];
    if (!context) context = device.make_context();
    return context;
  };
  if (build_thread() >= 0) {
    static thread_local auto* own = new std::unordered_map<Device*, cl_context>();
    return context_in(*own);
  }
  if (!device.immediate_id()) return device.context();
  static auto* mutex = new std::mutex();
  static auto* shared = new std::unordered_map<Device*, cl_context>();
  const std::lock_guard<std::mutex> lock(*mutex);
  return context_in(*shared);
}

}  // namespace

std::string common_options(const Device& device) {
  std::string o = "-cl-std=CL1.2";
  o += device.is_cpu() ? " -DDEVICE_CPU" : " -DDEVICE_GPU";
  const auto& info = device.info();
  if (info.has_fp16) o += " -DHAVE_FP16";
  if (info.has_fp64) o += " -DHAVE_FP64";
  if (info.has_int64_atomics) o += " -DHAVE_INT64_ATOMICS";
  // These compilers are known to support clang's builtins. Others claim to, but fail or generate an invalid program.
  if (is_pocl(device) || is_intel_cpu(device)) o += " -DHAVE_CPU_BUILTINS";
  cl_device_fp_config config = 0;
  NETCL_CL(clGetDeviceInfo(device.id(), CL_DEVICE_SINGLE_FP_CONFIG, sizeof(config), &config, nullptr));
  // If the device supports it, division and square root are rounded as on CPU and CUDA.
  if (config & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) o += " -cl-fp32-correctly-rounded-divide-sqrt";
  return o;
}

std::vector<UsedProgram> programs_in_use() {
  finish_builds();
  const std::lock_guard<std::mutex> lock(programs().mutex);
  return programs().in_use;
}

std::string build_log_of(Device& device, const std::string& file, const std::string& name, const std::string& options) {
  const std::string all = common_options(device) + " " + options, source = kernel_source(file, name);
  finish_builds();
  {
    const std::lock_guard<std::mutex> lock(programs().mutex);
    const auto known = programs().logs.find(key_of(device, source, all));
    if (known != programs().logs.end()) return known->second;
  }
  cl_program program = from_source(device, build_context(device), source);
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

static std::string expanded(const std::string& file) {
  const std::lock_guard<std::mutex> lock(programs().mutex);
  std::string& text = programs().files[file];
  if (text.empty()) {
    std::set<std::string> seen;
    expand(file, text, seen);
  }
  return text;
}

std::string kernel_source(const std::string& file, const std::string& name) {
  return only_kernel(expanded(file), name);
}

bool surely_defines(const std::string& file, const std::string& macro, std::string_view classes) {
  return ConditionalText(classes).defines(expanded(file), "#define " + macro + "(");
}

std::string generated_source(const std::string& text) {
  std::string source;
  std::set<std::string> seen;
  expand_text(text, source, seen);
  return source;
}

Program describe_program(Device& device, const std::string& label, const std::string& source,
                         const std::string& options) {
  check_not_forked();
  const std::string all = common_options(device) + " " + options;
  Program p{label, source, options, all, key_of(device, source, all), false};
  // Only programs that include our headers have their own declarations.
  p.own_builtins = is_pocl(device) && source.find("#define NETCL_BUILTINS_H") != std::string::npos;
  return p;
}

cl_program load_program(Device& device, const Program& program) {
  auto& all = programs();
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto known = all.built.find(program.key + std::to_string(device.index()));
    if (known != all.built.end()) return known->second;
  }
  const auto binary = load_binary(program.key);
  cl_program loaded = from_binary(device, binary, program.options);
  if (!loaded) return nullptr;
  disk_hits++;
  return add_program(device, program, loaded);
}

// NETCL_DUMP=folder keeps a program while the driver compiles it, and with its log if the driver refuses it.
static std::string dumped(const Program& program) {
  const char* folder = std::getenv("NETCL_DUMP");
  if (!folder || !*folder) return "";
  const std::string path = std::string(folder) + "/" + program.key + ".cl";
  std::ofstream(path) << "// " << program.label << "\n// options: " << program.options << "\n" << program.source;
  return path;
}

cl_program build_program(Device& device, const Program& program) {
  const auto start = std::chrono::steady_clock::now();
  const std::string dump = dumped(program);
  const CompileNotice notice(trusted_folder() ? cache_dir : "");
  const cl_context context = build_context(device);
  const cl_device_id id = device.id();
  std::vector<std::string> options{program.options};
  if (program.own_builtins) {  // see kernels/common/builtins.h
    options.insert(options.begin(), program.options + " -D_OPENCL_H_ -DNETCL_BUILTINS");
  }
  cl_program built = nullptr;
  // The first build thread does it itself, so that no process starts for one program.
  std::optional<Built> made;
  if (is_pocl(device) && build_thread() > 0 && !injecting()) {
    made = build_in_process(device, compiled_text(device, program.source), options);
  }
  if (!made) {
    cl_int err = CL_BUILD_PROGRAM_FAILURE;
    size_t option = 0;
    for (; option < options.size() && err != CL_SUCCESS; option++) {
      if (built) cl().clReleaseProgram(built);
      built = from_source(device, context, program.source);
      err = cl().clBuildProgram(built, 1, &id, options[option].c_str(), nullptr, nullptr);
    }
    const std::string said = build_log(built, id);
    if (err != CL_SUCCESS) {
      cl().clReleaseProgram(built);
      if (!dump.empty()) {
        std::ofstream(dump, std::ios::app) << "\n/* " << error_symbol(err) << "\n" << said << "\n*/\n";
      }
      const char* op = current_op();
      TORCH_CHECK(false, "netcl: clBuildProgram failed with ", error_symbol(err), " (", err, ")",
                  op ? std::string(" while running ") + op : "", ", for ", program.label, " on ", device.info().name,
                  "\noptions: ", program.options, "\n", said);
    }
    made = Built{binary_of(built), said, option - 1};  // some drivers make the binary now
  }
  if (made->option > 0 && logs(LogTopic::kCompile)) {
    log(program.label, program.variant, " needs more than common/builtins.h");
  }
  if (!dump.empty()) unlink(dump.c_str());
  const auto micros = static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count());
  compiled++;
  compile_micros += micros;
  if (logs(LogTopic::kCompile)) {
    log("compiled ", program.label, program.variant, " in ", micros / 1000, " ms", built ? "" : " in another process");
  }
  {
    const std::lock_guard<std::mutex> lock(programs().mutex);
    programs().logs[program.key] = made->log;
  }
  store_binary(program.key, made->binary);
  // Intel's runtime keeps 3.6 MB for a program that it compiled, and 0.6 MB for one that it loads, without the types.
  const bool with_types = program.options.find("-cl-kernel-arg-info") != std::string::npos;
  if (!built || context != device.context() || (is_intel_cpu(device) && !with_types)) {
    if (built) cl().clReleaseProgram(built);
    built = from_binary(device, made->binary, program.options);
    if (!built) {  // a driver that does not load what it made
      built = from_source(device, device.context(), program.source);
      NETCL_CL(clBuildProgram(built, 0, nullptr, program.options.c_str(), nullptr, nullptr));
    }
  }
  return add_program(device, program, built);
}

std::vector<std::string> prepare_programs(Device& device, const std::vector<UsedProgram>& used) {
  std::vector<std::string> results(used.size());
  std::vector<std::shared_ptr<Build>> builds;
  for (size_t i = 0; i < used.size(); i++) {
    builds.push_back(start_build(device, [&device, &p = used[i], &result = results[i]] {
      std::string source = p.source;
      if (source.empty()) {
        const size_t space = p.label.find(' ');
        const std::string name = space == std::string::npos ? "" : p.label.substr(space + 1);
        source = kernel_source(p.label.substr(0, space), name);
        TORCH_CHECK_VALUE(source.find(" void " + name + "(") != std::string::npos, "netcl: there is no kernel ",
                          p.label);
      }
      const Program program = describe_program(device, p.label, source, p.variant);
      if (load_program(device, program)) return;
      build_program(device, program);
      result = "compiled";
    }));
  }
  for (size_t i = 0; i < used.size(); i++) {
    try {
      builds[i]->wait();
    } catch (const c10::Error& e) {
      results[i] = e.what_without_backtrace();
    }
  }
  return results;
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
  cl_program program = from_source(device, build_context(device), source);
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
  finish_builds();
  return {compiled.load(), disk_hits.load(), memory_hits.load(), static_cast<double>(compile_micros.load()) * 1e-6};
}

}  // namespace netcl
