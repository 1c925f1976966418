// Says why a program does nothing for seconds: its kernels are being compiled.
#pragma once

#include <cstdint>
#include <string>

namespace netcl {

// Lives while a program is compiled. On a terminal, a counter is shown once compiling has taken a second in all, and is
// gone when no program is being compiled. `where`: the folder in which the next run finds the kernels; empty if none.
class CompileNotice {
 public:
  explicit CompileNotice(std::string where);
  CompileNotice(const CompileNotice&) = delete;
  CompileNotice& operator=(const CompileNotice&) = delete;
  ~CompileNotice();
};

}  // namespace netcl
