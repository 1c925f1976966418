#include "runtime/OpName.h"

namespace netcl {

namespace {
thread_local const char* op_name = nullptr;
}

const char* current_op() { return op_name; }
OpName::OpName(const char* name) : previous_(op_name) { op_name = name; }
OpName::~OpName() { op_name = previous_; }

}  // namespace netcl
