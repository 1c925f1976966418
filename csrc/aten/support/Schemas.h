// The C++ type of each aten operator of the torch that is built for, for checks at compile time. Nothing of it is left
// in the library. Part of the precompiled header.
#pragma once

#include <ATen/Operators.h>
#include <ATen/core/boxing/KernelFunction.h>

#include <string_view>

namespace netcl {

// Its address stands for a type.
template <class T>
inline constexpr char type_id = 0;

struct Schema {
  std::string_view name;
  const char* type;
  const char* plain_type;  // with int64_t for SymInt
};

#define NETCL_SCHEMA(name, op) \
  {name, &type_id<at::_ops::op::schema>, &type_id<c10::fn_remove_symint<at::_ops::op::schema>::type>},
inline constexpr Schema kSchemas[] = {
#include "aten_schemas.inc"  // written by setup.py, sorted by name
};
#undef NETCL_SCHEMA

}  // namespace netcl
