// NETCL_LOG=compile,launch,alloc: prints one line on stderr for each action of the runtime.
#pragma once

#include <sstream>
#include <string>

namespace netcl {

enum class LogTopic { kCompile, kLaunch, kAlloc };

// Costs one load if nothing is logged.
bool logs(LogTopic topic);
void log_line(const std::string& text);

template <class... Parts>
void log(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  log_line(text.str());
}

}  // namespace netcl
