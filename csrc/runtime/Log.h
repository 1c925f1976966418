// NETCL_LOG=compile,launch,alloc,plan: prints one line on stderr for each action of the runtime, and for each choice of
// aten/support/Plan.h.
#pragma once

#include <sstream>
#include <string>

namespace netcl {

enum class LogTopic { kCompile, kLaunch, kAlloc, kPlan };

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
