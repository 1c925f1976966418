#include "runtime/CompileNotice.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "runtime/Log.h"

namespace netcl {

namespace {

using Clock = std::chrono::steady_clock;

// What all threads have compiled. Time during which two programs are compiled counts once, since users wait once.
struct Compiling {
  std::mutex mutex;
  int programs = 0, under_way = 0;
  Clock::duration before{};
  Clock::time_point since;
  bool said = false, shown = false;
};
Compiling& compiling() {
  static auto* all = new Compiling();  // build threads outlive main()
  return *all;
}

// Seconds of compiling after which it is said; negative: never.
double limit() {
  static const double seconds = [] {
    const char* v = std::getenv("NETCL_COMPILE_NOTICE");
    return v && *v ? std::strtod(v, nullptr) : 1;
  }();
  return seconds;
}

// A log keeps every line, so only a terminal gets the counter, which overwrites itself.
void show(const std::string& text) {
  static const bool terminal = isatty(STDERR_FILENO) == 1;
  if (terminal) std::fprintf(stderr, "\r%-60s%s", text.c_str(), text.empty() ? "\r" : "");
}

}  // namespace

CompileNotice::CompileNotice(std::string where) {
  Compiling& all = compiling();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto now = Clock::now();
  if (all.under_way++ == 0) all.since = now;
  all.programs++;
  const double seconds = std::chrono::duration<double>(all.before + (now - all.since)).count();
  if (limit() < 0 || seconds <= limit()) return;
  if (!all.said) {
    log("kernels are being compiled, each when it is first used",
        where.empty() ? "" : "; the next run finds them in " + where, ". NETCL_COMPILE_NOTICE=-1 silences this line.");
  }
  all.said = all.shown = true;
  show("netcl: compiling kernel " + std::to_string(all.programs) + ", " + std::to_string(static_cast<int>(seconds)) +
       " s so far");
}

CompileNotice::~CompileNotice() {
  Compiling& all = compiling();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (--all.under_way > 0) return;
  all.before += Clock::now() - all.since;
  if (all.shown) show("");
  all.shown = false;
}

}  // namespace netcl
