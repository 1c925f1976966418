// The operator that runs on this thread, for error messages from the runtime.
#pragma once

namespace netcl {

const char* current_op();

class OpName {
 public:
  explicit OpName(const char* name);
  ~OpName();
  OpName(const OpName&) = delete;
  OpName& operator=(const OpName&) = delete;

 private:
  const char* previous_;
};

}  // namespace netcl
