#include "runtime/Log.h"

#include <array>
#include <cstdio>
#include <cstdlib>

namespace netcl {

bool logs(LogTopic topic) {
  static const std::array<bool, 4> on = [] {
    const char* v = std::getenv("NETCL_LOG");
    const std::string list = v ? v : "";
    const auto has = [&](const char* word) { return list.find(word) != std::string::npos; };
    return std::array<bool, 4>{has("compile"), has("launch"), has("alloc"), has("plan")};
  }();
  return on[static_cast<size_t>(topic)];
}

// A single call, so that lines of several threads do not mix.
void log_line(const std::string& text) { std::fputs(("netcl: " + text + "\n").c_str(), stderr); }

}  // namespace netcl
