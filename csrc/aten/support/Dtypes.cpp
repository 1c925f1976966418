#include "aten/support/Dtypes.h"

#include <c10/util/Exception.h>

#include "runtime/OpName.h"

namespace netcl {

using c10::ScalarType;

const char* dtype_tag(ScalarType type) {
  switch (type) {
    case ScalarType::Float:
      return "f32";
    case ScalarType::Double:
      return "f64";
    case ScalarType::Half:
      return "f16";
    case ScalarType::BFloat16:
      return "bf16";
    case ScalarType::Char:
      return "i8";
    case ScalarType::Short:
      return "i16";
    case ScalarType::Int:
      return "i32";
    case ScalarType::Long:
      return "i64";
    case ScalarType::Byte:
      return "u8";
    case ScalarType::UInt16:
      return "u16";
    case ScalarType::UInt32:
      return "u32";
    case ScalarType::UInt64:
      return "u64";
    case ScalarType::Bool:
      return "bool";
    case ScalarType::ComplexFloat:
      return "c64";
    case ScalarType::ComplexDouble:
      return "c128";
    default: {
      const char* op = current_op();
      TORCH_CHECK_NOT_IMPLEMENTED(false, op ? op : "", op ? ": " : "", "netcl has no kernel for dtype ", type,
                                  " of this operator. Convert the tensor to another dtype, or compute on the CPU.");
    }
  }
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
