// NETCL_LOG=compile,launch,alloc: what the runtime does, one line each on stderr.
#pragma once

#include <sstream>
#include <string>

namespace netcl {

enum class LogTopic { kCompile, kLaunch, kAlloc };

// One load where nothing is logged.
bool logs(LogTopic topic);
void log_line(const std::string& text);

template <class... Parts>
void log(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  log_line(text.str());
}

}  // namespace netcl
