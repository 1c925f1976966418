"""Names of dtypes in generated OpenCL C: those of kernels/common/dtypes.h."""

from __future__ import annotations

import math

import torch
from torch._inductor.virtualized import V

from ..device import get_device_properties

#: Dtypes for storage, whose numbers are float32 once they are rounded.
FLOAT8 = {
    torch.float8_e4m3fn: "e4m3",
    torch.float8_e5m2: "e5m2",
    torch.float8_e4m3fnuz: "e4m3z",
    torch.float8_e5m2fnuz: "e5m2z",
    torch.float8_e8m0fnu: "e8m0",
}
TAGS = FLOAT8 | {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.bool: "bool",
}
_COMPUTE = dict.fromkeys((torch.float16, torch.bfloat16, *FLOAT8), torch.float32)
#: The least and the greatest number of each dtype, as OpenCL C writes them.
_ENDS = {
    torch.int8: ("(-127 - 1)", "127"),
    torch.int16: ("(-32767 - 1)", "32767"),
    torch.int32: ("(-2147483647 - 1)", "2147483647"),
    torch.int64: ("(-9223372036854775807L - 1)", "9223372036854775807L"),
    torch.uint8: ("0", "255"),
    torch.uint16: ("0", "65535"),
    torch.uint32: ("0", "4294967295u"),
    torch.uint64: ("0", "18446744073709551615ul"),
}


def computed(dtype: torch.dtype) -> torch.dtype:
    """The dtype that numbers of `dtype` are computed in."""
    return _COMPUTE.get(dtype, dtype)


def tag(dtype: torch.dtype) -> str:
    """The tag of a compute dtype; that of bool is its mask's."""
    if dtype not in TAGS:
        raise NotImplementedError(f"netcl: no code is generated for {dtype}")
    return "i32" if dtype is torch.bool else TAGS[computed(dtype)]


def real() -> torch.dtype:
    """The dtype of numbers with a fraction in expressions of sizes and indices."""
    device = V.graph.get_current_device_or_throw()
    return torch.float64 if get_device_properties(device.index or 0).has_fp64 else torch.float32


def vector(dtype: torch.dtype) -> str:
    """The type of a value."""
    return "MASK" if dtype is torch.bool else f"VECTOR({tag(dtype)})"


def stored(dtype: torch.dtype) -> str:
    """The tag of a dtype in memory."""
    return TAGS[dtype]


def bits(dtype: torch.dtype) -> torch.dtype | None:
    """The integers whose bits are those of a dtype that is computed in another one."""
    if dtype is torch.bool or dtype in FLOAT8:
        return torch.uint8
    return torch.uint16 if computed(dtype) != dtype else None


def size(dtype: torch.dtype) -> int:
    """Bytes of a lane."""
    return 4 if dtype is torch.bool else computed(dtype).itemsize


def lowest(dtype: torch.dtype) -> str:
    """What no value is below."""
    return "-INFINITY" if dtype.is_floating_point else _ENDS[dtype][0]


def highest(dtype: torch.dtype) -> str:
    """What no value is above."""
    return "INFINITY" if dtype.is_floating_point else _ENDS[dtype][1]


def _wrapped(value: int, dtype: torch.dtype) -> int:
    bits = 8 * dtype.itemsize
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype.is_signed and value >> (bits - 1) else value


def literal(value: bool | int | float, dtype: torch.dtype) -> str:
    """A constant, in all lanes."""
    dtype = computed(dtype)
    if dtype is torch.bool:
        return f"(MASK)({-1 if value else 0})"
    if dtype.is_floating_point:
        value = float(value)
        if math.isnan(value):
            text = "NAN"
        elif math.isinf(value):
            text = "INFINITY" if value > 0 else "-INFINITY"
        else:
            text = repr(value) + ("f" if dtype is torch.float32 else "")
            if dtype is torch.float32 and abs(value) > 3.4028235e38:
                text = "INFINITY" if value > 0 else "-INFINITY"
        return f"({vector(dtype)})({text})"
    number = _wrapped(int(value), dtype)
    if number == torch.iinfo(dtype).min and number < 0:
        return f"({vector(dtype)})({_ENDS[dtype][0]})"
    suffix = {torch.int64: "L", torch.uint64: "ul", torch.uint32: "u"}.get(dtype, "")
    return f"({vector(dtype)})({number}{suffix})"


def is_literal(text: str) -> bool:
    """Whether a value is a constant: variables have names."""
    return text.startswith("(")
