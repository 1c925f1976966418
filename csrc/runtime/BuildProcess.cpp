#include "runtime/BuildProcess.h"

#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>

extern char** environ;

namespace netcl {

namespace {

struct Builder {
  std::string python, script, loader;
};
Builder& builder() {
  static auto* b = new Builder();
  return *b;
}

// One end of a socket to a process that ends some seconds after its last program, or when this end is closed.
class Process {
 public:
  ~Process() { stop(); }

  // False if the process has ended, or cannot be started; then it is not tried again.
  bool ask(const Device& device, const std::string& source, const std::vector<std::string>& options, Built& built) {
    if (socket_ < 0 && (failed_ || !start(device))) return false;
    bool sent = send_text(std::to_string(options.size()));
    for (const auto& o : options) sent = sent && send_text(o);
    std::string option, log, binary;
    if (!sent || !send_text(source) || !receive_text(option) || !receive_text(log) || !receive_text(binary)) {
      stop();
      return false;
    }
    built = {{binary.begin(), binary.end()}, log, std::strtoul(option.c_str(), nullptr, 10)};
    return true;
  }

 private:
  bool start(const Device& device) {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return false;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    const Builder& b = builder();
    const DeviceInfo& info = device.info();
    const std::string loader = b.loader.empty() ? "libOpenCL.so.1" : b.loader;
    const PoclCpu cpu = device.pocl_cpu().value_or(PoclCpu{"", 0});
    const std::string offset = std::to_string(cpu.offset);
    std::array<const char*, 10> argv{b.python.c_str(),  "-I",           "-S",
                                     b.script.c_str(),  loader.c_str(), info.platform_version.c_str(),
                                     info.name.c_str(), cpu.name,       offset.c_str()};
    pid_t first = 0;
    const bool started = posix_spawn(&first, argv[0], &actions, nullptr, const_cast<char**>(argv.data()), environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    socket_ = ends[0];
    // The process that was started forks and ends, so that the user's program has no child that it did not start.
    if (started) waitpid(first, nullptr, 0);
    std::string hello;
    if (started && receive_text(hello) && hello == "netcl") return true;
    stop();
    failed_ = true;
    return false;
  }
  void stop() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
  }
  bool send_all(const char* data, size_t size) const {
    while (size > 0) {
      const ssize_t n = send(socket_, data, size, MSG_NOSIGNAL);
      if (n <= 0) return false;
      data += n;
      size -= static_cast<size_t>(n);
    }
    return true;
  }
  // A text is its length in 8 bytes, and its bytes.
  bool send_text(const std::string& text) const {
    const uint64_t size = text.size();
    return send_all(reinterpret_cast<const char*>(&size), sizeof(size)) && send_all(text.data(), text.size());
  }
  bool receive_all(char* data, size_t size) const {
    return size == 0 || recv(socket_, data, size, MSG_WAITALL) == static_cast<ssize_t>(size);
  }
  bool receive_text(std::string& text) const {
    uint64_t size = 0;
    if (!receive_all(reinterpret_cast<char*>(&size), sizeof(size)) || size > (uint64_t{1} << 30)) return false;
    text.resize(size);
    return receive_all(text.data(), size);
  }

  int socket_ = -1;
  bool failed_ = false;
};

}  // namespace

void set_builder(const std::string& python, const std::string& script, const std::string& loader) {
  builder() = {python, script, loader};
}
bool has_builder() { return !builder().python.empty(); }

std::optional<Built> build_in_process(const Device& device, const std::string& source,
                                      const std::vector<std::string>& options) {
  static thread_local Process process;
  Built built;
  // The second time, because the process may have ended since it had nothing to do.
  for (int times = 0; times < 2; times++)
    if (process.ask(device, source, options, built)) break;
  if (built.binary.empty()) return std::nullopt;
  return built;
}

}  // namespace netcl
