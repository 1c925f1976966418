// The operator that this thread runs, for the runtime's error messages.
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
