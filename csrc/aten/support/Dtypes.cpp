#include "aten/support/Dtypes.h"

#include <c10/util/Exception.h>

#include <utility>

#include "runtime/OpName.h"

namespace netcl {

using c10::ScalarType;

namespace {
constexpr std::pair<ScalarType, const char*> kTags[] = {
    {c10::kFloat, "f32"}, {c10::kDouble, "f64"},       {c10::kHalf, "f16"},          {c10::kBFloat16, "bf16"},
    {c10::kChar, "i8"},   {c10::kShort, "i16"},        {c10::kInt, "i32"},           {c10::kLong, "i64"},
    {c10::kByte, "u8"},   {c10::kUInt16, "u16"},       {c10::kUInt32, "u32"},        {c10::kUInt64, "u64"},
    {c10::kBool, "bool"}, {c10::kComplexFloat, "c64"}, {c10::kComplexDouble, "c128"}};
}  // namespace

const char* dtype_tag(ScalarType type) {
  for (const auto& [known, tag] : kTags) {
    if (known == type) return tag;
  }
  const char* op = current_op();
  TORCH_CHECK_NOT_IMPLEMENTED(false, op ? op : "", op ? ": " : "", "netcl has no kernel for dtype ", type,
                              " of this operator. Convert the tensor to another dtype, or compute on the CPU.");
}

ScalarType compute_type(ScalarType type) {
  if (type == ScalarType::ComplexHalf) return ScalarType::ComplexFloat;
  const bool narrow = type == ScalarType::Half || type == ScalarType::BFloat16 || c10::isFloat8Type(type);
  return narrow ? ScalarType::Float : type;
}

void check_dtype(const Device& device, ScalarType type, const char* op) {
  const bool needs_fp64 = type == ScalarType::Double || type == ScalarType::ComplexDouble;
  TORCH_CHECK_NOT_IMPLEMENTED(!needs_fp64 || device.info().has_fp64, op, ": ", device.info().name,
                              " has no double precision (cl_khr_fp64). Use float32.");
}

}  // namespace netcl
